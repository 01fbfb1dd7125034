"""Whether each source of a query goes on where the batch before left it, and of which nobody can tell. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset, VoidOffset
from lastgood.checkpoint.source_order import OffsetStep, Steps
from lastgood.frozen import dataclass
from lastgood.query.history import BatchRecord, InitialOffsets, Seam
from lastgood.sources.kinds import find_place, recognise_source
from lastgood.sources.unasked import describe_source
from lastgood.values import JsonValue, make_form

_UNKNOWN = OffsetStep.UNKNOWN


@dataclass(frozen=True, slots=True)
class NotCompared(JsonValue):
    """A source of which nobody can tell whether its batches follow each other."""

    json = make_form("source=source_id name batch=batch_id")
    """One element of `not_compared` of `verify --format json`."""

    source_id: str
    name: str
    batch_id: int
    """The first batch of which that is so."""


class SourceSteps:
    """Iterate over it, once: the batches pass by, and the steps of their sources are noted down."""

    def __init__(self, records: Iterable[BatchRecord], initial: InitialOffsets) -> None:
        """Nothing has passed by.

        Args:
            records: The committed batches, oldest first.
            initial: Where the sources began, which helps to name them.
        """
        self._records = records
        self._initial = initial
        self._steps = Steps()
        self._at: dict[str, SourceOffset] = {}
        self._began: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._not_compared: dict[str, NotCompared] = {}
        self.seams: list[Seam] = []
        """Sources that went back, but for Kafka, whose partitions are told one by one (`history.find_seams`)."""

    def __iter__(self) -> Iterator[BatchRecord]:
        """The batches as they are."""
        for record in self._records:
            if isinstance(record.offsets, OffsetEntry) and record.is_committed:
                self._pass(record.batch_id, record.offsets)
            yield record

    @property
    def not_compared(self) -> tuple[NotCompared, ...]:
        """The sources that could not be compared from some batch on; of one batch only, those without an order."""
        alone = [
            NotCompared(source_id, self._names[source_id], self._began[source_id])
            for source_id, offset in self._at.items()
            if source_id not in self._not_compared and _compare(self._steps, source_id, offset, offset) is _UNKNOWN
        ]
        return (*self._not_compared.values(), *alone)

    @property
    def read_up_to(self) -> Mapping[str, int]:
        """Per file source the newest entry of its log that a batch has read."""
        return {each: at.log_offset for each, at in self._at.items() if isinstance(at, FileOffset)}

    @property
    def names(self) -> Mapping[str, str]:
        """Every source that was met, with its name."""
        return self._names

    def _pass(self, batch_id: int, entry: OffsetEntry) -> None:
        ends = {line.source_id: line.offset for line in entry.sources}
        for source_id, start in self._at.items():
            self._step(batch_id, source_id, start, ends.get(source_id, VoidOffset()))
        for source_id, end in ends.items():
            if not isinstance(end, VoidOffset):
                self._began.setdefault(source_id, batch_id)
                self._at[source_id] = end
                self._names.setdefault(source_id, describe_source(end, self._initial.get(source_id)))

    def _step(self, batch_id: int, source_id: str, start: SourceOffset, end: SourceOffset) -> None:
        found = _compare(self._steps, source_id, start, end)
        if found is OffsetStep.BACK and not isinstance(end, KafkaOffset):
            positions = (start.to_text(), end.to_text())
            self.seams.append(Seam("OVERLAP", batch_id, source_id=source_id, positions=positions))
        if found is _UNKNOWN and source_id not in self._not_compared:
            self._not_compared[source_id] = NotCompared(source_id, self._names[source_id], batch_id)


def _compare(steps: Steps, source_id: str, start: SourceOffset, end: SourceOffset) -> OffsetStep:
    found = steps.step(source_id, start, end)
    return _compare_by_place(start, end) if found is _UNKNOWN else found


def _compare_by_place(start: SourceOffset, end: SourceOffset) -> OffsetStep:
    """The step of a source whose offsets have no type of their own, where its kind tells how far on each is."""
    first, last = find_place(start), find_place(end)
    if first is None or last is None or recognise_source(start) is not recognise_source(end):
        return _UNKNOWN
    return OffsetStep.BACK if last < first else OffsetStep.ONWARD


def list_not_joined(left: OffsetEntry, initial: InitialOffsets) -> list[NotCompared]:
    """The sources of which nobody can tell whether a new query began them where the one before it had come to.

    Args:
        left: The newest committed plan of the query before.
        initial: Where the sources of the new query began, as far as they wrote that down.
    """
    return [
        NotCompared(line.source_id, describe_source(line.offset, initial.get(line.source_id)), 0)
        for line in left.sources
        if not isinstance(line.offset, VoidOffset)
        if not (isinstance(line.offset, KafkaOffset) and isinstance(initial.get(line.source_id), KafkaOffset))
    ]
