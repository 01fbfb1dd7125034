"""The goal `fresh`: a checkpoint that is lost, or to be left behind, is seeded in place. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Final

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, KafkaOffset, SourceOffset, get_topics
from lastgood.planning.draft import Draft, Edit, StartEdit
from lastgood.planning.goals.kind import Begins, Goal, GoalKind, Offer
from lastgood.planning.goals.reposition import finish_draft, list_lines, price_edits, refuse_stateful, replace_lines
from lastgood.planning.goals.resume import require_sinks, resume_work
from lastgood.planning.goals.values import FreshGoal
from lastgood.planning.leaving import (
    BEHIND,
    add_newer_partitions,
    require_numbers_do_not_count,
    require_room_at_zero,
    set_logs_aside,
)
from lastgood.planning.numbering import Number, choose_number, require_log
from lastgood.planning.placing import Placed, place_sources
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import Reached, choose_weakest, find_ends
from lastgood.planning.repairs.lost import find_newest_mirrored, list_mirrored, restore_from_mirror
from lastgood.planning.repairs.repair import Repair, Work, refuse
from lastgood.planning.standing import Standing, see_as
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.sinks import NONE
from lastgood.query.topics import find_recorded_ids
from lastgood.sinks.evidence import is_query_id
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import StartFile

_ONLY_SOURCE = "0"
_NO_LOG = "the assumption that the query reads nothing else and keeps no state: no log is left that could tell"
_NOBODY = "(a query that is not there yet)"


def draft_fresh(observed: Observation, goal: FreshGoal, spark: SparkVersion) -> Draft:
    """The draft for `fresh`.

    Raises:
        RepairRefusedError: nothing is known that a checkpoint could be seeded from, or it keeps state.
    """
    work = Work.begin(observed, spark)
    if goal.offsets is None:
        return _draft_from_mirror(work)
    if work.standing.observed.is_stateful:
        raise refuse_stateful(work.standing)
    if goal.via is not None and _is_told_so(work.standing, goal.offsets):
        return resume_work(work)
    if goal.via is not None:
        return _draft_via_application(work, goal, goal.offsets, goal.via)
    return _draft_from_offsets(work, goal, goal.offsets)


def _draft_from_mirror(work: Work) -> Draft:
    if not work.facts.mirror:
        raise refuse(
            work.standing,
            "there is no mirror of this query",
            expected="a mirror, or what else tells how far the sinks have come: --at-sink, --offset-columns,"
            " --at-last-commit, --earliest",
            next=work.standing.observed.command("plan", "--goal", "fresh", "--earliest"),
        )
    query_id = work.facts.mirrored_id
    repair = restore_from_mirror(work, work.facts.mirror)
    asked_as = work.standing.query_id
    observed = work.standing.observed
    if query_id is not None:
        if asked_as not in (None, query_id) and work.standing.planned > NONE:
            line = f"query {asked_as} has run here meanwhile: what it wrote is written once more"
            repair = replace(repair, word=Guarantee.AT_LEAST_ONCE, rests_on=(*repair.rests_on, line))
        observed = see_as(observed, query_id, asked_as=asked_as)
    return resume_work(replace(work, mirror=work.facts.mirror).with_repair(repair, observed))


def _draft_from_offsets(work: Work, goal: FreshGoal, wanted: Mapping[str, Offsets]) -> Draft:
    standing = work.standing
    own_id = standing.query_id or work.facts.mirrored_id
    if own_id:
        observed = see_as(standing.observed, own_id, asked_as=standing.query_id)
    else:
        observed = standing.observed
    standing = Standing.of(observed, work.spark)
    template = _find_template(work, standing)
    if template is None or not template.conf:
        return _draft_before_first(work, standing, goal, wanted)
    query_id = own_id or goal.new_query_id
    if query_id is None:
        raise refuse(standing, "the id of the query is lost, and no new one is given", subject=METADATA)
    require_sinks(standing)
    plans, commits = _collect_offset_entries(work), _collect_commits(work)
    starts = place_sources(standing, _make_base(standing, template, wanted), wanted)
    marked = max(standing.furthest, standing.skipped_up_to, *_list_numbers(standing))
    logged = max(standing.planned, standing.committed, *plans, *commits)
    number = choose_number(standing, logged=logged, marked=marked, commits=commits)
    edits = _make_edits(standing, query_id, number, replace_lines(template, starts.starts), commits, goal.chosen)
    repair = _price_repair(standing, goal, plans, starts, edits)
    if logged > max(standing.planned, standing.committed):
        beyond = _list_no_batch_above(standing, logged)
    else:
        beyond = ()
    return finish_draft(
        work.with_repair(replace(repair, rests_on=(*repair.rests_on, *number.rests_on, *beyond)), observed)
    )


def _draft_before_first(work: Work, standing: Standing, goal: FreshGoal, wanted: Mapping[str, Offsets]) -> Draft:
    """No plan is left that tells what Spark pinned: the query begins at batch 0, where its source is told to begin.

    Raises:
        RepairRefusedError: it has another source, or a sink would drop batch 0.
    """
    checkpoint, asked_as = standing.checkpoint, standing.query_id
    if list(wanted) != [_ONLY_SOURCE] or checkpoint.newest_offsets is not None:
        raise refuse(
            standing,
            "no plan tells the settings that Spark pinned for this query",
            expected="a plan of it in the checkpoint, the mirror or a backup; or a query with one Kafka source",
            effect="a plan without them would make Spark go by its oldest defaults",
            next=standing.observed.command("backup list"),
        )
    query_id = goal.new_query_id
    if asked_as is not None and not _is_known(standing):
        query_id = asked_as
    if query_id is None:
        raise refuse(standing, "the id of the query is lost, and no new one is given", subject=METADATA)
    observed = see_as(standing.observed, query_id, asked_as=asked_as)
    standing = Standing.of(observed, work.spark)
    require_room_at_zero(standing, otherwise=standing.observed.command("backup list"))
    require_log(standing)
    base: dict[str, SourceOffset] = {_ONLY_SOURCE: KafkaOffset(wanted[_ONLY_SOURCE])}
    starts = place_sources(standing, base, wanted)
    edits = [each for each in set_logs_aside(checkpoint) if each.path != METADATA]
    begin = InitialOffset(_resolve_start(standing, starts.starts[_ONLY_SOURCE]), has_nul=True).to_bytes()
    edits += [
        Edit(METADATA, QueryMetadata(query_id).to_bytes(), "the query is a new one to its sinks"),
        Edit(f"{SOURCES}/{_ONLY_SOURCE}/0", begin, f"it starts at {goal.chosen}"),
    ]
    repair = _price_repair(standing, goal, {}, starts, tuple(edits))
    assumed = (_NO_LOG, *_list_no_batch_above(standing, NONE))
    return finish_draft(work.with_repair(replace(repair, rests_on=(*repair.rests_on, *assumed)), observed))


def _list_no_batch_above(standing: Standing, number: int) -> tuple[str, ...]:
    """What a start rests on where the logs are gone, and not every sink tells which numbers it has."""
    if standing.sinks and all(each.sink.known for each in standing.sinks):
        return ()
    if number == NONE:
        has = "batches already"
    else:
        has = f"a batch above {number}, the newest that the mirror knows"
    return (f"the assumption that no sink which goes by numbers has {has}: it would drop new ones",)


def _find_template(work: Work, standing: Standing) -> OffsetEntry | None:
    """The newest plan that is left, in the checkpoint or the mirror; None if there is none.

    Raises:
        RepairRefusedError: the mirror's shows a watermark, and what state went with it is gone.
    """
    found = standing.checkpoint.newest_offsets
    copy = None
    if found is None:
        copy = find_newest_mirrored(work.mirror)
    if copy is not None and copy.batch_watermark_ms > 0:
        raise refuse_stateful(standing)
    return found or copy


def _is_told_so(standing: Standing, wanted: Mapping[str, Offsets]) -> bool:
    """Whether the checkpoint is left behind already, and the application told to begin just there."""
    left = standing.observed.left
    if left is None or not left.says or standing.planned > NONE or left.starts.keys() != wanted.keys():
        return False
    for source_id, topics in wanted.items():
        told = left.starts[source_id]
        if told.keys() != topics.keys():
            return False
        for topic, parts in topics.items():
            newer = dict.fromkeys(told[topic], OFFSET_EARLIEST)  # partitions that no log knew then
            if told[topic] != {**newer, **parts}:
                return False
    return True


def _draft_via_application(work: Work, goal: FreshGoal, wanted: Mapping[str, Offsets], via: StartFile) -> Draft:
    """The checkpoint is set aside, and the application told by its configuration where to start: at batch 0.

    Raises:
        RepairRefusedError: a sink goes by numbers, or might; or the query has another source.
    """
    standing = work.standing
    own_id = standing.query_id or work.facts.mirrored_id
    if own_id:
        observed = see_as(standing.observed, own_id, asked_as=standing.query_id)
    else:
        observed = standing.observed
    standing = Standing.of(observed, work.spark)
    template = _find_template(work, standing)
    if len(wanted) != 1 or (template is not None and len(template.sources) != 1):
        raise refuse(
            standing,
            "one option startingOffsets cannot tell several sources where to start",
            found=f"{max(len(wanted), len(template.sources) if template else 0)} sources",
            expected="a query with one Kafka source",
            next=standing.observed.make_checkpoint_command(),
        )
    require_numbers_do_not_count(
        Standing.of(see_as(observed, _NOBODY, asked_as=own_id), work.spark), told=goal.takes_any_number
    )
    source_id, topics = next(iter(wanted.items()))
    base = {source_id: KafkaOffset(topics)} if template is None else _make_base(standing, template, wanted)
    starts = place_sources(standing, base, wanted)
    repair = _price_repair(standing, goal, _collect_offset_entries(work), starts, set_logs_aside(standing.checkpoint))
    start = starts.starts[source_id]
    offsets = add_newer_partitions(get_topics(start), standing.kafka)
    assumed = [f"the assumption that the application takes its startingOffsets from {via.location}"]
    if template is None:
        assumed += [_NO_LOG]
    drafted = finish_draft(work.with_repair(replace(repair, rests_on=(*repair.rests_on, *assumed)), observed))
    return replace(drafted, start=StartEdit(via, offsets, f"it starts at {goal.chosen}"), is_plain=False)


def _resolve_start(standing: Standing, start: SourceOffset) -> SourceOffset:
    """As Spark itself would note it down: a source that begins knows no "earliest".

    Raises:
        RepairRefusedError: Kafka was not asked what the earliest is.
    """
    if not isinstance(start, KafkaOffset):
        return start
    earliest: Offsets = standing.kafka.earliest if standing.kafka else {}
    found: dict[str, dict[int, int]] = {}
    for topic, partition, offset in ((t, p, at) for t, parts in start.topics.items() for p, at in parts.items()):
        if offset == OFFSET_EARLIEST:
            first = earliest.get(topic, {}).get(partition)
        else:
            first = offset
        if first is None:
            raise refuse(
                standing,
                "only Kafka can tell where its topics begin",
                subject=f"{topic}-{partition}",
                expected="--kafka SERVERS",
            )
        found.setdefault(topic, {})[partition] = first
    return KafkaOffset(found)


def _is_known(standing: Standing) -> bool:
    """Whether a sink knows batches of the id in `metadata`."""
    return any(each.shown > NONE or each.skips > NONE or not each.sink.known for each in standing.sinks)


def _collect_offset_entries(work: Work) -> dict[int, OffsetEntry]:
    """Every plan that can be read, of the mirror and of the checkpoint."""
    copies = {batch_id: parse_offset_entry(raw) for batch_id, raw in list_mirrored(work.mirror, OFFSETS).items()}
    both = {**copies, **work.standing.checkpoint.offsets.entries}
    return {batch_id: entry for batch_id, entry in both.items() if isinstance(entry, OffsetEntry)}


def _collect_commits(work: Work) -> dict[int, CommitEntry]:
    copies = {batch_id: parse_commit_entry(raw) for batch_id, raw in list_mirrored(work.mirror, COMMITS).items()}
    both = {**copies, **work.standing.checkpoint.commits.entries}
    return {batch_id: entry for batch_id, entry in both.items() if isinstance(entry, CommitEntry)}


def _list_numbers(standing: Standing) -> list[int]:
    """Numbers that sinks know, whether they show everything up to there or not, also under a name that users chose."""
    named = [last for each in standing.sinks for name, last in each.sink.others.items() if not is_query_id(name)]
    return [*(each.shown for each in standing.sinks), *named]


def _make_base(standing: Standing, template: OffsetEntry, wanted: Mapping[str, Offsets]) -> dict[str, SourceOffset]:
    """Every partition at its beginning.

    Raises:
        RepairRefusedError: the query reads something else than Kafka, or nothing is chosen for a source.
    """
    base: dict[str, SourceOffset] = {}
    for source_id, offset in find_ends(template).items():
        expected = "offsets for each of its sources"
        if not isinstance(offset, KafkaOffset):
            raise refuse(
                standing,
                "offsets can be chosen of Kafka only",
                subject=f"source {source_id}",
                found=f"a source of the kind {offset.kind}",
                expected=expected,
            )
        if source_id not in wanted:
            raise refuse(
                standing,
                "no offsets are chosen for a source of the query",
                subject=f"source {source_id}",
                expected=expected,
            )
        base[source_id] = KafkaOffset({t: dict.fromkeys(parts, OFFSET_EARLIEST) for t, parts in offset.topics.items()})
    return base


def _make_edits(
    standing: Standing,
    query_id: str,
    number: Number,
    plan: OffsetEntry,
    commits: Mapping[int, CommitEntry],
    chosen: str,
) -> tuple[Edit, ...]:
    """`metadata`, and one batch that is done under a number above all that a sink knows, with the plan before it."""
    batch = max(number.batch, 0)
    if number.is_run:
        committed = batch - 1
    else:
        committed = batch
    why = f"it starts at {chosen}"
    checkpoint = standing.checkpoint
    edits = [Edit(f"{COMMITS}/{n}", None, BEHIND) for n in checkpoint.commits.ids if n != committed]
    edits += [Edit(f"{OFFSETS}/{n}", None, BEHIND) for n in checkpoint.offsets.ids if n not in (batch - 1, batch)]
    if standing.query_id != query_id:
        edits.append(Edit(METADATA, QueryMetadata(query_id).to_bytes(), "the id by which sinks know the query"))
    if committed == NONE:
        return (*edits, *_make_first_run(standing, plan, why))
    content = plan.to_bytes()
    edits += [Edit(f"{OFFSETS}/{n}", content, why) for n in (batch - 1, batch) if n >= 0]
    if commits:
        commit = commits[max(commits)]
    else:
        commit = CommitEntry.of(1, next_batch_watermark_ms=0)
    if number.is_run:
        taken = f"batch {batch} runs without a row"
    else:
        taken = f"no sink knows a batch above {batch}"
    edits.append(Edit(f"{COMMITS}/{committed}", commit.to_bytes(), taken))
    return tuple(edits)


def _make_first_run(standing: Standing, plan: OffsetEntry, why: str) -> Iterator[Edit]:
    """Batch 0 runs without a row: it ends where its sources begin."""
    starts = {line.source_id: _resolve_start(standing, line.offset) for line in plan.sources}
    yield Edit(f"{OFFSETS}/0", replace_lines(plan, starts).to_bytes(), why)
    for source_id, start in starts.items():
        yield Edit(f"{SOURCES}/{source_id}/0", InitialOffset(start, has_nul=True).to_bytes(), why)


def _price_repair(
    standing: Standing, goal: FreshGoal, plans: Mapping[int, OffsetEntry], starts: Placed, edits: tuple[Edit, ...]
) -> Repair:
    """The price by the logs where they tell how far the sinks are, else the word by what is proven otherwise."""
    shown = [batch for batch in standing.shown if batch is not None]
    if standing.sinks_known and min(shown) in plans and standing.reached_at_most in plans:
        low, high = plans[min(shown)], plans[standing.reached_at_most]
        reached = Reached(find_ends(low), find_ends(high), find_ends(plans[max(plans)]))
        return price_edits(standing, reached, starts, edits, tuple(standing.marks()))
    extent = goal.extent
    logged = None
    if extent is None:
        logged = _reach_by_logs(standing, plans)
    if logged is not None:
        repair = price_edits(standing, logged[0], starts, edits, logged[1])
        word = choose_weakest((repair.word, Guarantee.AT_LEAST_ONCE))
        return replace(repair, word=word, prices=_limit_prices(repair))
    if extent is None or (extent.most is None and standing.kafka is None):
        nothing = Reached(starts.starts, starts.starts, starts.starts)
        repair = price_edits(standing, nothing, starts, edits, ("how far the sinks have come is not known",))
        return replace(repair, word=Guarantee.LOSSY, prices=_limit_prices(repair))
    least, most = _make_kafka_offsets(extent.least), None if extent.most is None else _make_kafka_offsets(extent.most)
    reached = Reached(least, most, most or _find_ends(standing, least))
    rests_on = (*extent.rests_on, *_list_same_topics(standing, starts, extent.anew))
    repair = price_edits(standing, reached, starts, edits, rests_on)
    word = choose_weakest((repair.word, extent.word))
    return replace(repair, word=word, prices=repair.prices if word is Guarantee.EXACTLY_ONCE else _limit_prices(repair))


def _reach_by_logs(standing: Standing, plans: Mapping[int, OffsetEntry]) -> tuple[Reached, tuple[str, ...]] | None:
    """How far the sinks have come where not all of them tell, and what that rests on; None: the logs tell it neither.

    Spark commits a batch once every sink has all of it, and no sink is given a batch before it is planned.
    """
    low = min((standing.committed, *(batch for batch in standing.shown if batch is not None)))
    high = max((standing.planned, standing.furthest, *plans))
    if low not in plans or high not in plans:
        return None
    return Reached(find_ends(plans[low]), find_ends(plans[high]), find_ends(plans[high])), list_lines(low, high)


def _list_same_topics(standing: Standing, starts: Placed, anew: Collection[str]) -> Iterator[str]:
    """What it rests on where nobody knows which topic of a name the query has read."""
    known = find_recorded_ids(standing.observed)
    read = {topic for each in starts.starts.values() for topic in get_topics(each)}
    unknown = sorted(read - known.keys() - {*anew})
    if unknown:
        names = ", ".join(unknown)
        yield f"the assumption that these topics were never deleted and created again, of which no id is kept: {names}"


def _make_kafka_offsets(offsets: Mapping[str, Offsets]) -> dict[str, SourceOffset]:
    return {source_id: KafkaOffset(topics) for source_id, topics in offsets.items()}


def _find_ends(standing: Standing, least: Mapping[str, SourceOffset]) -> dict[str, SourceOffset]:
    """Where Kafka ends: as far as a query may have read at most."""
    latest: Offsets = standing.kafka.latest if standing.kafka else {}
    named = {source_id: each for source_id, each in least.items() if isinstance(each, KafkaOffset)}
    return {source_id: KafkaOffset({t: latest.get(t, {}) for t in each.topics}) for source_id, each in named.items()}


def _limit_prices(repair: Repair) -> tuple[SourcePrice, ...]:
    return tuple(replace(price, bound=True) for price in repair.prices)


def _offer(observed: Observation, asked: Goal) -> Iterator[Offer]:
    is_it = isinstance(asked, FreshGoal) and asked.offsets is None
    if observed.repair.mirror and not is_it:
        yield FreshGoal(), ()


FRESH: Final = GoalKind(
    name=FreshGoal.name, begins=Begins.ANEW, make=FreshGoal, draft=draft_fresh, offer=_offer, tells_start=True
)
