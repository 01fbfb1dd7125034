"""Input files that a query has read and that were written again since: for each file source."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.file_logs import FileLogEntry, SourceFile
from lastgood.checkpoint.source_offsets import FileOffset
from lastgood.errors import ExtraMissingError
from lastgood.observe.hosts import open_named
from lastgood.observe.open_query import OpenQuery
from lastgood.query.source_logs import is_whole as is_whole_log
from lastgood.query.spans import list_stands
from lastgood.sources.files.facts import WrittenAgain
from lastgood.sources.files.folders import find_written_again


def find_files_again(query: OpenQuery) -> Mapping[str, WrittenAgain]:
    """What became of the files that committed batches have read, by source; of a log that was read, and no more."""
    checkpoint, open_at = query.checkpoint, open_named(query)
    found = {}
    for stand in list_stands(checkpoint):
        if isinstance(stand.start, FileOffset):
            logged = _list_logged(checkpoint, stand.source_id)
            is_whole = any(log.name == stand.source_id and is_whole_log(log) for log in checkpoint.sources)
            up_to = stand.start.log_offset
            try:
                found[stand.source_id] = find_written_again(logged, up_to, open_at=open_at, is_whole=is_whole)
            except ExtraMissingError:  # nobody asked for the files by name
                continue
    return found


def _list_logged(checkpoint: Checkpoint, source_id: str) -> list[SourceFile]:
    """The files that the source's log names, in the order of the log."""
    logs = (log for log in checkpoint.sources if log.name == source_id)
    entries = (entry for log in logs for entry in log.entries.values() if isinstance(entry, FileLogEntry))
    files = {(file.log_id, file.path): file for entry in entries for file in entry}
    return [files[key] for key in sorted(files)]
