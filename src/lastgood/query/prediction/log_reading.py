"""How Spark reads the offset log and the commit log when a query starts. Pure.

Each step raises what stops Spark there, in the order in which it reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint, Mode
from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.logs import BatchLog, SourceLog
from lastgood.checkpoint.offsets import SHUFFLE_PARTITIONS, OffsetEntry
from lastgood.checkpoint.source_offsets import SourceOffset, TextOffset, VoidOffset
from lastgood.query.prediction.messages import (
    NO_TRACKER,
    quote_commit_log_error,
    quote_offset_log_error,
    quote_source_line_error,
    quote_too_new,
)
from lastgood.query.prediction.restart import StartStage, Stop, StoppedError
from lastgood.query.prediction.spark_version import SPARK_4_0, SPARK_4_1, SPARK_4_2, SPARK_4_3, SparkVersion
from lastgood.sources.kinds import find_source_kind

_FIRST_SOURCE_LINE = 3
_BLANK = "its metadata line is blank"


class LogReading:
    """Both logs, as a Spark of one version reads them."""

    def __init__(self, checkpoint: Checkpoint, spark: SparkVersion) -> None:
        """Nothing is judged yet."""
        self._checkpoint = checkpoint
        self._spark = spark
        self._offsets_newest = 2 if spark >= SPARK_4_2 else 1
        if spark >= SPARK_4_2:
            self._commits_newest = 3
        elif spark >= SPARK_4_0:
            self._commits_newest = 2
        else:
            self._commits_newest = 1

    @property
    def planned(self) -> int | None:
        """The batch that Spark takes for the newest planned one, be it openable or not."""
        return self._checkpoint.offsets.listing.newest_listed

    @property
    def committed(self) -> int | None:
        """The batch that Spark takes for the newest committed one."""
        return self._checkpoint.commits.listing.newest_listed

    def read_ahead(self) -> None:
        """Spark 4.2 and later read the newest plan before they make their sources."""
        if self._spark >= SPARK_4_2 and self.planned is not None:
            _require_openable(self._checkpoint.offsets, self.planned)
            self._require_head(self.planned)

    def compare(self) -> None:
        """Spark 4.1 and later look at the newest commit before they look at the plans below the newest.

        Since 4.2 they compare both logs, and look for a repartition that was not finished: not where progress is
        tracked asynchronously, which no stateful query does.
        """
        planned, committed = self.planned, self.committed
        if self._spark < SPARK_4_1 or committed is None:
            return
        if planned is not None:
            _require_openable(self._checkpoint.offsets, planned)
            self._require_head(planned)
        self.read_newest_commit()
        if self._spark < SPARK_4_2:
            return
        if planned is None:
            raise _make_stopped("assertion failed", "offsets", "batches are committed, and none is planned")
        if planned < 1 or committed >= planned or self._checkpoint.mode is Mode.ASYNC_PROGRESS:
            return
        before, newest = self._entry(planned - 1), self._entry(planned)
        if before is None:
            error = f"Previous batch {planned - 1} not found in offset log"
            raise _make_stopped(error, f"offsets/{planned - 1}", "it is not there")
        self._require_head(planned - 1)
        self._require_pinned(planned, f"Batch {planned} metadata not found")
        self._require_pinned(planned - 1, f"Previous batch {planned - 1} metadata not found")
        if isinstance(newest, OffsetEntry) and isinstance(before, OffsetEntry) and _is_repartitioned(before, newest):
            error = "STREAMING_UNFINISHED_REPARTITION_DETECTED"
            raise _make_stopped(error, f"offsets/{planned}", "a repartition of the state is not finished")

    def read(self) -> None:
        """Read the newest plan, the one before it, and the newest commit."""
        newest = self.planned or 0
        _require_openable(self._checkpoint.offsets, newest)
        self._require_plan(newest)
        before = self._batch_before(newest)
        if before is not None:
            self._require_plan(before)
        self.read_newest_commit()

    def read_newest_commit(self) -> None:
        """Read the newest commit, if there is one."""
        if self.committed is None:
            return
        commits = self._checkpoint.commits
        _require_openable(commits, self.committed)
        subject = f"commits/{self.committed}"
        entry = commits.entries.get(self.committed)
        if isinstance(entry, Damage):
            found = entry.found
        elif entry:
            found = f"v{entry.version}"
        else:
            found = None
        is_version = isinstance(entry, CommitEntry) or (entry and entry.kind is DamageKind.VERSION_TOO_NEW)
        if is_version and self._spark in (SPARK_4_0, SPARK_4_1) and found != f"v{self._commit_version}":
            error = f"The only supported log version is v{self._commit_version}, but encountered {found}"
            raise _make_stopped(
                error, subject, f"it is of version {found}, and the query writes v{self._commit_version}"
            )
        if isinstance(entry, Damage):
            error = quote_commit_log_error(entry, self._spark, version_newest=self._commits_newest)
            raise _make_stopped(error, subject, f"it cannot be read: {entry}")
        if isinstance(entry, CommitEntry) and entry.version > self._commits_newest:
            error = quote_too_new(f"v{entry.version}", self._spark, version_newest=self._commits_newest)
            raise _make_stopped(error, subject, f"this Spark reads no commit log v{entry.version}")
        if isinstance(entry, CommitEntry) and entry.version > 2 and "sinkMetadataMap" not in entry.fields:
            raise _make_stopped("No usable value for", subject, "it lacks what version 3 must have")

    @property
    def _commit_version(self) -> int:
        """The version of the commits before the newest, which goes with the application's conf."""
        entries = self._checkpoint.commits.entries
        others = (entries[batch_id] for batch_id in sorted(entries, reverse=True) if batch_id != self.committed)
        newest = entries.get(self.committed or 0)
        wanted = next((other.version for other in others if isinstance(other, CommitEntry)), None)
        if wanted:
            return wanted
        if isinstance(newest, CommitEntry):
            return newest.version
        return 1

    def require_metadata(self, batch_id: int, *, is_run: bool = False) -> None:
        """Without its metadata a batch has no watermark tracker.

        It is missed when Spark takes the watermark over from a committed batch, or at the end of one that is run.
        """
        entry = self._entry(batch_id)
        if isinstance(entry, Damage) and entry.kind is DamageKind.BLANK_METADATA_LINE:
            stage, error = StartStage.COMMIT, NO_TRACKER
            if not is_run:
                stage = StartStage.START
                error = quote_offset_log_error(entry, self._spark, version_newest=self._offsets_newest)
            raise StoppedError(Stop(stage, error, f"offsets/{batch_id}", _BLANK))

    def require_source_lines(self, newest: int) -> None:
        """Lines of sources are parsed later than the rest, when the sources are asked for something."""
        for batch_id in (newest, self._batch_before(newest)):
            entry = self._entry(batch_id)
            subject = f"offsets/{batch_id}"
            if isinstance(entry, Damage) and entry.line is not None and entry.line >= _FIRST_SOURCE_LINE:
                source_id = str(entry.line - _FIRST_SOURCE_LINE)
                error = quote_source_line_error(entry, self.kind(source_id))
                raise _make_stopped(error, subject, f"it cannot be read: {entry}")
            for line in entry.sources if isinstance(entry, OffsetEntry) else ():
                kind = self.kind(line.source_id)
                if isinstance(line.offset, TextOffset) and kind is not None:
                    wrong = make_damage(DamageKind.NOT_JSON, line.text)
                    raise _make_stopped(
                        quote_source_line_error(wrong, kind), subject, f"source {line.source_id} has no offset"
                    )

    def ranges(self, batch_id: int) -> Iterator[tuple[str, SourceOffset, SourceOffset | None]]:
        """Per source of a batch: its id, its end, and the end of the batch before, None if there is none."""
        entry, before = self._entry(batch_id), self._entry(self._batch_before(batch_id))
        for line in entry.sources if isinstance(entry, OffsetEntry) else ():
            previous = None
            if isinstance(before, OffsetEntry):
                previous = before.source(line.source_id)
            yield line.source_id, line.offset, previous.offset if previous else None

    def is_file_source(self, log: SourceLog) -> bool:
        """Whether the folder is the log of a file source: Kafka and rate write theirs once."""
        kind = self.kind(log.name)
        if kind is not None:
            return find_source_kind(kind).keeps_log
        return any(isinstance(entry, FileLogEntry) for entry in log.entries.values())

    def kind(self, source_id: str) -> str | None:
        """What a source is, as most of its offsets say; None if none can be read."""
        read = [entry for entry in self._checkpoint.offsets.entries.values() if isinstance(entry, OffsetEntry)]
        lines = (entry.source(source_id) for entry in read)
        offsets = [line.offset for line in lines if line]
        kinds = [offset.kind for offset in offsets if not isinstance(offset, VoidOffset | TextOffset)]
        return max(kinds, key=kinds.count, default=None)

    def _require_plan(self, batch_id: int) -> None:
        if self._entry(batch_id) is None:
            raise _make_stopped(f"batch {batch_id} doesn't exist", f"offsets/{batch_id}", "it is not there")
        self._require_head(batch_id)
        entry = self._entry(batch_id)
        wanted = self._source_count
        if isinstance(entry, Damage):
            count = 0 if entry.kind is DamageKind.NO_SOURCE_LINES else wanted
        elif entry and entry.version == 1:
            count = len(entry.sources)
        else:
            count = wanted
        if count != wanted:
            error = f"There are [{count}] sources in the checkpoint offsets and now there are [{wanted}] sources"
            raise _make_stopped(error, f"offsets/{batch_id}", f"it has {count} lines of sources, not {wanted}")

    def _require_head(self, batch_id: int) -> None:
        """Version and metadata of an entry, which are parsed as soon as it is read."""
        entry = self._entry(batch_id)
        subject = f"offsets/{batch_id}"
        if isinstance(entry, OffsetEntry) and entry.version > self._offsets_newest:
            error = quote_too_new(f"v{entry.version}", self._spark, version_newest=self._offsets_newest)
            raise _make_stopped(error, subject, f"this Spark reads no offset log v{entry.version}")
        is_late = isinstance(entry, Damage) and (
            entry.kind in (DamageKind.BLANK_METADATA_LINE, DamageKind.NO_SOURCE_LINES)
            or (entry.kind is not DamageKind.NO_SOURCE_ID and (entry.line or 0) >= _FIRST_SOURCE_LINE)
        )
        if isinstance(entry, Damage) and not is_late:
            error = quote_offset_log_error(entry, self._spark, version_newest=self._offsets_newest)
            raise _make_stopped(error, subject, f"it cannot be read: {entry}")

    def _require_pinned(self, batch_id: int, error: str) -> None:
        """To look for a repartition Spark needs the metadata of a plan, and 4.2 the number of partitions in it."""
        entry, subject = self._entry(batch_id), f"offsets/{batch_id}"
        if isinstance(entry, Damage) and entry.kind is DamageKind.BLANK_METADATA_LINE:
            raise _make_stopped(error, subject, _BLANK)
        if isinstance(entry, OffsetEntry) and SHUFFLE_PARTITIONS not in entry.conf and self._spark < SPARK_4_3:
            raise _make_stopped("None.get", subject, f"it does not pin {SHUFFLE_PARTITIONS}")

    @property
    def _source_count(self) -> int | None:
        """How many sources the query has, as most of its plans say; None if none can be read."""
        counts = [
            len(entry.sources) for entry in self._checkpoint.offsets.entries.values() if isinstance(entry, OffsetEntry)
        ]
        folders = len(self._checkpoint.sources)
        return max(counts, key=lambda count: (counts.count(count), count == folders), default=None)

    def _batch_before(self, batch_id: int) -> int | None:
        """Whose end is where a batch begins; None if it begins where its sources do."""
        if self._checkpoint.mode is Mode.ASYNC_PROGRESS:
            return self._checkpoint.offsets.ids.before(batch_id)
        if not batch_id:
            return None
        return batch_id - 1

    def _entry(self, batch_id: int | None) -> OffsetEntry | Damage | None:
        if batch_id is None:
            return None
        return self._checkpoint.offsets.entries.get(batch_id)


def _is_repartitioned(before: OffsetEntry, newest: OffsetEntry) -> bool:
    counts = [entry.conf.get(SHUFFLE_PARTITIONS) for entry in (before, newest)]
    return None not in counts and counts[0] != counts[1]


def _require_openable(log: BatchLog[Any], batch_id: int) -> None:
    """Spark lists `006` as 6, and then opens a file `6`."""
    if batch_id not in log.ids:
        name = next(name for name, found in log.listing.noncanonical.items() if found == batch_id)
        raise _make_stopped(
            "does not exist", f"{log.folder}/{name}", f"Spark lists it, and opens {log.folder}/{batch_id}"
        )


def _make_stopped(error: str, subject: str, because: str) -> StoppedError:
    return StoppedError(Stop(StartStage.START, error, subject, because))
