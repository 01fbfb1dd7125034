"""The state of a query while it runs: a thread that keeps it with a backup now and then, and never gets in its way."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator

from lastgood.errors import LastgoodError
from lastgood.mirror.state_copies import StateCopies
from lastgood.recovery.backing_up import keep_state
from lastgood.settings.target import Target
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.mirroring import run_threads


@contextlib.contextmanager
def keep_state_mirrored(
    targets: Iterable[Target], seconds: float | None, tell: Callable[[Event], None]
) -> Iterator[None]:
    """Keep the state of these queries until the end of the block.

    What it costs is told before it is copied for the first time. State that cannot be kept is told once and tried
    again; it stops nothing.

    Args:
        targets: The queries; one that keeps no state is left alone.
        seconds: How long between two copies; None: nothing is kept.
        tell: Gets each event; may be called from any thread.
    """
    stop = threading.Event()
    threads = []
    if seconds is not None:
        threads = [
            threading.Thread(target=_keep, args=(each, seconds, stop, tell), name=f"state-{each.location.name}")
            for each in targets
        ]
    with run_threads(threads, stop):
        yield


def _keep(target: Target, seconds: float, stop: threading.Event, tell: Callable[[Event], None]) -> None:
    kept: int | None = None
    is_told = False

    def tell_first(copies: StateCopies) -> None:
        if kept is None:
            tell(_make_kept(target, copies, seconds))

    while not stop.wait(seconds):
        try:
            backup = keep_state(target, after=kept, tell=tell_first, may_go_on=lambda: not stop.is_set())
            is_told = False
            if backup is not None and backup.state is not None:
                kept = backup.state.batch
        except LastgoodError as error:
            if not is_told and not stop.is_set():
                is_told = True
                tell(_make_trouble(target, error))


def _make_kept(target: Target, copies: StateCopies, seconds: float) -> Noticed:
    size, new = sum(file.size for file in copies.files), sum(file.size for file in copies.to_copy)
    return Noticed(
        at=time.time(),
        condition="STATE_KEPT",
        sentence=(
            f"the state of {target.location} is kept every {seconds:,.0f} s, what is new of it: now"
            f" {new:,} of {size:,} bytes, as of batch {copies.batch}"
        ),
    )


def _make_trouble(target: Target, error: LastgoodError) -> Noticed:
    found = f" ({error.found})" if error.found else ""
    return Noticed(
        at=time.time(),
        condition=error.condition,
        sentence=f"the state of {target.location} is not kept: {error.sentence}{found}; it is tried again",
    )
