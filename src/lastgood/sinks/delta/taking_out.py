"""Takes all rows of one application out of a Delta table, by one more version; its mark stays.

Who still writes under its name, though it should be dead, has its batches skipped as before.
"""

from __future__ import annotations

import time

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.actions import TAKE_BACK, Transaction
from lastgood.delta_log.committing import (
    format_version,
    list_additions,
    make_mark_action,
    make_remove_action,
    put_version,
)
from lastgood.delta_log.listing import DELTA_LOG, name_commit
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.sinks.delta.history import trace_history
from lastgood.sinks.delta.sink import write_obstacles
from lastgood.sinks.delta.taking_back import find_obstacle, list_versions_above
from lastgood.sinks.kind import TakenOut, Taking
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage, estimate_late_write_seconds, require_exclusive_create

_SECONDS = 120.0
_ATTEMPTS_MAX = 50
_VERSION_BYTES_MAX = 256 * 1024 * 1024


def take_out(storage: WritableStorage, table: Location, taking: Taking) -> TakenOut | str:
    """Take out what a query has written, if that is not done; or why it cannot be done, for a person.

    What a driver may still write that sleeps, is skipped by its mark, also where the query has written nothing yet.

    Args:
        storage: From `open_writable(table)`.
        table: The folder that holds `_delta_log`.
        taking: On behalf of what.

    Raises:
        ExclusiveCreateUnsupportedError: of several who commit a version not only one may do it there.
        StorageError: the storage does not answer (subclasses).
        ExtraMissingError: old versions have to be read from Parquet, and pyarrow is not installed.
    """
    for _ in range(_ATTEMPTS_MAX):
        log = read_table_log(storage, table, deadline=Deadline.after(_SECONDS), since=0)
        if log is None:
            return TakenOut(None, None)
        if isinstance(log, Damage):
            return str(log)
        taken = _judge(log, taking)
        if taken is not None:
            return taken
        require_exclusive_create(storage, table / DELTA_LOG)
        content = _make_version(storage, table, log, taking)
        # Safe, though no version ever goes again: it is created under the number right after what was judged, so
        # nothing is written over and nothing came in between; the files that it takes out stay on the disk, in the
        # history of the table. By the id in it we know it as ours, should we be killed now.
        is_put = put_version(storage, table, log.newest_version + 1, content)
        late_seconds = estimate_late_write_seconds(table)
        if is_put and not late_seconds:
            return TakenOut(log.newest_version + 1, None)
        if is_put:
            time.sleep(late_seconds)  # Delta's writers look, and then write: then it is seen whether ours still stands
    return f"others who were quicker {_ATTEMPTS_MAX} times"


def _judge(log: TableLog, taking: Taking) -> TakenOut | str | None:
    """What has been done, or why nothing can be; None if it is still to be done."""
    done = [commit.version for commit in log.commits if commit.recovery == taking.recovery]
    if done:
        return TakenOut(done[0], None)
    obstacles = write_obstacles(log)
    if taking.query_id in log.transactions:
        return find_obstacle(log, trace_history(log.commits, taking.query_id), obstacles)
    if taking.may_write is None:
        return TakenOut(None, None)
    return next(iter(obstacles), None)


def _make_version(storage: WritableStorage, table: Location, log: TableLog, taking: Taking) -> bytes:
    app_id, now_ms = taking.query_id, taking.at_ms
    removals = []
    for version in list_versions_above(trace_history(log.commits, app_id), -1):
        raw = storage.read(table / DELTA_LOG / name_commit(version), limit=_VERSION_BYTES_MAX)
        removals += [make_remove_action(each, now_ms=now_ms) for each in list_additions(raw or b"")]
    known = log.transactions.get(app_id)
    marks = (None if known is None else known.version, taking.may_write)
    mark = Transaction(app_id, max(each for each in marks if each is not None), now_ms)
    parameters = {"recovery": taking.recovery, "appId": app_id, "batch": -1}
    return format_version(TAKE_BACK, parameters, [make_mark_action(mark), *removals], now_ms=now_ms)
