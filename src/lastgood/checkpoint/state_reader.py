"""Reads the folder `state` of a checkpoint: what it holds, and of its files only those that a load needs explained."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from lastgood.checkpoint.commits import StateUniqueIds
from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.layout import (
    IMMUTABLE_FOLDERS,
    METADATA,
    OPERATOR_METADATA,
    OPERATOR_METADATA_V2,
    STATE,
    parse_folder_number,
)
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.operators import (
    STORE_DEFAULT,
    OperatorMetadata,
    StateSchema,
    parse_operator_metadata,
    parse_state_schema,
)
from lastgood.checkpoint.partitions import Spread, find_spread_by_name
from lastgood.checkpoint.state import (
    LOADINGS,
    Loads,
    StateFormat,
    StateOperator,
    StateStore,
    find_unique_ids,
    list_snapshots_that_stay,
)
from lastgood.checkpoint.state_files import (
    CHANGELOG_HEAD_BYTES,
    ZIP_BYTES_MAX,
    LineageItem,
    SnapshotMetadata,
    StateFile,
    StateFileKind,
    find_early_end,
    parse_lineage,
    parse_snapshot,
    parse_state_file_name,
)
from lastgood.storage.reading import PARALLEL_REMOTE, Location, Storage

_COMMITS_MAX = 200
_CHECKED_BYTES_MAX = 1024 * 1024
_GONE = make_damage(DamageKind.MISSING_PART, "gone since it was listed")


class _Looked(NamedTuple):
    """What was looked into, by file."""

    snapshots: Mapping[StateFile, SnapshotMetadata | Damage] = {}
    lineages: Mapping[StateFile, tuple[LineageItem, ...] | Damage] = {}


def list_operators(storage: Storage, checkpoint: Location, pool: Executor) -> list[StateOperator] | None:
    """The stateful operators with all their stores, from names alone; None if there is no folder `state`.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    root = checkpoint / STATE
    operators = _list_numbered_folders(storage, root)
    if operators is None:
        return None
    metadata = [pool.submit(_find_metadata, storage, checkpoint, number) for number in operators]
    # Where it lies for nearly every operator, so that it need not wait for the list of its stores.
    schemas = {number: pool.submit(_read_schema, storage, root, number, STORE_DEFAULT) for number in operators}
    partitions = list(pool.map(lambda number: _list_numbered_folders(storage, root / str(number)) or [], operators))
    pairs = [
        (operator, partition) for operator, there in zip(operators, partitions, strict=True) for partition in there
    ]
    stores = list(pool.map(lambda pair: _read_stores(storage, root, *pair), pairs))
    described = [found.result() for found in metadata]
    all_stores = list(itertools.chain.from_iterable(stores))
    found = []
    for number, (path, what) in zip(operators, described, strict=True):
        own = [store for store in all_stores if store.operator == number]
        found.append(StateOperator(number, what, path, tuple(own)))
    return [replace(each, schema=_read_operator_schema(storage, root, each, schemas[each.operator])) for each in found]


def _read_operator_schema(
    storage: Storage, root: Location, operator: StateOperator, default: Future[StateSchema | None]
) -> StateSchema | None:
    """The schema of the state of an operator, unless its name tells whether partition 0 is all there is to be."""
    if find_spread_by_name(operator.name) is not Spread.UNKNOWN:
        return None
    for store in (store for store in operator.stores if store.partition == 0):
        is_default = store.name == STORE_DEFAULT
        if is_default:
            schema = default.result()
        else:
            schema = _read_schema(storage, root, operator.operator, store.name)
        if schema is not None:
            return schema
    return None


def _read_schema(storage: Storage, root: Location, operator: int, store: str) -> StateSchema | None:
    if store == STORE_DEFAULT:
        below = ""
    else:
        below = f"{store}/"
    raw = storage.read(root / f"{operator}/0/{below}{OPERATOR_METADATA}/schema", limit=ENTRY_BYTES_MAX + 1)
    schema = None
    if raw is not None:
        schema = parse_state_schema(raw)
    return schema if isinstance(schema, StateSchema) else None


def _list_numbered_folders(storage: Storage, folder: Location) -> list[int] | None:
    names = storage.names(folder)
    if names is None:
        return None
    numbers = (parse_folder_number(name[:-1]) for name in names if name.endswith("/"))
    return sorted(number for number in numbers if number is not None)


def _find_metadata(
    storage: Storage, checkpoint: Location, operator: int
) -> tuple[str | None, OperatorMetadata | Damage | None]:
    """Where the newest metadata of an operator lies, and what it says."""
    path = _find_metadata_path(storage, checkpoint, operator)
    raw = None
    if path is not None:
        raw = storage.read(checkpoint / path, limit=ENTRY_BYTES_MAX + 1)
    return path, None if raw is None else parse_operator_metadata(raw)


def _find_metadata_path(storage: Storage, checkpoint: Location, operator: int) -> str | None:
    """Version 2 has one file for each run."""
    names = [entry.name for entry in storage.walk(checkpoint / f"{STATE}/{operator}/{OPERATOR_METADATA}") or ()]
    below = f"{OPERATOR_METADATA_V2}/"
    runs = (parse_folder_number(name.removeprefix(below)) for name in names if name.startswith(below))
    newest = max((run for run in runs if run is not None), default=None)
    if newest is None and METADATA not in names:
        return None
    if newest is None:
        name = METADATA
    else:
        name = f"{below}{newest}"
    return f"{STATE}/{operator}/{OPERATOR_METADATA}/{name}"


def _read_stores(storage: Storage, root: Location, operator: int, partition: int) -> list[StateStore]:
    """The stores of one partition; one without any file is a store as well."""
    files: dict[str, list[StateFile]] = {}
    written_ms: dict[str, dict[StateFile, int]] = {}
    immutables: dict[str, dict[str, int | None]] = {}
    checksummed: dict[str, set[str]] = {}
    for entry in storage.walk(root / f"{operator}/{partition}") or ():
        folder, _, name = entry.name.rpartition("/")
        store, _, below = folder.partition("/")
        if store in (OPERATOR_METADATA, *IMMUTABLE_FOLDERS):
            store, below = "", folder
        if name.startswith("."):  # side files and unfinished writes
            if name.endswith(".crc"):
                checksummed.setdefault(store or STORE_DEFAULT, set()).add(name[1:-4])
            continue
        file = None
        if not below:
            file = parse_state_file_name(name, entry.size)
        if file:
            files.setdefault(store or STORE_DEFAULT, []).append(file)
            if entry.modified_ms is not None:
                written_ms.setdefault(store or STORE_DEFAULT, {})[file] = entry.modified_ms
        elif below in IMMUTABLE_FOLDERS:
            immutables.setdefault(store or STORE_DEFAULT, {})[name] = entry.size
    names = sorted({*files, *immutables}) or [STORE_DEFAULT]
    return [
        StateStore(
            operator,
            partition,
            name,
            tuple(sorted(files.get(name, ()), key=_rank_by_version)),
            immutables.get(name, {}),
            checksummed=frozenset(checksummed.get(name, ())),
            written_ms=_select_beside_snapshots(written_ms.get(name, {})),
        )
        for name in names
    ]


def _select_beside_snapshots(written_ms: Mapping[StateFile, int]) -> dict[StateFile, int]:
    """The times of those versions that have a snapshot which stays."""
    versions = {file.version for file in written_ms if file.is_snapshot_that_stays}
    return {file: ms for file, ms in written_ms.items() if file.version in versions}


def list_made_again(operators: Iterable[StateOperator]) -> list[int]:
    """The batches whose changes were written after a snapshot of their version: the plan tells whether it is theirs."""
    found = set()
    for store in (store for operator in operators for store in operator.stores):
        snapshots = {file.version: store.written_ms.get(file) for file in list_snapshots_that_stay(store)}
        for file, ms in store.written_ms.items():
            snapshot_ms = snapshots.get(file.version)
            if snapshot_ms is not None and ms > snapshot_ms:
                found.add(file.version - 1)
    return sorted(found)[-_COMMITS_MAX:]


def _rank_by_version(file: StateFile) -> tuple[int, str, str]:
    return file.version, file.kind.value, file.unique_id or ""


def list_commits_needed(operators: Iterable[StateOperator], commits: BatchIds, version: int | None) -> list[int]:
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

    These are, per store, the changelogs that tell what the version builds on, the snapshot that the load begins with,
    and older ones where that is broken. On a local disk, where that costs next to nothing, also how far a repair could
    go back, and whether the files end too early.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    operators = list(operators)
    if version is None:
        return operators

    looked = [store for operator in operators for store in operator.stores]
    open_ones = list(range(len(looked)))
    while open_ones:  # what is read in one round tells what the next has to
        wanted = [
            (number, file)
            for number in open_ones
            for file in _list_unread(looked[number], commits, version, to_the_oldest=_is_quick(storage))
        ]
        folders = [checkpoint / looked[number].folder for number, _ in wanted]
        files = [file for _, file in wanted]
        read = list(pool.map(partial(_look_into, storage), folders, files))
        for (number, _), found in zip(wanted, read, strict=True):
            looked[number] = replace(
                looked[number],
                snapshots={**looked[number].snapshots, **found.snapshots},
                lineages={**looked[number].lineages, **found.lineages},
            )
        open_ones = sorted({number for number, _ in wanted})
    if _is_quick(storage):
        looked = [_check_ends(storage, checkpoint, store, commits, version) for store in looked]
    return [
        replace(operator, stores=tuple(store for store in looked if store.operator == operator.operator))
        for operator in operators
    ]


def _list_unread(
    store: StateStore, commits: Mapping[int, StateUniqueIds | None], version: int, *, to_the_oldest: bool
) -> list[StateFile]:
    """The lineage and the snapshots, of those not read yet, that tell what a load reads, as far as is known by now."""
    if store.format is StateFormat.HDFS_BACKED:
        return []
    loads = [Loads(store, find_unique_ids(store, commits), loading=loading) for loading in LOADINGS]
    changelog = loads[-1].find_lineage_to_read(version, to_the_oldest=to_the_oldest)
    unread = [] if changelog is None else [changelog]
    for path in [each.path(version) for each in loads]:
        unread += [file for file in path[:1] if file.kind is StateFileKind.ZIP and file.size]
    return [file for file in dict.fromkeys(unread) if file not in store.snapshots]


def _is_quick(storage: Storage) -> bool:
    """Whether to read a small file costs next to nothing."""
    return storage.parallel < PARALLEL_REMOTE


def _look_into(storage: Storage, folder: Location, file: StateFile) -> _Looked:
    """A snapshot, or the lineage of a changelog."""
    if file.kind is StateFileKind.ZIP:
        raw = storage.read(folder / file.name, limit=ZIP_BYTES_MAX + 1)
        return _Looked(snapshots={file: _GONE if raw is None else parse_snapshot(raw)})
    raw = storage.read(folder / file.name, limit=CHANGELOG_HEAD_BYTES)
    return _Looked(lineages={file: _GONE if raw is None else parse_lineage(raw)})


def _check_ends(
    storage: Storage,
    checkpoint: Location,
    store: StateStore,
    commits: Mapping[int, StateUniqueIds | None],
    version: int,
) -> StateStore:
    """The same store, knowing which files of a load end too early, also of one that goes past a broken snapshot."""
    seen: set[StateFile] = set()
    while True:
        paths = [Loads(store, find_unique_ids(store, commits), loading=loading).path(version) for loading in LOADINGS]
        unseen = {file for path in paths for file in path} - seen
        if not unseen:
            return store
        seen |= unseen
        ends = {file: _find_early_end(storage, checkpoint / store.folder, file) for file in unseen}
        broken = {file: damage for file, damage in ends.items() if damage}
        store = replace(store, broken={**store.broken, **broken})


def _find_early_end(storage: Storage, folder: Location, file: StateFile) -> Damage | None:
    if file.kind is StateFileKind.ZIP or not 0 < (file.size or 0) <= _CHECKED_BYTES_MAX:
        return None
    raw = storage.read(folder / file.name, limit=_CHECKED_BYTES_MAX)
    if raw is None:
        return None
    return find_early_end(raw)
