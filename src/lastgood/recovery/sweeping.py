"""Removes what a lastgood that was killed had begun to write, beside a checkpoint and in its logs."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.layout import COMMITS, OFFSETS
from lastgood.errors import StorageError
from lastgood.storage.drafts import is_draft
from lastgood.storage.reading import Location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage

KEPT_MS = 3_600_000
"""How long a draft is left alone: it is there only for as long as one file takes to be written."""


def sweep_drafts(storage: WritableStorage, checkpoint: Location, *, now_ms: int) -> list[str]:
    """Remove drafts of ours that nobody can be writing any more; Spark's own are never touched.

    Call it as the holder of the lease. What cannot be looked at or removed stays: nobody reads a draft.

    Returns:
        The locations of those that were removed.
    """
    removed = []
    try:
        for file in _list_drafts(storage, checkpoint):
            found = storage.stat(file)
            if found is None or found.is_folder or found.modified_ms is None or found.modified_ms > now_ms - KEPT_MS:
                continue
            # Safe: it bears the name of a draft of ours, and is older than any of us takes to write one. A draft is no
            # part of anything, so nothing has to bring it back.
            storage.remove(file)
            removed.append(str(file))
    except StorageError:  # the next holder finds them
        pass
    return removed


def _list_drafts(storage: WritableStorage, checkpoint: Location) -> Iterator[Location]:
    work = checkpoint.sibling(WORK_SUFFIX)
    for entry in storage.walk(work) or ():
        if is_draft(entry.name.rpartition("/")[2]):
            yield work / entry.name
    for folder in (checkpoint, checkpoint / OFFSETS, checkpoint / COMMITS):
        yield from (folder / name for name in storage.names(folder) or () if is_draft(name))
