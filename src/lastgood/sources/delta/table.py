"""Looks what a Delta table that is read as a stream still holds, in its log and of its data files."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.delta_log.actions import TableCommit
from lastgood.delta_log.table import read_commits, read_table_log
from lastgood.errors import StorageError, explain_error
from lastgood.sources.delta.facts import DeltaFacts, make_facts
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import Location, Storage, parse_location

TIMEOUT_SECONDS = 10.0


def ask_delta(
    storage: Storage,
    table: Location,
    *,
    versions: Sequence[int] = (),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> DeltaFacts:
    """Look what the log of a table still holds, within a time limit.

    Args:
        storage: From `open_storage(table)`.
        table: The folder that holds `_delta_log`.
        versions: Of these it is asked when they were written.
        timeout_seconds: How long to wait.

    Raises:
        ExtraMissingError: the log is cleaned up, and pyarrow, to read its checkpoint, is not installed.
    """
    deadline = Deadline.after(timeout_seconds)
    try:
        log = read_table_log(storage, table, deadline=deadline, commits_max=1)
        commits = read_commits(storage, table, versions, deadline=deadline)
    except StorageError as error:
        return DeltaFacts(str(table), exists=None, unknown=explain_error(error))
    if log is None:
        return DeltaFacts(str(table), exists=False)
    if isinstance(log, Damage):
        return DeltaFacts(str(table), exists=None, unknown=f"the log of the table is damaged: {log}")
    if log.unjudged is not None:
        because = log.unknown or log.unjudged
        return DeltaFacts(str(table), log.metadata.table_id if log.metadata else None, exists=True, unknown=because)
    written_ms = {each.version: each.timestamp_ms for each in commits if each.timestamp_ms is not None}
    return make_facts(str(table), log.listing, log.metadata.table_id if log.metadata else None, written_ms)


def ask_data_files(
    storage: Storage, table: Location, start: DeltaOffset, *, timeout_seconds: float = TIMEOUT_SECONDS
) -> tuple[str, ...] | str:
    """The data files after `start` that are gone, as VACUUM leaves it; Spark fails on them, whatever its options.

    Those of a first snapshot are not looked at, only those of the versions after it.

    Returns:
        Names as in the log, also of files that lie elsewhere; or why it is not known.

    Raises:
        ExtraMissingError: the log is cleaned up, and pyarrow is not installed.
    """
    deadline = Deadline.after(timeout_seconds)
    try:
        log = read_table_log(storage, table, deadline=deadline, since=start.table_version)
        if not log or isinstance(log, Damage):
            if not log:
                return "there is no table"
            return f"the log of the table is damaged: {log}"
        if log.unjudged is not None:
            return log.unknown or log.unjudged
        names = _list_data_files(log.commits, start.table_version)
        answers = ask_all(
            [partial(storage.stat, locate_data_file(table, name)) for name in names],
            parallel=storage.parallel,
            deadline=deadline,
            subject=str(table),
        )
        return tuple(name for name, answer in zip(names, answers, strict=True) if answer.or_raise() is None)
    except StorageError as error:
        return explain_error(error)


def locate_data_file(table: Location, name: str) -> Location:
    """The place of a data file: names in the log are URIs, relative to the table or absolute."""
    decoded = unquote(name)
    if ":/" in decoded or decoded.startswith("/"):
        return parse_location(decoded)
    return table / decoded


def _list_data_files(commits: Sequence[TableCommit], first: int) -> list[str]:
    """The files that a stream reads: those of versions that change data."""
    return sorted({name for one in commits if one.version >= first and one.changes_data for name in one.added})
