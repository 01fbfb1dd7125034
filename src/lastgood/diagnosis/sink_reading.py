"""What a sink shows and what a checkpoint takes for done, side by side. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.checkpoint.source_offsets import topics_of
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.position import Position
from lastgood.query.prediction.restart import Restart
from lastgood.query.sink_batches import Held, held_batches, planned_anew
from lastgood.query.spans import Span, orphan_of, read_nothing, spans
from lastgood.query.world import World
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sources.kafka_ranges import planned, ranges_to_json

DELTA, FILE, FENCE, ABSENT = "delta", "file", "fence", "absent"
NONE = -1
"""Below the first batch."""


@dataclass(frozen=True, slots=True)
class SinkReading:
    """One sink of a query."""

    world: World
    position: Position
    restart: Restart
    sink: SinkEvidence
    spans_of: Mapping[int, list[Span]]
    """What each batch reads, of the plans that were read."""
    held: Mapping[int, Held]
    """Of which plan the batches are that it holds."""

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
    def marked(self) -> int:
        """By a mark that is seen, be it the last one or not, the sink drops batches up to this one; `NONE`: by none."""
        return NONE if self.sink.skips_up_to is None else self.sink.skips_up_to

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

    def may_any_have_rows(self, batch_ids: Iterable[int]) -> bool:
        """Whether one of these batches is not known to have read nothing; no more are looked at than it takes."""
        return any(not read_nothing(self.spans_of.get(batch_id, [])) for batch_id in batch_ids)

    def batches_done(self, first: int, last: int) -> list[int]:
        """The batches from `first` to `last` of which a log tells, and that Spark takes for done."""
        logs = (self.world.checkpoint.offsets.ids, self.world.checkpoint.commits.ids)
        end = min(last, self.done) + 1
        parts = (range(max(run.start, first), min(run.stop, end)) for log in logs for run in log.runs)
        return sorted({batch_id for part in parts for batch_id in part})

    @property
    def is_planned_anew(self) -> bool:
        """Whether what it holds under the number of the orphan is, or may be, of an older plan of that number."""
        return planned_anew(self.world.checkpoint, self.sink) is not None

    def dropped(self) -> dict[int, Held]:
        """Batches that are done and read something, and that the sink had, or may have had, before their plan."""
        return {
            batch_id: self.held[batch_id]
            for batch_id in self._has_rows(sorted(self.held))
            if self.held[batch_id].origin.is_doubtful and batch_id <= self.done
        }

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

    def verify(self) -> str:
        """The command that counts what is there."""
        return self.world.command("verify", "--data")

    def plan(self) -> str:
        """The command that offers a way out."""
        return self.world.command("plan")

    def ranges(self, batch_id: int) -> dict[str, Any]:
        """What a batch reads of each Kafka source, by topic and partition, as far as its plans tell."""
        found: dict[str, Any] = {}
        for span in self.spans_of.get(batch_id, []):
            told = planned(topics_of(span.start), topics_of(span.end))
            if told:
                found[span.source_id] = ranges_to_json(told)
        return found

    def backups(self) -> str:
        """The command that shows what there is to put back."""
        return self.world.command("backup list")

    def _has_rows(self, batch_ids: Iterable[int]) -> list[int]:
        """Of these batches, those that are known to have read something."""
        read = ((batch_id, self.spans_of.get(batch_id, [])) for batch_id in batch_ids)
        return [batch_id for batch_id, own in read if any(span.start and not span.is_empty for span in own)]


def sink_readings(world: World, position: Position, restart: Restart) -> list[SinkReading]:
    """Every sink that was asked."""
    by_batch: dict[int, list[Span]] = {}
    for span in spans(world.checkpoint):
        by_batch.setdefault(span.batch_id, []).append(span)
    return [
        SinkReading(world, position, restart, sink, by_batch, held_batches(world.checkpoint, sink))
        for sink in world.sinks
    ]


def batches(ids: Iterable[int]) -> str:
    """Batches for a sentence."""
    if isinstance(ids, range) and ids.step == 1 and ids.stop - ids.start > 1:  # it may be as long as a mark is high
        return f"batches {ids[0]} to {ids[-1]}"
    found = sorted(set(ids))
    if len(found) == 1:
        return f"batch {found[0]}"
    if found[-1] - found[0] + 1 == len(found):
        return f"batches {found[0]} to {found[-1]}"
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"batches {', '.join(map(str, found[:5]))}{more}"
