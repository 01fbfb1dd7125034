"""Applies or undoes a plan, and dies by `kill -9`: killed_apply.py PLAN|CHECKPOINT WHEN [undo]

WHEN is `begin` (once the backup is made, before the first step), or the number of a change of the storage.
"""

import os
import signal
import sys

from lastgood.recovery import applying as apply
from lastgood.settings.target import resolve_target
from lastgood.storage.writing import open_writable
from lastgood.testing.storage import FaultyWriter


def main(subject: str, when: str, verb: str = "apply") -> None:
    """Die at that change, right before it is done."""

    def between(number: int) -> None:
        told = storages[-1].changes
        begun = when == "begin" and any("applying.json" in change for change in told[:-1])
        if begun or str(number) == when:
            os.kill(os.getpid(), signal.SIGKILL)

    def faulty(location: object) -> FaultyWriter:
        storages.append(FaultyWriter(open_writable(location), between=between))
        return storages[-1]

    storages: list[FaultyWriter] = []
    apply.open_writable = faulty
    if verb == "undo":
        apply.undo("last", target=resolve_target(subject), driver_is_dead=True)
    else:
        apply.apply_plan(subject, driver_is_dead=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
