"""Repairs that bring the logs back into agreement with what the sinks show. Pure."""

from __future__ import annotations

from dataclasses import replace

from lastgood.checkpoint.layout import COMMITS, OFFSETS
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset, VoidOffset
from lastgood.planning.draft import Edit
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import Reached, find_ends, price_start
from lastgood.planning.read_again import describe_unsettled
from lastgood.planning.repairs.lost import list_mirrored
from lastgood.planning.repairs.repair import Repair, Work, name_copy, refuse
from lastgood.planning.repairs.sinks_back import (
    READABLE_AGAIN,
    find_unserved,
    find_unsettled_topics,
    go_on_from,
    is_only_to_delta,
    take_sinks_back,
)
from lastgood.planning.standing import Standing
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome, StartStage
from lastgood.query.refills import is_refill
from lastgood.query.sinks import NONE
from lastgood.sources.kinds import find_source_kind, recognise_source
from lastgood.steps.step import SinkEdit


def lift_logs(work: Work) -> Repair | None:
    """The sinks are ahead of the logs, which are older than they: the logs are lifted (row 7), else the sinks go back.

    Raises:
        RepairRefusedError: the mirror does not hold what lies between, and the sinks cannot go back.
    """
    standing = work.standing
    shown, newest = standing.furthest, standing.planned
    if shown <= newest or newest == NONE:
        return None
    plans, commits = list_mirrored(work.mirror, OFFSETS), list_mirrored(work.mirror, COMMITS)
    missing = BatchIds.of(plans).missing(range(newest + 1, shown + 1))
    is_common = standing.common == shown or (shown in commits and all(each in (None, shown) for each in standing.shown))
    if missing or not is_common or not _has_same_newest_plan(standing, plans):
        back = go_on_from(standing, newest)
        if back is not None:
            return back
        raise refuse(
            standing,
            f"a sink shows batch {shown}, and the logs end with batch {newest}: they are older than it",
            found=_explain_not_lifted(missing, is_common=is_common),
            expected=f"a mirror that holds {OFFSETS}/{newest + 1} to {OFFSETS}/{shown}",
            effect=f"batches up to {shown} would be planned anew and dropped by the sink: some rows lost, others twice",
            next=standing.observed.command("backup list"),
        )
    why = f"the sinks show batch {shown}"
    numbers = range(newest + 1, shown + 1)
    edits = [Edit(f"{OFFSETS}/{n}", plans[n], why) for n in numbers]
    first = standing.committed + 1
    edits += [Edit(f"{COMMITS}/{n}", commits[n], why) for n in sorted(commits) if first <= n <= shown]
    return Repair(tuple(edits), rests_on=(name_copy(f"{OFFSETS}/{shown}"), *standing.marks()), keeps_state=True)


def _has_same_newest_plan(standing: Standing, plans: dict[int, bytes]) -> bool:
    """Whether the mirror holds the same newest plan as the logs, so that what follows it there follows here."""
    here, copy = standing.plan(standing.planned), plans.get(standing.planned)
    if here is None or copy is None:
        return False
    there = parse_offset_entry(copy)
    return isinstance(there, OffsetEntry) and find_ends(there) == find_ends(here)


def _explain_not_lifted(missing: tuple[range, ...], *, is_common: bool) -> str:
    if missing:
        return f"no copy of {OFFSETS}/{missing[0].start}"
    return "another newest plan in the mirror" if is_common else "sinks that differ, or do not tell"


def cut_logs(work: Work) -> Repair | None:
    """The sinks went back behind the logs: the logs follow them (row 11).

    Raises:
        RepairRefusedError: they cannot.
    """
    standing = work.standing
    behind = [batch for batch in standing.shown if batch is not None and batch < standing.committed]
    floor = min(behind, default=None)
    if floor is None:
        return None
    if standing.common != floor:
        if standing.sinks_known:
            return take_sinks_back(standing, floor, f"another sink shows nothing after batch {floor}")
        raise _refuse_cut(standing, floor, "sinks that differ, or do not tell", "all sinks at the same batch")
    plan, newest = standing.plan(floor), standing.plan(standing.planned)
    if plan is None or newest is None:
        raise _refuse_cut(standing, floor, f"no {OFFSETS}/{floor} that can be read", f"{OFFSETS}/{floor}")
    assumed: list[str] = []
    for source_id, end in find_ends(plan).items():
        line = newest.source(source_id)
        until = end if line is None else line.offset
        _require_served(standing, floor, source_id, end, until)
        untold = find_unsettled_topics(standing, end, until)
        assumed += map(describe_unsettled, untold)
    why = f"the sinks show nothing after batch {floor}"
    checkpoint = standing.checkpoint
    edits = [Edit(f"{COMMITS}/{n}", None, why) for n in checkpoint.commits.ids if n > floor]
    edits += [Edit(f"{OFFSETS}/{n}", None, why) for n in checkpoint.offsets.ids if n > floor]
    most = standing.plan(standing.reached_at_most) or newest
    reached = Reached(find_ends(plan), find_ends(most), find_ends(newest))
    prices = price_start(find_ends(plan), reached, checkpoint, standing.kafka)
    return Repair(tuple(edits), rests_on=(f"{OFFSETS}/{floor}", *standing.marks(), *assumed), prices=prices)


def _require_served(standing: Standing, floor: int, source_id: str, start: SourceOffset, end: SourceOffset) -> None:
    """See that a source still has what is to be read again; where nobody knows, that Spark would say so."""
    lacking = find_unserved(standing, source_id, start, end)
    if lacking is not None:
        raise _refuse_cut(standing, floor, *lacking)


def _refuse_cut(standing: Standing, floor: int, found: str, expected: str) -> Exception:
    return refuse(
        standing,
        f"a sink shows nothing after batch {floor}, and batch {standing.committed} is committed: it went back",
        found=found,
        expected=expected,
        effect="the rows between are not in the sink, and the query would not read them again",
        next=standing.observed.command("diagnose"),
    )


def close_several_open(work: Work) -> Repair | None:
    """Several plans are not committed: Spark runs the newest alone, and takes the others for done.

    Raises:
        RepairRefusedError: sinks that lack them differ.
    """
    standing = work.standing
    newest = standing.planned
    if newest - standing.committed < 2 or not standing.sinks_known:
        return None
    floor = min(shown for shown in standing.shown if shown is not None)
    if floor >= newest - 1:
        return None
    if standing.common is None:
        raise refuse(
            standing,
            f"batches {standing.committed + 1} to {newest} are planned and not committed, and the sinks differ",
            found=", ".join(standing.marks()),
            expected="all sinks at the same batch",
            next=standing.observed.command("diagnose"),
        )
    why = f"the sinks show nothing after batch {floor}, and Spark would take batch {newest - 1} for done"
    edits = tuple(Edit(f"{OFFSETS}/{n}", None, why) for n in standing.checkpoint.offsets.ids if n > floor + 1)
    return Repair(edits, rests_on=tuple(standing.marks()))


def repair_orphan(work: Work) -> Repair | None:
    """The newest plan cannot be run again, or a sink that has it would take it twice.

    Raises:
        RepairRefusedError: some sinks have it and others lack it, or it cannot be committed by hand.
    """
    standing = work.standing
    batch_id = standing.planned
    if not standing.has_orphan:
        return None
    shown = standing.common
    if standing.restart.outcome is Outcome.RERUNS:
        _require_replay(standing)
        is_twice = shown == batch_id and not standing.recognises_orphan
        is_possible = is_twice and standing.may_be_committed
        return _commit_orphan(work, "the sinks have it, and would not recognise it") if is_possible else None
    stop = standing.restart.stop
    if stop is None or standing.restart.batch != batch_id or standing.restart.leaves_orphan:
        return None
    is_state = standing.observed.is_stateful and stop.subject.startswith(("state", COMMITS, OFFSETS))
    if stop.stage not in (StartStage.PLANNED, StartStage.TASK) or is_state:
        return None
    why = f"it cannot run again: {stop.subject}: {stop.because}"
    return (
        _commit_orphan(work, f"the sinks have it, and {why}")
        if shown == batch_id
        else retire_orphan(standing, batch_id, why)
    )


def _require_replay(standing: Standing) -> None:
    """See that the batch can be run for the sinks that lack it, though others would drop it unread."""
    lacking = tuple(sink for sink in standing.observed.sinks if sink.would_skip(standing.planned) is not True)
    if not lacking or len(lacking) == len(standing.observed.sinks):
        return
    restart = predict(replace(standing.observed, sinks=lacking), standing.spark)
    if restart.stop is not None:
        raise refuse(
            standing,
            f"some sinks have batch {standing.planned}, and for the others it cannot run again",
            subject=restart.stop.subject,
            found=restart.error,
            effect="it would be in some sinks only",
            next=standing.observed.command("diagnose"),
        )


def _commit_orphan(work: Work, why: str) -> Repair:
    """Commit the orphan by hand (rows 3 and 13)."""
    standing = work.standing
    batch_id, template, plan = standing.planned, standing.newest_commit, standing.plan(standing.planned)
    if template is None or plan is None or not standing.is_kafka_only:
        raise refuse(
            standing,
            f"the sinks have batch {batch_id}, and it cannot be committed by hand",
            found="no commit to go by"
            if template is None
            else f"sources of the kinds {', '.join(standing.kinds.values())}",
            expected="an older commit, and no source but Kafka, which alone is not asked for the batch again",
            effect=why,
            next=standing.observed.command("diagnose"),
        )
    content = template.with_watermark(plan.batch_watermark_ms).to_bytes()
    return Repair((Edit(f"{COMMITS}/{batch_id}", content, why),), rests_on=tuple(standing.marks()))


def _require_no_refill(standing: Standing, batch_id: int) -> None:
    """See that the orphan does not fill an emptied state.

    Raises:
        RepairRefusedError: it does; in several batches the watermark would rise before all is read.
    """
    before = standing.plan(batch_id - 1)
    is_moved = batch_id - 1 in standing.observed.rewritten
    if standing.observed.is_stateful and (is_refill(before, standing.plan(batch_id)) or is_moved):
        raise refuse(
            standing,
            f"batch {batch_id} fills the state again, and has to read all of it at once",
            subject=f"{OFFSETS}/{batch_id}",
            found=f"the watermark of {OFFSETS}/{batch_id - 1}, which tells the windows that are written",
            effect="read in several batches, rows of open windows would be dropped as late",
            next=standing.observed.command("plan", "--goal", "resume"),
        )


def retire_orphan(
    standing: Standing, batch_id: int, why: str, others: tuple[Edit, ...] = (), after: int | None = None
) -> Repair:
    """The orphan is taken back, and its range will be read by a batch that is planned anew.

    Where every sink is known to lack it, its number is free. Where one might have it and drop whatever comes under
    that number, the number is used up: Spark runs it again as an empty batch, and the next one reads the range. It is
    not enough to commit it in the logs alone: a file sink whose own log lacks a number cannot be read any more.

    Where several plans in a row are not committed, all of them are taken back together. Spark runs the newest alone and
    takes the others for done, so that one taken back alone would leave the ranges of the others to nobody.

    Args:
        standing: Where the query stands.
        batch_id: The orphan, the newest plan.
        why: One line for a person.
        others: What else has to go.
        after: The newest plan that stays, since the sinks have its batch; None: the newest that is committed.

    Raises:
        RepairRefusedError: a sink has one of them, nobody can tell where their range begins, or it fills the state.
    """
    path = f"{OFFSETS}/{batch_id}"
    _require_no_refill(standing, batch_id)
    after = standing.committed if after is None else after
    numbers = list_orphans_after(standing, after, batch_id)
    before = find_begin_of_orphans(standing, after, numbers)
    shown = [batch for batch in standing.shown if batch is not None]
    if any(batch > after for batch in shown):
        raise refuse(
            standing,
            f"a sink has batch {max(shown)}, which is not committed",
            subject=path,
            found="; ".join(standing.marks()),
            expected=f"all sinks at batch {after}",
            effect=f"{why}; what is planned anew under its number would be dropped or come twice",
            next=standing.observed.command("diagnose"),
        )
    plans = tuple(Edit(f"{OFFSETS}/{n}", None, why) for n in numbers)
    drop = Repair((*others, *plans), drops=True)
    first = numbers[0]
    is_lacking = standing.sinks_known and set(shown) == {after} and not standing.may_have_orphan_unmarked
    if is_lacking and standing.would_take(first):
        exact = _use_numbers_up(standing, after, numbers, why, others) or drop
        return _add_price(exact, standing, before, batch_id, Guarantee.EXACTLY_ONCE, tuple(standing.marks()))
    begin = standing.plan(after)
    if standing.would_take(first):
        line = f"no sink drops a batch {first}; whether it is there already is not known of all"
        return _add_price(drop, standing, before, batch_id, Guarantee.AT_LEAST_ONCE, (line,))
    if begin is not None and not standing.observed.is_stateful:
        empty = f"{why}; what comes under its number would be dropped by a sink that has it"
        edits = (*others, *(Edit(f"{OFFSETS}/{n}", begin.to_bytes(), empty) for n in numbers))
        lines = (f"{OFFSETS}/{after}: everything from there on is read, under new numbers", *_list_never_run(numbers))
        return _add_price(Repair(edits), standing, before, batch_id, Guarantee.AT_LEAST_ONCE, lines)
    line = f"nobody knows whether a sink has batch {batch_id} and would drop what comes under that number"
    return _add_price(drop, standing, before, batch_id, Guarantee.LOSSY, (line,))


def list_orphans_after(standing: Standing, after: int, newest: int) -> tuple[int, ...]:
    """The plans after a batch, and that before the newest, from which Spark takes where the newest begins."""
    planned = {n for n in standing.checkpoint.offsets.ids if after < n < newest}
    if newest - 1 > after:
        before = {newest - 1}
    else:
        before = set()
    return tuple(sorted({*planned, *before, newest}))


def _list_never_run(numbers: tuple[int, ...]) -> tuple[str, ...]:
    """Spark runs the newest of them as an empty batch; the log of a file sink would miss the others."""
    if len(numbers) == 1:
        return ()
    first, last = numbers[0], numbers[-2]
    if first == last:
        span = f"{first}"
    else:
        span = f"{first} to {last}"
    return (f"the assumption that no sink is a file sink of Spark, whose log would lack {span}",)


def _use_numbers_up(
    standing: Standing, after: int, numbers: tuple[int, ...], why: str, others: tuple[Edit, ...]
) -> Repair | None:
    """The numbers of the orphans are used up in logs and table, where a driver inside one can reach no other sink.

    So it matters no longer whether that driver is alive: its rows are refused, and its commit is there already.
    """
    begin, commit = standing.plan(after), standing.commit(after)
    if begin is None or commit is None or standing.observed.is_stateful or not is_only_to_delta(standing):
        return None
    used = f"{why}; its number is used up"
    sink = standing.observed.sinks[0]
    plans = (Edit(f"{OFFSETS}/{n}", begin.to_bytes(), used) for n in numbers)
    commits = (Edit(f"{COMMITS}/{n}", commit.to_bytes(), used) for n in numbers)
    return Repair(
        (*others, *plans, *commits),
        sinks=(SinkEdit(sink.kind, sink.location, sink.app_id, numbers[-1], why, after=after),),
    )


def find_begin_of_orphans(standing: Standing, after: int, numbers: tuple[int, ...]) -> dict[str, SourceOffset]:
    """Where the orphans begin; what is planned anew begins there too.

    Raises:
        RepairRefusedError: nobody can tell, or a source cannot be read again from there.
    """
    if after == NONE and len(numbers) > 1:
        # No commit is left at all: the logs are damaged, and batches long done would be read again as if they were not.
        raise refuse(
            standing,
            f"batches {numbers[0]} to {numbers[-1]} are planned and not committed",
            expected="a commit before them",
            effect=f"Spark would take batch {numbers[-2]} for done",
            next=standing.observed.command("diagnose"),
        )
    for number in numbers:
        plan = standing.plan(number)
        if plan is not None and plan.metadata is not None and plan.metadata.control is not None:
            raise _refuse_start_unknown(standing, f"a control batch: {plan.metadata.control.operation}")
    if after == NONE:
        found: dict[str, SourceOffset] = {
            log.name: log.initial.offset for log in standing.checkpoint.sources if log.initial is not None
        }
        lacking = [
            source_id
            for source_id, kind in standing.kinds.items()
            if find_source_kind(kind).notes_beginning and source_id not in found
        ]
        if lacking or (standing.plan(0) is None and not found):
            raise _refuse_start_unknown(standing, "no sources/*/0, where the first batch began")
        return found
    before = standing.plan(after)
    if before is None:
        raise _refuse_start_unknown(standing, f"no {OFFSETS}/{after} that can be read")
    unfit = [line for line in before.sources if not recognise_source(line.offset).may_be_read_again]
    if unfit:
        raise _refuse_start_unknown(standing, f"source {unfit[0].source_id} of the kind {unfit[0].offset.kind}")
    return find_ends(before)


def _refuse_start_unknown(standing: Standing, found: str) -> Exception:
    return refuse(
        standing,
        f"batch {standing.planned} cannot be planned anew from where it begins",
        found=found,
        expected=f"a plan before it, and sources that can be read again: {READABLE_AGAIN}",
        next=standing.observed.command("backup list"),
    )


def _add_price(
    repair: Repair,
    standing: Standing,
    start: dict[str, SourceOffset],
    batch_id: int,
    word: Guarantee,
    rests_on: tuple[str, ...],
) -> Repair:
    is_exact = word is Guarantee.EXACTLY_ONCE
    plan = standing.plan(batch_id)
    end = find_ends(plan) or find_newest_served(standing, start)
    begin = {source_id: start.get(source_id, VoidOffset()) for source_id in end}
    prices = price_start(begin, Reached(begin, begin if is_exact else end, end), standing.checkpoint, standing.kafka)
    if word is Guarantee.LOSSY:
        prices = tuple(replace(_add_loss(price), bound=True) for price in prices)
    if plan is None:
        prices = tuple(replace(price, bound=True) for price in prices)
    return replace(repair, word=word, rests_on=rests_on, prices=prices)


def find_newest_served(standing: Standing, start: dict[str, SourceOffset]) -> dict[str, SourceOffset]:
    """The furthest that a plan which nobody can read may have gone."""
    latest = standing.kafka.latest if standing.kafka else {}
    newest = {log.name: max(log.listing.ids, default=NONE) for log in standing.checkpoint.sources}
    found = dict(start)
    for source_id, offset in start.items():
        if isinstance(offset, KafkaOffset):
            topics = offset.topics.items()
            found[source_id] = KafkaOffset(
                {topic: {p: latest.get(topic, {}).get(p, at) for p, at in parts.items()} for topic, parts in topics}
            )
        if isinstance(offset, FileOffset):
            found[source_id] = FileOffset(max(offset.log_offset, newest.get(source_id, NONE)))
    return found


def _add_loss(price: SourcePrice) -> SourcePrice:
    """What may come twice may also be dropped: it depends on a sink of which nothing is known."""
    return replace(price, lost=price.duplicated, lost_files=price.duplicated_files)
