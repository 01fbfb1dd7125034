"""A signature under what a person has looked at, and under nothing that has changed since."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterable, Iterator

from lastgood.journal.lease import Holder, take_lease
from lastgood.journal.signed_files import SignedFile, is_as_it_was
from lastgood.signing import KeyRing, Signer
from lastgood.storage.reading import Location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, may_create_exclusively, require_exclusive_create

_WORK = "of none, but key sign"
"""What the lease says instead of a recovery."""


def sign_files(
    storage: WritableStorage,
    checkpoint: Location,
    ring: KeyRing,
    shown: Iterable[SignedFile],
    *,
    now_ms: Callable[[], int],
    tell: Callable[[str], None],
) -> None:
    """Sign files beside a checkpoint as a person was shown them, while no repair goes on there.

    Args:
        storage: Of the checkpoint.
        checkpoint: Where it is.
        ring: The first of these keys signs.
        shown: What the person has seen. What was changed since is left as it is.
        now_ms: Tells the time, milliseconds since 1970, for the lease.
        tell: Gets a line for each file.

    Raises:
        LeaseHeldError, LeaseInvalidError, LeaseLostError: a repair is going on, or may be; no more is signed.
        StorageError: the storage does not answer (subclasses).
    """
    signer = Signer.at(ring, checkpoint)
    with _keep_repairs_out(storage, checkpoint, now_ms) as require_ours:
        for each in shown:
            require_ours()
            if not is_as_it_was(storage, each):
                tell(f"{each.label}: it was changed meanwhile, and is left as it is")
                continue
            signed = signer.signed(each.purpose, each.names, each.told)
            # Safe: it says the same as a moment ago, and what a person was shown. No repair notes anything down
            # meanwhile; an incident or a count that is written in this very moment is written anew by its next end.
            storage.write(each.file, json.dumps(signed, ensure_ascii=True).encode() + b"\n")
            tell(f"{each.label}: signed")


@contextlib.contextmanager
def _keep_repairs_out(
    storage: WritableStorage, checkpoint: Location, now_ms: Callable[[], int]
) -> Iterator[Callable[[], None]]:
    """Let no repair go on meanwhile, which would note down what it does, or take it back; gives what looks again."""
    work = checkpoint.sibling(WORK_SUFFIX)
    if not may_create_exclusively(work):  # nothing is repaired there
        yield lambda: None
        return
    require_exclusive_create(storage, work)
    with take_lease(
        storage, work, _WORK, holder=Holder.make_own(), clock=time.monotonic, wait=time.sleep, now_ms=now_ms
    ) as lease:
        yield lease.check
