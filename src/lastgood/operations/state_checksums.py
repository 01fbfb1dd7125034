"""Whether the files of the state that the next batch loads are still what was written; on a local disk.

There Hadoop keeps a checksum beside each file, and Spark 4.1 may keep one of its own. To compare costs reading the
files, so only `diagnose` does, and no more than `BYTES_MAX` of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from lastgood.checkpoint.checksums import HadoopChecksum, SparkChecksum, parse_hadoop_checksum, parse_spark_checksum
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage, damaged
from lastgood.checkpoint.layout import IMMUTABLE_FOLDERS
from lastgood.checkpoint.lz4 import corruption
from lastgood.checkpoint.state import Loads, State, StateStore, unique_ids_of
from lastgood.checkpoint.state_files import SnapshotMetadata, StateFile, StateFileKind
from lastgood.diagnosis.unsound import Unsound
from lastgood.storage import Location, Storage

BYTES_MAX = 64 * 1024 * 1024
"""How much of the state is read for Hadoop's checksums; what is beyond is taken for sound."""
SPARK_BYTES_MAX = 1024 * 1024
"""How much for Spark's own, which take longer."""
UNPACKED_BYTES_MAX = 1024 * 1024
"""How much of what does not fit is unpacked, to see whether a Spark that looks at no checksum can read it."""


def unsound_state(
    storage: Storage, location: Location, checkpoint: Checkpoint, versions: Iterable[int]
) -> Mapping[str, Unsound]:
    """The files that loads of these versions of the state read and that do not fit their checksums, by path.

    Raises:
        StorageError: the storage does not answer, or does not let us look (subclasses).
    """
    if checkpoint.state is None or location.scheme != "file":
        return {}
    checks = _Checks(storage, location)
    state = checkpoint.state
    each = itertools.chain.from_iterable(_loaded(state, version) for version in versions)
    loaded = {f"{store.folder}/{file.name}": (store, file) for store, file in each}
    found = ((name, checks.of(store, file)) for name, (store, file) in loaded.items())
    return {name: unsound for name, unsound in found if unsound}


def _loaded(state: State, version: int) -> Iterator[tuple[StateStore, StateFile]]:
    for store in (store for operator in state.operators for store in operator.stores):
        ids = unique_ids_of(store, state.commits)
        paths = (Loads(store, ids, auto_repair=repair).path(version) for repair in (False, True))
        yield from ((store, file) for file in dict.fromkeys(file for path in paths for file in path) if file.size)


class _Checks:
    """Compares files with the checksums beside them, as long as they are not too many bytes in all."""

    def __init__(self, storage: Storage, location: Location) -> None:
        self._storage = storage
        self._location = location
        self._left = BYTES_MAX
        self._left_spark = SPARK_BYTES_MAX
        self._left_unpacked = UNPACKED_BYTES_MAX

    def of(self, store: StateStore, file: StateFile) -> Unsound | None:
        """What is wrong with a file, or with the first part of a snapshot that is wrong; None if nothing is."""
        folder = self._location / store.folder
        if file.kind is StateFileKind.ZIP:
            parts = (self._by_hadoop(*each) for each in _parts(folder, store, file))
            wrong = next((damage for damage in parts if damage), None)
            return Unsound(wrong, is_snapshot=True, by_spark=False) if wrong else None
        path, size = folder / file.name, file.size or 0
        by_spark = self._by_spark(path, size)
        damage = by_spark or self._by_hadoop(path, size)
        if damage is None:
            return None
        is_corrupt = self._is_corrupt(path, size)
        return Unsound(damage, is_snapshot=False, by_spark=by_spark is not None, is_corrupt=is_corrupt)

    def _is_corrupt(self, file: Location, size: int) -> bool:
        if size > self._left_unpacked:
            return False
        self._left_unpacked -= size
        content = self._storage.read(file, limit=UNPACKED_BYTES_MAX)
        return content is not None and corruption(content) is not None

    def _by_hadoop(self, file: Location, size: int) -> Damage | None:
        if size > self._left:
            return None
        self._left -= size
        folder = Location(file.scheme, file.authority, file.path.rpartition("/")[0])
        raw = self._storage.read(folder / f".{file.name}.crc", limit=BYTES_MAX)
        checksum = None if raw is None else parse_hadoop_checksum(raw)
        return self._compared(checksum, file, size) if isinstance(checksum, HadoopChecksum) else None

    def _by_spark(self, file: Location, size: int) -> Damage | None:
        if size > self._left_spark:
            return None
        self._left_spark -= size
        raw = self._storage.read(Location(file.scheme, file.authority, f"{file.path}.crc"), limit=SPARK_BYTES_MAX)
        checksum = None if raw is None else parse_spark_checksum(raw)
        return self._compared(checksum, file, size) if isinstance(checksum, SparkChecksum) else None

    def _compared(self, checksum: HadoopChecksum | SparkChecksum, file: Location, size: int) -> Damage | None:
        content = self._storage.read(file, limit=size + 1)
        wrong = None if content is None else checksum.check(content)
        return damaged(wrong.kind, f"{file.name}, {wrong.found}") if wrong else None


def _parts(folder: Location, store: StateStore, snapshot: StateFile) -> Iterator[tuple[Location, int]]:
    """A RocksDB snapshot and the files that it is made of, each with its size."""
    yield folder / snapshot.name, snapshot.size or 0
    metadata = store.snapshots.get(snapshot)
    names = metadata.files if isinstance(metadata, SnapshotMetadata) else ()
    yield from (
        (folder / f"{below}/{name}", store.immutables.get(name) or 0) for name in names for below in IMMUTABLE_FOLDERS
    )
