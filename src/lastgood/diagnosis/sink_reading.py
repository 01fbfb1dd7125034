"""What a sink shows and what a checkpoint takes for done, side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.restart import Restart
from lastgood.diagnosis.spans import Span, orphan_of, read_nothing, spans
from lastgood.diagnosis.world import World
from lastgood.position import Position
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sources.kafka_retention import MAX_CLOCK_SKEW_MS

DELTA, FILE, FENCE, ABSENT = "delta", "file", "fence", "absent"
NONE = -1
"""Below the first batch."""
_STORAGE_CLOCK_MS = 2000
"""How far the clock of a storage, which may know whole seconds only, is taken to be behind."""


@dataclass(frozen=True, slots=True)
class SinkReading:
    """One sink of a query."""

    world: World
    position: Position
    restart: Restart
    sink: SinkEvidence
    spans_of: Mapping[int, list[Span]]
    """What each batch reads, of the plans that were read."""

    @property
    def orphan(self) -> int | None:
        """The batch that a start runs again; None if there is none."""
        return orphan_of(self.world.checkpoint)

    @property
    def committed(self) -> int:
        """The newest committed batch, or `NONE`."""
        return NONE if self.position.committed is None else self.position.committed

    @property
    def done(self) -> int:
        """The newest batch that Spark takes for done, or `NONE`: it never runs that again."""
        return self.committed if self.orphan is None else self.orphan - 1

    @property
    def next_new(self) -> int:
        """The number of the batch that will be planned next."""
        return max(self.done if self.orphan is None else self.orphan, self.committed) + 1

    @property
    def shown(self) -> int:
        """The newest batch that the sink shows, or `NONE`; the truth only if `sink.known`."""
        return NONE if self.sink.last_batch is None else self.sink.last_batch

    @property
    def skips(self) -> int:
        """The sink is known to drop batches up to this one; `NONE` if it is not."""
        if not self.sink.skips_known or self.sink.skips_up_to is None:
            return NONE
        return self.sink.skips_up_to

    @property
    def shows_none(self) -> bool:
        """Whether it surely knows nothing of the query, neither rows nor a mark."""
        return self.sink.known and self.sink.last_batch is None and self.skips == NONE

    @property
    def has_every_mark(self) -> bool:
        """Whether every batch of the query has left a mark here, also one without rows: a function need not do that."""
        by_function = any(batch.is_streaming is False for batch in self.sink.batches)
        return self.sink.kind != FENCE and self.sink.dedupe_key is not DedupeKey.APP_ID and not by_function

    def may_have_rows(self, batch_ids: Iterable[int]) -> list[int]:
        """Of these batches, those that are not known to have read nothing."""
        return [batch_id for batch_id in batch_ids if not read_nothing(self.spans_of.get(batch_id, []))]

    def batches_done(self, first: int, last: int) -> list[int]:
        """The batches from `first` to `last` of which a log tells, and that Spark takes for done."""
        logs = (self.world.checkpoint.offsets.ids, self.world.checkpoint.commits.ids)
        end = min(last, self.done) + 1
        parts = (range(max(run.start, first), min(run.stop, end)) for log in logs for run in log.runs)
        return sorted({batch_id for part in parts for batch_id in part})

    def dropped(self) -> tuple[tuple[int, ...], bool]:
        """Batches that the sink had before they were planned, and whether that is more than a guess about clocks."""
        commits = self.world.checkpoint.commits.ids
        read = (batch_id for batch_id in self.spans_of if batch_id in commits or batch_id == self.orphan)
        times = {batch_id: time for batch_id in self._has_rows(read) if (time := self._planned_ms(batch_id))}
        is_one_clock = self.sink.kind == DELTA or self.sink.location.startswith("/")
        if not is_one_clock:
            times = {batch_id: time - _STORAGE_CLOCK_MS for batch_id, time in times.items()}
        late = self.sink.skipped_batches(times)
        compared = {each.batch_id for each in self.sink.batches if each.is_live and each.committed_at_ms is not None}
        in_order = compared.intersection(times).difference(late)
        long_before = {batch_id: time - MAX_CLOCK_SKEW_MS for batch_id, time in times.items()}
        is_sure = (is_one_clock and bool(in_order)) or self.sink.skipped_batches(long_before) == late
        return late, is_sure

    def finding(
        self,
        condition: Condition,
        effect: str,
        evidence: Mapping[str, Any],
        command: str | None = None,
        level: Severity | None = None,
    ) -> Finding:
        """A finding about this sink; evidence that is None is left out, and the effect begins with a capital."""
        found = {name: value for name, value in evidence.items() if value is not None}
        told: dict[str, Any] = {
            "kind": self.sink.kind,
            "shown": self.sink.last_batch,
            "because": self.sink.because,
            **found,
        }
        sentence = effect[:1].upper() + effect[1:]
        if self.sink.presumed_app_id is not None:
            told["presumed_app_id"] = self.sink.presumed_app_id
            says = f"{effect[:1].lower()}{effect[1:]}"
            sentence = f"If the query writes as {self.sink.presumed_app_id}, the only name in the table: {says}"
            level = min(condition.severity if level is None else level, Severity.WARNING)
        return Finding(condition, self.sink.location, sentence, told, command, level)

    def inspect(self, batch_id: int) -> str:
        """The command that shows a batch."""
        return self.world.command("inspect", "--batch", str(batch_id))

    def status(self) -> str:
        """The command that asks the sink again."""
        return self.world.command("status")

    def backups(self) -> str:
        """The command that shows what there is to put back."""
        return self.world.command("backup list")

    def _has_rows(self, batch_ids: Iterable[int]) -> list[int]:
        """Of these batches, those that are known to have read something."""
        read = ((batch_id, self.spans_of.get(batch_id, [])) for batch_id in batch_ids)
        return [batch_id for batch_id, own in read if any(span.start and not span.is_empty for span in own)]

    def _planned_ms(self, batch_id: int) -> int | None:
        entry = self.world.checkpoint.offsets.entries.get(batch_id)
        return entry.metadata.batch_timestamp_ms if isinstance(entry, OffsetEntry) and entry.metadata else None


def sink_readings(world: World, position: Position, restart: Restart) -> list[SinkReading]:
    """Every sink that was asked."""
    by_batch: dict[int, list[Span]] = {}
    for span in spans(world.checkpoint):
        by_batch.setdefault(span.batch_id, []).append(span)
    return [SinkReading(world, position, restart, sink, by_batch) for sink in world.sinks]


def batches(ids: Iterable[int]) -> str:
    """Batches for a sentence."""
    found = sorted(set(ids))
    if len(found) == 1:
        return f"batch {found[0]}"
    if found[-1] - found[0] + 1 == len(found):
        return f"batches {found[0]} to {found[-1]}"
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"batches {', '.join(map(str, found[:5]))}{more}"
