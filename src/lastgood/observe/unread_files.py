"""Input files that a file source has noted down in its own log, and that no committed batch has read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX, FileLogEntry, SourceFile
from lastgood.checkpoint.layout import SOURCES, find_newest_batch
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import FileOffset
from lastgood.observe.hosts import open_named
from lastgood.observe.open_query import OpenQuery
from lastgood.query.sinks import NONE
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.sources.files.folders import ask_files
from lastgood.storage.reading import Location, Storage

_FILES_MAX = 1000


def find_unread_files(query: OpenQuery) -> Mapping[str, tuple[FileFacts, ...]]:
    """What has become of them, by source: a source notes them down before the plan that reads them is written."""
    checkpoint, orphan = query.checkpoint, query.checkpoint.orphan
    done = NONE if checkpoint.last_committed is None else checkpoint.last_committed
    if isinstance(checkpoint.commits.entries.get(done), Damage):  # the batch may run again
        done -= 1
    if orphan is not None:  # of several orphans a repair may plan all anew
        done = min(done, orphan - 1)
    return find_files_after(query, done)


def find_files_after(
    query: OpenQuery, batch_id: int, *, is_for_all: bool = False
) -> Mapping[str, tuple[FileFacts, ...]]:
    """What has become of the input files that were noted down after a batch was planned, by source.

    Args:
        query: With its logs.
        batch_id: The batch; `NONE` for all files.
        is_for_all: Whether all are looked up, however many, and not only the newest.
    """
    plan = _find_offset_entry_up_to(query, batch_id)
    found = {}
    for source_id in _list_file_sources(query):
        line = None
        if plan is not None:
            line = plan.source(source_id)
        first = line.offset.log_offset if line is not None and isinstance(line.offset, FileOffset) else NONE
        if _find_newest(query, source_id) > first:
            after = [file for file in query.source_files(source_id) if file.log_id > first]
            found[source_id] = _ask_files(after, open_named(query), is_for_all=is_for_all)
    return found


def _find_offset_entry_up_to(query: OpenQuery, batch_id: int) -> OffsetEntry | None:
    """The newest plan that can be read, up to a batch."""
    entries = query.checkpoint.offsets.entries
    older = (entries[n] for n in sorted(entries, reverse=True) if n <= batch_id)
    return next((entry for entry in older if isinstance(entry, OffsetEntry)), None)


def _list_file_sources(query: OpenQuery) -> Iterator[str]:
    """By the newest plan; without one by the logs that the sources keep."""
    newest = query.checkpoint.newest_offsets
    if newest is not None:
        yield from (line.source_id for line in newest.sources if isinstance(line.offset, FileOffset))
        return
    for log in query.checkpoint.sources:
        if any(isinstance(entry, FileLogEntry) for entry in log.entries.values()):
            yield log.name


def _find_newest(query: OpenQuery, source_id: str) -> int:
    """The newest entry of a source's own log, as the log or the mirror has it, or `NONE`."""
    listed = (log.listing.newest_listed for log in query.checkpoint.sources if log.name == source_id)
    folder = f"{SOURCES}/{source_id}/"
    names = (copy.path.removeprefix(folder) for copy in query.copies if copy.path.startswith(folder))
    copied = find_newest_batch(name.removesuffix(COMPACT_SUFFIX) for name in names)
    return max((each for each in (*listed, copied) if each is not None), default=NONE)


def _ask_files(
    files: Sequence[SourceFile], open_at: Callable[[Location], Storage], *, is_for_all: bool
) -> tuple[FileFacts, ...]:
    """The newest of them are looked up; of the others one stands for all."""
    ordered = sorted(files, key=lambda file: file.log_id)
    first = 0 if is_for_all else max(0, len(ordered) - _FILES_MAX)
    left, asked = ordered[:first], ordered[first:]
    because = f"of {len(ordered)} files only the newest {len(asked)} were looked up"
    return (
        *(FileFacts(file, FileState.UNKNOWN, because=because) for file in left[-1:]),
        *ask_files(asked, open_at=open_at),
    )
