"""What is told of queries, by their logs and by recorders, in any order and any number of times. Pure.

Facts only ever add up. A plan and a commit carry the time when they were seen, so that of a batch that was planned
anew the newer plan counts, and a commit from before that no longer does; nothing that was told is forgotten.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, TypeAlias

from lastgood.frozen import dataclass
from lastgood.ledger.joining import choose_known, join_by, join_facts
from lastgood.records.record import Progress, RecordedSource

Ends: TypeAlias = tuple[tuple[str, str], ...]
"""Source and end offset as Spark writes it, by source."""


class Teller(enum.IntEnum):
    """Who told of a batch; the strongest is the largest."""

    RECORDER = 1
    MIRROR = 2
    CHECKPOINT = 3


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """An entry of the offset log."""

    planned_at_ms: int | None
    """Processing time; the same when the batch runs again, another when it is planned anew."""
    batch_watermark_ms: int | None
    ends: Ends


@dataclass(frozen=True, slots=True, order=True)
class Sighting:
    """When a plan was seen."""

    last_ms: int
    first_ms: int

    def with_other(self, other: Sighting) -> Sighting:
        """Both."""
        return Sighting(max(self.last_ms, other.last_ms), min(self.first_ms, other.first_ms))


@dataclass(frozen=True, slots=True)
class Commit:
    """An entry of the commit log."""

    seen_at_ms: int
    written_at_ms: int | None
    """As the storage says; None if it does not."""
    next_batch_watermark_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFacts:
    """All that was told of one batch. In `progress`, offsets are texts, and what belongs to the query is None."""

    batch_id: int
    told_by: Teller
    plans: Mapping[PlannedBatch, Sighting] = field(default_factory=dict)
    commit: Commit | None = None
    progress: Progress | None = None

    @property
    def plan(self) -> PlannedBatch | None:
        """The plan that counts: the one seen last."""
        return max(self.plans, key=self._order, default=None)

    @property
    def is_committed(self) -> bool:
        """Whether the plan that counts was carried out."""
        return self._is_commit_of_plan or self.is_progress_of_plan

    @property
    def committed_at_ms(self) -> int | None:
        """When it was; None if it was not, or nobody knows."""
        if self.is_progress_of_plan and self.progress is not None:
            return self.progress.recorded_at_ms
        if self._is_commit_of_plan and self.commit is not None:
            return self.commit.written_at_ms
        return None

    @property
    def batch_watermark_ms(self) -> int | None:
        """The watermark that held in it; None without one."""
        plan = self.plan
        if plan is not None:
            return plan.batch_watermark_ms
        return None if self.progress is None else self.progress.batch_watermark_ms

    @property
    def ends(self) -> Mapping[str, str]:
        """End offset of each source: as planned, else as recorded."""
        plan = self.plan
        if plan is not None:
            return dict(plan.ends)
        sources = self.progress.sources if self.progress else ()
        return {str(index): source.end_offset for index, source in enumerate(sources) if source.end_offset is not None}

    @property
    def starts(self) -> Mapping[str, str]:
        """Start offset of each source, as recorded of the plan that counts; empty where nobody recorded it."""
        sources: tuple[RecordedSource, ...] = ()
        if self.progress and self.is_progress_of_plan:
            sources = self.progress.sources
        return {str(at): source.start_offset for at, source in enumerate(sources) if source.start_offset is not None}

    @property
    def is_progress_of_plan(self) -> bool:
        """Whether what was recorded is of the plan that counts, and not of one before it."""
        if self.progress is None:
            return False
        plan = self.plan
        return plan is None or plan.planned_at_ms is None or self.progress.recorded_at_ms >= plan.planned_at_ms

    @property
    def _is_commit_of_plan(self) -> bool:
        if self.commit is None:
            return False
        plan = self.plan
        # An edit of an entry keeps its processing time, and its commit; a new plan has another.
        seen = (each.first_ms for at, each in self.plans.items() if plan and at.planned_at_ms == plan.planned_at_ms)
        return self.commit.seen_at_ms >= min(seen, default=0)

    def _order(self, plan: PlannedBatch) -> tuple[Any, ...]:
        return self.plans[plan], plan.planned_at_ms or -1, plan.batch_watermark_ms or -1, plan.ends

    def with_other(self, other: BatchFacts) -> BatchFacts:
        """Both."""
        plans = dict(self.plans)
        for plan, seen in other.plans.items():
            plans[plan] = seen.with_other(plans.get(plan, seen))
        return replace(
            self,
            told_by=max(self.told_by, other.told_by),
            plans=plans,
            commit=_choose_newer_commit(self.commit, other.commit),
            progress=_choose_newer_progress(self.progress, other.progress),
        ).settle()

    def settle(self) -> BatchFacts:
        """Without what a plan makes superfluous: the recorder's telling of the same."""
        if not self.plans or self.progress is None:
            return self
        sources = tuple(replace(source, end_offset=None) for source in self.progress.sources)
        return replace(self, progress=replace(self.progress, batch_watermark_ms=None, sources=sources))


def _choose_newer_commit(one: Commit | None, other: Commit | None) -> Commit | None:
    if one is None or other is None:
        return one or other
    if one.seen_at_ms == other.seen_at_ms:
        return choose_known(one, other)  # type: ignore[no-any-return]  # of two commits it gives one
    return max(one, other, key=lambda commit: commit.seen_at_ms)


def _choose_newer_progress(one: Progress | None, other: Progress | None) -> Progress | None:
    """Of two runs of a batch the later one; of two tellings of the same, both together."""
    if one is None or other is None:
        return one or other
    if _rank_run(one) != _rank_run(other):
        return max(one, other, key=_rank_run)
    recorded_at_ms = min(one.recorded_at_ms, other.recorded_at_ms)
    return replace(join_facts(one, other), recorded_at_ms=recorded_at_ms)


def _rank_run(progress: Progress) -> tuple[int, str]:
    return progress.trigger_at_ms or -1, progress.run_id or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSeen:
    """A topic, and the id by which it is told from a later one of the same name."""

    topic: str
    topic_id: str
    first_seen_ms: int = field(metadata=join_by(min))
    last_seen_ms: int = field(metadata=join_by(max))
    first_batch_id: int = field(metadata=join_by(min))
    last_batch_id: int = field(metadata=join_by(max))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """One run of a query, from a start to its end."""

    run_id: str
    query_name: str | None = None
    spark_version: str | None = None
    application_id: str | None = None
    started_at_ms: int | None = field(default=None, metadata=join_by(min))
    ended_at_ms: int | None = field(default=None, metadata=join_by(min))
    """None while it runs, and if it was killed."""
    last_batch_id: int | None = field(default=None, metadata=join_by(max))


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSeen:
    """Why a query ended or did not start, or the driver did."""

    failure_id: str
    """The same for every telling of the same failure."""
    kind: str
    """`terminated`, `start_failed`, `crashed`, as in the records."""
    recorded_at_ms: int = field(metadata=join_by(min))
    query_id: str | None = None
    run_id: str | None = None
    query_name: str | None = None
    checkpoint: str | None = None
    batch_id: int | None = None
    condition: str | None = None
    message: str | None = None
    causes: Any = None
    start_offsets: Any = None
    end_offsets: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFacts:
    """All that was told of one query."""

    query_id: str
    checkpoint: str
    """`Location.identity`; empty where nobody knows it."""
    named: tuple[int, str] | None = None
    """Its name, and when it had it."""
    first_seen_ms: int | None = None
    last_seen_ms: int | None = None
    initial: Mapping[str, str] = field(default_factory=dict)
    """Where sources began, as far as they write that down."""
    batches: Mapping[int, BatchFacts] = field(default_factory=dict)
    topics: tuple[TopicSeen, ...] = ()
    runs: tuple[RunSeen, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from every other query: a copy of a checkpoint has the same query id elsewhere."""
        return self.query_id, self.checkpoint
