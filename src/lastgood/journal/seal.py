"""The seal: empty files in the logs of a checkpoint, by which no driver can go on with it and none can start.

A driver between two batches dies at its next plan, because that file is there already; one inside a batch dies at its
commit; one that starts dies because the newest plan is empty. All of that is Spark's own doing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lastgood.checkpoint.layout import COMMITS, OFFSETS
from lastgood.journal.lease import LeaseLostError
from lastgood.journal.room import RecoveryStage, Room

_BYTES_MAX = 1
_UP = (RecoveryStage.BEGUN, RecoveryStage.APPLYING, RecoveryStage.UNDOING, RecoveryStage.TAKING_BACK)
"""Stages of a recovery that needs its seal."""


def list_seal_files(planned: int | None, committed: int | None, planned_then: int | None) -> tuple[str, ...]:
    """The files that seal a checkpoint, in the order in which they are created.

    Args:
        planned: The newest plan now.
        committed: The newest commit now.
        planned_then: The newest plan when all steps are done.
    """
    if planned is None:
        following = 0
    else:
        following = planned + 1
    top = max(following, 0 if planned_then is None else planned_then + 1)
    running = planned is not None and (committed is None or committed < planned)
    plans = dict.fromkeys((f"{OFFSETS}/{top}", f"{OFFSETS}/{following}"))
    if running:
        return (*plans, f"{COMMITS}/{planned}")
    return tuple(plans)


def put_up(room: Room, seal: Iterable[str], check: Callable[[], None] = lambda: None) -> str | None:
    """Seal a checkpoint; a part that stands already stays.

    Args:
        room: Where.
        seal: From `list_seal_files`.
        check: Raises LeaseLostError if somebody else has taken over.

    Returns:
        None, or the path of a part that cannot be put up, because a driver has written there.
    """
    for path in seal:
        check()
        if room.storage.create(room.file(path), b""):
            _require_wanted(room, path, check)
        elif not is_in_place(room, path):
            return path
    return None


def _require_wanted(room: Room, path: str, check: Callable[[], None]) -> None:
    """Take a part away again that was put up too late: the one who has taken over had no need of a seal any more."""
    try:
        check()
    except LeaseLostError:
        if room.stage() not in _UP:
            # Safe, though the lease is not ours any more: the part is one that we have just created ourselves, and the
            # recovery is past the stages that need a seal, so nobody else puts one up there, or waits for this one.
            take_down(room, [path])
        raise


def take_down(room: Room, seal: Sequence[str], check: Callable[[], None] = lambda: None) -> None:
    """Take away what is left of a seal: commits first, then plans, the newest of them last.

    Until that last file is gone no driver can start. What a step has written over a part of the seal stays.

    Args:
        room: Where.
        seal: From `list_seal_files`.
        check: Raises LeaseLostError if somebody else has taken over; called before each part goes.
    """
    for path in sorted(seal, key=_rank_removal):
        if is_in_place(room, path):
            check()
            # Safe: it was just seen to be empty, and no entry of a query is, since Spark writes a version first: it is
            # ours. A driver puts its own entry over it only if it had looked here before the seal stood, and whoever
            # seals waits for such a one (`settle` of the engine). Commits go before plans, and the newest plan last:
            # at no instant is a batch committed that is not planned, and until the end no driver can start.
            room.storage.remove(room.file(path))


def is_in_place(room: Room, path: str) -> bool:
    """Whether a part of a seal is there: a file, and empty."""
    return room.storage.read(room.file(path), limit=_BYTES_MAX) == b""


def _rank_removal(path: str) -> tuple[bool, int]:
    folder, _, number = path.partition("/")
    return folder == OFFSETS, int(number)
