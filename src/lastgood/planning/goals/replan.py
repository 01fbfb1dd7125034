"""The goal `replan`: what is planned and not committed is dropped, so that today's limits apply. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from lastgood.checkpoint.file_logs import FileLogEntry, SourceFile
from lastgood.checkpoint.layout import SOURCES
from lastgood.checkpoint.logs import SourceLog
from lastgood.checkpoint.source_offsets import FileOffset
from lastgood.planning.draft import Draft, Edit
from lastgood.planning.goals.kind import Begins, Goal, GoalKind, Offer
from lastgood.planning.goals.resume import LOGS, foresee_start, repair_work, require_sinks, require_sources
from lastgood.planning.goals.values import ReplanGoal
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import choose_weakest, find_ends
from lastgood.planning.repairs.logs import repair_source_logs
from lastgood.planning.repairs.numbers import use_number_up
from lastgood.planning.repairs.repair import Work, refuse
from lastgood.planning.repairs.sinks import list_orphans_after, retire_orphan
from lastgood.planning.repairs.sinks_back import lower_mark, take_sinks_back
from lastgood.planning.standing import Standing
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.sink_batches import is_reading_nothing
from lastgood.query.sinks import NONE
from lastgood.sources.files.facts import (
    FileState,
    describe_assumed_max_age,
    find_least_age_to_find,
    list_never_found_again,
)


def draft_replan(observed: Observation, spark: SparkVersion) -> Draft:
    """The draft for `replan`.

    Raises:
        RepairRefusedError: a sink has the batch already, or there is no way of which anything can be promised.
    """
    work = Work.begin(observed, spark)
    require_sources(work)
    require_sinks(work.standing)
    if not work.standing.has_orphan:
        return work.draft(foresee_start(work))
    work = repair_work(work, (repair_source_logs,))  # else nobody knows which files are planned anew
    work = repair_work(work, (lower_mark,))
    _require_committed(work.standing)
    after = _find_newest_in_sinks(work.standing)
    if after is None:
        work = repair_work(_take_sinks_to_the_commit(work), (use_number_up,))
        if _is_reading_nothing(work.standing):
            return work.draft(
                foresee_start(work)
            )  # numbers are used up: their ranges are planned anew under the next ones
        after = work.standing.committed
    others = tuple(_edit_planned_files(work.standing, after))
    repair = retire_orphan(work.standing, work.standing.planned, "today's limits are to apply", others, after)
    ages = tuple(_list_assumed_ages(work.standing, others))
    untold = tuple(_list_untold_files(work.standing, after))
    word = choose_weakest((repair.word, Guarantee.AT_LEAST_ONCE)) if untold else repair.word
    work = work.with_repair(replace(repair, word=word, rests_on=(*repair.rests_on, *untold, *ages)))
    work = repair_work(work, LOGS)
    return work.draft(foresee_start(work))


def _is_reading_nothing(standing: Standing) -> bool:
    """Whether no plan without a commit reads anything.

    That the newest of several reads nothing says little: so a query with a watermark plans to close its windows.
    """
    orphans = list_orphans_after(standing, standing.committed, standing.planned)
    return all(is_reading_nothing(standing.checkpoint, number) for number in orphans)


def _require_committed(standing: Standing) -> None:
    """See that every sink that tells shows what is committed, and not less."""
    behind = [shown for shown in standing.shown if shown is not None and shown < standing.committed]
    if behind:
        raise refuse(
            standing,
            f"a sink shows nothing after batch {behind[0]}, and batch {standing.committed} is committed",
            found="; ".join(standing.marks()),
            expected=f"all sinks at batch {standing.committed}",
            next=standing.observed.command("plan", "--goal", "resume"),
        )


def _find_newest_in_sinks(standing: Standing) -> int | None:
    """Of several orphans the newest that all sinks have, if they drop it when it runs again: it stays, as it is done.

    State that such a batch made is there or not; so with state the sinks give back what is not committed.
    """
    shown = standing.common
    if shown is None or not standing.committed < shown < standing.planned or standing.observed.is_stateful:
        return None
    if not all(each.sink.would_skip(shown) for each in standing.sinks):
        return None
    return shown


def _take_sinks_to_the_commit(work: Work) -> Work:
    """Sinks that have the orphan give it back: what it read is to be read again (row 6)."""
    standing = work.standing
    if not standing.sinks_known or standing.furthest <= standing.committed:
        return work
    why = f"batch {standing.planned} is to be planned anew"
    return work.with_repair(take_sinks_back(standing, standing.committed, why))


def _edit_planned_files(standing: Standing, after: int) -> Iterator[Edit]:
    """Entries of file sources that name what the orphans were to read: else it would come back as it was."""
    committed = find_ends(standing.plan(after))
    for source_id, offset in find_ends(standing.plan(standing.planned)).items():
        log = next((log for log in standing.checkpoint.sources if log.name == source_id), None)
        if not isinstance(offset, FileOffset) or log is None:
            continue
        before = committed.get(source_id)
        newest = before.log_offset if isinstance(before, FileOffset) else -1
        for log_id in [log_id for log_id in log.listing.ids if log_id > newest]:
            _require_found_again(standing, log, log_id, newest)
            yield Edit(f"{log.folder}/{log_id}", None, "its files are to be found and planned again")


def _list_untold_files(standing: Standing, after: int) -> Iterator[str]:
    """Entries of file sources that the orphans were to read and that are lost: which files they name nobody knows."""
    committed, logs = find_ends(standing.plan(after)), {log.name: log for log in standing.checkpoint.sources}
    for source_id, offset in find_ends(standing.plan(standing.planned)).items():
        if not isinstance(offset, FileOffset) or source_id in standing.checkpoint.shared_logs:
            continue
        before = committed.get(source_id)
        newest = before.log_offset if isinstance(before, FileOffset) else NONE
        held = logs[source_id].listing.ids if source_id in logs else ()
        lost = [n for n in range(newest + 1, offset.log_offset + 1) if n not in held]
        if lost:
            entry, which = f"{SOURCES}/{source_id}/{lost[0]}", "it is lost"
            if len(lost) > 1:
                entry, which = f"{entry} to {lost[-1]}", f"{len(lost)} of these are lost"
            assumed = f"the files which {entry} named are there, and young enough to be found again"
            yield f"the assumption that {assumed}: {which}, and nobody knows which files they are"


def _list_assumed_ages(standing: Standing, dropped: tuple[Edit, ...]) -> Iterator[str]:
    """What is taken to be so of `maxFileAge`, where files are older than some that stay in the log; one line each."""
    paths = {edit.path for edit in dropped}
    for log in standing.checkpoint.sources:
        gone = [n for n in log.entries if f"{log.folder}/{n}" in paths]
        files = [file for n in gone for file in _list_files(log.entries[n])]
        kept = [file for n, entry in log.entries.items() if n not in gone for file in _list_files(entry)]
        least_ms = find_least_age_to_find(files, kept)
        if least_ms is not None:
            assumed = describe_assumed_max_age(log.name, least_ms)
            yield f"the assumption that {assumed}: else files are never found again"


def _require_found_again(standing: Standing, log: SourceLog, log_id: int, newest: int) -> None:
    entry = log.entries.get(log_id)
    if isinstance(entry, FileLogEntry):
        dropped = list(entry)
    else:
        dropped = []
    kept = [file for n, each in log.entries.items() if n <= newest for file in _list_files(each)]
    states = {each.file.path: each.state for each in standing.observed.files.get(log.name, ())}
    lost = [file.path for file in dropped if states.get(file.path) is FileState.MISSING]
    lost += [file.path for file in list_never_found_again(dropped, kept)]
    if log_id in log.listing.compact or lost or not isinstance(entry, FileLogEntry):
        found = (
            "it holds the entries of all batches before it, too"
            if log_id in log.listing.compact
            else "it cannot be read"
        )
        raise refuse(
            standing,
            "what a file source planned cannot be taken out of its log",
            subject=f"{log.folder}/{log.entry_name(log_id)}",
            found=f"{lost[0]} would not be found again" if lost else found,
            expected="an entry of its own, whose files are there and young enough",
            effect="files would never be read",
            next=standing.observed.command("plan", "--goal", "resume"),
        )


def _list_files(entry: object) -> list[SourceFile]:
    if not isinstance(entry, FileLogEntry):
        return []
    return list(entry)


def _offer(observed: Observation, asked: Goal) -> Iterator[Offer]:
    is_open = observed.checkpoint.orphan is not None
    if asked.name != ReplanGoal.name and is_open:
        yield ReplanGoal(), ()


def _draft(observed: Observation, goal: ReplanGoal, spark: SparkVersion) -> Draft:
    del goal
    return draft_replan(observed, spark)


REPLAN: Final = GoalKind(name=ReplanGoal.name, begins=Begins.BY_ITSELF, make=ReplanGoal, draft=_draft, offer=_offer)
