"""Whether a checkpoint without a batch is a lost one: what is known of its batches elsewhere. Pure.

`status`, `diagnose`, the planner, `recover` and `run` all take it from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.query.observation import Observation


@dataclass(frozen=True, slots=True)
class KnownElsewhere:
    """Batches of a checkpoint that holds none of them any more."""

    holder: str
    """Who knows of them, for a person."""
    first: int
    last: int
    offsets_after: int | None
    """The batch after which a query can be begun anew, as far as this holder tells; None: it tells of none."""
    is_mirror: bool
    """Whether their plans can be put back as they were."""


def find_known_elsewhere(observed: Observation) -> KnownElsewhere | None:
    """What mirror or ledger know of the batches of a checkpoint that has none; None if nobody knows of any.

    What sinks hold is not asked here: they hold rows of a query, and know nothing of its checkpoint.

    Args:
        observed: What was found and asked.
    """
    checkpoint, mirrored, memory = observed.checkpoint, observed.mirrored, observed.memory
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None:
        return None
    if mirrored is not None and mirrored.oldest is not None and mirrored.newest is not None:
        first, last = mirrored.oldest, mirrored.newest
        return KnownElsewhere("the mirror", first, last, offsets_after=last, is_mirror=True)
    if memory is None or memory.oldest is None or memory.newest is None:
        return None
    holder = f"the ledger {memory.place}"
    return KnownElsewhere(holder, memory.oldest, memory.newest, offsets_after=memory.offsets_after, is_mirror=False)
