"""Whether the logs are lost or are an older copy: what is known of their batches elsewhere. Pure.

`status`, `diagnose`, the planner, `recover` and `run` all take it from here.
"""

from __future__ import annotations

from lastgood.checkpoint.contents import Checkpoint, Mode
from lastgood.checkpoint.layout import SOURCES
from lastgood.frozen import dataclass
from lastgood.query.observation import Observation, make_views

MIRROR = "the mirror"
"""As a holder of batches."""
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
        return KnownElsewhere(MIRROR, first, last, offsets_after=last, is_mirror=True)
    if memory is None or memory.oldest is None or memory.newest is None:
        return None
    holder = f"the ledger {memory.place}"
    return KnownElsewhere(holder, memory.oldest, memory.newest, offsets_after=memory.offsets_after, is_mirror=False)


def find_noted_before(checkpoint: Checkpoint) -> str | None:
    """The entry of a file source's log by which a checkpoint without a batch had some, such as `sources/0/7`.

    A source notes down the files of one batch at a time, and a start that dies before its first plan leaves one entry
    behind. None where there is no later one, or where batches are here.
    """
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None:
        return None
    for log in checkpoint.sources:
        newest = log.listing.newest_listed
        if newest is not None and newest > 0:
            return f"{SOURCES}/{log.name}/{newest}"
    return None


@dataclass(frozen=True, slots=True)
class CommittedAfter:
    """A batch after the newest plan that somebody knows to be committed: the logs are an older copy, or were cut."""

    holder: str
    """Who knows of it, for a person."""
    batch_id: int
    may_be_dropped: bool
    """Whether a sink may drop what comes under the numbers in between; else it only comes twice."""


def find_committed_after(observed: Observation) -> CommittedAfter | None:
    """The newest batch that recorder, mirror or ledger know to be committed, if the logs end before it.

    None where there is none; where every sink tells how far it is, and so speaks for itself; and where a recovery has
    taken the logs back since, or the query may have gone on while we looked.

    Args:
        observed: What was found and asked.
    """
    checkpoint = observed.checkpoint
    planned = checkpoint.last_planned
    if planned is None or checkpoint.mode is not Mode.MICRO_BATCH:
        return None
    known = {each.holder: each.batch_id for each in observed.committed_elsewhere if each.batch_id is not None}
    recorded = _find_recorded_after(observed, planned)
    if recorded is not None:
        known["the recorder in the application"] = recorded
    holder = max(known, key=lambda each: known[each], default=None)
    if holder is None or known[holder] <= planned:
        return None
    views = make_views(observed)
    if views and all(each.complete_to is not None for each in views):
        return None
    takes_all = all(each.complete_to is not None or each.sink.would_skip(planned + 1) is False for each in views)
    return CommittedAfter(holder, known[holder], may_be_dropped=not (views and takes_all))


def _find_recorded_after(observed: Observation, planned: int) -> int | None:
    """The batch that the recorder saw last, if it is after the newest plan."""
    advice = observed.advice
    newest = advice.batches[-1] if advice.batches else None
    if newest is None or newest.batch_id <= planned:
        return None
    at_ms = newest.recorded_at_ms or 0
    if advice.repaired_at_ms is not None and at_ms < advice.repaired_at_ms + 1000:
        return None
    if newest.batch_id <= planned + _RUNNING_BATCHES and at_ms > observed.now_ms - _RUNNING_MS:
        return None
    return newest.batch_id
