"""Whether the logs are lost or are an older copy: what is known of their batches elsewhere. Pure.

`status`, `diagnose`, the planner, `recover` and `run` all take it from here.
"""

from __future__ import annotations

from dataclasses import dataclass

from lastgood.checkpoint.contents import Mode
from lastgood.query.observation import Observation, make_views

_RUNNING_MS = 60_000
_RUNNING_BATCHES = 2
"""A query that runs commits so many batches at most while it is looked at."""


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


def find_recorded_after(observed: Observation) -> int | None:
    """A batch after the newest plan that a recorder saw committed: the logs are an older copy, or were cut by hand.

    None where there is none; where every sink tells how far it is, or takes any number, so that none of what is read
    again is dropped; and where a recovery has changed the logs since, or the query may have gone on while we looked.

    Args:
        observed: What was found and asked.
    """
    checkpoint, advice = observed.checkpoint, observed.advice
    planned, newest = checkpoint.last_planned, advice.batches[-1] if advice.batches else None
    if planned is None or newest is None or newest.batch_id <= planned or checkpoint.mode is not Mode.MICRO_BATCH:
        return None
    at_ms = newest.recorded_at_ms or 0
    if advice.repaired_at_ms is not None and at_ms < advice.repaired_at_ms + 1000:
        return None
    if newest.batch_id <= planned + _RUNNING_BATCHES and at_ms > observed.now_ms - _RUNNING_MS:
        return None
    views = make_views(observed)
    if views and all(each.complete_to is not None or each.sink.would_skip(planned + 1) is False for each in views):
        return None
    return newest.batch_id
