"""How much state a restart has to load, partition by partition, from names and sizes of files. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.state import Loads, StateStore, find_unique_ids
from lastgood.checkpoint.state_files import SnapshotMetadata, StateFileKind


def measure_partitions(checkpoint: Checkpoint) -> Mapping[int, Mapping[int, int]]:
    """Bytes that a load of the newest committed version reads, per operator and partition.

    On disk, so compressed; where changes were not yet put into a snapshot, a key counts once for each change. An
    operator is left out if the size of any of its partitions is not known.
    """
    state, committed = checkpoint.state, checkpoint.last_committed
    if state is None or committed is None:
        return {}
    found: dict[int, dict[int, int]] = {}
    for operator in state.operators:
        sizes: dict[int, int] = {}
        for store in state.list_loaded(operator):
            size = _measure_store(store, committed + 1, Loads(store, find_unique_ids(store, state.commits)))
            if size is None:
                break
            sizes[store.partition] = sizes.get(store.partition, 0) + size
        else:
            if sizes:
                found[operator.operator] = sizes
    return found


def _measure_store(store: StateStore, version: int, loads: Loads) -> int | None:
    path = loads.path(version)
    if not path or any(file.size is None for file in path):  # not there, or not looked up
        return None
    size = sum(file.size or 0 for file in path)
    if path[0].kind is not StateFileKind.ZIP:
        return size
    snapshot = store.snapshots.get(path[0])  # its SST files lie beside it
    if not isinstance(snapshot, SnapshotMetadata):
        return None
    return size + sum(snapshot.files.values())
