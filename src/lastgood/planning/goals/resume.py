"""The goal `resume`: the cheapest exact way to run again from the last good batch. Pure.

What blocks a start, or would let the sinks lose or repeat something, is put right one thing at a time; after each the
query is judged anew, until Spark's own restart does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeAlias

from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SINK_LOG, SOURCES
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import KafkaOffset, SourceOffset, VoidOffset
from lastgood.checkpoint.source_order import OffsetStep, compare_offsets
from lastgood.diagnosis.rules_lost import find_way_back
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.kind import Begins, Goal, GoalKind, Offer
from lastgood.planning.goals.values import ResumeGoal
from lastgood.planning.leaving import predict_start_as_told
from lastgood.planning.losses import (
    find_beginnings,
    list_assumptions,
    list_doubled_already,
    list_missing_already,
    list_not_marked,
    merge_prices,
    predict_silent_loss,
)
from lastgood.planning.numbering import require_no_gap
from lastgood.planning.plan import Alternative
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import (
    Reached,
    choose_weakest,
    find_ends,
    judge_unasked,
    judge_unresolved,
    price_batch,
    price_start,
)
from lastgood.planning.repairs.logs import (
    remove_stale_state,
    remove_strays,
    repair_commits_ahead,
    repair_newest_commit,
    repair_newest_plan,
    repair_plan_before,
    repair_source_logs,
)
from lastgood.planning.repairs.lost import restore_lost_checkpoint, restore_lost_id
from lastgood.planning.repairs.mirror import lift_by_mirror
from lastgood.planning.repairs.numbers import price_older_plan, use_number_up
from lastgood.planning.repairs.rebuilt import bring_rebuilt_state
from lastgood.planning.repairs.repair import Outlook, Repair, Work, refuse
from lastgood.planning.repairs.sinks import close_several_open, cut_logs, lift_logs, repair_orphan
from lastgood.planning.repairs.sinks_back import lower_mark, renew_mark, run_again
from lastgood.planning.standing import Standing
from lastgood.query.lost import find_committed_after, find_known_elsewhere, find_noted_before
from lastgood.query.missing import list_dropped, list_taken
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.source_replay import list_unasked_sources
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.sink_batches import is_reading_nothing
from lastgood.query.sinks import NONE
from lastgood.query.spans import list_stands

_FindRepair: TypeAlias = Callable[[Work], Repair | None]
LOGS: Final[tuple[_FindRepair, ...]] = (
    restore_lost_id,
    repair_newest_plan,
    repair_newest_commit,
    repair_commits_ahead,
    repair_plan_before,
    repair_source_logs,
    remove_strays,
)
"""What makes the logs readable."""
_SINKS: Final[tuple[_FindRepair, ...]] = (
    cut_logs,
    close_several_open,
    use_number_up,
    renew_mark,
    run_again,
    repair_orphan,
)
_ROUNDS_MAX = 64


def draft_resume(observed: Observation, spark: SparkVersion) -> Draft:
    """The draft for `resume`.

    Raises:
        RepairRefusedError: there is no way of which anything can be promised.
    """
    standing = Standing.of(observed, spark)
    mode = standing.checkpoint.mode
    if mode is not Mode.MICRO_BATCH and standing.runs:  # nothing is repaired, and nothing need be
        ground = f"Spark's own restart in the mode {mode.value}: what was not yet noted down runs again"
        sources = list_unasked_sources(standing.observed)
        word = choose_weakest((Guarantee.AT_LEAST_ONCE, judge_unasked(sources, is_same=True)))
        return Draft((), word, (ground, *(each.ground for each in sources)), is_plain=True)
    return resume_work(Work.begin(observed, spark))


def resume_work(work: Work) -> Draft:
    """The draft, with all that is still to be put right after what `work` has done already.

    Raises:
        RepairRefusedError: there is no way of which anything can be promised.
    """
    work, done = repair_all(work)
    found = done.draft(foresee_start(done))
    is_lifted = len(done.repairs) > len(work.repairs)
    if not is_lifted:
        return found
    return replace(found, alternatives=_list_unlifted(work))


def repair_all(work: Work) -> tuple[Work, Work]:
    """The query once its logs can be read, and once all else is put right.

    Raises:
        RepairRefusedError: there is no way of which anything can be promised.
    """
    require_sources(work)
    work = repair_work(bring_rebuilt_state(work), (restore_lost_checkpoint, *LOGS))
    require_sinks(work.standing)
    work = repair_work(work, (lower_mark,))
    return work, repair_work(work, (*LOGS, lift_logs, lift_by_mirror, *_SINKS, remove_stale_state))


def _list_unlifted(work: Work) -> tuple[Alternative, ...]:
    """Spark's own restart instead of what the mirror has lifted, if there is one."""
    try:
        done = repair_work(work, (*LOGS, lift_logs, *_SINKS, remove_stale_state))
        found = done.draft(foresee_start(done))
    except RepairRefusedError:
        return ()
    because = "Spark's own restart, if the application is started as it stands; rests on"
    if not found.is_plain:
        return ()
    return (Alternative(ResumeGoal.name, found.guarantee, f"{because} {found.rests_on[-1]}"),)


def foresee_start(work: Work) -> Outlook:
    """What can be said of Spark's own start, also by what others know and the logs have forgotten.

    Where a sink may drop what comes then, `diagnose` finds that as well, and the draft is held against it.

    Raises:
        RepairRefusedError: it fails, or would make a sink lose or repeat something.
    """
    standing, found = work.standing, predict_outlook(work.standing)
    rests_on = dict.fromkeys((*found.rests_on, *list_not_marked(work.began)))
    found = replace(found, rests_on=tuple(rests_on))
    dropped = list_dropped(work.began.sinks, find_ends(standing.checkpoint.newest_offsets))
    untold = tuple(line for line in dropped if line not in found.rests_on)
    if untold:
        found = Outlook(Guarantee.LOSSY, (*found.rests_on, *untold), found.prices)
    after = find_committed_after(standing.observed)
    if after is None:
        return found
    line = f"{after.holder} knows that batch {after.batch_id} was committed"
    line = f"{line}, and the logs end with batch {standing.planned}: what was read in between comes twice"
    word = choose_weakest((found.word, Guarantee.AT_LEAST_ONCE))
    prices = tuple(replace(price, bound=True) for price in found.prices)
    copy = parse_offset_entry(work.mirror.get(f"{OFFSETS}/{after.batch_id}", b""))
    if not prices and isinstance(copy, OffsetEntry):
        start = find_ends(standing.plan(standing.planned)) or find_beginnings(standing)
        prices = price_start(
            start, Reached(start, find_ends(copy), find_ends(copy)), standing.checkpoint, standing.kafka
        )
    return Outlook(word, (*found.rests_on, line), prices)


def repair_work(work: Work, finders: tuple[_FindRepair, ...]) -> Work:
    """The query after every repair that one of `finders` still finds.

    Raises:
        RepairRefusedError: one of them finds what cannot be repaired.
    """
    for _ in range(_ROUNDS_MAX):
        repair = next((found for find in finders if (found := find(work)) is not None), None)
        if repair is None or repair in work.repairs:
            return work
        work = work.with_repair(repair)
    raise refuse(
        work.standing, "there is no end to what is to be put right", next=work.standing.observed.command("diagnose")
    )


def require_sources(work: Work) -> None:
    """See that what the sources serve is what the query has read.

    Raises:
        RepairRefusedError: a topic was deleted and created again.
    """
    standing = work.standing
    if standing.recreated:
        goal = "fresh" if work.began.planned == NONE else "reposition"
        raise refuse(
            standing,
            "a topic was deleted and created again: its offsets are of other records",
            subject=", ".join(standing.recreated),
            found="another topic id than the query read",
            effect="what was unread of the old one is lost, and the new one would be read from the middle",
            next=standing.observed.command("plan", "--goal", goal, "--earliest"),
        )


def require_sinks(standing: Standing) -> None:
    """See that the sinks are where the query writes, and can be read.

    Raises:
        RepairRefusedError: one is not there, though batches are committed; or its own log is gone or damaged.
    """
    for reading in standing.sinks:
        if reading.sink.unreadable:
            raise refuse(
                standing,
                "the sink's own log is damaged: what the sink holds cannot be told",
                subject=reading.sink.location,
                found=f"entries that cannot be read: {', '.join(map(str, reading.sink.unreadable[:5]))}",
                expected="every entry that a reader needs",
                effect="readers fail, or do not see all rows",
                next=standing.observed.command("status"),
            )
        is_log_gone = reading.sink.traits.keeps_log and reading.sink.skips_known and reading.shown == NONE
        if is_log_gone and reading.done > NONE:
            raise refuse(
                standing,
                f"batch {reading.done} is done, and the sink's own log has no entry",
                subject=reading.sink.location,
                found=reading.sink.because,
                expected=f"{SINK_LOG} as the query wrote it",
                effect="readers do not see these rows, and a log that begins in the middle cannot be compacted",
                next=standing.observed.command("status"),
            )
        batches = reading.batches_done(0, standing.committed)
        if not reading.sink.traits.is_there and reading.may_have_rows(batches):
            raise refuse(
                standing,
                f"batch {standing.committed} is committed, and there is no sink",
                subject=reading.sink.location,
                found=reading.sink.because,
                expected="the table or folder that the query writes",
                effect="what was written is gone, or this is not the sink of the query",
                next=standing.observed.command("status"),
            )


def _find_where_else(standing: Standing) -> str:
    """Which verb looks further where Spark would not run: a file of the logs may be in a backup, state never is."""
    stop = standing.restart.stop
    folder = "" if stop is None else stop.subject.partition("/")[0]
    return "backup list" if folder in (OFFSETS, COMMITS, SOURCES, METADATA) else "diagnose"


def require_next(standing: Standing) -> None:
    """See that the batch after the first can run.

    Raises:
        RepairRefusedError: it cannot.
    """
    restart, stop = standing.restart, standing.restart.next_stop
    if stop is None:
        return
    raise refuse(
        standing,
        f"Spark {standing.spark} would commit batch {restart.batch}, and not run the next one",
        subject=stop.subject,
        found=f"{stop.error}: {stop.because}",
        expected="the state and the records that it is to go on with",
        effect="a start would leave one more plan that cannot run",
        next=standing.observed.command("diagnose"),
    )


def require_continuity(standing: Standing) -> None:
    """See that the newest plan goes on from the one before: each source that had a position still has one.

    Raises:
        RepairRefusedError: one has not; a start would read everything of it again.
    """
    before, now = (find_ends(standing.plan(batch_id)) for batch_id in (standing.planned - 1, standing.planned))
    lost = [source_id for source_id, offset in before.items() if now and not _is_going_on(offset, now.get(source_id))]
    if lost or (before and not now and standing.plan(standing.planned) is not None):
        raise refuse(
            standing,
            "the newest plan does not go on from the one before it",
            subject=f"{OFFSETS}/{standing.planned}",
            found=f"source {lost[0]} has no position any more, or went back" if lost else "no sources",
            expected="a position of every source that had one",
            effect="what was read would be read again",
            next=standing.observed.command("backup list"),
        )


def require_files(standing: Standing) -> None:
    """See that each entry of a file source's log names a file, as Spark writes it.

    Raises:
        RepairRefusedError: one names none; what it named would be found and read again.
    """
    for log in standing.checkpoint.sources:
        empty = [
            n for n, entry in log.entries.items() if isinstance(entry, FileLogEntry) and next(iter(entry), None) is None
        ]
        if empty:
            raise refuse(
                standing,
                "an entry of a file source's log names no file",
                subject=f"{log.folder}/{log.entry_name(empty[0])}",
                expected="the files that it was written for",
                effect="these would be found and read again",
                next=standing.observed.command("backup list"),
            )


def _is_going_on(before: SourceOffset, now: SourceOffset | None) -> bool:
    if now is not None and not isinstance(now, KafkaOffset) and compare_offsets(before, now) is OffsetStep.BACK:
        return False  # of Kafka a broker tells
    return isinstance(before, VoidOffset) or not (now is None or isinstance(now, VoidOffset))


def predict_outlook(standing: Standing) -> Outlook:
    """What can be said of Spark's own start.

    Raises:
        RepairRefusedError: it fails, or would make a sink lose or repeat something.
    """
    restart = standing.restart
    if not standing.runs:
        subject = restart.stop.subject if restart.stop else None
        effect = "a start would leave one more plan that cannot run" if restart.leaves_orphan else None
        raise refuse(
            standing,
            f"Spark {standing.spark} would not run: {restart.because}",
            subject=subject,
            found=restart.error,
            effect=effect,
            next=standing.observed.command(_find_where_else(standing)),
        )
    require_next(standing)
    if restart.outcome is Outcome.STARTS:
        found = _predict_first_start(standing)
    else:
        require_continuity(standing)
        require_files(standing)
        _require_agreement(standing)
        require_no_gap(standing)
        if restart.outcome is Outcome.RERUNS:
            found = _predict_rerun(standing)
        else:
            found = _predict_going_on(standing)
    found = replace(found, rests_on=(*found.rests_on, *list_assumptions(standing)))
    found = _predict_from_earliest(standing, found)
    gone = (*list_missing_already(standing), *list_taken(standing.sinks))
    lost = predict_silent_loss(standing)
    if lost is not None:
        prices = merge_prices(lost.prices, found.prices)
        return Outlook(Guarantee.LOSSY, (*found.rests_on, lost.rests_on[0], *gone), prices)
    if gone:
        return Outlook(Guarantee.LOSSY, (*found.rests_on, *gone), found.prices)
    twice = tuple(list_doubled_already(standing))
    if twice:
        word = choose_weakest((found.word, Guarantee.AT_LEAST_ONCE))
    else:
        word = found.word
    return Outlook(word, (*found.rests_on, *twice), found.prices)


def _predict_first_start(standing: Standing) -> Outlook:
    holding = [each for each in standing.sinks if each.shown > NONE or each.skips > NONE]
    if holding:
        raise refuse(
            standing,
            "no batch was ever planned here, and a sink holds batches of this query",
            subject=holding[0].sink.location,
            found=f"batches up to {max(holding[0].shown, holding[0].skips)}",
            expected="the checkpoint that wrote them",
            effect="a new start would be dropped by the sink up to there, or write everything again",
            next=standing.observed.command("plan", "--goal", "fresh"),
        )
    known = find_known_elsewhere(standing.observed)
    if known is not None and not known.is_mirror:  # what the mirror has is put back before
        raise refuse(
            standing,
            f"no batch is here, and {known.holder} knows batches of this checkpoint",
            subject="offsets, commits",
            found=f"batches {known.first} to {known.last}",
            expected="the checkpoint, or a backup of it; another folder for a query that begins anew",
            effect="a start from batch 0 leaves records out, or writes them twice",
            next=find_way_back(standing.observed, known),
        )
    if standing.observed.left is not None:
        return predict_start_as_told(standing, standing.observed.left)
    others = [each.sink.location for each in standing.sinks if each.sink.others]
    if standing.sinks_known and not others:
        return Outlook(Guarantee.EXACTLY_ONCE, ("no batch was ever planned", *standing.marks()))
    if others:
        doubt = f"{others[0]} holds batches of another query"
    else:
        doubt = "not every sink tells whether it is empty"
    noted = find_noted_before(standing.checkpoint)
    if noted is not None:
        why = f"{noted} tells of earlier batches, whose plans are lost: a sink that has their numbers drops new ones"
        return Outlook(Guarantee.LOSSY, (why, doubt))
    lines = (f"no batch was ever planned; {doubt}", *_list_silent_ledger(standing.observed))
    return Outlook(Guarantee.AT_LEAST_ONCE, lines)


def _list_silent_ledger(observed: Observation) -> Iterator[str]:
    """That the ledger which would know of a lost checkpoint does not answer."""
    memory = observed.memory
    if memory is not None and memory.unknown is not None:
        yield f"the assumption that the query has not run here before: {memory.place}: {memory.unknown}"


def _predict_from_earliest(standing: Standing, found: Outlook) -> Outlook:
    """The same, where the first batch begins at the earliest offset: what sinks show of it comes once more."""
    starts = {stand.source_id: stand.start for stand in list_stands(standing.checkpoint) if stand.start is not None}
    planned = {stand.source_id: stand.end for stand in list_stands(standing.checkpoint) if stand.end is not None}
    reached = Reached(starts, {**starts, **planned}, {**starts, **planned})
    recovery = standing.observed.rewritten.get(standing.committed)
    unresolved = judge_unresolved(starts, reached, standing.kafka, recovery)
    if not unresolved:
        return found
    prices = price_start(starts, reached, standing.checkpoint, standing.kafka)
    word = choose_weakest((found.word, *(word for word, _ in unresolved)))
    return Outlook(word, (*found.rests_on, *(line for _, line in unresolved)), (*found.prices, *prices))


def _require_agreement(standing: Standing) -> None:
    stands = range(standing.committed, standing.planned + 1)
    apart = [shown for shown in standing.shown if shown is not None and shown not in stands]
    if apart:
        expected = f"batch {standing.committed}"
        if standing.has_orphan:
            expected += f" or {standing.planned}"
        raise refuse(
            standing,
            f"a sink shows batch {apart[0]}, and the logs stand at batch {standing.committed}",
            found="; ".join(standing.marks()),
            expected=expected,
            next=standing.observed.command("diagnose"),
        )


def _predict_going_on(standing: Standing) -> Outlook:
    return _predict_as_far_as_sinks_tell(standing, (f"commits/{standing.committed}", *standing.marks()))


def _predict_as_far_as_sinks_tell(standing: Standing, lines: tuple[str, ...]) -> Outlook:
    """What can be said where nothing runs again: no sink is ahead of the logs, if all of them tell."""
    if standing.sinks_known:
        return Outlook(Guarantee.EXACTLY_ONCE, lines)
    return Outlook(Guarantee.AT_LEAST_ONCE, (*lines, "the assumption that no sink is ahead of it: not every sink told"))


def _predict_rerun(standing: Standing) -> Outlook:
    """The orphan runs again: its marks tell whether the sinks take it once."""
    batch_id = standing.planned
    is_once = standing.recognises_orphan
    plan, before = standing.plan(batch_id), standing.plan(batch_id - 1)
    start = find_ends(before)
    if batch_id == 0:
        start = find_beginnings(standing)
    if standing.planned_anew and is_reading_nothing(standing.checkpoint, batch_id):
        held = [f"{each.sink.location}: {each.held[batch_id].because}" for each in standing.planned_anew]
        lines = (f"offsets/{batch_id}, which reads nothing", *held)
        return Outlook(Guarantee.AT_LEAST_ONCE, lines, price_older_plan(standing, start))
    if (
        start
        and start == find_ends(plan)
        and _is_reading_nothing(standing, start)
        and not standing.observed.is_stateful
    ):
        return _predict_as_far_as_sinks_tell(standing, (f"offsets/{batch_id}, which reads nothing", *standing.marks()))
    prices = price_batch(standing.checkpoint, start, find_ends(plan), is_repeated=not is_once)
    lines = (f"offsets/{batch_id}, whose ranges are read once more", *standing.marks())
    if standing.committed < batch_id - 1 and not _is_done_before(standing, batch_id):
        doubt = _describe_taken_for_done(standing)
        return Outlook(Guarantee.LOSSY, (*lines, doubt), _price_skipped(standing, start, is_repeated=not is_once))
    if is_once:
        return Outlook(Guarantee.EXACTLY_ONCE, lines, prices)
    doubt = f"not every sink is known to recognise batch {batch_id}, or to lack another of that number"
    return Outlook(Guarantee.AT_LEAST_ONCE, (*lines, doubt), prices)


def _is_done_before(standing: Standing, batch_id: int) -> bool:
    """Whether logs or sinks tell that the batch before was carried out, though no commit says so."""
    is_shown = standing.sinks_known and min(map(_rank_shown, standing.shown)) >= batch_id - 1
    return is_shown or standing.checkpoint.is_done_below_newest


def _price_skipped(standing: Standing, start: dict[str, SourceOffset], *, is_repeated: bool) -> tuple[SourcePrice, ...]:
    """At most what every batch read that Spark takes for done, and that no commit or sink tells to be."""
    if standing.sinks_known:
        shown = [_rank_shown(batch) for batch in standing.shown]
    else:
        shown = []
    done = find_ends(standing.plan(min([standing.committed, *shown]))) or find_beginnings(standing)
    end = find_ends(standing.plan(standing.planned))
    reached = Reached(done, end if is_repeated else start, end)
    prices = price_start(start, reached, standing.checkpoint, standing.kafka)
    return tuple(replace(price, bound=True) for price in prices)


def _describe_taken_for_done(standing: Standing) -> str:
    """That plans below the newest have no commit, and who could tell whether they were carried out."""
    first, last = standing.committed + 1, standing.planned - 1
    if first == last:
        which = f"batch {first} has"
    else:
        which = f"batches {first} to {last} have"
    who = "" if standing.sinks_known else "; a sink that is named (--sink) and answers tells whether it has them"
    return f"{which} no commit, and Spark takes what is below batch {standing.planned} for done{who}"


def _is_reading_nothing(standing: Standing, start: dict[str, SourceOffset]) -> bool:
    """Whether no plan between the newest commit and the newest plan, which Spark takes for done, read anything."""
    between = standing.planned - standing.committed - 1
    if between > len(standing.checkpoint.offsets.entries):
        return False
    return all(
        find_ends(standing.plan(n)) == start for n in range(standing.planned - between - 1, standing.planned - 1)
    )


def _rank_shown(batch: int | None) -> int:
    return NONE if batch is None else batch


def _offer(observed: Observation, asked: Goal) -> Iterator[Offer]:
    del observed
    if asked.name != ResumeGoal.name:
        yield ResumeGoal(), ()


def _draft(observed: Observation, goal: ResumeGoal, spark: SparkVersion) -> Draft:
    del goal
    return draft_resume(observed, spark)


RESUME: Final = GoalKind(name=ResumeGoal.name, begins=Begins.BY_ITSELF, make=ResumeGoal, draft=_draft, offer=_offer)
