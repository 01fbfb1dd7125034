"""A checkpoint as the steps of a plan will leave it; nothing is written anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lastgood.planning.steps import list_files_after, list_files_brought
from lastgood.steps.step import Step
from lastgood.storage.overlay import Brought, OverlayStorage
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX


def show_after(
    storage: Storage, checkpoint: Location, steps: Sequence[Step], seal: Iterable[str] = ()
) -> OverlayStorage:
    """The storage of a checkpoint, as all steps leave it.

    Args:
        storage: Of the checkpoint.
        checkpoint: Where it lies.
        steps: None, some or all of them may be done.
        seal: Parts of a seal that stand where no file is in the end.
    """
    beside = checkpoint.sibling(WORK_SUFFIX)
    brought = {path: Brought(beside / source, size) for path, (source, size) in list_files_brought(steps).items()}
    return OverlayStorage(storage, checkpoint, {**dict.fromkeys(seal), **list_files_after(steps)}, brought)
