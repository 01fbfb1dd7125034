"""Reads the folder `state` of a checkpoint: what it holds, and of its files only those that a load needs explained."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import TypeVar

from lastgood.checkpoint.commits import StateUniqueIds
from lastgood.checkpoint.damage import Damage, DamageKind, damaged
from lastgood.checkpoint.layout import (
    IMMUTABLE_FOLDERS,
    METADATA,
    OPERATOR_METADATA,
    OPERATOR_METADATA_V2,
    STATE,
    folder_number,
)
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.operators import STORE_DEFAULT, OperatorMetadata, parse_operator_metadata
from lastgood.checkpoint.state import Loads, StateFormat, StateOperator, StateStore, unique_ids_of
from lastgood.checkpoint.state_files import (
    CHANGELOG_HEAD_BYTES,
    ZIP_BYTES_MAX,
    StateFile,
    StateFileKind,
    parse_lineage,
    parse_snapshot,
    parse_state_file_name,
)
from lastgood.storage import Location, Storage

_COMMITS_MAX = 200

FoundT = TypeVar("FoundT")


def list_operators(storage: Storage, checkpoint: Location, pool: Executor) -> list[StateOperator] | None:
    """The stateful operators with all their stores, from names alone; None if there is no folder `state`.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    root = checkpoint / STATE
    operators = _numbered_folders(storage, root)
    if operators is None:
        return None
    partitions = list(pool.map(lambda number: _numbered_folders(storage, root / str(number)) or [], operators))
    metadata = [pool.submit(_metadata_path, storage, root, number) for number in operators]
    pairs = [
        (operator, partition) for operator, there in zip(operators, partitions, strict=True) for partition in there
    ]
    stores = list(pool.map(lambda pair: _stores(storage, root, *pair), pairs))
    paths = [path.result() for path in metadata]
    read = pool.map(lambda path: _read_metadata(storage, checkpoint, path), paths)
    return [
        StateOperator(number, found, path, tuple(s for group in stores for s in group if s.operator == number))
        for number, path, found in zip(operators, paths, read, strict=True)
    ]


def _numbered_folders(storage: Storage, folder: Location) -> list[int] | None:
    names = storage.names(folder)
    if names is None:
        return None
    numbers = (folder_number(name[:-1]) for name in names if name.endswith("/"))
    return sorted(number for number in numbers if number is not None)


def _metadata_path(storage: Storage, root: Location, operator: int) -> str | None:
    """Where the newest metadata of an operator lies: version 2 has one file for each run."""
    names = [entry.name for entry in storage.walk(root / f"{operator}/{OPERATOR_METADATA}") or ()]
    below = f"{OPERATOR_METADATA_V2}/"
    runs = (folder_number(name.removeprefix(below)) for name in names if name.startswith(below))
    newest = max((run for run in runs if run is not None), default=None)
    if newest is None and METADATA not in names:
        return None
    name = METADATA if newest is None else f"{below}{newest}"
    return f"{STATE}/{operator}/{OPERATOR_METADATA}/{name}"


def _read_metadata(storage: Storage, checkpoint: Location, path: str | None) -> OperatorMetadata | Damage | None:
    raw = None if path is None else storage.read(checkpoint / path, limit=ENTRY_BYTES_MAX + 1)
    return None if raw is None else parse_operator_metadata(raw)


def _stores(storage: Storage, root: Location, operator: int, partition: int) -> list[StateStore]:
    """The stores of one partition; one without any file is a store as well."""
    files: dict[str, list[StateFile]] = {}
    immutables: dict[str, dict[str, int | None]] = {}
    for entry in storage.walk(root / f"{operator}/{partition}") or ():
        folder, _, name = entry.name.rpartition("/")
        if name.startswith("."):  # side files and unfinished writes
            continue
        store, _, below = folder.partition("/")
        if store in (OPERATOR_METADATA, *IMMUTABLE_FOLDERS):
            store, below = "", folder
        file = parse_state_file_name(name, entry.size) if not below else None
        if file:
            files.setdefault(store or STORE_DEFAULT, []).append(file)
        elif below in IMMUTABLE_FOLDERS:
            immutables.setdefault(store or STORE_DEFAULT, {})[name] = entry.size
    names = sorted({*files, *immutables}) or [STORE_DEFAULT]
    return [
        StateStore(
            operator, partition, name, tuple(sorted(files.get(name, ()), key=_by_version)), immutables.get(name, {})
        )
        for name in names
    ]


def _by_version(file: StateFile) -> tuple[int, str, str]:
    return file.version, file.kind.value, file.unique_id or ""


def commits_needed(operators: Iterable[StateOperator], commits: BatchIds, version: int | None) -> list[int]:
    """The batches whose commits name what a load of `version` builds on; format v2 only."""
    if version is None:
        return []
    snapshots = []
    for store in (store for operator in operators for store in operator.stores):
        if store.format is StateFormat.ROCKSDB_V2:
            zips = (f.version for f in store.files if f.kind is StateFileKind.ZIP and f.version <= version)
            snapshots.append(max(zips, default=1))
    oldest = max(min(snapshots, default=version), version - _COMMITS_MAX)
    return [batch_id for batch_id in range(oldest - 1, version) if batch_id in commits]


def look_into_stores(
    storage: Storage,
    checkpoint: Location,
    pool: Executor,
    operators: Iterable[StateOperator],
    commits: Mapping[int, StateUniqueIds | None],
    version: int | None,
) -> list[StateOperator]:
    """The same operators, with those files read that tell whether RocksDB can load `version`.

    These are, per store, the snapshot that the load begins with, and the newest changelog where commits do not lead
    back to a snapshot.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    operators = list(operators)
    if version is None:
        return operators

    def read(
        store: StateStore, file: StateFile, limit: int, parse: Callable[[bytes], FoundT | Damage]
    ) -> FoundT | Damage:
        raw = storage.read(checkpoint / f"{store.folder}/{file.name}", limit=limit)
        return damaged(DamageKind.MISSING_PART, "gone since it was listed") if raw is None else parse(raw)

    def follow(store: StateStore) -> StateStore:
        if store.format is not StateFormat.ROCKSDB_V2:
            return store
        path = Loads(store, unique_ids_of(store, commits)).path(version)
        if not path or not path[-1].unique_id or path[-1] not in store.files or path[0].kind.is_snapshot:
            return store
        if path[0].version == 1 and path[0] in store.files:
            return store
        lineage = read(store, path[-1], CHANGELOG_HEAD_BYTES, parse_lineage)
        return replace(store, lineages={path[-1]: lineage})

    def open_snapshot(store: StateStore) -> StateStore:
        if store.format is StateFormat.HDFS_BACKED:
            return store
        path = Loads(store, unique_ids_of(store, commits)).path(version)
        first = path[0] if path else None
        if first is None or first.kind is not StateFileKind.ZIP or not first.size:
            return store
        return replace(store, snapshots={first: read(store, first, ZIP_BYTES_MAX + 1, parse_snapshot)})

    stores = [store for operator in operators for store in operator.stores]
    looked = list(pool.map(open_snapshot, pool.map(follow, stores)))
    return [
        replace(operator, stores=tuple(store for store in looked if store.operator == operator.operator))
        for operator in operators
    ]
