"""One load a checkpoint: on one machine by the lock that every supervisor takes, among several by a lease beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lastgood.ids import make_id
from lastgood.journal.holding import HoldReason, locate_lock_file
from lastgood.journal.lease import Holder, Lease, LeaseHeldError, LeaseLostError, take_lease
from lastgood.observe.load_asked import require_answer
from lastgood.observe.open_query import read_clock_ms
from lastgood.recovery.hold import CheckpointHeldError, hold_checkpoint
from lastgood.storage.reading import Location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import open_writable, require_exclusive_create


@contextmanager
def hold_alone(
    checkpoint: Location, say: Callable[[str], None] = lambda _: None, work: HoldReason = HoldReason.LOAD
) -> Iterator[Lease | None]:
    """Hold a checkpoint while the block runs; gives the lease, or None where only this machine reaches it.

    Args:
        checkpoint: Of the load.
        say: Is told where it waits for a sign of life of another machine.
        work: For what.

    Raises:
        UsageError: its bucket is not there.
        CheckpointHeldError: another process works on it, here or elsewhere.
        ExclusiveCreateUnsupportedError: its storage keeps no two machines apart.
        StorageError: the checkpoint cannot be written to (subclasses).
    """
    with hold_checkpoint(str(checkpoint), locate_lock_file(checkpoint), work):
        if checkpoint.scheme == "file":
            yield None
            return
        require_answer(checkpoint)
        with _take_lease(checkpoint, say) as lease:
            yield lease


def check_lease(lease: Lease, checkpoint: Location) -> None:
    """See that a lease is still ours.

    Raises:
        CheckpointHeldError: another machine has taken it over, since nothing was heard of this one.
        StorageError: that cannot be told now (subclasses).
    """
    try:
        lease.check()
    except LeaseLostError as lost:
        raise CheckpointHeldError(
            "another machine has gone on with this load, since nothing was heard of this one",
            subject=str(checkpoint),
            found=lost.found,
            expected=lost.expected,
            effect="this one has stopped; what was loaded stays",
        ) from lost


def _take_lease(checkpoint: Location, say: Callable[[str], None]) -> Lease:
    storage, work = open_writable(checkpoint), checkpoint.sibling(WORK_SUFFIX)
    require_exclusive_create(storage, work)
    try:
        return take_lease(
            storage,
            work,
            make_id(read_clock_ms()),
            holder=Holder.make_own(),
            clock=time.monotonic,
            wait=time.sleep,
            now_ms=read_clock_ms,
            tell=say,
        )
    except LeaseHeldError as held:
        raise CheckpointHeldError(
            "the same load goes on on another machine, or its checkpoint is repaired there",
            subject=str(checkpoint),
            found=held.found,
            expected="nobody",
            effect="nothing was started",
            next=held.next,
        ) from held
