"""What Spark will do when it is started on a checkpoint as it stands. Pure.

It follows `MicroBatchExecution` from `start()` to the commit of the first batch, in its order, because the first thing
that stops Spark is what a person will see. It is assumed that the application is unchanged and that there is something
new to read.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.initial import VERSION_NEWEST as INITIAL_VERSION_NEWEST
from lastgood.checkpoint.logs import BatchIds, LogListing, SourceLog
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import DeltaOffset, FileOffset, KafkaOffset, RateMicroBatchOffset, SourceOffset
from lastgood.query.observation import Observation
from lastgood.query.prediction import delta_source
from lastgood.query.prediction.file_sink import write_batch
from lastgood.query.prediction.file_source import name_next, open_source, read_entries
from lastgood.query.prediction.kafka_source import (
    Gap,
    KafkaGap,
    choose_stop,
    find_planning_gaps,
    find_replay_gaps,
    is_without_topics,
)
from lastgood.query.prediction.log_reading import LogReading
from lastgood.query.prediction.messages import (
    CONCURRENT_FILE,
    CONCURRENT_LOG,
    quote_initial_error,
    quote_metadata_error,
)
from lastgood.query.prediction.restart import Outcome, Restart, SinkCalled, StartStage, Stop, StoppedError
from lastgood.query.prediction.skipping import is_skipped, may_be_skipped
from lastgood.query.prediction.source_replay import list_taken_for_rate, list_unasked_sources
from lastgood.query.prediction.spark_version import SPARK_3_5, SPARK_4_1, SPARK_4_2, SparkVersion
from lastgood.query.prediction.state_load import (
    NOT_RUN,
    find_nothing_to_name,
    find_too_few_to_name,
    load_state,
    require_same_format,
    stop_without_folder,
)
from lastgood.query.prediction.topics_gone import find_other_endings
from lastgood.sources.kafka.ranges import select_only_in
from lastgood.sources.kinds import LOAD_SOURCE, recognise_source

_COMMITS_ANYWAY = (SPARK_3_5, SPARK_4_2)
"""Write a commit asynchronously although its plan could not be: 3.5.9 and 4.2.0 did, 4.0.5, 4.1.4 and 4.3.0 did not."""


def predict(observed: Observation, spark: SparkVersion) -> Restart:
    """What a Spark of this version will do."""
    restart = _predict(observed, spark)
    others = find_other_endings(observed, restart, partial(_predict, spark=spark))
    return replace(restart, unknowns=tuple(dict.fromkeys((*restart.unknowns, *others))))


def _predict(observed: Observation, spark: SparkVersion) -> Restart:
    restart = _Start(observed, spark).run()
    if not _may_be_asynchronous(observed):
        return restart
    asynchronous = replace(observed, checkpoint=replace(observed.checkpoint, mode=Mode.ASYNC_PROGRESS))
    other = _Start(asynchronous, spark).run()
    if (other.outcome, other.batch, other.error) == (restart.outcome, restart.batch, restart.error):
        return restart
    if other.error:
        because = f"fails: {other.error}"
    else:
        because = f"{other.outcome.value}, batch {other.batch}"
    unknown = (
        "whether the holes in the logs are a loss: with asyncProgressTrackingEnabled they are none, and Spark"
        f" {restart.spark} {because}"
    )
    return replace(restart, unknowns=(*restart.unknowns, unknown), if_asynchronous=other)


def _may_be_asynchronous(observed: Observation) -> bool:
    """Whether a plan that Spark misses may never have been written: a few holes do not tell why they are there."""
    checkpoint = observed.checkpoint
    offsets, planned = checkpoint.offsets.ids, checkpoint.offsets.listing.newest_listed
    if checkpoint.mode is not Mode.MICRO_BATCH or not planned or planned - 1 in offsets:
        return False
    if observed.is_stateful or observed.sinks:  # neither state nor any sink that we can ask goes with it
        return False
    return bool(BatchIds.of((*offsets, *checkpoint.commits.ids)).gaps)


class _Start:
    """One start; each step raises what stops Spark there."""

    def __init__(self, observed: Observation, spark: SparkVersion) -> None:
        self._observed = observed
        self._checkpoint = observed.checkpoint
        self._spark = spark
        self._logs = LogReading(observed.checkpoint, spark)
        self._planned = self._logs.planned
        self._committed = self._logs.committed
        self._batch: int | None = None
        self._is_new = False
        self._unknowns: list[str] = []
        self._shared = observed.checkpoint.shared_logs
        self._next_stop: Stop | None = None

    def run(self) -> Restart:
        try:
            self._find_sources()
            for table in self._observed.tables.values():
                delta_source.open_table(table)
            self._query_metadata()
            if self._checkpoint.mode is Mode.CONTINUOUS:
                restart = self._continuous()
            else:
                restart = self._micro_batch()
            restart = replace(restart, next_stop=self._next_stop)
        except StoppedError as stopped:
            restart = self._failed(stopped.stop)
        self._unknowns += [each.unknown for each in list_unasked_sources(self._observed) if each.unknown is not None]
        self._unknowns += list_taken_for_rate(self._observed)
        return replace(restart, unknowns=tuple(dict.fromkeys(self._unknowns)))

    def _find_sources(self) -> None:
        """The application names its sources; that of a load limits its batches, as one of Python can since 4.2."""
        newest = self._checkpoint.offsets.entries.get(-1 if self._planned is None else self._planned)
        if self._spark >= SPARK_4_2 or not isinstance(newest, OffsetEntry):
            return
        for line in newest.sources:
            if recognise_source(line.offset) is LOAD_SOURCE:
                because = "it is that of a load, which there is since Spark 4.2"
                stop = Stop(StartStage.START, "DATA_SOURCE_NOT_FOUND", f"source {line.source_id}", because)
                raise StoppedError(stop)

    def _micro_batch(self) -> Restart:
        self._logs.read_ahead()
        for log in self._checkpoint.sources:
            if self._logs.is_file_source(log):
                open_source(log, self._spark)
        self._logs.compare()
        if self._planned is None:
            return self._begin()
        self._logs.read()
        if self._committed == self._planned:
            return self._resume(self._planned)
        return self._rerun(self._planned)

    def _continuous(self) -> Restart:
        """Continuous mode goes on after the newest commit; later plans are thrown away."""
        if self._committed is None:
            return Restart(self._spark, Outcome.STARTS, 0, "no epoch was ever committed")
        if self._committed not in self._checkpoint.offsets.ids:
            error = f"Batch {self._committed} was committed without end epoch offsets"
            raise StoppedError(Stop(StartStage.START, error, f"offsets/{self._committed}", "it is not there"))
        self._logs.read_newest_commit()
        return Restart(self._spark, Outcome.RESUMES, self._committed + 1, f"epoch {self._committed} is committed")

    def _query_metadata(self) -> None:
        found = self._checkpoint.query
        if isinstance(found, Damage):
            raise StoppedError(
                Stop(StartStage.START, quote_metadata_error(found), "metadata", f"it cannot be read: {found}")
            )
        if found is not None:
            return
        has_logs = self._planned is not None or self._committed is not None
        if has_logs and self._spark >= SPARK_4_2:
            error = "STREAMING_CHECKPOINT_MISSING_METADATA_FILE"
            raise StoppedError(Stop(StartStage.START, error, "metadata", "it is not there, though there are batches"))
        if self._observed.is_local and ".metadata.crc" in self._checkpoint.foreign:
            raise StoppedError(_make_left_over(".metadata.crc"))

    # The three ways on.

    def _begin(self) -> Restart:
        """No plan at all: batch 0, over whatever commits there are."""
        state = self._checkpoint.state
        if state is not None and state.operators:
            left = ["state"]
        else:
            left = []
        logs = (self._checkpoint.offsets, self._checkpoint.commits)
        left += [log.folder for log in logs if _has_files(log.listing)]
        if self._spark >= SPARK_4_1 and left:
            error = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
            raise StoppedError(
                Stop(StartStage.START, error, left[0], "it is not empty, and the query begins at batch 0")
            )
        self._read_initial()
        self._plan(0)
        self._plan_first()
        self._write_sinks(0)
        self._leave_state(0)
        self._commit(0)
        return Restart(self._spark, Outcome.STARTS, 0, "no batch was ever planned")

    def _resume(self, committed: int) -> Restart:
        """The newest plan is committed: another is made."""
        self._logs.require_source_lines(committed)
        self._read_files(committed)  # some sources are asked once more for the batch that is committed
        self._read_tables(committed)
        self._logs.require_metadata(committed)
        self._plan(committed + 1)
        self._plan_state(committed)
        self._read_state(committed + 1)
        self._write_sinks(committed + 1)
        self._leave_state(committed + 1)
        self._commit(committed + 1)
        return Restart(self._spark, Outcome.RESUMES, committed + 1, f"batch {committed} is committed")

    def _rerun(self, batch: int) -> Restart:
        """The newest plan is not committed, or a newer commit hides that it is: it runs again."""
        self._batch = batch
        self._logs.require_source_lines(batch)
        if batch == 0:
            self._read_initial()
        self._read_files(batch)
        self._read_tables(batch)
        self._replay_rate(batch)
        self._plan_state(batch)
        self._replay_kafka(batch)
        self._read_state(batch)
        self._write_sinks(batch)
        self._leave_state(batch)
        self._logs.require_metadata(batch, is_run=True)
        self._commit(batch)
        self._plan_after(batch)
        ahead = self._committed is not None and self._committed > batch
        because = f"batch {batch} is planned and not committed"
        if ahead:
            because += ", a later one is"
        return Restart(self._spark, Outcome.RERUNS, batch, because)

    # What a batch reads.

    def _read_files(self, batch_id: int) -> None:
        for source_id, end, before in self._logs.ranges(batch_id):
            if isinstance(end, FileOffset):
                first = before.log_offset if isinstance(before, FileOffset) else -1
                if first > end.log_offset:
                    because = f"it ends at {end.log_offset}, before its start {first}"
                    raise StoppedError(Stop(StartStage.START, "assertion failed", f"offsets/{batch_id}", because))
                self._tell_shared(source_id)
                read_entries(self._source(source_id), first, end.log_offset, self._spark)

    def _tell_shared(self, source_id: str) -> None:
        """Say where a log that is not there may never have been: Spark goes on then."""
        log = self._shared.get(source_id)
        if log is not None:
            self._unknowns.append(
                f"source {source_id}: whether its log is lost, or it is the stream of sources/{log},"
                " which the query reads twice: then Spark goes on"
            )

    def _read_tables(self, batch_id: int) -> None:
        for source_id, end, before in self._logs.ranges(batch_id):
            self._read_table_offsets(batch_id, end, before)
            table = self._observed.tables.get(source_id)
            if isinstance(end, DeltaOffset) and table is None:
                self._unknowns.append(f"source {source_id}: what the Delta table still serves was not asked (--log)")
            if isinstance(end, DeltaOffset) and table is not None:
                start = before if isinstance(before, DeltaOffset) else None
                fails = self._observed.fail_on_data_loss
                begin = start or replace(end, table_version=0)
                unread = begin if batch_id == self._batch else end
                told = (
                    delta_source.read_range(table, start, end, fail_on_data_loss=fails),
                    delta_source.explain_unseen_files(table, unread),
                )
                self._unknowns += [unknown for unknown in told if unknown is not None]

    def _read_table_offsets(self, batch_id: int, end: SourceOffset, before: SourceOffset | None) -> None:
        delta_source.read_offset(end, f"offsets/{batch_id}")
        if before is not None:
            delta_source.read_offset(before, f"offsets/{batch_id - 1}")
            delta_source.require_same_table(before, end, f"offsets/{batch_id}")

    def _plan_kafka(self, committed: int) -> None:
        """What the source meets when it plans a batch; what is raised leaves a plan unless the topic is gone."""
        for source_id, end, _ in self._logs.ranges(committed):
            if isinstance(end, KafkaOffset):
                self._note_kafka(source_id)
                self._plan_topics(end)

    def _plan_first(self) -> None:
        """What the source meets when it plans batch 0 from where it has written down that it begins."""
        for log in self._checkpoint.sources:
            begin = None if log.initial is None else log.initial.offset
            if isinstance(begin, KafkaOffset):
                self._note_kafka(log.name)
                self._plan_topics(begin)

    def _plan_after(self, batch: int) -> None:
        """What the batch after a repeated one meets, where that reads nothing, or a sink skips it."""
        if self._next_stop is not None:
            return
        self._batch = batch + 1
        try:
            self._require_progress(batch)
            self._plan_kafka(batch)
        except StoppedError as stopped:
            self._next_stop = stopped.stop
        self._batch = batch

    def _plan_topics(self, start: KafkaOffset) -> None:
        kafka, is_pattern = self._observed.kafka, self._observed.is_pattern
        if not is_without_topics(start.topics, kafka, is_pattern=is_pattern):
            gaps = find_planning_gaps(start.topics, kafka, is_pattern=is_pattern)
            self._raise_gaps(choose_stop(self._counted(gaps), self._spark, is_planned=False))

    def _replay_kafka(self, batch_id: int) -> None:
        for source_id, end, before in self._logs.ranges(batch_id):
            if isinstance(end, KafkaOffset):
                self._note_kafka(source_id)
                start = before if isinstance(before, KafkaOffset) else self._initial(source_id)
                if isinstance(start, KafkaOffset):
                    is_pattern = self._observed.is_pattern
                    gaps = find_replay_gaps(start.topics, end.topics, self._observed.kafka, is_pattern=is_pattern)
                    is_asked = bool(select_only_in(end.topics, start.topics))  # where what is new begins, of all topics
                    self._raise_gaps(choose_stop(self._counted(gaps), self._spark, is_planned=not is_asked))

    def _read_initial(self) -> None:
        """Where batch 0 begins is read from what its sources wrote down before it."""
        for log in self._checkpoint.sources:
            entry = log.entries.get(0)
            if isinstance(entry, Damage) and not self._logs.is_file_source(log):
                asked = None if self._observed.kafka is None else KafkaOffset.kind  # where no plan is left to tell it
                kind = self._logs.kind(log.name) or asked
                error = quote_initial_error(entry, self._spark, version_newest=INITIAL_VERSION_NEWEST, kind=kind)
                path = f"{log.folder}/{log.entry_name(0)}"
                raise StoppedError(Stop(StartStage.START, error, path, f"it cannot be read: {entry}"))

    def _replay_rate(self, batch_id: int) -> None:
        for _, end, before in self._logs.ranges(batch_id):
            if not isinstance(end, RateMicroBatchOffset) or not isinstance(before, RateMicroBatchOffset):
                continue
            if end.offset < before.offset:
                error = "startOffset should less than or equal to the endOffset"
                because = f"it ends at {end.offset}, before its start {before.offset}"
                raise StoppedError(Stop(StartStage.PLANNED, error, f"offsets/{batch_id}", because))

    def _counted(self, gaps: list[KafkaGap]) -> list[KafkaGap]:
        """The gaps that end the query, those that are no loss of data also without `failOnDataLoss`."""
        if self._observed.fail_on_data_loss:
            return gaps
        return [gap for gap in gaps if gap.gap in (Gap.TOPIC_GONE, Gap.NEGATIVE)]

    def _raise_gaps(self, stop: Stop | None) -> None:
        if stop and not (stop.stage is StartStage.TASK and self._is_skipped()):
            raise StoppedError(stop)

    def _is_skipped(self) -> bool:
        return self._batch is not None and is_skipped(self._observed.sinks, self._batch)

    def _note_kafka(self, source_id: str) -> None:
        """Note down what a broker was not asked, or did not say."""
        facts = self._observed.kafka
        if facts is None:
            asked = (
                "what Kafka still serves was not asked, nor whether its topics are those that were read, nor whether"
                " it is Event Hubs, which looks the same (--kafka)"
            )
            self._unknowns.append(f"source {source_id}: {asked}")
            return
        for name, why in facts.unknowns.items():
            if name:
                cluster = f"Kafka, {name}"
            else:
                cluster = "Kafka"
            self._unknowns.append(f"{cluster}: {why}")

    def _initial(self, source_id: str) -> SourceOffset | None:
        initial = self._source(source_id).initial
        return initial.offset if initial else None

    def _source(self, source_id: str) -> SourceLog:
        found = next((log for log in self._checkpoint.sources if log.name == source_id), None)
        return found or SourceLog(source_id, LogListing())

    def _plan_state(self, newest: int) -> None:
        """Where the newest plan lacks pinned confs, Spark goes by legacy defaults, which may not fit the state."""
        if self._checkpoint.state is not None:
            require_same_format(self._checkpoint, newest, self._spark)

    def _read_state(self, batch_id: int) -> None:
        """Batch N loads version N of the state, by the ids that the newest commit names, unless it is not run."""
        if batch_id == 0 or (self._is_skipped() and (self._has_state() or self._spark < SPARK_4_2)):
            return
        self._load_state(batch_id, self._committed)

    def _load_state(self, version: int, committed: int | None) -> None:
        if self._has_state():
            self._unknowns += load_state(self._checkpoint, version, committed, self._spark, self._observed.unsound)
        elif self._observed.is_stateful:
            stop_without_folder(self._spark)
        elif self._observed.state_in_doubt is not None:
            self._unknowns.append(f"whether the query keeps state: {self._observed.state_in_doubt}; if so, it fails")

    def _has_state(self) -> bool:
        return self._checkpoint.state is not None and bool(self._checkpoint.state.operators)

    def _leave_state(self, batch: int) -> None:
        """A batch that is not run makes no state: the one after it loads what was made the first time."""
        if not self._observed.is_stateful or not may_be_skipped(self._observed.sinks, batch):
            return
        stop = find_nothing_to_name(self._checkpoint, self._committed, batch, self._spark)
        if stop is not None and self._is_skipped():
            raise StoppedError(stop)
        if stop is None:
            stop = self._next_stop = self._stop_after(batch)
        if self._is_skipped():
            return
        told = None
        if stop is not None:
            told = f"{stop.error} ({stop.subject})"
        if told is None and self._spark >= SPARK_4_2:
            told = f"{NOT_RUN}, once, after its commit"
        if told is not None:
            self._unknowns.append(f"whether the function runs batch {batch}, which its sinks have; if not: {told}")

    def _stop_after(self, batch: int) -> Stop | None:
        try:
            self._load_state(batch + 1, batch)
        except StoppedError as stopped:
            return stopped.stop
        return None

    # What is written.

    def _plan(self, batch: int) -> None:
        """Write what the sources and the engine write when they plan a batch."""
        for log in self._checkpoint.sources:
            if self._logs.is_file_source(log):
                self._require_free(log.folder, log.listing, name_next(log), StartStage.START)
        if self._committed is not None and self._planned is not None:
            self._plan_kafka_early(self._planned)
        self._batch, self._is_new = batch, True
        # Asynchronously a plan is written while its batch runs, so an error shows when that is through.
        written = StartStage.SINK if self._checkpoint.mode is Mode.ASYNC_PROGRESS else StartStage.PLANNED
        self._require_free("offsets", self._checkpoint.offsets.listing, str(batch), written)
        if self._planned is not None:
            self._require_progress(self._planned)
            self._plan_kafka(self._planned)

    def _require_progress(self, committed: int) -> None:
        """A file source goes by its own log, which may have lost what is committed."""
        for source_id, end, _ in self._logs.ranges(committed):
            log = self._source(source_id)
            newest = log.listing.newest_listed
            if newest is None:
                reached = 0
            else:
                reached = newest + 1
            if isinstance(end, FileOffset) and reached < end.log_offset:
                because = f"it holds entries up to {newest}, and {end.log_offset} is committed"
                raise StoppedError(Stop(StartStage.PLANNED, "assertion failed", log.folder, because))

    def _plan_kafka_early(self, committed: int) -> None:
        """A topic that does not exist stops the source before anything is planned."""
        try:
            self._plan_kafka(committed)
        except StoppedError as stopped:
            if stopped.stop.stage is StartStage.START:
                raise

    def _write_sinks(self, batch: int) -> None:
        """Write what a sink notes down of a batch."""
        for sink in self._observed.sinks:
            if sink.traits.keeps_log and sink.would_skip(batch) is False:
                write_batch(sink, batch, self._spark, is_local=self._observed.is_local)

    def _commit(self, batch: int) -> None:
        """Write the commit."""
        stop = find_too_few_to_name(self._checkpoint, self._committed, batch, self._spark)
        if stop is not None:
            raise StoppedError(stop)
        if batch in self._checkpoint.commits.ids:
            because = "the batch is committed already, since commits are ahead of offsets"
            error = f"{CONCURRENT_LOG} {batch}"
            raise StoppedError(Stop(StartStage.COMMIT, error, f"commits/{batch}", because))
        self._require_free("commits", self._checkpoint.commits.listing, str(batch), StartStage.COMMIT)

    def _require_free(self, folder: str, listing: LogListing, name: str, stage: StartStage) -> None:
        """The name of a new entry must not be taken, nor on a local disk that of its checksum file."""
        if f"{name}/" in listing.foreign:
            error = f"{CONCURRENT_LOG} {name.removesuffix(COMPACT_SUFFIX)}"
            taken = StartStage.START if stage is StartStage.PLANNED else stage
            raise StoppedError(Stop(taken, error, f"{folder}/{name}", "a folder stands where the entry belongs"))
        if self._observed.is_local and f".{name}.crc" in listing.stale_checksums:
            raise StoppedError(replace(_make_left_over(f"{folder}/.{name}.crc"), stage=stage))

    # The answer.

    def _failed(self, stop: Stop) -> Restart:
        called = SinkCalled.MAYBE if stop.stage is StartStage.TASK else SinkCalled.YES
        if stop.stage < StartStage.TASK:
            called = SinkCalled.NO
        again = stop.stage is StartStage.COMMIT and not (self._is_new and self._planned is not None)
        is_blocked = stop.subject == f"offsets/{self._batch}"
        is_planned = self._is_new and stop.stage is not StartStage.START and not is_blocked
        # A left-over checksum fails the commit when its file stands already.
        is_committed = (
            self._batch in self._checkpoint.commits.ids
            or (stop.stage is StartStage.COMMIT and stop.error == CONCURRENT_FILE)
            or (
                stop.stage is StartStage.SINK and stop.subject.startswith("offsets/") and self._spark in _COMMITS_ANYWAY
            )
        )
        return Restart(
            self._spark,
            Outcome.FAILS_AFTER_SINK if again else Outcome.FAILS,
            self._batch,
            f"{stop.subject}: {stop.because}",
            stop,
            leaves_orphan=is_planned and not is_committed,
            sink_called=called,
        )


def _has_files(listing: LogListing) -> bool:
    """Whether Spark sees anything in the folder of a log; a local disk hides the `.crc` files from it."""
    return bool(listing.foreign or listing.temporary) or listing.newest_listed is not None


def _make_left_over(path: str) -> Stop:
    return Stop(
        StartStage.START, CONCURRENT_FILE, path, "it is left over, and that of the new file cannot take its place"
    )
