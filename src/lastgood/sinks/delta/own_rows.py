"""Which rows of a Delta table are those of one application, as its log tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.sinks.kind import OwnRows
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Location, Storage

_SECONDS = 60.0


def find_own_rows(storage: Storage, table: Location, app_id: str, batches: int) -> OwnRows | str:
    """The rows that batches of an application have put into a table; or why nobody can tell, in one line for a person.

    Args:
        storage: From `open_storage(table)`.
        table: The folder that holds `_delta_log`.
        app_id: Under which they were written.
        batches: How many: those from 0 on.

    Raises:
        StorageError: the storage does not answer, or does not let us look.
        ExtraMissingError: old versions have to be read from Parquet, and pyarrow is not installed.
    """
    log = read_table_log(storage, table, deadline=Deadline.after(_SECONDS), since=0)
    if log is None or isinstance(log, Damage):
        return str(log or "there is no table")
    return judge_own_rows(log, app_id, batches)


def count_rows(storage: Storage, table: Location, app_id: str, batch: int) -> int | None:
    """How many rows a batch of an application has put into a table; None if its newest versions do not tell.

    Raises:
        StorageError, ExtraMissingError: as `find_own_rows`.
    """
    log = read_table_log(storage, table, deadline=Deadline.after(_SECONDS))
    if log is None or isinstance(log, Damage):
        return None
    own = [commit for commit in log.commits if app_id in commit.by_app]
    counts = {commit.by_app[app_id].version: commit.row_count for commit in own}
    return counts.get(batch)


def find_broken_batch(storage: Storage, table: Location, app_id: str, batches: Collection[int]) -> str | None:
    """Which of these batches of an application does not stand in a table once, in one line for a person; or None.

    On an object store Delta's own writers look whether there is a version, and then write it: of two that do so at the
    same time one loses its version without a word, and one who was late may write a batch a second time.

    Args:
        storage: From `open_storage(table)`.
        table: The folder that holds `_delta_log`.
        app_id: Under which its batches were written, one after another.
        batches: Those that it has written.

    Raises:
        StorageError, ExtraMissingError: as `find_own_rows`.
    """
    log = read_table_log(storage, table, deadline=Deadline.after(_SECONDS), since=0)
    if log is None or isinstance(log, Damage):
        return str(log or "there is no table")
    return judge_broken_batch(log, app_id, batches)


def judge_broken_batch(log: TableLog, app_id: str, batches: Collection[int]) -> str | None:
    """The same, by the log of the table: of the batches of which its versions can still tell."""
    last = max(batches, default=-1)
    own = [commit.by_app for commit in log.commits if app_id in commit.by_app]
    found = [marks[app_id].version for marks in own]
    times = Counter(found)
    first = min(found, default=last + 1)
    if log.oldest_read == 0:
        first = 0
    for batch in sorted(batches):
        if batch >= first and times[batch] != 1:
            return f"batch {batch} stands in {times[batch]} versions, and not in one"
    known = log.transactions.get(app_id)
    if log.unknown is None and known is not None and known.version < last:
        return f"batch {known.version} is the newest in the table, and not {last}"
    return None


def judge_own_rows(log: TableLog, app_id: str, batches: int) -> OwnRows | str:
    """The same, by the log of the table."""
    own = [commit for commit in log.commits if app_id in commit.by_app]
    missing = set(range(batches)) - {commit.by_app[app_id].version for commit in own}
    if missing:
        return f"its log has no version of batch {min(missing)} (any more)"
    foreign = [commit for commit in log.commits if app_id not in commit.by_app]
    is_alone = not any(commit.changes_data for commit in foreign)
    if log.oldest_read == 0 and is_alone:
        return OwnRows(log.newest_version, None)  # also if its files were rewritten, as by OPTIMIZE
    files = frozenset(path for commit in own for path in commit.added)
    touching = [commit for commit in foreign if commit.removed & files]
    if touching:
        operation = touching[0].operation or "no operation is told"
        return f"version {touching[0].version} ({operation}) rewrote or removed rows of it"
    return OwnRows(log.newest_version, tuple(sorted(files)))
