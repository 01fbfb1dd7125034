"""Findings about files that a query has read and that were written again since. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

from lastgood.diagnosis import source_conditions as conditions
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.query.observation import Observation
from lastgood.sources.files.facts import MAX_FILE_AGE_DEFAULT_MS, FileFacts, Then, WrittenAgain

_NAMES_SHOWN = 20


def find_files_again(observed: Observation) -> Iterator[Finding]:
    """What a start leaves out, and what it reads once more, though a batch has read a file of that name."""
    for source_id, again in observed.files_again.items():
        subject = f"sources/{source_id}"
        fates = again.by_fate()
        held, too_old = fates.get(Then.IGNORED, []), fates.get(Then.TOO_OLD, [])
        if held or too_old:
            yield _make_ignored(observed, subject, again, held, too_old)
        if read := fates.get(Then.READ_AGAIN):
            effect = (
                "They were read with a time that is older than the newest file by more than maxFileAge (seven days"
                " unless set), so that Spark has forgotten their names: the next batch reads them again, as a whole."
            )
            facts = _collect_facts(again, read)
            yield Finding(
                conditions.SOURCE_FILES_CHANGED,
                subject,
                effect,
                facts,
                _make_look_command(observed, read),
                Severity.WARNING,
            )


def _make_ignored(
    observed: Observation, subject: str, again: WrittenAgain, held: list[FileFacts], too_old: list[FileFacts]
) -> Finding:
    files = [*held, *too_old]
    effect = f"No batch reads them now, since {_explain_why_not(held, too_old)}: what is new in them is left out."
    later = [each.forgotten_after_ms for each in held if each.forgotten_after_ms is not None]
    if later:
        effect += " Once a file comes that is newer by more than maxFileAge, they are read, as a whole."
    facts = {**_collect_facts(again, files), "forgotten_after_ms": min(later, default=None)}
    return Finding(conditions.SOURCE_FILE_IGNORED, subject, effect, facts, _make_look_command(observed, files))


def _explain_why_not(held: list[FileFacts], too_old: list[FileFacts]) -> str:
    named = "the source's log holds their names"
    old = "they are older than the newest file by more than maxFileAge"
    if held and too_old:
        return f"{named}, or {old}"
    return named if held else old


def _collect_facts(again: WrittenAgain, files: list[FileFacts]) -> dict[str, object]:
    return {
        "count": len(files),
        "files": [each.file.path for each in files[:_NAMES_SHOWN]],
        "read_ms": files[0].file.timestamp_ms,
        "modified_ms": files[0].modified_ms,
        "looked_at": again.looked_at,
        "of": again.of,
        "max_file_age_ms": MAX_FILE_AGE_DEFAULT_MS,
    }


def _make_look_command(observed: Observation, files: list[FileFacts]) -> str:
    return observed.command("inspect", "--file", unquote(files[0].file.path))
