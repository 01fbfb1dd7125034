"""Which of two offsets of one source lies behind the other, for the sources whose offsets have an order. Pure."""

from __future__ import annotations

import enum

from lastgood.checkpoint.source_offsets import (
    ContinuousRateOffset,
    DeltaOffset,
    FileOffset,
    IcebergOffset,
    KafkaOffset,
    NumberOffset,
    RateMicroBatchOffset,
    SourceOffset,
)


class OffsetStep(enum.Enum):
    """How a source came from one offset to the next."""

    ONWARD = "onward"
    """Or it stayed where it was."""
    BACK = "back"
    UNKNOWN = "unknown"
    """Nobody but the source can tell."""


def compare_offsets(start: SourceOffset, end: SourceOffset) -> OffsetStep:
    """How a source came from `start` to `end`, by these two alone; see `Steps` for those that need more."""
    match start, end:
        case KafkaOffset(), KafkaOffset():
            ends = ((end.topics.get(t, {}).get(p), at) for t, parts in start.topics.items() for p, at in parts.items())
            return _choose_step(is_back=any(end is not None and end < at for end, at in ends))
        case ContinuousRateOffset(), ContinuousRateOffset():
            both = start.partitions.keys() & end.partitions.keys()
            return _choose_step(is_back=any(end.partitions[part][0] < start.partitions[part][0] for part in both))
    first, last = _find_place(start), _find_place(end)
    if first is None or last is None or first[0] != last[0]:
        return OffsetStep.UNKNOWN
    return _choose_step(is_back=last[1] < first[1])


class Steps:
    """The steps of the sources of one query, from its oldest batch on."""

    def __init__(self) -> None:
        """No source has made a step."""
        self._left: dict[str, set[int]] = {}

    def step(self, source_id: str, start: SourceOffset, end: SourceOffset) -> OffsetStep:
        """As `compare_offsets`; one that comes back to an Iceberg snapshot that it had left went back as well."""
        if isinstance(start, IcebergOffset) and isinstance(end, IcebergOffset) and start.snapshot_id != end.snapshot_id:
            left = self._left.setdefault(source_id, set())
            left.add(start.snapshot_id)
            return OffsetStep.BACK if end.snapshot_id in left else OffsetStep.UNKNOWN
        return compare_offsets(start, end)


def _choose_step(*, is_back: bool) -> OffsetStep:
    return OffsetStep.BACK if is_back else OffsetStep.ONWARD


def _find_place(offset: SourceOffset) -> tuple[tuple[str, object], tuple[int, int]] | None:
    """What it is an offset of, and where in it; None where nobody knows how such offsets follow each other."""
    match offset:
        case FileOffset():
            return (offset.kind, None), (offset.log_offset, 0)
        case NumberOffset():
            return (offset.kind, None), (offset.value, 0)
        case RateMicroBatchOffset():
            return (offset.kind, None), (offset.offset, 0)
        case DeltaOffset():
            return (offset.kind, offset.table_id), offset.place
        case IcebergOffset():  # the ids of snapshots are drawn by lot
            return (offset.kind, offset.snapshot_id), (offset.position, 0)
    return None
