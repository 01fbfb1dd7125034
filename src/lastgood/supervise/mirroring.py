"""The mirror while a query runs: a thread that looks at its logs now and then, and never gets in its way."""

from __future__ import annotations

import contextlib
import functools
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from lastgood.errors import StorageError
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.open_query import read_clock_ms
from lastgood.storage.reading import Location
from lastgood.storage.writing import open_writable
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.filling import Filling

_LOCAL_SECONDS = 0.5
_BUSY_SECONDS = 1.0
"""After a look that has found something: the more often batches come, the more of them one look takes."""
_REMOTE_SECONDS = 5.0


@contextlib.contextmanager
def keep_mirrored(
    checkpoints: Iterable[Location], tell: Callable[[Event], None], filling: Filling | None = None
) -> Iterator[None]:
    """Keep the mirrors of these checkpoints up to date until the end of the block, and once more there.

    A mirror that cannot be written is told once and tried again; it stops nothing. What is copied is told to `filling`
    as well.
    """
    stop = threading.Event()
    threads = [
        threading.Thread(target=_keep, args=(each, stop, tell, filling), name=f"mirror-{each.name}")
        for each in checkpoints
    ]
    with run_threads(threads, stop):
        yield


@contextlib.contextmanager
def run_threads(threads: Sequence[threading.Thread], stop: threading.Event) -> Iterator[None]:
    """Have threads run until the end of the block, where `stop` tells them; it waits for them."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _keep(checkpoint: Location, stop: threading.Event, tell: Callable[[Event], None], filling: Filling | None) -> None:
    storage = open_writable(checkpoint)
    if filling is not None:
        filling.add(checkpoint)
    writer = MirrorWriter(
        checkpoint,
        storage=storage,
        folder=locate_mirror(checkpoint),
        target=storage,
        writer=secrets.token_hex(4),
        now_ms=read_clock_ms,
        copied=None if filling is None else functools.partial(filling.note_copied, checkpoint),
    )
    pause = _LOCAL_SECONDS if checkpoint.scheme == "file" else _REMOTE_SECONDS
    after_found = max(pause, _BUSY_SECONDS)
    found = 0
    is_told = False
    while True:
        is_last = stop.wait(after_found if found else pause)
        try:
            found = writer.look(anew=is_last)
            if is_last:
                writer.settle()
            is_told = False
        except StorageError as error:
            if not is_told:
                is_told = True
                tell(_make_trouble(checkpoint, error))
        if is_last:
            return


def _make_trouble(checkpoint: Location, error: StorageError) -> Noticed:
    if error.found:
        found = f" ({error.found})"
    else:
        found = ""
    return Noticed(
        at=time.time(),
        condition="MIRROR_NOT_WRITTEN",
        sentence=f"the mirror of {checkpoint} is behind: {error.sentence}{found}; it is tried again",
    )
