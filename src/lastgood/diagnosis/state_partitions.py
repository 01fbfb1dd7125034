"""Whether the newest plan pins as many partitions as the state has. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.checkpoint.contents import Checkpoint, pinned_partitions
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.operators import OperatorMetadata
from lastgood.checkpoint.state import StateOperator


@dataclass(frozen=True, slots=True)
class Repinned:
    """An operator whose state has another number of partitions than the newest plan says."""

    operator: int
    kept: int
    """How many its state has."""
    pinned: int
    """How many Spark will load."""


def repinned(checkpoint: Checkpoint) -> list[Repinned]:
    """The operators whose state was spread over as many partitions as older plans pin, and the newest does not."""
    newest = checkpoint.offsets.newest
    entries = ((n, entry) for n, entry in checkpoint.offsets.entries.items() if isinstance(entry, OffsetEntry))
    counts = {n: count for n, entry in entries if (count := pinned_partitions(entry)) is not None}
    pinned = None if newest is None else counts.pop(newest, None)
    if pinned is None or checkpoint.state is None:
        return []
    earlier = set(counts.values()) - {pinned}
    each = ((operator.operator, _kept(operator)) for operator in checkpoint.state.operators)
    return [Repinned(number, kept, pinned) for number, kept in each if kept != pinned and kept in earlier]


def _kept(operator: StateOperator) -> int:
    if isinstance(operator.metadata, OperatorMetadata):
        return max((info.partitions for info in operator.metadata.stores), default=0)
    return max((store.partition for store in operator.stores), default=-1) + 1
