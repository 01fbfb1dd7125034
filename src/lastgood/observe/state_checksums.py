"""Whether the files of the state that the next batch loads are still what was written; on a local disk.

There Hadoop keeps a checksum beside each file, and Spark 4.1 may keep one of its own. To compare costs reading the
files, so no more than `BYTES_MAX` of them are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from lastgood.checkpoint.checksums import HadoopChecksum, SparkChecksum, parse_hadoop_checksum, parse_spark_checksum
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage, make_damage
from lastgood.checkpoint.layout import IMMUTABLE_FOLDERS
from lastgood.checkpoint.lz4 import find_corruption
from lastgood.checkpoint.state import LOADINGS, Loads, State, StateStore, find_unique_ids
from lastgood.checkpoint.state_files import SnapshotMetadata, StateFile, StateFileKind
from lastgood.frozen import dataclass
from lastgood.query.prediction.unsound import Unsound
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location, Storage

BYTES_MAX = 64 * 1024 * 1024
"""How much of the state is read for Hadoop's checksums; what is beyond is taken for sound."""
SPARK_BYTES_MAX = 1024 * 1024
"""How much for Spark's own, which take longer."""
UNPACKED_BYTES_MAX = 1024 * 1024
"""How much of what does not fit is unpacked, to see whether a Spark that looks at no checksum can read it."""


def find_unsound_state(
    storage: Storage, location: Location, checkpoint: Checkpoint, versions: Iterable[int]
) -> Mapping[str, Unsound]:
    """The files that loads of these versions of the state read and that do not fit their checksums, by path.

    Raises:
        StorageError: the storage does not answer, or does not let us look (subclasses).
    """
    if checkpoint.state is None or location.scheme != "file":
        return {}
    state = checkpoint.state
    each = itertools.chain.from_iterable(_list_loaded(state, version) for version in versions)
    loaded = {f"{store.folder}/{file.name}": (store, file) for store, file in each}
    checks = _Checks(storage, location)
    # What is read is settled before anything is, so that it is the same each time.
    asked = [(name, file, question) for name, (store, file) in loaded.items() for question in checks.of(store, file)]
    with open_threads(storage) as pool:
        answers = list(pool.map(lambda each: each[2](), asked))
    found: dict[str, Unsound] = {}
    for (name, file, _), wrong in zip(asked, answers, strict=True):
        if wrong is None or name in found:  # of a snapshot its first part that is wrong is told
            continue
        is_snapshot = file.kind is StateFileKind.ZIP
        is_corrupt = not is_snapshot and checks.is_corrupt(location / name, file.size or 0)
        found[name] = Unsound(wrong.damage, is_snapshot=is_snapshot, by_spark=wrong.by_spark, is_corrupt=is_corrupt)
    return found


def _list_loaded(state: State, version: int) -> Iterator[tuple[StateStore, StateFile]]:
    for store in (store for operator in state.operators for store in operator.stores):
        ids = find_unique_ids(store, state.commits)
        paths = (Loads(store, ids, loading=loading).path(version) for loading in LOADINGS)
        files = dict.fromkeys(file for path in paths for file in path)
        yield from ((store, file) for file in files if file.size)


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A file does not fit its checksum: Spark's own, or Hadoop's."""

    damage: Damage
    by_spark: bool


class _Checks:
    """Compares files with the checksums beside them, as long as they are not too many bytes in all."""

    def __init__(self, storage: Storage, location: Location) -> None:
        self._storage = storage
        self._location = location
        self._left = BYTES_MAX
        self._left_spark = SPARK_BYTES_MAX
        self._left_unpacked = UNPACKED_BYTES_MAX

    def of(self, store: StateStore, file: StateFile) -> Iterator[Callable[[], _Wrong | None]]:
        """What to ask of a file: one question, or of a snapshot one for each of its parts."""
        folder = self._location / store.folder
        if file.kind is StateFileKind.ZIP:
            for path, size in _list_parts(folder, store, file):
                yield partial(self._answer, path, size, by_spark=False, by_hadoop=self._may_read(size))
            return
        path, size = folder / file.name, file.size or 0
        by_spark, by_hadoop = self._may_compare(size), self._may_read(size)
        yield partial(self._answer, path, size, by_spark=by_spark, by_hadoop=by_hadoop)

    def is_corrupt(self, file: Location, size: int) -> bool:
        """Whether a file that does not fit cannot be unpacked either."""
        if size > self._left_unpacked:
            return False
        self._left_unpacked -= size
        content = self._storage.read(file, limit=UNPACKED_BYTES_MAX)
        return content is not None and find_corruption(content) is not None

    def _may_read(self, size: int) -> bool:
        if size > self._left:
            return False
        self._left -= size
        return True

    def _may_compare(self, size: int) -> bool:
        if size > self._left_spark:
            return False
        self._left_spark -= size
        return True

    def _answer(self, file: Location, size: int, *, by_spark: bool, by_hadoop: bool) -> _Wrong | None:
        damage = None
        if by_spark:
            damage = self._by_spark(file, size)
        if damage is not None:
            return _Wrong(damage, by_spark=True)
        damage = None
        if by_hadoop:
            damage = self._by_hadoop(file, size)
        if damage is None:
            return None
        return _Wrong(damage, by_spark=False)

    def _by_hadoop(self, file: Location, size: int) -> Damage | None:
        folder = Location(file.scheme, file.authority, file.path.rpartition("/")[0])
        raw = self._storage.read(folder / f".{file.name}.crc", limit=BYTES_MAX)
        checksum = None
        if raw is not None:
            checksum = parse_hadoop_checksum(raw)
        if not isinstance(checksum, HadoopChecksum):
            return None
        return self._compared(checksum, file, size)

    def _by_spark(self, file: Location, size: int) -> Damage | None:
        raw = self._storage.read(Location(file.scheme, file.authority, f"{file.path}.crc"), limit=SPARK_BYTES_MAX)
        checksum = None
        if raw is not None:
            checksum = parse_spark_checksum(raw)
        if not isinstance(checksum, SparkChecksum):
            return None
        return self._compared(checksum, file, size)

    def _compared(self, checksum: HadoopChecksum | SparkChecksum, file: Location, size: int) -> Damage | None:
        content = self._storage.read(file, limit=size + 1)
        wrong = None
        if content is not None:
            wrong = checksum.check(content)
        if not wrong:
            return None
        return make_damage(wrong.kind, f"{file.name}, {wrong.found}")


def _list_parts(folder: Location, store: StateStore, snapshot: StateFile) -> Iterator[tuple[Location, int]]:
    """A RocksDB snapshot and the files that it is made of, each with its size."""
    yield folder / snapshot.name, snapshot.size or 0
    metadata = store.snapshots.get(snapshot)
    names = metadata.files if isinstance(metadata, SnapshotMetadata) else ()
    yield from (
        (folder / f"{below}/{name}", store.immutables.get(name) or 0) for name in names for below in IMMUTABLE_FOLDERS
    )
