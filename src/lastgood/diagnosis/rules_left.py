"""Whether a recovery left the checkpoint behind on purpose. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.sink_conditions import SINK_KNOWS_OTHER_QUERY
from lastgood.diagnosis.world import World
from lastgood.errors import command_line
from lastgood.sources.starting_offsets import offsets_to_json

CHECKPOINT_LEFT_BEHIND = Condition(
    "CHECKPOINT_LEFT_BEHIND",
    Severity.INFO,
    "a recovery left the checkpoint behind, and the application is told by its configuration where it begins",
    """\
`plan --goal fresh --via app-config`, and `lastgood run` and `recover` where the policy says `via = "app-config"`, set
every file of the logs aside and write the offsets into a file of the application's own configuration. Until the
application has planned its first batch the checkpoint is empty; that is no loss. Batches count from 0 again, under a
new query id, so the mark of the query before in a Delta table does not count any more.

Start the application: it has to take its `startingOffsets` from that file. `lastgood undo` puts checkpoint and file
back as they were, as long as nothing was planned since. Where a sink that goes by query ids knows a query that it did
not know then, one has begun since, and it is its checkpoint that is lost: `recover` and `run` then call a person.""",
)
CONDITIONS = (CHECKPOINT_LEFT_BEHIND,)


@dataclass(frozen=True, slots=True)
class Later:
    """A query that a sink did not know when the checkpoint was left behind."""

    sink: str
    name: str
    last_batch: int


def begun_since(world: World) -> Later | None:
    """The query that has begun on the checkpoint since it was left behind, if a sink shows one: its logs are lost."""
    marks = world.left.marks if world.left is not None else {}
    for sink in world.sinks:
        known = marks.get(sink.location)
        if known is None:
            continue
        for name, last_batch in sink.others.items():
            if name not in known:
                return Later(sink.location, name, last_batch)
    return None


def find_left(world: World) -> Iterator[Finding]:
    """The one finding, if it was left behind."""
    left, later = world.left, begun_since(world)
    if left is None:
        return
    effect, level = "The next start begins at batch 0, where this file says.", None
    starts = {source_id: offsets_to_json(each) for source_id, each in left.starts.items()}
    evidence: dict[str, Any] = {"recovery": left.recovery, "starts": starts, **left.file.to_json()}
    if later is not None:
        level = Severity.ERROR
        effect = (
            f"Query {later.name} has begun since, as {later.sink} shows, and its logs are lost: the next start would"
            " write again what it has written."
        )
        evidence |= {"begun_since": later.name, "last_batch": later.last_batch}
    undo = command_line("undo", left.recovery, "--checkpoint", world.location)
    yield Finding(CHECKPOINT_LEFT_BEHIND, left.file.location, effect, evidence, undo if level is None else None, level)


def not_of_the_left(world: World, findings: Sequence[Finding]) -> list[Finding]:
    """The findings without those about the query that was left behind: what it has written is not written again."""
    if world.left is None or begun_since(world) is not None:
        return list(findings)
    return [finding for finding in findings if finding.condition is not SINK_KNOWS_OTHER_QUERY]
