"""Snapshots of the state of a time that was given up, which a later start would go on from. Pure.

A batch that runs again writes its changes anew, and a snapshot of its version stays. Which plan a snapshot is of,
times tell: a batch is planned before its state is made, so a snapshot that is older than the plan is of an older one.
The two times are of two clocks, so it has to be older as well than what came after the plan by the clock of the
storage: the plan's own file, or the changes that the batch has made.
"""

from __future__ import annotations

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.state import StateFormat, StateStore, list_snapshots_that_stay
from lastgood.checkpoint.state_files import StateFile
from lastgood.frozen import dataclass


@dataclass(frozen=True, slots=True)
class StaleSnapshot:
    """A snapshot that wins over what is made anew."""

    path: str
    """Below the checkpoint."""
    version: int
    batch: int | None = None
    """The batch that has another plan now; None: the logs know no batch that made this version."""


def find_stale_snapshots(checkpoint: Checkpoint) -> list[StaleSnapshot]:
    """Every snapshot above the versions that the logs know, and those of an older plan that the next loads begin with.

    RocksDB without changes writes each version whole, and state checkpoint format v2 goes by names.
    """
    state = checkpoint.state
    if state is None:
        return []
    stores = [store for operator in state.operators for store in operator.stores]
    return [stale for store in stores if store.format is not StateFormat.ROCKSDB for stale in _find(checkpoint, store)]


def _find(checkpoint: Checkpoint, store: StateStore) -> list[StaleSnapshot]:
    newest = max((n for n in (checkpoint.last_planned, checkpoint.last_committed) if n is not None), default=-1) + 1
    found = []
    snapshots = list_snapshots_that_stay(store)
    begins_with = {_find_newest(snapshots, version) for version in (newest - 1, newest)}
    for file in snapshots:
        path = f"{store.folder}/{file.name}"
        if file.version > newest:
            found.append(StaleSnapshot(path, file.version))
        elif file in begins_with and _is_of_older_plan(checkpoint, store, file):
            found.append(StaleSnapshot(path, file.version, file.version - 1))
    return found


def _find_newest(snapshots: list[StateFile], version: int) -> StateFile | None:
    """The one that a load of this version begins with."""
    return max((file for file in snapshots if file.version <= version), key=lambda file: file.version, default=None)


def _is_of_older_plan(checkpoint: Checkpoint, store: StateStore, file: StateFile) -> bool:
    made_ms, planned_ms = store.written_ms.get(file), _find_planned_ms(checkpoint, file.version - 1)
    if made_ms is None or planned_ms is None or made_ms >= planned_ms:
        return False
    later = [ms for each, ms in store.written_ms.items() if each.version == file.version and not each.kind.is_snapshot]
    log = checkpoint.offsets
    if log.newest == file.version - 1 and log.newest_modified_ms is not None:
        later.append(log.newest_modified_ms)
    return max(later, default=made_ms) > made_ms


def _find_planned_ms(checkpoint: Checkpoint, batch: int) -> int | None:
    """When a batch was planned, as its plan says; None if that was not read."""
    plan = checkpoint.offsets.entries.get(batch)
    if isinstance(plan, OffsetEntry):
        return None if plan.metadata is None else plan.metadata.batch_timestamp_ms
    return None if checkpoint.state is None else checkpoint.state.planned_ms.get(batch)
