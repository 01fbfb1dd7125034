"""What a file source does with its own log when a query starts. Pure.

It reads the log twice: when it is made (the newest compaction and all after it, to know what was seen), and for each
batch that it is asked for (the entries of that batch alone).
"""

from __future__ import annotations

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import (
    FileLogEntry,
    derive_compact_interval,
    is_compaction,
    list_ids_read_at_start,
    name_entry,
)
from lastgood.checkpoint.logs import BatchIds, SourceLog
from lastgood.query.prediction.messages import quote_log_error
from lastgood.query.prediction.restart import StartStage, Stop, StoppedError
from lastgood.query.prediction.spark_version import SparkVersion

LOG_VERSION_NEWEST = 1


def open_source(log: SourceLog, spark: SparkVersion) -> None:
    """A file source is made, which reads its log.

    Raises:
        StoppedError: it has a hole, or an entry cannot be read.
    """
    newest = log.listing.newest_listed
    if newest is None or newest < 0:
        return
    interval = derive_compact_interval(log.listing.compact)
    for log_id in (newest, *list_ids_read_at_start(newest, interval)):  # the newest entry is opened before the others
        path = f"{log.folder}/{name_entry(log_id, interval)}"
        if not _is_there(log, log_id, interval):
            is_newest = log_id == newest
            error = f"{path} does" + (
                " not exist" if is_newest else f"n't exist (latestId: {newest}, compactInterval: {interval})"
            )
            raise StoppedError(Stop(StartStage.START, error, path, "the source's own log has a hole"))
        _require_sound(log, log_id, path, spark)


def read_entries(log: SourceLog, start: int, end: int, spark: SparkVersion) -> None:
    """The entries after `start` up to `end` are read.

    Spark asks for them when it runs a batch, and once more when it resumes after a committed one.

    Raises:
        StoppedError: they are not all there.
    """
    wanted = range(start + 1, end + 1)
    for log_id in log.listing.ids.within(wanted):
        if _can_be_read(log, log_id):
            _require_sound(log, log_id, f"{log.folder}/{log_id}", spark)
    missing = _select_readable(log, wanted).missing(wanted)
    if missing:
        is_any = missing[0] != wanted
        span = f"exist (startId: Some({start + 1}), endId: Some({end}))"
        if is_any:
            error = span
        else:
            error = f"batch {start + 1} doesn't exist"
        because = "the source's own log does not hold what was planned"
        raise StoppedError(Stop(StartStage.START, error, f"{log.folder}/{missing[0].start}", because))


def _select_readable(log: SourceLog, wanted: range) -> BatchIds:
    """The entries of a range that can be read: the range may be as wide as a plan says, the log is as long as it is."""
    interval = derive_compact_interval(log.listing.compact)
    there = [log_id for log_id in log.listing.ids.within(wanted) if _is_there(log, log_id, interval)]
    compact = log.listing.compact.newest
    if compact is None:
        return BatchIds.of(there)
    entry = log.entries.get(compact)  # what was removed from the log is looked for in its newest compaction
    up_to = range(wanted.start, min(wanted.stop, compact + 1))
    if not isinstance(entry, FileLogEntry):
        after = BatchIds.of(each for each in there if each > compact)
        if not up_to:
            return after
        return BatchIds((up_to, *after.runs))
    kept = {getattr(file, "log_id", None) for file in entry}
    return BatchIds.of([*there, *(each for each in kept if isinstance(each, int) and each in up_to)])


def _require_sound(log: SourceLog, log_id: int, path: str, spark: SparkVersion) -> None:
    entry = log.entries.get(log_id)
    if isinstance(entry, Damage) and entry.kind is not DamageKind.TOO_LARGE:
        error = quote_log_error(entry, spark, version_newest=LOG_VERSION_NEWEST)
        raise StoppedError(Stop(StartStage.START, error, path, f"it cannot be read: {entry}"))


def _can_be_read(log: SourceLog, log_id: int) -> bool:
    interval = derive_compact_interval(log.listing.compact)
    if _is_there(log, log_id, interval):
        return True
    compact = log.listing.compact.newest
    if compact is None or log_id > compact:
        return False
    entry = log.entries.get(compact)  # what was removed from the log is looked for in its newest compaction
    return not isinstance(entry, FileLogEntry) or any(getattr(file, "log_id", None) == log_id for file in entry)


def _is_there(log: SourceLog, log_id: int, interval: int) -> bool:
    return log_id in log.listing.ids and (log_id in log.listing.compact) == is_compaction(log_id, interval)


def name_next(log: SourceLog) -> str:
    """Name of the entry that the source writes next."""
    newest = log.listing.newest_listed
    return name_entry(0 if newest is None else newest + 1, derive_compact_interval(log.listing.compact))
