"""Findings about files that a query has read and that were written again since. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis import source_conditions as conditions
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.world import World
from lastgood.sources.files import MAX_FILE_AGE_DEFAULT_MS, FileFacts, Then, WrittenAgain

_NAMES_SHOWN = 20


def find_files_again(world: World) -> Iterator[Finding]:
    """What a start leaves out, and what it reads once more, though a batch has read a file of that name."""
    for source_id, again in world.files_again.items():
        subject = f"sources/{source_id}"
        fates = again.by_fate()
        ignored = [*fates.get(Then.IGNORED, ()), *fates.get(Then.TOO_OLD, ())]
        if ignored:
            effect = (
                "No batch reads them again, since the source's log holds their names: what is new in them is left out."
            )
            yield Finding(
                conditions.SOURCE_FILE_IGNORED, subject, effect, _facts(again, ignored), _look(world, ignored)
            )
        if read := fates.get(Then.READ_AGAIN):
            effect = (
                "Their names are older than the newest file by more than maxFileAge, so that Spark has forgotten them:"
                " the next batch reads these files once more, as a whole."
            )
            facts = _facts(again, read)
            yield Finding(conditions.SOURCE_FILES_CHANGED, subject, effect, facts, _look(world, read), Severity.WARNING)


def _facts(again: WrittenAgain, files: list[FileFacts]) -> dict[str, object]:
    return {
        "count": len(files),
        "files": [each.file.path for each in files[:_NAMES_SHOWN]],
        "read_ms": files[0].file.timestamp_ms,
        "modified_ms": files[0].modified_ms,
        "looked_at": again.looked_at,
        "of": again.of,
        "max_file_age_ms": MAX_FILE_AGE_DEFAULT_MS,
    }


def _look(world: World, files: list[FileFacts]) -> str:
    return world.command("inspect", "--file", files[0].file.path)
