"""From which version on the batches of a query can run again, so that its state is made anew. Pure.

A plan holds all that decides what a batch makes of the state: what it reads, its watermark, its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lastgood.checkpoint.layout import IMMUTABLE_FOLDERS, OFFSETS, parse_batch
from lastgood.checkpoint.state import Loads, State, StateStore, find_unique_ids
from lastgood.checkpoint.state_files import SnapshotMetadata, StateFile, StateFileKind
from lastgood.query.observation import Observation
from lastgood.query.prediction.skipping import find_version_loaded


def find_replay_start(loadable: Iterable[int], needed: int, known: set[int]) -> int | None:
    """The newest version of the state from which every batch up to the one that needs it can run again.

    Args:
        loadable: Versions that can be loaded; version 0, which is empty, always can.
        needed: The version that is needed, and cannot be loaded.
        known: Batches whose plans are there, in the checkpoint or in the mirror.

    Returns:
        The version, which is also the number of the first batch that runs again; None: for each of them plans are gone.
    """
    for version in sorted(list_starts(loadable, needed), reverse=True):
        if list_batches_of_replay(version, needed) <= known:
            return version
    return None


def find_gathering(needed: int, known: set[int]) -> int | None:
    """The batch that may read at once what those whose plans are gone have read: the one before the rest.

    Args:
        needed: As `find_replay_start`.
        known: The same.

    Returns:
        Its number; None: the newest plan is gone as well, or only batch 0 has lost its own.
    """
    first = needed
    while first - 1 in known:
        first -= 1
    return first - 1 if 2 <= first < needed else None


def list_starts(loadable: Iterable[int], needed: int) -> set[int]:
    """The versions before the one that is needed from which batches could run again, if their plans are there."""
    return {0, *(version for version in loadable if version < needed)}


def list_batches_of_replay(begins: int, ends: int) -> set[int]:
    """The batches whose plans it takes: of each that runs, and of the one before, which says where the first begins."""
    return set(range(max(begins - 1, 0), ends))


def can_rebuild(observed: Observation) -> bool:
    """Whether state that is lost can be made anew by the own batches of a query, as far as plans and state tell."""
    needed = find_version_loaded(observed.checkpoint, observed.sinks)
    if not needed:
        return False
    known = list_batches_planned(observed)
    begins = find_replay_start(list_sound_versions(observed), needed, known)
    return begins is not None or find_gathering(needed, known) is not None


def list_sound_versions(observed: Observation) -> set[int]:
    """Versions of the state that can be loaded, and of whose files none was changed since it was written."""
    state = observed.checkpoint.state
    if state is None:
        return set()
    unsound = observed.unsound.keys()
    return {version for version in state.loadable if unsound.isdisjoint(list_files_of(state, version))}


def list_files_of(state: State, version: int) -> Iterator[str]:
    """Paths of the files of versions from which one is loaded."""
    for store, file in _list_path(state, version):
        yield f"{store.folder}/{file.name}"


def list_files_read(state: State, version: int) -> Iterator[str]:
    """Paths of all files that are read when a version is loaded, also of those that a snapshot of RocksDB shares.

    Of such a one that was not looked into, all that it may share.
    """
    for store, file in _list_path(state, version):
        yield f"{store.folder}/{file.name}"
        if file.kind is StateFileKind.ZIP:
            metadata = store.snapshots.get(file)
            names = metadata.files if isinstance(metadata, SnapshotMetadata) else store.immutables
            yield from (f"{store.folder}/{below}/{name}" for name in names for below in IMMUTABLE_FOLDERS)


def _list_path(state: State, version: int) -> Iterator[tuple[StateStore, StateFile]]:
    for operator in state.operators:
        for store in operator.stores:
            for file in Loads(store, find_unique_ids(store, state.commits)).path(version):
                yield store, file


def list_batches_planned(observed: Observation) -> set[int]:
    """Batches whose plans are there, in the checkpoint or, as far as it was read, in the mirror."""
    copied = {parse_batch(path, OFFSETS) for path in observed.repair.mirror}
    copied |= {parse_batch(copy.path, OFFSETS) for copy in observed.copies}
    return {*observed.checkpoint.offsets.ids, *(copied - {None})}
