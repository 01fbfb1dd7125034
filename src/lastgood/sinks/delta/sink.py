"""A Delta table as a sink: its log says which batches are in it, and up to which it would skip.

The marker of a query is its last `txn` action. It is independent of the data: RESTORE takes rows back and leaves the
marker high, so both are told apart here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log.actions import (
    CLONE,
    RESTORE,
    TRANSACTION_RETENTION,
    TableCommit,
    Transaction,
    parse_interval_ms,
)
from lastgood.delta_log.listing import DELTA_LOG
from lastgood.delta_log.own_files import may_lead_elsewhere
from lastgood.delta_log.table import COMMITS_DEFAULT, LogDamage, TableLog, read_table_log
from lastgood.errors import StorageError, explain_error
from lastgood.sinks.data_files import DataFile, add_broken_files
from lastgood.sinks.delta.history import History, trace_history
from lastgood.sinks.delta.kind import DELTA_SINK
from lastgood.sinks.delta.taking_back import find_reach_back
from lastgood.sinks.evidence import (
    START_MS,
    DedupeKey,
    SinkEvidence,
    UnmarkedRows,
    is_query_id,
    make_silent_evidence,
    make_unknown_evidence,
)
from lastgood.storage.parallel import Deadline, ask_all, ask_one
from lastgood.storage.reading import Location, Storage, parse_location

TIMEOUT_SECONDS = 10.0
_MARKS = range(-1, 2**31)
"""What a mark can be: the number of a batch, of which a query that runs one a second makes fewer in sixty years; or one
below the first."""
_COMMITS_WHERE_MARKS_EXPIRE = 10_000
"""How many of the newest versions to look at where a mark may have expired: there they alone can tell of a batch."""

WRITABLE_FEATURES = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "generatedColumns", "changeDataFeed"),
        *("columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "variantType", "variantType-preview"),
    }
)
"""Table features that ask nothing of a version which only moves files and markers; delta-rs writes them too."""

_UNMARKED_MAX = 20
"""So many versions without a mark are told one by one."""

_FILES_MAX = 100
"""Of so many of the newest files is looked up whether they are there, and whole: one round of requests."""

_UNTRIED = ("abfss", "gs")
"""Where Spark's Delta commits in ways of its own that were never tried beside ours."""

_IDENTITY_COLUMNS_WRITER_VERSION = 6
_WRITER_VERSION_MAX = 7


class DeltaSink:
    """A Delta table."""

    kind = DELTA_SINK.name

    def __init__(
        self,
        storage: Storage,
        table: Location,
        *,
        app_id: str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        commits_max: int = COMMITS_DEFAULT,
    ) -> None:
        """Describe a table; nothing is read yet.

        Args:
            storage: From `open_storage(table)`.
            table: The folder that holds `_delta_log`.
            app_id: What a `foreachBatch` function gives as `txnAppId`; None: the query id.
            timeout_seconds: How long reading may take.
            commits_max: How many of the newest versions to look at one by one.
        """
        self._storage = storage
        self._table = table
        self._app_id = app_id
        self._timeout_seconds = timeout_seconds
        self._commits_max = commits_max

    @property
    def location(self) -> str:
        """Where the table is."""
        return str(self._table)

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        """What the table says about a query; see `Sink.evidence`."""
        key = DedupeKey.QUERY_ID if self._app_id in (None, query_id) else DedupeKey.APP_ID
        deadline = Deadline.after(self._timeout_seconds)
        try:
            log = read_table_log(self._storage, self._table, deadline=deadline, commits_max=self._commits_max)
        except StorageError as error:
            return make_silent_evidence(self.kind, self.location, key, error)
        if log is None:
            return SinkEvidence("absent", self.location, key, None, known=True, because="there is no Delta table")
        if isinstance(log, Damage):
            found = make_unknown_evidence(self.kind, self.location, key, f"the log of the table is damaged: {log}")
            if isinstance(log, LogDamage):
                mark = log.marks.get(self._app_id or query_id, -1)
            else:
                mark = -1
            return replace(found, skips_up_to=mark if mark >= 0 else None, unclear=_explain_empty(log))
        log = self._further_back(log, self._app_id or query_id, deadline)
        found = judge_table_log(log, self._app_id or query_id, now_ms=now_ms, dedupe_key=key)
        if self._app_id is None:
            found = _judge_by_only_application(log, found, query_id, now_ms=now_ms)
        return self._with_broken_files(log, found, deadline)

    def _with_broken_files(self, log: TableLog, found: SinkEvidence, deadline: Deadline) -> SinkEvidence:
        """The same, knowing which of the newest files that hold rows of the query are gone or cut short.

        Where none is there and nothing else is either, somebody has the log alone: of the files that tells nothing.
        """
        files = _list_newest_files(log, found.app_id)
        answers = ask_all(
            [partial(self._storage.stat, self._table / file.path) for file in files],
            parallel=self._storage.parallel,
            deadline=deadline,
            subject=self.location,
        )
        sizes: dict[str, int | None] = {}
        for file, answer in zip(files, answers, strict=True):
            if answer.error is not None:
                return replace(found, files_untold=explain_error(answer.error))
            if answer.value is not None and not answer.value.is_folder:
                sizes[file.path] = answer.value.size
        untold = None
        if files and not sizes:
            untold = self._explain_log_alone(deadline)
        if untold is not None:
            return replace(found, files_untold=untold)
        return add_broken_files(found, files, sizes)

    def _explain_log_alone(self, deadline: Deadline) -> str | None:
        """Why it says nothing that no file is there; None if it does."""
        try:
            names = ask_one(
                lambda: list(self._storage.names(self._table) or ()), deadline=deadline, subject=self.location
            )
        except StorageError as error:
            return explain_error(error)
        if names == [f"{DELTA_LOG}/"]:
            return "the log lies there alone, as a copy of it does"
        return None

    def _further_back(self, log: TableLog, app_id: str, deadline: Deadline) -> TableLog:
        """The log with older versions, where the mark may have expired and the newer ones say nothing of the query."""
        is_expiring = app_id not in log.transactions and _find_retention(log) is not None
        if not is_expiring or trace_history(log.commits, app_id).batches:
            return log
        try:
            older = read_table_log(
                self._storage, self._table, deadline=deadline, commits_max=_COMMITS_WHERE_MARKS_EXPIRE
            )
        except StorageError:
            return log  # it says of itself that markers expire here
        return older if isinstance(older, TableLog) else log


def judge_table_log(
    log: TableLog, app_id: str, *, now_ms: int, dedupe_key: DedupeKey = DedupeKey.QUERY_ID
) -> SinkEvidence:
    """What the log of a table says about a query or application. Pure.

    Args:
        log: From `read_table_log`.
        app_id: Query id, or `txnAppId`.
        now_ms: The time, to tell what has expired.
        dedupe_key: What `app_id` is.
    """
    history = trace_history(log.commits, app_id)
    marker = log.transactions.get(app_id)
    is_odd = marker is not None and marker.version not in _MARKS
    odd = None
    if marker is not None and is_odd:
        odd = f"transaction {marker.version} is not the number of a batch"
    if marker is not None and marker.version < 0:
        marker = None  # a fence before the first batch
    retention = _find_retention(log)
    if odd:
        batch_id, unknown, because = (None, True, odd)
    else:
        batch_id, unknown, because = _find_shown(log, history, marker, retention)
    counts = _is_counting(marker, retention, now_ms)
    is_foreign = odd is not None and dedupe_key is DedupeKey.APP_ID
    if is_foreign:
        counts = None  # a function has numbers of its own, such as times: which batch has which nobody can tell
    if unknown:
        back_to, back_because = (None, because)
    else:
        back_to, back_because = find_reach_back(log, history, write_obstacles(log))
    skips_known = counts is not None and (marker is not None or log.unknown is None) and log.unjudged is None
    skips_up_to = marker.version if marker is not None and counts is not False and not is_foreign else None
    complete_from = None
    if not odd:
        complete_from = _complete_from(log, history, batch_id, unknown=unknown)
    identity = log.metadata.table_id if log.metadata else None
    marked_at_ms = marker.last_updated_ms if marker is not None and marker.version == batch_id else None
    mark_lasts_ms = None
    if retention is not None:
        mark_lasts_ms = parse_interval_ms(retention) or 0
    notes: tuple[str, ...] = ()
    if not odd:
        notes = _list_notes(marker, batch_id, counts=counts, unknown=unknown)
    unclear, unclear_at_ms = history.unclear, None
    restore = _find_restore(log)
    if restore is not None and not (history.batches or marker or unclear):
        unclear, unclear_at_ms = _explain_restore(restore), restore.timestamp_ms
    return SinkEvidence(
        kind=DeltaSink.kind,
        location=log.location,
        dedupe_key=dedupe_key,
        last_batch=batch_id,
        known=not unknown,
        because=because,
        skips_up_to=skips_up_to,
        skips_known=skips_known,
        batches=tuple(each for each in history.batches if each.batch_id in _MARKS),
        complete_from=complete_from,
        identity=identity,
        created_at_ms=_find_creation_ms(log),
        app_id=app_id,
        marked_at_ms=marked_at_ms,
        times_by_driver=True,
        others={name: txn.version for name, txn in log.transactions.items() if name != app_id and txn.version >= 0},
        others_at_ms={
            name: txn.last_updated_ms
            for name, txn in log.transactions.items()
            if name != app_id and txn.last_updated_ms is not None
        },
        others_beside=_list_beside(log, app_id),
        write_obstacles=write_obstacles(log),
        back_to=back_to,
        back_because=back_because,
        mark_lasts_ms=mark_lasts_ms,
        unclear=unclear,
        unclear_at_ms=unclear_at_ms,
        unmarked=_list_unmarked(log, history, batch_id),
        notes=notes,
    )


def _judge_by_only_application(log: TableLog, found: SinkEvidence, query_id: str, *, now_ms: int) -> SinkEvidence:
    """What the table says by the only name in it, where it shows nothing of the query: a function may write so."""
    shows_none = found.known and found.last_batch is None and found.skips_up_to is None and not found.batches
    if not query_id or not shows_none or len(found.others) != 1 or is_query_id(app_id := next(iter(found.others))):
        return found
    presumed = judge_table_log(log, app_id, now_ms=now_ms, dedupe_key=DedupeKey.APP_ID)
    because = (
        f"{presumed.because}, by the application id {app_id}: the only name in the table, presumed to be this query's"
    )
    return replace(presumed, because=because, presumed_app_id=app_id)


def is_tried(table: str) -> bool:
    """Whether commits of ours were tried beside Spark's where a table lies."""
    return parse_location(table).identity.partition(":")[0] not in _UNTRIED


def write_obstacles(log: TableLog) -> tuple[str, ...]:
    """Why lastgood could not commit to this table; empty if it could, as far as the log tells."""
    if log.protocol is None or log.unjudged is not None:
        return (log.unjudged or "the protocol of the table is not known",)
    if is_tried(log.location):
        obstacles = []
    else:
        obstacles = ["no commit of ours was tried beside Spark's on this kind of storage"]
    version = log.protocol.min_writer_version
    if version == _IDENTITY_COLUMNS_WRITER_VERSION or version > _WRITER_VERSION_MAX:
        obstacles.append(f"writer version {version}")
    features = {*log.protocol.reader_features, *log.protocol.writer_features}
    return (*obstacles, *(f"table feature {name}" for name in sorted(features - WRITABLE_FEATURES)))


def _list_newest_files(log: TableLog, app_id: str | None) -> list[DataFile]:
    """The newest files that count and hold rows of an application: its own, and those into which they were moved."""
    found: list[DataFile] = []
    removed: set[str] = set()
    for commit in reversed(log.commits):
        own = commit.by_app.get(app_id or "")
        if own is not None or not commit.changes_data:
            live = sorted(commit.added - removed)
            told = [path for path in live if not may_lead_elsewhere(path)]
            batch_id = None
            if own is not None:
                batch_id = own.version
            found += [DataFile(unquote(path), commit.sizes.get(path), batch_id) for path in told]
        if len(found) >= _FILES_MAX:
            break
        removed |= commit.removed
    return found[:_FILES_MAX]


def _explain_empty(damage: Damage) -> str | None:
    """What an empty file in the log may stand for: Delta reads it as a version in which nothing was written."""
    if damage.kind is not DamageKind.EMPTY:
        return None
    told = "the log has an empty version, as after a loss of power, and nobody can tell what it wrote"
    return f"{told} ({damage.found.rstrip(': ')})"


def _find_restore(log: TableLog) -> TableCommit | None:
    """The newest version by which somebody took rows back, and no recovery of lastgood; None if there is none."""
    restores = (each for each in log.commits if each.operation == RESTORE and each.removed and each.recovery is None)
    return max(restores, key=lambda each: each.version, default=None)


def _explain_restore(restore: TableCommit) -> str:
    return f"version {restore.version} is a RESTORE that took rows back, and the query leaves no mark that tells which"


def _find_shown(
    log: TableLog, history: History, marker: Transaction | None, retention: str | None
) -> tuple[int | None, bool, str]:
    """The newest batch that is shown, whether that is unknown, and why."""
    shown = history.shown
    if log.unjudged is not None:
        return None, True, log.unknown or log.unjudged
    if shown.unclear is not None:
        return None, True, shown.unclear
    if shown.is_from_before:
        return _find_shown_before(log, history, marker, retention)
    if history.last_version is None:
        return None, False, f"no batch of it in any version up to {log.newest_version}"
    what = "RESTORE in" if history.restored else "transaction in"
    return shown.batch_id, False, f"{what} version {history.last_version} of the table"


def _find_shown_before(
    log: TableLog, history: History, marker: Transaction | None, retention: str | None
) -> tuple[int | None, bool, str]:
    """The same where it goes back to before the versions that were read one by one: then the marker tells."""
    if history.batches:
        return None, True, f"version {history.last_version} restored a state that is older than what could be read"
    if marker is not None:
        return marker.version, False, f"transaction {marker.version}, older than version {log.oldest_read} of the table"
    if log.unknown is not None:
        return None, True, log.unknown
    if retention is not None:
        return None, True, f"no marker, but markers expire here ({TRANSACTION_RETENTION} = {retention})"
    return None, False, "the table has no marker of it"


def _list_beside(log: TableLog, app_id: str) -> tuple[str, ...]:
    """Names that have had a batch of the same number as an application, of those before its newest.

    The newest may have been run again by the same query under another name.
    """
    numbers: dict[str, set[int]] = {}
    for commit in log.commits:
        for txn in commit.transactions:
            numbers.setdefault(txn.app_id, set()).add(txn.version)
    own = numbers.pop(app_id, set())
    before = own - {max(own, default=0)}
    return tuple(sorted(name for name, found in numbers.items() if found & before))


def _find_creation_ms(log: TableLog) -> int | None:
    """When the table was made; None where it does not say, or was made of rows that were there before."""
    is_brought = any(each.brings_rows for each in log.commits)
    if is_brought or log.metadata is None:
        return None
    return log.metadata.created_at_ms


def _list_unmarked(log: TableLog, history: History, batch_id: int | None) -> tuple[UnmarkedRows, ...]:
    """Rows of nobody who is named, since the newest batch that is shown; none where no batch is."""
    if batch_id is None:
        return ()
    # Where the mark alone tells the batch, its version is older than all that were read.
    newest = -1 if history.last_version is None else history.last_version
    since = [each for each in log.commits if each.version > newest]
    found = [each for each in since if each.adds_unmarked_rows]
    return tuple(UnmarkedRows(each.version, each.row_count, each.timestamp_ms) for each in found[-_UNMARKED_MAX:])


def _find_retention(log: TableLog) -> str | None:
    """How long marks count here, as the table says it; None: for ever."""
    if not log.metadata:
        return None
    return log.metadata.configuration.get(TRANSACTION_RETENTION)


def _is_counting(marker: Transaction | None, retention: str | None, now_ms: int) -> bool | None:
    """Whether Spark will heed a marker when it has started; None if that cannot be told."""
    if marker is None or retention is None:
        return True
    length_ms = parse_interval_ms(retention)
    if length_ms is None:
        return None
    if marker.last_updated_ms is None or marker.last_updated_ms <= now_ms - length_ms:
        return False
    return None if marker.last_updated_ms <= now_ms - length_ms + START_MS else True


def _complete_from(log: TableLog, history: History, batch_id: int | None, *, unknown: bool) -> int | None:
    if log.unjudged is not None:
        return None
    is_marked_at_first = bool(history.batches) and history.batches[0].version == 0
    if log.commits and log.oldest_read == 0 and not (is_marked_at_first and log.commits[0].operation == CLONE):
        return 0  # a clone has what its mark stands for, under no number of its own
    if history.batches:
        return history.batches[0].batch_id
    if unknown:
        return None
    return (-1 if batch_id is None else batch_id) + 1


def _list_notes(
    marker: Transaction | None, batch_id: int | None, *, counts: bool | None, unknown: bool
) -> tuple[str, ...]:
    if marker is None:
        return ()
    if counts is None:
        return (
            f"whether batch {marker.version} is skipped is not known: its marker expires soon, or nobody knows when",
        )
    if not counts:
        return (f"the marker has expired: Spark would write batch {marker.version} again",)
    if not unknown and (batch_id is None or batch_id < marker.version):
        return (f"the rows were taken back, the marker was not: batches up to {marker.version} would be skipped",)
    return ()
