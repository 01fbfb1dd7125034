"""What a sink shows of one batch, held against what the checkpoint says of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lastgood.frozen import dataclass
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.rows import BatchRow
from lastgood.query.sink_batches import Origin, find_planned_anew
from lastgood.query.sinks import Shown, judge_shown
from lastgood.sinks.evidence import CommittedBatch, SinkEvidence
from lastgood.values import JsonValue, make_form

_ONLY_IN_SINKS_MAX = 100


@dataclass(frozen=True, slots=True)
class ShownBatch(JsonValue):
    """One batch in one sink."""

    sink: str
    """Location of the sink."""
    kind: str
    shown: Shown
    version: int | None
    """The version of the table (Delta), snapshot (Iceberg) or epoch (fence) that holds it now; None without one."""
    versions: tuple[int, ...]
    """Every version that wrote it, oldest first."""
    row_count: int | None
    """None: unknown."""

    def difference(self, *, is_planned: bool, is_committed: bool, is_empty: bool = False) -> str | None:
        """Where sink and checkpoint disagree, in a few words; None where they do not, or where that is not known.

        Args:
            is_planned: Whether the checkpoint has planned the batch.
            is_committed: Whether it has committed it.
            is_empty: Whether it read nothing: a function of the user may leave such a batch out.
        """
        if is_committed and self.shown is Shown.ABSENT and not is_empty:
            return "not in the sink"
        if is_committed and self.shown is Shown.TAKEN_BACK:
            return "taken back in the sink"
        if not is_planned and self.shown is Shown.LIVE:
            return "in the sink only"
        return None


@dataclass(frozen=True, slots=True)
class HeldBatch(JsonValue):
    """A batch of the checkpoint, held against one sink."""

    json = make_form("*shown difference")
    """One element of `sinks` of a batch in `inspect --format json`."""

    shown: ShownBatch
    difference: str | None
    """Where the two disagree, in a few words."""
    anew: str | None = None
    """Why what the sink holds under this number is, or may be, of an older plan; one line for a person."""


class SinkComparison:
    """The batches of a query held against its sinks.

    Example:
        >>> comparison = SinkComparison(query, query.seen.sinks)
        >>> for row in make_rows(query):
        ...     print(row.batch, [held.difference for held in comparison.of(row)])
        1 []
        2 []
    """

    def __init__(self, query: OpenQuery, sinks: Iterable[SinkEvidence]) -> None:
        """Hold what `query` knows against what `sinks` say."""
        self.sinks = tuple(sinks)
        self._known = query.known
        planned = query.checkpoint.last_planned
        self._last_planned = -1 if planned is None else planned
        self._orphan = query.checkpoint.orphan
        self._anew = [find_planned_anew(query.checkpoint, sink) for sink in self.sinks]
        self._batches: list[dict[int, list[CommittedBatch]]] = []
        for sink in self.sinks:
            found: dict[int, list[CommittedBatch]] = {}
            for batch in sink.batches:
                found.setdefault(batch.batch_id, []).append(batch)
            self._batches.append(found)

    def of(self, row: BatchRow) -> tuple[HeldBatch, ...]:
        """A batch held against each sink; what only the mirror still knows is no longer planned."""
        is_planned = row.planned and row.batch <= self._last_planned
        is_empty = bool(row.reads) and all(read.count == 0 and not read.added for read in row.reads)
        is_committed = row.committed and is_planned
        told = []
        for sink, batches, anew in zip(self.sinks, self._batches, self._anew, strict=True):
            each = find_shown_batch(sink, row.batch, batches.get(row.batch, ()))
            differs = each.difference(is_planned=is_planned, is_committed=is_committed, is_empty=is_empty)
            if anew is not None and anew.origin.is_doubtful and row.batch == self._orphan:
                is_sure = anew.origin is Origin.OLDER_PLAN
                differs = "of an older plan in the sink" if is_sure else "perhaps of an older plan in the sink"
                told.append(HeldBatch(each, differs, anew.because))
            else:
                told.append(HeldBatch(each, differs))
        return tuple(told)

    def only_in_sinks(self) -> list[BatchRow]:
        """Batches newer than every plan that a sink shows and nobody else knows; newest first, a hundred at most."""
        shown = {batch for found in self._batches for batch, each in found.items() if any(one.is_live for one in each)}
        newer = sorted((each for each in shown if each > self._last_planned and each not in self._known), reverse=True)
        return [_make_unplanned_row(each) for each in newer[:_ONLY_IN_SINKS_MAX]]


def find_shown_batch(sink: SinkEvidence, batch_id: int, found: Sequence[CommittedBatch]) -> ShownBatch:
    """What a sink shows of a batch; `found` is what it says of that one."""
    live = [batch for batch in found if batch.is_live]
    version, row_count = None, None
    if live:
        version, row_count = live[-1].version, live[-1].row_count
    return ShownBatch(
        sink.location,
        sink.kind,
        judge_shown(sink, batch_id, found),
        version,
        tuple(batch.version for batch in found if batch.version is not None),
        row_count,
    )


def _make_unplanned_row(batch_id: int) -> BatchRow:
    return BatchRow(
        batch_id,
        planned=False,
        committed=False,
        time_ms=None,
        watermark_ms=None,
        reads=(),
        mirrored=False,
        notes=(),
    )
