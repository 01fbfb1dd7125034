"""Whether the newest plan pins as many partitions as the state has. Pure."""

from __future__ import annotations

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.partitions import Spread
from lastgood.frozen import dataclass


@dataclass(frozen=True, slots=True)
class Repinned:
    """An operator whose state has another number of partitions than the newest plan says."""

    operator: int
    kept: int
    """How many its state has."""
    pinned: int
    """How many Spark will load."""


def find_repinned(checkpoint: Checkpoint) -> list[Repinned]:
    """The operators whose state is spread over another number of partitions than the newest plan pins.

    One that keeps everything in a single partition does not mind; a repartition by Spark itself moves the state.
    """
    state = checkpoint.state
    pinned = None if state is None else state.pins.newest
    if state is None or pinned is None:
        return []
    spread = [operator for operator in state.operators if operator.stores and state.spread(operator) is Spread.BY_KEY]
    kept = {operator.operator: state.partitions(operator).count for operator in spread}
    return [Repinned(number, count, pinned) for number, count in kept.items() if count != pinned]


def find_uncounted(checkpoint: Checkpoint) -> list[int]:
    """The operators of which nothing tells whether they are to have more partitions than there are."""
    state = checkpoint.state
    if state is None:
        return []
    return [each.operator for each in state.operators if not state.partitions(each).is_known]
