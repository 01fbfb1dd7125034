"""Whether real Spark did with a copy of the logs, on which a plan was carried out, what the plan promises. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lastgood.asked import Asked
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry, SourceLine
from lastgood.checkpoint.source_offsets import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    FileOffset,
    KafkaOffset,
    SourceOffset,
    VoidOffset,
    get_topics,
)
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.planning.plan import Plan, Promise
from lastgood.query.prediction.restart import Outcome
from lastgood.sources.kafka.ranges import find_planned_ranges, find_unresolved, select_only_in

_SENTINELS = {OFFSET_EARLIEST: "the earliest", OFFSET_LATEST: "the latest"}


class PlanDisprovedError(LastgoodError):
    """With a copy of the logs Spark did something else than the plan promises."""

    condition = "PLAN_DISPROVED"
    exit_code = 39
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Expected:
    """What a plan promises of the first batch, source by source."""

    batch: int
    starts: tuple[SourceOffset | None, ...]
    """None: where Spark finds no offset of an earlier batch."""
    ends: tuple[SourceOffset, ...] | None
    """None: how far a new batch reads is up to the application's limits."""

    def reads(self) -> Iterator[str]:
        """What the batch reads; one line for each partition or source."""
        for index, start in enumerate(self.starts):
            end = None
            if self.ends is not None:
                end = self.ends[index]
            if isinstance(start, KafkaOffset) or isinstance(end, KafkaOffset):
                yield from _describe_partitions(start, end)
            elif isinstance(start, FileOffset) or isinstance(end, FileOffset):
                yield _describe_entries(index, start, end)
            else:
                if start is None:
                    begin = "its beginning"
                else:
                    begin = start.to_text()
                yield f"source {index} from {begin}" + ("" if end is None else f" to {end.to_text()}")


def expect_first_batch(promise: Promise, then: Checkpoint) -> Expected:
    """What the first batch is to read on a checkpoint that is as the plan leaves it."""
    batch = promise.batch or 0
    entries = {n: entry for n, entry in then.offsets.entries.items() if isinstance(entry, OffsetEntry)}
    before = entries.get(batch - 1)
    if before:
        starts = tuple(map(_get_known, before.sources))
    else:
        starts = _list_beginnings(then)
    plan = None
    if promise.outcome == Outcome.RERUNS.value:
        plan = entries.get(batch)
    if plan is None:
        return Expected(batch, starts, None)
    return Expected(batch, starts, tuple(line.offset for line in plan.sources))


def _list_beginnings(then: Checkpoint) -> tuple[SourceOffset | None, ...]:
    """Where the first batch begins, as far as the sources have written that down."""
    newest = then.newest_offsets
    if newest:
        names = [line.source_id for line in newest.sources]
    else:
        names = [log.name for log in then.sources]
    began = {log.name: log.initial.offset for log in then.sources if log.initial is not None}
    return tuple(began.get(name) for name in names)


def find_contradiction(
    wanted: Expected, batch: int, reads: Sequence[tuple[SourceOffset | None, SourceOffset | None]]
) -> str:
    """Where Spark's first batch is another one than was promised; empty if it is the same.

    Spark tells its sources in an order of its own where there are many. Where its very first batch begins it need not
    tell.
    """
    if batch != wanted.batch:
        return f"batch {batch} instead of {wanted.batch}"
    left = list(reads)
    for index, start in enumerate(wanted.starts):
        end = None
        if wanted.ends is not None:
            end = wanted.ends[index]
        begins = (start, None) if batch == 0 else (start,)
        same = next((read for read in left if read[0] in begins and end in (None, read[1])), None)
        if same is None:
            told = "; ".join(f"{_format_offset(first)} to {_format_offset(last)}" for first, last in reads)
            return f"batch {batch} reads {told}, where source {index} was to begin at {_format_offset(start)}" + (
                "" if end is None else f" and to end at {_format_offset(end)}"
            )
        left.remove(same)
    return ""


def make_disproved_error(plan: Plan, spark: str, found: str) -> PlanDisprovedError:
    """The error for a plan that Spark does not keep to."""
    promise = plan.promise
    bundle = Asked(plan.checkpoint, plan.evidence).command("diagnose", "--save", "FILE")
    return PlanDisprovedError(
        "NOT proven: Spark does something else than the plan promises",
        subject=plan.checkpoint,
        found=f"Spark {spark} did {found}",
        expected=f"{promise.outcome}, batch {promise.batch}: {promise.because}",
        effect="the plan is not saved; nothing has been changed",
        next=f"make the plan without --prove, and report this with: {bundle}",
    )


def _get_known(line: SourceLine) -> SourceOffset | None:
    return None if isinstance(line.offset, VoidOffset) else line.offset


def _format_offset(offset: SourceOffset | None) -> str:
    if offset is None:
        return "its beginning"
    return offset.to_text()


def _describe_partitions(start: SourceOffset | None, end: SourceOffset | None) -> Iterator[str]:
    first = get_topics(start)
    if not isinstance(end, KafkaOffset):
        for topic, partitions in first.items():
            for partition, offset in sorted(partitions.items()):
                yield f"{topic}/{partition} from {_SENTINELS.get(offset, offset)}"
        return
    for topic, ranges in find_planned_ranges(first, end.topics).items():
        for partition, spans in sorted(ranges.items()):
            yield from (f"{topic}/{partition} {begin}..{stop}" for begin, stop in spans)
    for topic, parts in find_unresolved(first, end.topics).items():
        for partition, span in sorted(parts.items()):
            begin, stop = (_SENTINELS.get(at, at) for at in span)
            yield f"{topic}/{partition} {begin}..{stop}"
    for topic, added in select_only_in(end.topics, first).items():
        yield from (f"{topic}/{partition} up to {stop}" for partition, stop in sorted(added.items()) if stop)


def _describe_entries(index: int, start: SourceOffset | None, end: SourceOffset | None) -> str:
    first = start.log_offset if isinstance(start, FileOffset) else -1
    if isinstance(end, FileOffset):
        return f"source {index} log entries {first + 1}..{end.log_offset}"
    return f"source {index} files after log entry {first}"
