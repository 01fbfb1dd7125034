"""Which batches a query runs again, silently, so that its state is what it was; and what that rests on. Pure.

A batch is planned with all that decides what it makes of the state: the ranges that it reads, its watermark, its time.
So the batches since a version of the state that can be loaded, run again one after another as they were planned, make
each later version as it was made the first time, whatever the operators are. Proven with real Spark in
`tests/repair/test_rebuild.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Final

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.logs import name_batches
from lastgood.checkpoint.offsets import OffsetEntry, SourceLine
from lastgood.checkpoint.operators import STORE_DEFAULT
from lastgood.checkpoint.partitions import collect_pins, find_pinned_partitions
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset, VoidOffset, get_topics
from lastgood.checkpoint.state import State, StateOperator, StateStore, count_partitions_named, judge_state
from lastgood.checkpoint.state_files import StateFile, StateFileKind
from lastgood.diagnosis.rules_kafka_broker import list_suspicions
from lastgood.frozen import dataclass
from lastgood.planning.draft import Draft
from lastgood.planning.goals.resume import foresee_start, repair_all
from lastgood.planning.losses import find_beginnings
from lastgood.planning.price import SourcePrice
from lastgood.planning.pricing import find_ends, price_batch
from lastgood.planning.read_again import (
    SAME_OF_THE_SAME,
    find_files,
    list_files_in_doubt,
    require_few_enough,
    require_kept,
)
from lastgood.planning.repairs.repair import Work, refuse
from lastgood.planning.standing import Standing
from lastgood.query.observation import Observation, RebuiltState
from lastgood.query.prediction.skipping import find_version_loaded
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.replays import (
    find_gathering,
    find_replay_start,
    list_batches_of_replay,
    list_batches_planned,
    list_sound_versions,
    list_starts,
)
from lastgood.query.spans import BEFORE_FIRST_FILE
from lastgood.query.stale_snapshots import find_stale_snapshots
from lastgood.sources.files.facts import FileState
from lastgood.sources.kafka.facts import PartitionFacts

_NEW_CODE: Final = (
    "new code has made the state: what it would have sent in these batches was not sent, and what the code before it"
    " has sent stays. Rows are lost, or come twice, where one of the two sends earlier than the other"
)
_GATHERED: Final = (
    "the plans of batches 0 to {last} are gone: what they have read was read at once. The state is what it was where no"
    " row came too late in them, and no operator goes by which rows came in one batch, as dropDuplicatesWithinWatermark"
    " does and functions may"
)


@dataclass(frozen=True, slots=True)
class Replay:
    """The batches that run again."""

    begins: int
    """The version of the state with which they begin: that of this very batch; 0: without any."""
    ends: int
    """The version that is needed: the last of them is the batch before it."""
    foreseen: Draft
    """The plan by which what they make is brought, as far as it can be told before."""
    against: tuple[str, ...] = ()
    """Why the state need not be what it was; one line each."""
    starts: Mapping[str, SourceOffset] = field(default_factory=dict)
    """Where each source is read from, where the first batch reads at once what all before have read, whose plans are
    gone; empty: each runs as it was planned."""

    @property
    def batches(self) -> range:
        """Their numbers."""
        return range(self.begins, self.ends)

    @property
    def planned(self) -> range:
        """The numbers of those whose plans it takes."""
        return range(self.begins + 1 if self.starts else self.begins, self.ends)


def choose_replay(observed: Observation, spark: SparkVersion, *, is_new_code: bool = False) -> Replay:
    """The fewest batches that make the state anew with which the query goes on, once all else is put right.

    Args:
        observed: The query.
        spark: The version that will run it.
        is_new_code: Whether other code is to make other state of all of them, whatever can be loaded.

    Raises:
        RepairRefusedError: the state can be loaded, or the plans that it takes are gone, or all else cannot be put
            right.
    """
    against = (_NEW_CODE,) if is_new_code else ()
    done = _foresee(observed, spark, against)
    needed = find_version_loaded(done.standing.checkpoint, done.standing.observed.sinks)
    loadable = set() if is_new_code else list_sound_versions(observed)
    is_kept = is_new_code or observed.is_stateful or observed.state_in_doubt is not None
    if not needed or not is_kept or needed in loadable:
        raise refuse(
            done.began,
            "there is no state that would have to be made anew",
            found=f"version {needed} can be loaded, with which batch {needed} begins" if needed in loadable else "none",
            expected="state of which files are gone or damaged",
            next=observed.command("plan"),
        )
    known = list_batches_planned(observed)
    begins = find_replay_start(loadable, needed, known)
    gathering = find_gathering(needed, known)
    if begins is None and gathering is not None:
        starts = _choose_beginnings(done.standing, gathering + 1)
        against = (*against, _GATHERED.format(last=gathering))
        foreseen = _foresee(observed, spark, against)
        _require_own_plans(done.began, range(gathering + 1, needed))
        return Replay(gathering, needed, foreseen.draft(foresee_start(foreseen)), against, starts)
    if begins is None:
        missing = sorted(list_batches_of_replay(max(list_starts(loadable, needed)), needed) - known)
        raise refuse(
            done.began,
            "plans of batches that would have to run again are gone",
            subject=f"{OFFSETS}/{missing[0]}",
            found=f"{name_batches(missing)} of the batches since the newest state that can be loaded",
            expected="each of them, in the checkpoint or in its mirror",
            next=observed.command("inspect", "--state"),
        )
    _require_own_plans(done.began, range(begins, needed))
    return Replay(begins, needed, done.draft(foresee_start(done)), against)


def _foresee(observed: Observation, spark: SparkVersion, against: tuple[str, ...]) -> Work:
    """All that is to be repaired, with a state that is made anew."""
    rebuilt = RebuiltState(_foresee_whole_state(observed.checkpoint), against=against)
    _, done = repair_all(Work.begin(replace(observed, repair=replace(observed.repair, rebuilt=rebuilt)), spark))
    return done


def _choose_beginnings(standing: Standing, first: int) -> dict[str, SourceOffset]:
    """From where each source is read by a batch that ends where one ends; Kafka has lost what has expired.

    Raises:
        RepairRefusedError: the plan of that one cannot be read, or a source is of another kind.
    """
    plan, began = standing.plan(first), find_beginnings(standing)
    starts: dict[str, SourceOffset] = {}
    for line in () if plan is None else plan.sources:
        if isinstance(line.offset, KafkaOffset):
            starts[line.source_id] = _choose_earliest(standing, line.offset, began.get(line.source_id))
        elif isinstance(line.offset, FileOffset):
            starts[line.source_id] = BEFORE_FIRST_FILE
    if plan is None or len(starts) < len(plan.sources):
        raise refuse(
            standing,
            "plans of batches that would have to run again are gone, and from where to read instead is not known",
            subject=f"{OFFSETS}/{first}",
            expected="a plan that can be read, of sources of Kafka and of files",
        )
    return starts


def _choose_earliest(standing: Standing, end: KafkaOffset, began: SourceOffset | None) -> KafkaOffset:
    told = began.topics if isinstance(began, KafkaOffset) else {}
    served = standing.kafka.earliest if standing.kafka is not None else {}
    return KafkaOffset(
        {
            topic: {
                partition: min(
                    until, max(told.get(topic, {}).get(partition, 0), served.get(topic, {}).get(partition) or 0)
                )
                for partition, until in partitions.items()
            }
            for topic, partitions in end.topics.items()
        }
    )


def _require_own_plans(standing: Standing, batches: range) -> None:
    """See that each plan is still the one by which its batch ran, and that no state is of a time that was given up."""
    anew = [number for number in batches if number in standing.observed.rewritten]
    if anew:
        raise refuse(
            standing,
            "a plan was written anew after its batch had run, so that it does not tell what the batch has read",
            subject=f"{OFFSETS}/{anew[0]}",
            found=f"{standing.observed.rewritten[anew[0]]} has written it",
            expected="plans as Spark has written them",
        )
    for each in find_stale_snapshots(standing.checkpoint):
        if each.version > batches.start:
            continue  # it is set aside
        raise refuse(
            standing,
            "a snapshot of the state is of a time that the logs have given up",
            subject=each.path,
            expected="state that goes with the logs",
            next=standing.observed.command("plan"),
        )


def _foresee_whole_state(checkpoint: Checkpoint) -> State:
    """The state as if the versions could be loaded that a start may need."""
    planned = -1 if checkpoint.last_planned is None else checkpoint.last_planned
    pins = collect_pins(checkpoint.offsets.entries, checkpoint.commits.newest)
    state = checkpoint.state
    operators = () if state is None else state.operators
    commits = {} if state is None else state.commits
    whole = [
        _foresee_operator(each, each.expected(pins, count_partitions_named(each.operator, commits)), planned)
        for each in operators
    ]
    if not whole:
        plan = checkpoint.offsets.entries.get(planned)
        count = find_pinned_partitions(plan) if isinstance(plan, OffsetEntry) else None
        stores = [(partition, STORE_DEFAULT) for partition in range(count or 1)]
        whole = [_foresee_operator(StateOperator(0, None, None, ()), stores, planned)]
    return judge_state(whole, {}, restart_version=planned + 1, pins=pins)


def _foresee_operator(operator: StateOperator, stores: list[tuple[int, str]], planned: int) -> StateOperator:
    kind = StateFileKind.SNAPSHOT if operator.is_hdfs_backed else StateFileKind.ZIP
    files = tuple(StateFile(version, kind) for version in range(max(planned, 1), planned + 2))
    made = tuple(StateStore(operator.operator, partition, name, files) for partition, name in stores)
    return replace(operator, stores=made)


def list_grounds(
    observed: Observation, spark: SparkVersion, replay: Replay, plans: Mapping[int, OffsetEntry]
) -> tuple[str, ...]:
    """On what it rests that what the batches read is there as it was; one line each.

    Args:
        observed: The query.
        spark: The version that will run it.
        replay: What is to run again.
        plans: Of each of its batches, and of the one before the first of them, if there is one.

    Raises:
        RepairRefusedError: it is not, or nobody can tell.
    """
    standing = Standing.of(observed, spark)
    begin = "the beginning of the query, without any state"
    if replay.begins and not replay.starts:
        begin = f"version {replay.begins} of the state, which can be loaded"
    lines = [
        f"{begin}; from there {name_batches(replay.batches)} ran again in Spark as planned, without a sink",
        SAME_OF_THE_SAME,
    ]
    _require_same_topics(standing)
    before = _find_begin(standing, replay, plans)
    if replay.starts:
        lines += _list_expired(standing, replay.starts)
    for batch in replay.planned:
        for line in plans[batch].sources:
            lines += _list_grounds_of(standing, line, before.get(line.source_id))
        before = find_ends(plans[batch])
    return tuple(dict.fromkeys(lines))


def _find_begin(standing: Standing, replay: Replay, plans: Mapping[int, OffsetEntry]) -> Mapping[str, SourceOffset]:
    """From where on the sources are read."""
    if replay.starts:
        return replay.starts
    return find_ends(plans[replay.begins - 1]) if replay.begins else find_beginnings(standing)


def _list_expired(standing: Standing, starts: Mapping[str, SourceOffset]) -> Iterator[str]:
    """What the state lacks, since Kafka has it no more; one line for each topic."""
    began = find_beginnings(standing)
    for source_id, start in starts.items():
        first = began.get(source_id)
        told = first.topics if isinstance(first, KafkaOffset) else {}
        for topic, partitions in get_topics(start).items():
            began_at = {each: told.get(topic, {}).get(each, 0) for each in partitions}
            behind = {each: at for each, at in partitions.items() if at > began_at[each]}
            lost = [f"{each}: {at}" for each, at in behind.items()]
            if lost:
                yield f"Kafka has of {topic} what is not before {', '.join(lost[:5])}: what was made of that is lost"


def price_replay(
    observed: Observation, spark: SparkVersion, replay: Replay, plans: Mapping[int, OffsetEntry], most: int | None
) -> tuple[SourcePrice, ...]:
    """What the batches read again, source by source.

    Args:
        observed: The query.
        spark: The version that will run it.
        replay: What is to run again.
        plans: As `list_grounds` takes them.
        most: How many offsets and files may be read again; None: however many.

    Raises:
        RepairRefusedError: it is more than that.
    """
    standing = Standing.of(observed, spark)
    begins = _find_begin(standing, replay, plans)
    ends = find_ends(plans[replay.ends - 1])
    prices = price_batch(standing.checkpoint, begins, ends, is_repeated=False)
    require_few_enough(standing, most, prices, f"which {name_batches(replay.batches)} have read")
    return prices


def _list_grounds_of(standing: Standing, line: SourceLine, start: SourceOffset | None) -> Iterator[str]:
    """Of what one batch has read of one source."""
    end = line.offset
    if isinstance(end, KafkaOffset):
        yield from _require_kafka(standing, line.source_id, start, end)
    elif isinstance(end, FileOffset):
        begin = start.log_offset if isinstance(start, FileOffset) else BEFORE_FIRST_FILE.log_offset
        _require_files(standing, line.source_id, range(begin + 1, end.log_offset + 1))
    elif not isinstance(end, VoidOffset) and not standing.observed.source_replays:
        raise refuse(
            standing,
            "a source is of a kind of which nobody has proven that it serves everything again",
            subject=f"source {line.source_id}",
            found=end.kind,
            expected="Kafka, files; or --source-replays, by which you say that it does",
        )


def _require_kafka(standing: Standing, source_id: str, start: SourceOffset | None, end: KafkaOffset) -> Iterator[str]:
    """See that Kafka was asked, and has every record of what is to be read again."""
    facts = standing.kafka
    if facts is None:
        raise refuse(
            standing,
            "whether Kafka still has what is to be read again is not known",
            expected="a broker that answers",
            next=standing.observed.asked.about(standing.observed.location).make_rebuild_command("--kafka", "SERVERS"),
        )
    if not isinstance(start, KafkaOffset):
        raise refuse(
            standing,
            "where the query began is not known, and Spark would look that up anew",
            subject=f"sources/{source_id}/0",
            expected="the file, in which the source wrote it down",
            effect="records that no batch has read would get into the state, or some be missing",
            next=standing.observed.command("backup list"),
        )
    starts: Mapping[str, Mapping[int, int]] = start.topics
    for topic, ends in end.topics.items():
        served = facts.topics[topic].partitions if topic in facts.topics else {}
        for partition, until in ends.items():
            at = starts.get(topic, {}).get(partition, 0)
            _require_range(
                standing, f"source {source_id}: {topic}/{partition}", range(at, until), served.get(partition)
            )
    yield from require_kept(standing, facts, end.topics)


def _require_range(standing: Standing, where: str, wanted: range, served: PartitionFacts | None) -> None:
    """See that a partition has all offsets of a range; of an empty one nothing is wanted."""
    if not wanted:
        return
    earliest, latest = (None, None) if served is None else (served.earliest, served.latest)
    if earliest is None or latest is None:
        found = "what it has is not known"
    elif earliest <= wanted.start and wanted.stop <= latest:
        return
    else:
        found = f"it has [{earliest}, {latest})"
    raise refuse(
        standing,
        "Kafka does not have what is to be read again",
        subject=where,
        found=found,
        expected=f"[{wanted.start}, {wanted.stop}), which a batch has read",
    )


def _require_files(standing: Standing, source_id: str, entries: range) -> None:
    """See that each file of these entries of a source's log is there as it was."""
    wrong = list_files_in_doubt(standing, source_id, entries)
    for each in find_files(standing, source_id, entries):
        if each.state in (FileState.CHANGED, FileState.MISSING):
            wrong.append(f"{each.file.path} is {each.state.value}")
    if wrong:
        raise refuse(
            standing,
            "what is to be read again is not there as it was, or nobody can tell",
            subject=f"source {source_id}",
            found=wrong[0],
            expected="every file as it was when it was read",
        )


def _require_same_topics(standing: Standing) -> None:
    """See that no topic looks as if it was created again: its offsets would be of other records."""
    for each in list_suspicions(standing.observed, standing.restart):
        if each.is_strong:
            raise refuse(
                standing,
                "a topic may have been deleted and created again",
                subject=each.topic,
                found=each.answer.because,
                expected="--topic-is-the-same, by which you say that it was not",
            )
