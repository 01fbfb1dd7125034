"""The goal `recompute`: the state is made anew from the sources, in place; no window is written twice. Pure.

For one windowed aggregation in output mode append: Spark writes a window once its end is reached by the watermark, and
drops every later row for it. So the watermark of the last batch tells which windows are written. The state is emptied,
and one batch reads again all that the query has read, under that very watermark: it drops what belongs to written
windows, and counts the open ones. In output mode complete nothing is ever dropped, and the batch writes the whole
result once more (`planning/written_state.py`). Proven with real Spark in `tests/repair/test_recompute.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from lastgood.checkpoint.commits import CommitEntry, StateUniqueIds
from lastgood.checkpoint.empty_state import EMPTY_SNAPSHOTS, make_empty_archive
from lastgood.checkpoint.layout import (
    COMMITS,
    OFFSETS,
    STATE,
    HadoopChecksumFile,
    OperatorMetadataFile,
    SparkChecksumFile,
    StateSchemaFile,
    classify,
    parse_state_version,
)
from lastgood.checkpoint.offsets import STATE_STORE_CODEC, STATE_STORE_PROVIDER, OffsetEntry, SourceLine
from lastgood.checkpoint.operators import STORE_DEFAULT
from lastgood.checkpoint.partitions import Spread, collect_pins, find_pinned_partitions
from lastgood.checkpoint.source_offsets import (
    FileOffset,
    KafkaOffset,
    SourceOffset,
    VoidOffset,
    parse_source_offset,
)
from lastgood.checkpoint.source_order import OffsetStep, compare_offsets
from lastgood.checkpoint.state import StateFormat, StateOperator, StateStore, judge_state
from lastgood.checkpoint.state_files import StateFile, StateFileKind
from lastgood.frozen import dataclass
from lastgood.planning.draft import Draft, Edit
from lastgood.planning.goals.kind import Begins, Goal, GoalKind, Offer
from lastgood.planning.goals.reposition import replace_lines
from lastgood.planning.goals.resume import LOGS, foresee_start, repair_work, require_sinks, require_sources
from lastgood.planning.goals.values import RecomputeGoal
from lastgood.planning.losses import find_beginnings, merge_prices
from lastgood.planning.pinned_confs import (
    CHANGELOG,
    HDFS_BACKED,
    ROCKSDB,
    describe_changes,
    find_unknown,
    list_grounds,
    replace_pinned,
)
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import choose_weakest
from lastgood.planning.read_again import find_files, list_files_in_doubt, require_few_enough, require_kept
from lastgood.planning.repairs.lost import restore_lost_logs
from lastgood.planning.repairs.repair import Renewal, Repair, Work, refuse
from lastgood.planning.standing import Standing
from lastgood.planning.steps import MoveStep, StateStep
from lastgood.planning.unread_files import describe_left_out_files
from lastgood.planning.written_state import find_written_state
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.refills import is_refill
from lastgood.query.sinks import NONE
from lastgood.query.spans import BEFORE_FIRST_FILE
from lastgood.query.windows import can_make_anew, is_state_lost
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.sources.kafka.ranges import select_only_in

OPERATOR: Final = 0
"""Spark counts from here; where there is one stateful operator it is this one."""
_CODEC_DEFAULT: Final = "lz4"
_LESS: Final = "; or --window LENGTH, by which less is read again"
_OF_PROVIDER: Final = {HDFS_BACKED: StateFileKind.SNAPSHOT, ROCKSDB: StateFileKind.ZIP}


def draft_recompute(observed: Observation, goal: RecomputeGoal, spark: SparkVersion) -> Draft:
    """The draft for `recompute`.

    Raises:
        RepairRefusedError: the state is not that of windows that are written once, how far these have come is not
            known, or what was read is not served any more.
    """
    work = Work.begin(observed, spark)
    require_sources(work)
    require_sinks(work.standing)
    written = find_written_state(work.standing, goal)
    work = repair_work(work, (restore_lost_logs, *LOGS))
    done = _Done.of(work.standing, goal.conf)
    starts = _Starts.of(work, done, goal)
    closed = done.list_closed() if written.is_windowed else ()
    rests_on = (*written.rests_on, *closed, *done.grounds, *starts.rests_on)
    work = work.with_repair(_make_repair(work, done, starts, written.word, rests_on))
    outlook = foresee_start(work)
    draft = work.draft(replace(outlook, prices=merge_prices(starts.lost, outlook.prices)))
    require_few_enough(work.standing, goal.max_replay, draft.sources, f"from where {goal.chosen}", _LESS)
    return draft


@dataclass(frozen=True, slots=True)
class _Done:
    """The last batch whose windows are written, and how its state is kept."""

    batch: int
    plan: OffsetEntry
    """It ends where that batch had come, and pins what is to be pinned from now on; where the state is to be filled
    again already, it is the plan of that."""
    commit: CommitEntry
    """Of that batch, or of the newest one that has any."""
    partitions: int
    kind: StateFileKind
    """Of what a load of the state begins with."""
    after: bytes
    """A store without a row."""
    has_ids: bool
    """Whether commits name the versions of the state (state checkpoint format v2)."""
    grounds: tuple[str, ...]
    """On what it rests that the state is kept as was said; one line each."""
    changes: str
    """What of that is new, to be said after why a plan is written."""

    @classmethod
    def of(cls, standing: Standing, conf: Mapping[str, str]) -> _Done:
        """See how far it has come.

        Args:
            standing: Where the query stands.
            conf: How the state is to be kept from now on.

        Raises:
            RepairRefusedError: nobody can tell, or the state is kept in a way that is not known.
        """
        batch = _find_done(standing)
        is_begun = is_refill(standing.plan(batch), standing.plan(batch + 1))
        plan, commit = standing.plan(batch + 1 if is_begun else batch), standing.newest_commit
        if plan is None or commit is None or plan.metadata is None:
            raise refuse(standing, f"{OFFSETS}/{batch} or its commit cannot be read", expected="both")
        if plan.metadata.control is not None:
            raise refuse(
                standing, f"batch {batch} is one with which Spark itself changes the state", found="a repartition"
            )
        has_ids = _has_ids(standing)
        _require_own_provider(standing, batch, plan)
        _require_known(standing, batch, plan, conf)
        before, plan = plan, replace_pinned(plan, conf)
        partitions, provider = _find_partitions(standing, plan), plan.conf.get(STATE_STORE_PROVIDER, "")
        codec = plan.conf.get(STATE_STORE_CODEC, _CODEC_DEFAULT)
        kind = _OF_PROVIDER.get(provider)
        if partitions is None or kind is None or (kind is StateFileKind.SNAPSHOT and codec not in EMPTY_SNAPSHOTS):
            raise refuse(
                standing,
                "how the state is kept is not known",
                subject=f"{OFFSETS}/{batch}",
                found=f"{partitions or 'unknown'} partitions, provider {provider or 'not told'}, codec {codec}",
                expected=f"partitions, one of {', '.join(_OF_PROVIDER)}, one of {', '.join(EMPTY_SNAPSHOTS)};"
                " or --shuffle-partitions and --state-store, which say it anew",
            )
        _require_fitting(standing, kind, conf, has_ids=has_ids)
        after = EMPTY_SNAPSHOTS[codec] if kind is StateFileKind.SNAPSHOT else make_empty_archive()
        grounds, changes = tuple(list_grounds(before, conf)), describe_changes(before, conf)
        return cls(batch, plan, commit, partitions, kind, after, has_ids, grounds, changes)

    @property
    def number(self) -> int:
        """Of the batch that fills the state again."""
        return self.batch + 1

    @property
    def watermark_ms(self) -> int:
        """Under which the batch wrote its windows."""
        return self.plan.batch_watermark_ms

    def list_closed(self) -> tuple[str, ...]:
        """On what it rests which windows are closed, and are not written again; one line each."""
        written = f"{OFFSETS}/{self.batch}.batchWatermarkMs {self.watermark_ms}: windows that end by then are written"
        windows = "the assumption that the application's windows are as long as before, and slide as before"
        return written, windows


def _find_partitions(standing: Standing, plan: OffsetEntry) -> int | None:
    """Over how many the state is spread; an aggregation without a key has one, whatever is pinned."""
    state = standing.checkpoint.state
    if state is None:
        return find_pinned_partitions(plan)
    if Spread.SINGLE in map(state.spread, state.operators):
        return 1
    return find_pinned_partitions(plan)


def _find_done(standing: Standing) -> int:
    """The last batch whose windows are written.

    Raises:
        RepairRefusedError: nobody can tell.
    """
    planned, committed = standing.planned, standing.committed
    if committed == NONE:
        raise refuse(
            standing,
            "no batch is committed, so that nothing is there to be kept",
            expected="a committed batch",
            next=standing.observed.command("plan", "--goal", "fresh"),
        )
    if planned not in (committed, committed + 1):
        raise refuse(
            standing,
            "the logs do not tell which batch was the last",
            found=f"batch {planned} is planned, batch {committed} is committed",
            next=standing.observed.command("diagnose"),
        )
    if max(standing.furthest, standing.skipped_up_to) > planned:
        raise refuse(
            standing,
            "a sink has numbers that the logs do not know",
            found="; ".join(standing.marks()),
            expected=f"batch {planned} at most",
            effect="the batch that fills the state again would be skipped, and the state never made",
            next=standing.observed.command("diagnose"),
        )
    if not standing.has_orphan:
        if standing.skipped_up_to > committed or (standing.sinks_known and standing.common != committed):
            raise _refuse_apart(standing, f"batch {committed} in every sink")
        return committed
    is_told = standing.sinks_known and not standing.may_have_orphan_unmarked and not standing.planned_anew
    if not is_told or standing.common not in (committed, planned):
        raise _refuse_apart(standing, f"every sink to tell whether it has batch {planned}: all of them, or none")
    if standing.common == committed and standing.skipped_up_to > committed:
        raise _refuse_apart(standing, f"no mark of batch {planned}, whose rows are not there")
    return standing.common


def _refuse_apart(standing: Standing, expected: str) -> Exception:
    return refuse(
        standing,
        "which windows are written cannot be told",
        found="; ".join(standing.marks()) or "no sink that tells (--sink)",
        expected=expected,
        effect="windows would be written twice, or not at all",
        next=standing.observed.command("diagnose"),
    )


def _require_own_provider(standing: Standing, batch: int, plan: OffsetEntry) -> None:
    """See that the state was not kept by somebody else's provider, whose files nobody knows."""
    provider = plan.conf.get(STATE_STORE_PROVIDER)
    if provider is not None and provider not in _OF_PROVIDER:
        raise refuse(
            standing,
            "the state is kept by a provider whose files are not known",
            subject=f"{OFFSETS}/{batch}",
            found=f"{STATE_STORE_PROVIDER} {provider[:200]}",
            expected=f"one of {', '.join(_OF_PROVIDER)}",
        )


def _require_known(standing: Standing, batch: int, plan: OffsetEntry, conf: Mapping[str, str]) -> None:
    """See that the Spark which has planned the batch pins what is to change."""
    unknown = find_unknown(plan, conf)
    if unknown is not None:
        raise refuse(
            standing,
            "the Spark that has planned the last batch does not pin this conf, so that it may not know it",
            subject=unknown,
            found=f"it does not stand in {OFFSETS}/{batch}",
            expected="a conf that stands there",
        )


def _require_fitting(standing: Standing, kind: StateFileKind, conf: Mapping[str, str], *, has_ids: bool) -> None:
    """See that the state can be kept so."""
    if kind is not StateFileKind.SNAPSHOT:
        return
    if has_ids:
        raise refuse(
            standing,
            "the HDFS-backed state store cannot keep a state whose versions have ids",
            found="state checkpoint format v2",
            expected="--state-store rocksdb",
        )
    if CHANGELOG in conf:
        raise refuse(
            standing,
            "the HDFS-backed state store has no changelogs to be switched on or off",
            subject="--changelog",
            expected="--state-store rocksdb with it",
        )


def _has_ids(standing: Standing) -> bool:
    commit = standing.newest_commit
    is_named = commit is not None and bool(commit.state_unique_ids)
    return is_named or any(store.format is StateFormat.ROCKSDB_V2 for store in _list_stores(standing))


def _list_stores(standing: Standing) -> list[StateStore]:
    state = standing.checkpoint.state
    if state is None:
        return []
    return [store for operator in state.operators for store in operator.stores]


@dataclass(frozen=True, slots=True)
class _Starts:
    """Where every source is read again from."""

    offsets: Mapping[str, SourceOffset]
    rests_on: tuple[str, ...]
    lost: tuple[SourcePrice, ...] = ()
    """Of file sources: files that are gone or were written again."""

    @classmethod
    def of(cls, work: Work, done: _Done, goal: RecomputeGoal) -> _Starts:
        """As the goal says, else where the query began.

        Raises:
            RepairRefusedError: a source is of a kind that is not read again, or what it served is gone.
        """
        standing = work.standing
        _require_onward(standing, done)
        began = find_beginnings(standing)
        offsets: dict[str, SourceOffset] = {}
        lost: list[SourcePrice] = []
        lines = [f"it reads again from where {goal.chosen}", *goal.rests_on]
        for index, line in enumerate(done.plan.sources):
            end = line.offset
            if isinstance(end, KafkaOffset):
                first = _start_kafka(standing, line.source_id, began.get(line.source_id), end)
                offsets[line.source_id] = _start_later(first, goal.starts.get(line.source_id), end)
                lines += _require_kept(standing, end)
            elif isinstance(end, FileOffset):
                after = _find_log_offset(goal.starts.get(line.source_id), end)
                offsets[line.source_id] = FileOffset(after)
                files = _find_lost_files(work, line, range(after + 1, end.log_offset + 1))
                if files:
                    told = describe_left_out_files(line.source_id, files)
                    lines.append(f"{told}: the state lacks what it has counted of that")
                    paths = tuple(each.file.path for each in files)
                    lost.append(SourcePrice(index, FileOffset.kind, lost_files=paths, bound=True))
            elif not isinstance(end, VoidOffset):
                raise refuse(
                    standing,
                    "a source is of a kind of which nobody has proven that it serves everything again",
                    subject=f"source {line.source_id}",
                    found=end.kind,
                    expected="Kafka, files",
                )
        return cls(offsets, tuple(dict.fromkeys(lines)), tuple(lost))


def _require_onward(standing: Standing, done: _Done) -> None:
    """See that no source has gone back, or given up a partition, as far as the plans that are there tell."""
    entries = standing.checkpoint.offsets.entries
    plans = [(n, entries[n]) for n in sorted(entries) if n <= done.batch]
    for number, plan in plans:
        if not isinstance(plan, OffsetEntry) or number in standing.observed.rewritten:
            continue
        for line in plan.sources:
            last = done.plan.source(line.source_id)
            end = VoidOffset() if last is None else last.offset
            given_up = {}
            if isinstance(line.offset, KafkaOffset) and isinstance(end, KafkaOffset):
                given_up = select_only_in(line.offset.topics, end.topics)
            is_back = compare_offsets(line.offset, end) is OffsetStep.BACK
            if given_up or is_back or (isinstance(end, VoidOffset) and not isinstance(line.offset, VoidOffset)):
                raise refuse(
                    standing,
                    "a source went back, or gave up what it had read: what windows hold of that does not come again",
                    subject=f"{OFFSETS}/{number}",
                    found=f"source {line.source_id} at {line.text[:200]}",
                    expected=f"all of it in {OFFSETS}/{done.batch}",
                )


def _start_kafka(standing: Standing, source_id: str, start: SourceOffset | None, end: KafkaOffset) -> KafkaOffset:
    """A partition that came later is read from 0, as it was."""
    if not isinstance(start, KafkaOffset):
        raise refuse(
            standing,
            "where the query began is written down nowhere",
            subject=f"sources/{source_id}/0",
            expected="the offsets of its first batch",
        )
    given_up = select_only_in(start.topics, end.topics)
    if given_up:
        raise refuse(
            standing,
            "the query has given up what it had read: what windows hold of that does not come again",
            subject=f"source {source_id}",
            found=", ".join(given_up),
        )
    added = select_only_in(end.topics, start.topics)
    topics = {topic: {**start.topics.get(topic, {}), **dict.fromkeys(added.get(topic, {}), 0)} for topic in end.topics}
    beyond = [topic for topic, parts in topics.items() if not _is_within(parts, end.topics[topic])]
    if beyond:
        raise refuse(
            standing,
            "the query has not read on from where it is to be read again",
            subject=f"source {source_id}",
            found=f"{beyond[0]}: from {start.to_text()[:200]} to {end.to_text()[:200]}",
        )
    return KafkaOffset(topics)


def _is_within(starts: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    return all(0 <= at <= ends[partition] for partition, at in starts.items())


def _start_later(first: KafkaOffset, named: str | None, end: KafkaOffset) -> KafkaOffset:
    """From where reading begins: never before the query began, nor beyond where it has come."""
    chosen = None if named is None else parse_source_offset(named)
    if not isinstance(chosen, KafkaOffset):
        return first
    topics = {
        topic: {
            partition: max(at, min(chosen.topics.get(topic, {}).get(partition, at), end.topics[topic][partition]))
            for partition, at in parts.items()
        }
        for topic, parts in first.topics.items()
    }
    return KafkaOffset(topics)


def _find_log_offset(named: str | None, end: FileOffset) -> int:
    chosen = None if named is None else parse_source_offset(named)
    if not isinstance(chosen, FileOffset):
        return BEFORE_FIRST_FILE.log_offset
    return min(chosen.log_offset, end.log_offset)


def _require_kept(standing: Standing, end: KafkaOffset) -> Iterator[str]:
    """See that Kafka was asked, and keeps every record until it expires."""
    facts = standing.kafka
    if facts is None:
        raise refuse(
            standing,
            "whether Kafka still has what is to be read again is not known",
            expected="a broker that answers",
            effect="with an empty state the query would stand still, or lose windows",
            next=standing.observed.make_plan_command("--kafka", "SERVERS"),
        )
    for topic, ends in end.topics.items():
        for partition in ends:
            if partition in facts.earliest.get(topic, {}) and partition in facts.latest.get(topic, {}):
                continue
            raise refuse(
                standing,
                "whether Kafka still has what is to be read again is not known",
                subject=f"{topic}/{partition}",
                found="a broker that answers, and does not tell what this partition has",
                expected="the right to describe the topic, and a leader of each partition",
                effect="with an empty state the query would stand still, or lose windows",
            )
    yield from require_kept(standing, facts, end.topics)


def _find_lost_files(work: Work, line: SourceLine, entries: range) -> tuple[FileFacts, ...]:
    """The files of these entries of a source's log that are gone or were written again.

    Raises:
        RepairRefusedError: of one that is not known.
    """
    standing, source_id = work.standing, line.source_id
    unknown = list_files_in_doubt(standing, source_id, entries)
    if work.began.planned == NONE:
        raise refuse(
            standing,
            "files that were read are looked at only where the logs stand that name them",
            subject=f"source {source_id}",
            found="no logs but those of the mirror",
            expected="the checkpoint put back, and then this again",
            next=standing.observed.command("backup restore"),
        )
    if unknown:
        raise refuse(
            standing,
            "whether the files that are to be read again are there as they were is not known",
            subject=f"source {source_id}",
            found=unknown[0],
            expected="every file that it has read",
            next=standing.observed.command("plan", "--goal", RecomputeGoal.name),
        )
    files = find_files(standing, source_id, entries)
    return tuple(each for each in files if each.state is not FileState.PRESENT)


def _make_repair(work: Work, done: _Done, starts: _Starts, word: Guarantee, rests_on: tuple[str, ...]) -> Repair:
    standing, number = work.standing, done.number
    names = _name_stores(standing, done)
    ids: StateUniqueIds | None = None
    if done.has_ids:
        ids = {OPERATOR: tuple((each.unique_id or "",) for each in names)}
    commit = done.commit.with_watermark(done.watermark_ms)
    if ids is not None:
        commit = commit.with_state_unique_ids(ids)
    begins = replace_lines(done.plan, starts.offsets)
    edits = (
        *(
            Edit(f"{OFFSETS}/{each}", None, "it is planned anew")
            for each in standing.checkpoint.offsets.ids
            if each > number
        ),
        Edit(
            f"{OFFSETS}/{done.batch}",
            begins.to_bytes(),
            f"batch {number} reads again from where the state begins{done.changes}",
        ),
        Edit(
            f"{OFFSETS}/{number}",
            done.plan.to_bytes(),
            f"it reads up to where batch {done.batch} had come{done.changes}",
        ),
        Edit(f"{COMMITS}/{done.batch}", commit.to_bytes(), "the watermark stands still until the state is filled"),
    )
    renewal = _renew_state(work, done, names, ids)
    words = [price.guarantee for price in starts.lost]
    return Repair(edits, choose_weakest((word, *words)), rests_on, renewal=renewal)


def _name_stores(standing: Standing, done: _Done) -> list[StateFile]:
    """The file of each partition; where commits name versions, the same plan has the same ids."""
    found = []
    for partition in range(done.partitions):
        unique_id = None
        if done.has_ids:
            about = f"{standing.query_id} recompute {done.number} {OPERATOR} {partition}"
            unique_id = str(uuid.uuid5(uuid.NAMESPACE_URL, about))
        found.append(StateFile(done.number, done.kind, unique_id, len(done.after)))
    return found


def _renew_state(work: Work, done: _Done, names: list[StateFile], ids: StateUniqueIds | None) -> Renewal:
    """Only what is of this version and later has to go: an empty store at a version wins over all that is older."""
    sizes = work.facts.state_files
    paths = [f"{STATE}/{OPERATOR}/{partition}/{file.name}" for partition, file in enumerate(names)]
    why = "a state without a row, which the next batch fills"
    gone = [path for path in sorted(sizes) if _is_set_aside(path, done.number)]
    steps = tuple(
        StateStep(path, sizes.get(path), done.after, why, found_beside=_list_beside(path, gone)) for path in paths
    )
    moves = tuple(
        MoveStep(path, sizes[path], "the state is made anew, and Spark notes down its schema anew")
        for path in gone
        if path not in paths
    )
    kept = {store.partition: _select_older(store.files, done.number) for store in _list_stores(work.standing)}
    made = {partition: [file] for partition, file in enumerate(names)}
    stores = tuple(
        StateStore(OPERATOR, partition, STORE_DEFAULT, (*kept.get(partition, ()), *made.get(partition, ())))
        for partition in sorted(kept.keys() | made.keys())
    )
    plans = {done.batch: done.plan}
    judged = judge_state(
        [StateOperator(OPERATOR, None, None, stores)],
        {done.batch: ids},
        restart_version=done.number,
        pins=collect_pins(plans, done.batch),
    )
    return Renewal(steps, moves, judged)


def _select_older(files: Iterable[StateFile], version: int) -> list[StateFile]:
    return [each for each in files if each.version < version]


def _is_set_aside(path: str, number: int) -> bool:
    """Whether a file of the state would be in the way: what Spark holds the state against, and versions made since."""
    version = parse_state_version(path)
    if version is not None:
        return version >= number
    file = classify(path)
    if isinstance(file, HadoopChecksumFile | SparkChecksumFile):
        file = file.of
    return isinstance(file, OperatorMetadataFile | StateSchemaFile)


def _list_beside(path: str, gone: list[str]) -> tuple[str, ...]:
    folder = path.rpartition("/")[0]
    places = (each.rpartition("/") for each in gone)
    return tuple(name for place, _, name in places if place == folder)


def _offer(observed: Observation, asked: Goal) -> Iterator[Offer]:
    checkpoint = observed.checkpoint
    if asked.name != RecomputeGoal.name and is_state_lost(checkpoint) and can_make_anew(observed):
        yield RecomputeGoal(), ()


RECOMPUTE: Final = GoalKind(
    name=RecomputeGoal.name,
    begins=Begins.WITHOUT_STATE,
    make=RecomputeGoal,
    draft=draft_recompute,
    offer=_offer,
)
