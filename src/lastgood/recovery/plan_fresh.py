"""The goal `fresh`: a checkpoint that is lost, or to be left behind, is seeded in place. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, KafkaOffset, SourceOffset
from lastgood.diagnose.sink_reading import NONE
from lastgood.diagnose.spark_version import SparkVersion
from lastgood.recovery.draft import Draft, Edit, Known
from lastgood.recovery.goals import Fresh
from lastgood.recovery.placing import Placed, placed
from lastgood.recovery.plan_reposition import finished, priced, refuse_stateful, with_lines
from lastgood.recovery.plan_resume import require_sinks, resumed
from lastgood.recovery.price import Guarantee
from lastgood.recovery.pricing import Reached, ends
from lastgood.recovery.repair import Repair, Work, refuse
from lastgood.recovery.repairs_lost import mirrored, newest_mirrored, restored
from lastgood.recovery.standing import Standing, seen_as
from lastgood.sources.kafka_ranges import Offsets


def plan_fresh(known: Known, goal: Fresh, spark: SparkVersion) -> Draft:
    """The draft for `fresh`.

    Raises:
        RepairRefusedError: nothing is known that a checkpoint could be seeded from, or it keeps state.
    """
    work = Work.begin(known, spark)
    if goal.offsets is None:
        return _from_mirror(work)
    if work.standing.world.is_stateful:
        raise refuse_stateful(work.standing)
    return _from_offsets(work, goal, goal.offsets)


def _from_mirror(work: Work) -> Draft:
    if not work.known.mirror:
        raise refuse(
            work.standing,
            "there is no mirror of this query",
            expected="a mirror, or offsets to start at",
            next=work.standing.world.command("plan", "--goal", "fresh", "--earliest"),
        )
    query_id = work.known.mirrored_id
    repair = restored(work, work.known.mirror)
    asked_as = work.standing.query_id
    world = work.standing.world
    if query_id is not None:
        if asked_as not in (None, query_id) and work.standing.planned > NONE:
            line = f"query {asked_as} has run here meanwhile: what it wrote is written once more"
            repair = replace(repair, word=Guarantee.AT_LEAST_ONCE, rests_on=(*repair.rests_on, line))
        world = seen_as(world, query_id, asked_as=asked_as)
    return resumed(replace(work, mirror=work.known.mirror).with_repair(repair, world))


def _from_offsets(work: Work, goal: Fresh, wanted: Mapping[str, Offsets]) -> Draft:
    standing = work.standing
    own_id = standing.query_id or work.known.mirrored_id
    query_id = own_id or goal.new_query_id
    if query_id is None:
        raise refuse(standing, "the id of the query is lost, and no new one is given", subject=METADATA)
    world = seen_as(standing.world, own_id, asked_as=standing.query_id) if own_id else standing.world
    standing = Standing.of(world, work.spark)
    require_sinks(standing)
    plans, commits = _plans(work), _commits(work)
    template = standing.checkpoint.newest_offsets or newest_mirrored(work.mirror)
    base = _base(standing, template, wanted)
    if template is None or base is None:
        raise refuse(
            standing,
            "no plan tells the settings that Spark pinned for this query",
            expected="a plan of it in the checkpoint, the mirror or a backup, with Kafka sources only",
            effect="a plan without them would make Spark go by its oldest defaults",
            next=standing.world.command("backup list"),
        )
    starts = placed(standing, base, wanted)
    number = max(NONE, *plans, *commits, standing.furthest, standing.skipped_up_to, *_last_batches(standing))
    edits = _edits(standing, query_id, number, with_lines(template, starts.starts), commits, goal.chosen)
    repair = _priced(standing, goal, plans, starts, edits)
    return finished(work.with_repair(repair, world))


def _plans(work: Work) -> dict[int, OffsetEntry]:
    """Every plan that can be read, of the mirror and of the checkpoint."""
    copies = {batch_id: parse_offset_entry(raw) for batch_id, raw in mirrored(work.mirror, OFFSETS).items()}
    both = {**copies, **work.standing.checkpoint.offsets.entries}
    return {batch_id: entry for batch_id, entry in both.items() if isinstance(entry, OffsetEntry)}


def _commits(work: Work) -> dict[int, CommitEntry]:
    copies = {batch_id: parse_commit_entry(raw) for batch_id, raw in mirrored(work.mirror, COMMITS).items()}
    both = {**copies, **work.standing.checkpoint.commits.entries}
    return {batch_id: entry for batch_id, entry in both.items() if isinstance(entry, CommitEntry)}


def _last_batches(standing: Standing) -> list[int]:
    """Numbers that sinks know, whether they show everything up to there or not."""
    return [each.shown for each in standing.sinks]


def _base(
    standing: Standing, template: OffsetEntry | None, wanted: Mapping[str, Offsets]
) -> dict[str, SourceOffset] | None:
    """Every partition at its beginning; None if the query reads something else than Kafka."""
    base: dict[str, SourceOffset] = {}
    for source_id, offset in ends(template).items():
        if not isinstance(offset, KafkaOffset):
            return None
        if source_id not in wanted:
            raise refuse(
                standing,
                "no offsets are chosen for a source of the query",
                subject=f"source {source_id}",
                expected="offsets for each of its sources",
            )
        base[source_id] = KafkaOffset({t: dict.fromkeys(parts, OFFSET_EARLIEST) for t, parts in offset.topics.items()})
    return base if template is not None and template.conf else None


def _edits(
    standing: Standing,
    query_id: str,
    number: int,
    plan: OffsetEntry,
    commits: Mapping[int, CommitEntry],
    chosen: str,
) -> tuple[Edit, ...]:
    """`metadata`, and one committed batch under a number above all that a sink knows, with the plan before it."""
    number = max(number, 0)
    why = f"it starts at {chosen}"
    checkpoint = standing.checkpoint
    behind = "it is left behind"
    edits = [Edit(f"{COMMITS}/{n}", None, behind) for n in checkpoint.commits.ids if n != number]
    edits += [Edit(f"{OFFSETS}/{n}", None, behind) for n in checkpoint.offsets.ids if n not in (number - 1, number)]
    if standing.query_id != query_id:
        edits.append(Edit(METADATA, QueryMetadata(query_id).to_bytes(), "the id by which sinks know the query"))
    content = plan.to_bytes()
    edits += [Edit(f"{OFFSETS}/{n}", content, why) for n in (number - 1, number) if n >= 0]
    commit = commits[max(commits)] if commits else CommitEntry.of(1, next_batch_watermark_ms=0)
    edits.append(Edit(f"{COMMITS}/{number}", commit.to_bytes(), f"no sink knows a batch above {number}"))
    return tuple(edits)


def _priced(
    standing: Standing, goal: Fresh, plans: Mapping[int, OffsetEntry], starts: Placed, edits: tuple[Edit, ...]
) -> Repair:
    """The price by the logs where they tell how far the sinks are, else the word by what is proven otherwise."""
    shown = [batch for batch in standing.shown if batch is not None]
    if standing.sinks_known and min(shown) in plans and max(shown) in plans:
        low, high = plans[min(shown)], plans[max(shown)]
        reached = Reached(ends(low), ends(high), ends(plans[max(plans)]))
        return priced(standing, reached, starts, edits, tuple(standing.marks()))
    nothing = Reached(starts.starts, starts.starts, starts.starts)
    repair = priced(standing, nothing, starts, edits, ())
    prices = tuple(replace(price, bound=True) for price in repair.prices)
    is_as_chosen = not starts.moved and not starts.doubts
    word, line = Guarantee.LOSSY, "how far the sinks have come is not known"
    if goal.proof_exact is not None and is_as_chosen:
        word, line = Guarantee.EXACTLY_ONCE, goal.proof_exact
        prices = repair.prices
    elif goal.proof_complete is not None and is_as_chosen:
        word, line = Guarantee.AT_LEAST_ONCE, goal.proof_complete
    return replace(repair, word=word, rests_on=(line, *repair.rests_on), prices=prices)
