"""The goal `reposition`: the query starts at chosen offsets, with its id and above every number of its sinks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from lastgood.checkpoint.layout import COMMITS, OFFSETS
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, KafkaOffset, SourceOffset, get_topics
from lastgood.diagnosis.rules_kafka_broker import find_where_to_read
from lastgood.diagnosis.rules_state import make_recompute_command
from lastgood.frozen import dataclass
from lastgood.planning.draft import Draft, Edit
from lastgood.planning.goals.kind import Begins, Goal, GoalKind, Offer
from lastgood.planning.goals.resume import LOGS, repair_work, require_continuity, require_next, require_sinks
from lastgood.planning.goals.values import RepositionGoal
from lastgood.planning.losses import (
    find_beginnings,
    list_assumptions,
    list_doubled_already,
    list_missing_already,
    list_not_marked,
    predict_silent_loss,
)
from lastgood.planning.numbering import Number, choose_number, require_no_gap
from lastgood.planning.placing import Placed, place_sources, reduce_to_now
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import Reached, choose_weakest, find_ends, judge_unresolved, price_start
from lastgood.planning.repairs.lost import list_mirrored
from lastgood.planning.repairs.repair import Outlook, Repair, Work, refuse
from lastgood.planning.standing import Standing
from lastgood.query.missing import list_dropped, list_taken
from lastgood.query.observation import Observation, make_views
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.sink_batches import find_origins
from lastgood.query.sinks import NONE


def draft_reposition(observed: Observation, goal: RepositionGoal, spark: SparkVersion) -> Draft:
    """The draft for `reposition`.

    Raises:
        RepairRefusedError: the query keeps state, the offsets are not there, or nobody can tell what it would cost.
    """
    work = Work.begin(observed, spark)
    if work.standing.observed.is_stateful:
        raise refuse_stateful(work.standing)
    require_sinks(work.standing)
    work = repair_work(work, LOGS)
    require_continuity(work.standing)
    where = _Where.of(work)
    starts = place_sources(work.standing, where.stays, goal.offsets)
    edits = _make_edits(work.standing, where, starts, f"it starts where {goal.chosen}")
    repair = price_edits(work.standing, where.reached, starts, edits, where.rests_on)
    if not work.standing.sinks_known:  # whatever the logs say, one may be ahead of them
        repair = replace(repair, word=choose_weakest((repair.word, Guarantee.AT_LEAST_ONCE)))
    return finish_draft(work.with_repair(repair))


def refuse_stateful(standing: Standing) -> Exception:
    """The error for a query whose state would not fit other offsets."""
    return refuse(
        standing,
        "the query keeps state, which holds what was read up to where it stands",
        expected="a query without state",
        effect="started elsewhere it would count some rows twice, or drop open windows",
        next=make_recompute_command(standing.observed) or standing.observed.command("plan", "--goal", "resume"),
    )


def price_edits(
    standing: Standing, reached: Reached, starts: Placed, edits: tuple[Edit, ...], rests_on: tuple[str, ...]
) -> Repair:
    """The edits with their price and the word for it.

    Raises:
        RepairRefusedError: how far the sinks have come is not known, and no broker tells where that ends at most.
    """
    recreated = standing.recreated
    is_settled = not standing.has_orphan or (standing.sinks_known and standing.furthest <= standing.committed)
    meanwhile = {
        topic: find_where_to_read(standing.observed, standing.restart, topic, by_time=is_settled) for topic in recreated
    }
    bounded = reduce_to_now(_limit_reached(standing, reached), meanwhile)
    prices = price_start(starts.starts, bounded, standing.checkpoint, standing.kafka)
    doubts = [
        *starts.doubts,
        *(f"{topic} was created again: what was unread of it before is lost" for topic in recreated),
    ]
    unresolved = judge_unresolved(starts.starts, reached, standing.kafka)
    words = [price.guarantee for price in prices]
    words += [word for word, _ in unresolved]
    if doubts:
        words += [Guarantee.LOSSY]
    moved = [f"{name} starts at the earliest offset that Kafka has" for name in starts.moved]
    if doubts:
        prices = tuple(replace(price, bound=True) for price in prices)
    return Repair(edits, choose_weakest(words), (*rests_on, *doubts, *(line for _, line in unresolved), *moved), prices)


def finish_draft(work: Work) -> Draft:
    """The draft, once the query has been given its new start.

    Raises:
        RepairRefusedError: Spark would not run from there.
    """
    restart = work.standing.restart
    if not work.standing.runs:
        raise refuse(
            work.standing,
            f"Spark {work.spark} would not run from there: {restart.because}",
            subject=restart.stop.subject if restart.stop else None,
            found=restart.error,
            next=work.standing.observed.command("diagnose"),
        )
    require_next(work.standing)
    require_no_gap(work.standing)
    lost = predict_silent_loss(work.standing)
    if lost is not None:
        if work.repairs:
            priced_before = work.repairs[-1].prices
        else:
            priced_before = ()
        prices = (*lost.prices, *(replace(price, bound=True) for price in priced_before))
        return work.draft(Outlook(lost.word, lost.rests_on, prices))
    start = find_ends(work.standing.checkpoint.newest_offsets)
    # A plan that the mirror has put back tells of its sinks as one that was there.
    missing = (*list_missing_already(work.began, start), *list_dropped(work.standing.sinks, start))
    gone = tuple(dict.fromkeys((*missing, *list_taken(work.standing.sinks))))
    twice = tuple(list_doubled_already(work.standing))
    word = Guarantee.AT_LEAST_ONCE if twice else Guarantee.EXACTLY_ONCE
    if gone:
        word = Guarantee.LOSSY
    assumed = dict.fromkeys((*list_assumptions(work.standing), *list_not_marked(work.began)))
    return work.draft(Outlook(word, (*assumed, *gone, *twice)))


def _limit_reached(standing: Standing, reached: Reached) -> Reached:
    if reached.most is not None:
        return reached
    facts = standing.kafka
    if facts is None:
        raise refuse(
            standing,
            "the sinks are ahead of the logs, and where their newest batch ends is not known",
            found="; ".join(standing.marks()),
            expected="a mirror that holds its plan, or a broker that tells how much there is",
            effect="nobody could say how much would be written twice",
            next=standing.observed.make_plan_command("--kafka", "SERVERS"),
        )
    most: dict[str, SourceOffset] = {}
    for source_id, offset in reached.least.items():
        topics = offset.topics if isinstance(offset, KafkaOffset) else None
        if topics is None:
            most[source_id] = offset
        else:
            most[source_id] = KafkaOffset({t: facts.latest.get(t, {}) for t in topics})
    return Reached(reached.least, most, most)


@dataclass(frozen=True, slots=True)
class _Where:
    """Where the query stands and under which number it is started anew."""

    number: Number
    """Of the batch that is done at the chosen offsets."""
    stays: Mapping[str, SourceOffset]
    """Where a source starts for which nothing is chosen."""
    reached: Reached
    rests_on: tuple[str, ...]

    @classmethod
    def of(cls, work: Work) -> _Where:
        standing = work.standing
        shown = [batch for batch in standing.shown if batch is not None]
        is_doubtful = any(_is_of_another_plan(work, batch) for batch in shown)
        is_known = standing.sinks_known and not is_doubtful
        if is_known:
            low = min(shown)
        else:
            low = standing.committed
        if is_known:
            high = standing.reached_at_most
        else:
            high = max(standing.planned, standing.furthest, *list_mirrored(work.mirror, OFFSETS))
        number = choose_number(
            standing,
            logged=standing.committed if is_known else max(standing.committed, high),
            marked=max(standing.furthest, standing.skipped_up_to),
            commits={*standing.checkpoint.commits.ids, *list_mirrored(work.mirror, COMMITS)},
        )
        least, most = find_offset_entry(work, low), find_offset_entry(work, high)
        if low > standing.planned and least is None:
            low, least = standing.planned, find_offset_entry(work, standing.planned)
        stay = max(low, standing.committed)
        stays = find_offset_entry(work, stay)
        unread = [n for n, entry in ((low, least), (stay, stays)) if n > NONE and entry is None]
        if unread:
            raise refuse(
                standing,
                "where the query stands cannot be told",
                found=f"no plan of batch {unread[0]} that can be read",
                next=standing.observed.command("backup list"),
            )
        first = find_beginnings(standing)
        # Else a sink has what an older plan read, which no log tells.
        is_bounded = not (standing.planned_anew or is_doubtful)
        furthest = find_ends(most) or None
        if furthest is None and high == NONE:
            furthest = first
        reached = Reached(
            find_ends(least) or first,
            furthest if is_bounded else None,
            find_ends(standing.plan(standing.planned)) or find_ends(stays) or first,
        )
        return cls(number, find_ends(stays) or first, reached, (*_list_lines(standing, low, high), *number.rests_on))


def _is_of_another_plan(work: Work, batch: int) -> bool:
    """Whether a sink may hold a batch of another plan than the one that only the mirror has."""
    plan = None
    if batch > work.standing.planned:
        plan = find_offset_entry(work, batch)
    if plan is None or plan.metadata is None:
        return False
    planned_ms = {batch: plan.metadata.batch_timestamp_ms}
    held = [find_origins(each.sink, planned_ms).get(batch) for each in work.standing.sinks]
    return any(each is not None and each.origin.is_doubtful for each in held)


def _list_lines(standing: Standing, low: int, high: int) -> list[str]:
    if standing.sinks_known:
        return [*standing.marks(), *([f"{OFFSETS}/{low}"] if low > NONE else [])]
    return list(list_lines(low, high))


def list_lines(low: int, high: int) -> tuple[str, ...]:
    """On what it rests that all sinks have batches up to one, and none has any beyond another, by the logs alone."""
    if low == high:
        return f"{COMMITS}/{low}", "the assumption that no sink is ahead of it: not every sink told"
    return (f"{COMMITS}/{low} and {OFFSETS}/{high}: somewhere between them the sinks are",)


def find_offset_entry(work: Work, batch_id: int) -> OffsetEntry | None:
    """A plan, as the logs or the mirror hold it."""
    found = work.standing.plan(batch_id)
    copy = list_mirrored(work.mirror, OFFSETS).get(batch_id)
    if found is None and copy is not None and batch_id > work.standing.planned:
        entry = parse_offset_entry(copy)
        return entry if isinstance(entry, OffsetEntry) else None
    return found


def replace_lines(template: OffsetEntry, starts: Mapping[str, SourceOffset]) -> OffsetEntry:
    """A plan that ends where the sources are to start; all else is as in `template`."""
    entry = template
    for line in template.sources:
        start = starts.get(line.source_id, line.offset)
        if start != line.offset:
            entry = entry.with_source_line(line.source_id, start)
    return entry


def _make_edits(standing: Standing, where: _Where, starts: Placed, why: str) -> tuple[Edit, ...]:
    if where.number.batch == NONE:
        return _make_edits_before_first(standing, starts, why)
    number, checkpoint = where.number.batch, standing.checkpoint
    if where.number.is_run:
        committed = number - 1
    else:
        committed = number
    if number <= standing.committed:
        template = standing.plan(number)
    else:
        template = checkpoint.newest_offsets
    commit = standing.newest_commit
    if template is None or commit is None or committed == NONE:
        raise refuse(
            standing,
            "no batch is committed that a start could be written after",
            expected="a commit to go by",
            next=standing.observed.command("plan", "--goal", "fresh"),
        )
    content = replace_lines(template, starts.starts).to_bytes()
    gone = "it is planned from other offsets"
    edits = [Edit(f"{COMMITS}/{n}", None, gone) for n in checkpoint.commits.ids if n > committed]
    edits += [Edit(f"{OFFSETS}/{n}", None, gone) for n in checkpoint.offsets.ids if n > number]
    if number > 0 and (where.number.is_run or standing.plan(number - 1) is None):
        edits.append(Edit(f"{OFFSETS}/{number - 1}", content, f"Spark reads it together with {OFFSETS}/{number}"))
    edits.append(Edit(f"{OFFSETS}/{number}", content, why))
    if standing.commit(committed) is None:
        taken = f"no sink knows a batch above {number}, and the next one is {number + 1}"
        edits.append(Edit(f"{COMMITS}/{committed}", commit.to_bytes(), taken))
    return tuple(edits)


def _make_edits_before_first(standing: Standing, starts: Placed, why: str) -> tuple[Edit, ...]:
    """Nothing is committed and no sink shows anything: batch 0 begins where its sources say."""
    logs = {log.name: log for log in standing.checkpoint.sources if log.initial is not None}
    if not logs or not set(starts.starts).issubset(logs):
        raise refuse(
            standing,
            "no batch was ever planned, and no source says where it begins",
            expected="the option startingOffsets of the application",
        )
    edits = [Edit(f"{OFFSETS}/{n}", None, "it is planned from other offsets") for n in standing.checkpoint.offsets.ids]
    for name, log in logs.items():
        if log.initial is not None and name in starts.starts and starts.starts[name] != log.initial.offset:
            content = log.initial.with_offset(starts.starts[name]).to_bytes()
            edits.append(Edit(f"{log.folder}/0", content, why))
    return tuple(edits)


def _find_stay(observed: Observation) -> int:
    """The batch after which the query stands: the newest that is committed, or that every sink shows."""
    shown = [view.complete_to for view in make_views(observed)]
    known = [batch for batch in shown if batch is not None]
    committed = observed.checkpoint.last_committed or 0
    if not known or len(known) < len(shown):
        return committed
    return max(min(known), committed)


def _offer(observed: Observation, asked: Goal) -> Iterator[Offer]:
    checkpoint = observed.checkpoint
    newest = checkpoint.newest_offsets
    has_offsets = newest is None or any(isinstance(end, KafkaOffset) for end in find_ends(newest).values())
    # Of any other source nobody could choose them.
    if asked.name != RepositionGoal.name and has_offsets:
        lag = max((checkpoint.last_planned or 0) - _find_stay(observed), 0)
        yield RepositionGoal({}, "it stands, moved to what Kafka still serves"), ("--stable-lag", str(lag))


def _offer_earliest(observed: Observation) -> Iterator[Offer]:
    """Every partition that Kafka has of the topics that are read, from its beginning."""
    facts, newest = observed.kafka, observed.checkpoint.newest_offsets
    offsets = {}
    for source_id, offset in find_ends(newest).items():
        topics = facts.topics if facts else {}
        there: dict[str, dict[int, int]] = {}
        for topic, parts in get_topics(offset).items():
            partitions = topics[topic].partitions if topic in topics else parts
            there[topic] = dict.fromkeys(partitions, OFFSET_EARLIEST)
        if there:
            offsets[source_id] = there
    if offsets:
        yield RepositionGoal(offsets, "Kafka's earliest offsets are"), ("--earliest",)


REPOSITION: Final = GoalKind(
    name=RepositionGoal.name,
    begins=Begins.WHERE_CHOSEN,
    make=RepositionGoal,
    draft=draft_reposition,
    offer=_offer,
    offer_instead=_offer_earliest,
)
