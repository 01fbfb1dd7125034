"""Where it is kept how often the same batch has failed, from one `recover` or `run` to the next.

CHECKPOINT.lastgood/attempts.json
"""

from __future__ import annotations

from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX

_BYTES_MAX = 64 * 1024
"""What is longer is none of ours."""


def locate_attempts_file(checkpoint: Location) -> Location:
    """The file of a checkpoint."""
    return checkpoint.sibling(WORK_SUFFIX) / "attempts.json"


def read_attempts(storage: Storage, checkpoint: Location) -> bytes | None:
    """What lies there, whoever wrote it; None if nothing does.

    Raises:
        StorageError: it cannot be read (subclasses).
    """
    return storage.read(locate_attempts_file(checkpoint), limit=_BYTES_MAX)
