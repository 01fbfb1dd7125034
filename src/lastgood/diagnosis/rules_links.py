"""Links in a checkpoint or in its work folder: Spark follows them, lastgood does not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, STATE
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.observation import Observation
from lastgood.visible import join_words

CHECKPOINT_HAS_LINKS = Condition(
    "CHECKPOINT_HAS_LINKS",
    Severity.ERROR,
    "a link stands in the checkpoint or in its work folder, and is not followed",
    """\
The location of a checkpoint may be a link, or lie behind one: so disks are mounted. Below it a link is nothing that
Spark makes, and whoever can write there could let it lead anywhere: to a file of yours that a repair would then
replace, or that a backup would copy into a place where others read. So lastgood reads and writes nothing through one.

Spark itself does follow it. What it reads through one lastgood has not seen, so nothing that `diagnose` and `status`
say of such a checkpoint is sure, no other verb reads it, and no repair is made. Put what the link leads to in its
place; a folder that has to lie on another disk can be mounted there. A link that Spark does not look at is told, and
that is all.""",
)
CONDITIONS = (CHECKPOINT_HAS_LINKS,)
_SHOWN_MAX = 20
_PARTS = (METADATA, OFFSETS, COMMITS, SOURCES, STATE)


def select_links_that_matter(links: Mapping[str, str], location: str) -> dict[str, str]:
    """Of the links that were left out those that Spark, or a repair, would follow; path and target."""
    below = f"{location.rstrip('/')}/"
    return {
        path: target
        for path, target in links.items()
        if not path.startswith(below) or path.removeprefix(below).partition("/")[0] in _PARTS
    }


def find_links(observed: Observation) -> Iterator[Finding]:
    """The one finding, if there are any."""
    links = observed.links
    if not links:
        return
    matter = select_links_that_matter(links, observed.folder)
    shown = matter or links
    effect = (
        "Spark follows it, and lastgood has not read what it leads to: whatever else is said here may be wrong, and no"
        " repair is made."
        if matter
        else "Nothing: Spark does not look at it, and lastgood has not followed it."
    )
    evidence = {"links": [f"{path} -> {shown[path]}" for path in sorted(shown)[:_SHOWN_MAX]], "count": len(links)}
    level = None if matter else Severity.WARNING
    yield Finding(CHECKPOINT_HAS_LINKS, min(shown), effect, evidence, make_listing_command(min(shown)), level)


def make_listing_command(path: str) -> str:
    """The command that shows a link, and whose it is."""
    return join_words(["ls", "-ld", path])
