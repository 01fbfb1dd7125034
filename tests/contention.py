"""Several writers who create the same files at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage

ROUNDS = 100
WRITERS = 4
_DEADLINE_SECONDS = 60


def contend_for_files(root: Location, open_at: Callable[[Location], WritableStorage]) -> None:
    """Have all writers create each file at once; assert that one did, is told so, and left nothing else."""
    barrier = threading.Barrier(WRITERS, timeout=_DEADLINE_SECONDS)

    def contend(writer: int) -> list[bool]:
        storage, won = open_at(root), []
        for turn in range(ROUNDS):
            barrier.wait()
            won.append(storage.create(root / str(turn), str(writer).encode()))
        return won

    with ThreadPoolExecutor(WRITERS) as pool:
        won = list(pool.map(contend, range(WRITERS)))
    winners = [[writer for writer in range(WRITERS) if won[writer][turn]] for turn in range(ROUNDS)]
    assert [len(those) for those in winners] == [1] * ROUNDS
    storage = open_at(root)
    assert [storage.read(root / str(turn), limit=9) for turn in range(ROUNDS)] == [b"%d" % who for (who,) in winners]
    assert set(storage.names(root) or ()) == set(map(str, range(ROUNDS)))
