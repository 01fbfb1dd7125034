"""Applies a plan, and is stopped by SIGSTOP in the middle of it: stopped_apply.py PLAN NUMBER LOCK LEASE_SECONDS

Right before change NUMBER of the storage, counted from when it holds the lease. LOCK is the lock of its machine.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from lastgood.errors import LastgoodError
from lastgood.journal.lease import LeasePace, take_lease
from lastgood.recovery import applying as apply
from lastgood.storage.writing import open_writable
from lastgood.testing.storage import FaultyWriter

LEASES = "/leases/"


class Stopping:
    """The storages of the process; at the change of that number it stops."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._is_held = False

    def open(self, location: object) -> FaultyWriter:
        storage = FaultyWriter(open_writable(location), between=lambda at: self._between(storage.changes[at - 1]))
        return storage

    def _between(self, change: str) -> None:
        if LEASES in change:  # its signs of life are no change of the repair
            self._is_held = True
        elif self._is_held:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGSTOP)


def main(plan: str, number: str, lock: str, lease_seconds: str) -> int:
    apply.open_writable = Stopping(int(number)).open
    for name, value in of_a_machine(Path(lock), float(lease_seconds)).items():
        setattr(apply, name, value)
    try:
        apply.apply_plan(plan, driver_is_dead=True)
    except LastgoodError as error:
        print(f"{error.condition}: {error}")
        return error.exit_code
    return 0


def of_a_machine(lock: Path, lease_seconds: float) -> dict[str, Callable[..., object]]:
    """What stands in for names of `operations.apply`: another lock, and leases that need not be waited for long."""
    pace = LeasePace(lease_seconds, beat_seconds=lease_seconds / 10, look_seconds=lease_seconds / 10)
    return {
        "take_lease": functools.partial(take_lease, pace=pace),
        "locate_lock_file": lambda _: lock,
        "estimate_late_write_seconds": lambda _: 0.0,
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
