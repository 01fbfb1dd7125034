"""The number under which a query goes on from a start that is written by hand. Pure.

A sink that goes by numbers drops what comes under one that it has. Spark's file sink must not miss one either: where
its log lacks a number, the next compaction fails, perhaps long after. So where nobody knows whether such a log has a
number, Spark runs it, without a row: a sink that has it drops nothing, and one that lacks it writes an empty entry.
"""

from __future__ import annotations

from collections.abc import Collection

from lastgood.frozen import dataclass
from lastgood.planning.repairs.repair import refuse
from lastgood.planning.standing import Standing
from lastgood.query.sinks import NONE, SinkView


@dataclass(frozen=True, slots=True)
class Number:
    """A batch that is done once the query goes on; the next one begins at the chosen start."""

    batch: int
    """No sink knows a higher one; `NONE` if the next is to be batch 0."""
    is_run: bool = False
    """Whether Spark runs it, without a row; else it is committed by hand."""
    rests_on: tuple[str, ...] = ()


def choose_number(standing: Standing, *, logged: int, marked: int, commits: Collection[int]) -> Number:
    """The number above which no sink knows any, and after which none has a gap in its log.

    Args:
        standing: Where the query stands.
        logged: The newest batch that the logs or the mirror know, or `NONE`.
        marked: The newest one that a sink knows, or `NONE`.
        commits: The batches that are known to be committed.

    Raises:
        RepairRefusedError: there is none.
    """
    require_log(standing)
    logs = [each for each in standing.sinks if _is_log(each)]
    if logs:
        if all(each.sink.known for each in standing.sinks):
            number = marked
        else:
            number = max(marked, logged)
        behind = min(logs, key=lambda each: each.shown)
        if number > behind.shown + 1:
            raise _refuse_gap(standing, behind, range(behind.shown + 1, number + 1))
        return Number(number, is_run=number == NONE or number > behind.shown)
    number = max(marked, logged)
    known = bool(standing.sinks) and all(each.sink.traits.keeps_log is False for each in standing.sinks)
    if known or number in commits:
        return Number(number)
    line = f"the assumption that no sink is a file sink of Spark, whose log would lack numbers below {number}"
    return Number(number, is_run=True, rests_on=(line,) if number > logged else ())


def require_log(standing: Standing) -> None:
    """See that a folder which a file sink has written still has its log.

    Raises:
        RepairRefusedError: one has files and no log.
    """
    for each in standing.sinks:
        if each.sink.traits.keeps_log and each.sink.skips_known and not each.sink.known:
            raise refuse(
                standing,
                "the sink holds files, and not the log that says which of them count",
                subject=each.sink.location,
                found=each.sink.because,
                expected="the log, or an empty folder",
                effect="readers no longer see these files once the next batch begins a new log",
                next=standing.observed.command("status"),
            )


def require_no_gap(standing: Standing) -> None:
    """See that the log of a file sink goes on with the very next number, or with one that it has.

    Raises:
        RepairRefusedError: it does not.
    """
    comes = standing.restart.batch
    for each in standing.sinks:
        keeps_log = each.sink.traits.keeps_log and each.sink.skips_known
        if comes is not None and keeps_log and comes > each.shown + 1:
            raise _refuse_gap(standing, each, range(each.shown + 1, comes))


def _is_log(reading: SinkView) -> bool:
    """Whether it is the log of a file sink, or nothing yet, which may become one."""
    return reading.sink.known and reading.sink.traits.keeps_log is not False


def _refuse_gap(standing: Standing, reading: SinkView, missing: range) -> Exception:
    if reading.shown > NONE:
        found = f"its newest entry is {reading.shown}"
    else:
        found = "it has no entry"
    return refuse(
        standing,
        f"the log of a file sink would lack batch {missing[0]}",
        subject=reading.sink.location,
        found=f"{found}, and the next batch that it gets would be {missing[-1] + 1}",
        expected=f"batch {missing[0]}",
        effect="the query would run until the sink compacts its log, and fail there",
        next=standing.observed.command("status"),
    )
