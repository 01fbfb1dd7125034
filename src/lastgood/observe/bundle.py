"""`diagnose --save BUNDLE` and `diagnose BUNDLE`: all that a diagnosis rests on in one file, for somebody elsewhere.

No data and no secrets: names, logs without secrets, sizes and times, and what sinks and broker said.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import platform
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

from lastgood import __version__
from lastgood.bundle.archive import LISTING, PART_BYTES_MAX, BundleArchive, BundleStorage, BundleWriter, is_part
from lastgood.bundle.shareable import from_json, to_json
from lastgood.bundle.stand_ins import make_checksum_stand_in, make_stand_in
from lastgood.bundle.tree import CHECKPOINT, WORK, BundleTree, tree_from_json
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.layout import (
    COMMITS,
    OFFSETS,
    SOURCES,
    STATE,
    LogFile,
    OperatorMetadataFile,
    QueryMetadataFile,
    StateSchemaFile,
    StateStoreFile,
    classify,
)
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.state import LOADINGS, Loads, find_unique_ids
from lastgood.checkpoint.state_files import ZIP_BYTES_MAX, StateFileKind
from lastgood.errors import StorageError, UsageError
from lastgood.failures.classify import Failure
from lastgood.frozen import dataclass
from lastgood.mirror.copies import encode_copies
from lastgood.mirror.mirror import locate_mirror, read_mirror
from lastgood.observe.advice_facts import RECORDS_FOLDER
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.recorded import read_tail, select_newest_files
from lastgood.query.observation import Observation
from lastgood.records.files import parse_records
from lastgood.redaction import redact
from lastgood.settings.target import Target
from lastgood.sources.kafka.facts import KafkaFacts, KafkaFactsError, facts_from_json
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import (
    PARALLEL_LOCAL,
    PARALLEL_REMOTE,
    Location,
    LocationInvalidError,
    Storage,
    parse_location,
)
from lastgood.storage.rights import WORK_SUFFIX, open_privately
from lastgood.values import JsonValue, ShapeError, make_form

_WORLD, _FAILURES = "world.json", "failures.json"
_NOT_SAVED = frozenset({"checkpoint", "copies", "copied_since", "recalled", "repair"})
"""Fields of an observation that lie in a bundle as files, or that no diagnosis rests on."""
_MIRROR = f"{WORK}/mirror/parts/0000000000000-bundle.jsonl"
_OWN_FOLDERS = (OFFSETS, COMMITS, SOURCES, STATE)
_DEPTH_MAX = 8
_BATCHES_MAX = 100_000
_STATE_BYTES_MAX = 1024 * 1024
"""No reader looks further into a file of changes."""
_CHECKSUMS_MAX = 200
"""Of each log: readers look at those of the newest entries only."""
_MIRROR_BYTES_MAX = 32 * 1024 * 1024
_MIRROR_DAYS = 7
_CHUNK = 256

ItemT = TypeVar("ItemT")
FoundT = TypeVar("FoundT")


@dataclass(frozen=True, slots=True)
class SavedBundle(JsonValue):
    """A bundle that was written."""

    json = make_form("path parts size", texts="path")
    """The object `bundle` of `diagnose --save --format json`; `size` in bytes."""

    path: Path
    parts: int
    size: int


class Bundle:
    """An open bundle; close it, or use it in a `with` block."""

    def __init__(self, archive: BundleArchive, location: Location, tree: BundleTree, saved: Mapping[str, Any]) -> None:
        """Made by `open_bundle`."""
        self._archive = archive
        self._saved = saved
        self.location = location
        """Where the checkpoint was."""
        is_remote = archive.manifest.get("is_remote") is True
        self.storage = BundleStorage(archive, tree, parallel=PARALLEL_REMOTE if is_remote else PARALLEL_LOCAL)
        """Its files, for reading."""
        self.failures: tuple[Failure, ...] = saved[_FAILURES]
        """What the driver's log told, if there was one; without messages."""
        self.manifest = archive.manifest
        """`lastgood` and `python`: the versions that saved it; `saved_at_ms`."""

    def query(self, *, batches: int) -> OpenQuery:
        """The query as it was diagnosed: the checkpoint and its mirror read from here, the rest as it was saved.

        Raises:
            BundleInvalidError: the bundle is damaged.
        """
        checkpoint = read_checkpoint(self.storage, self.location, batches=batches)
        if self.location.name:
            mirror = tuple(read_mirror(self.storage, locate_mirror(self.location)))
        else:
            mirror = ()
        seen = Observation(checkpoint, mirror, **self._saved[_WORLD])
        return OpenQuery(Target(str(self.location)), self.location, self.storage, seen)

    def close(self) -> None:
        """Close the file."""
        self._archive.close()

    def __enter__(self) -> Self:
        """The bundle itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()


def is_bundle(target: str) -> bool:
    """Whether a target is a file of this machine: no checkpoint is one."""
    return Path(target).is_file()


def save_bundle(path: Path, query: OpenQuery, *, failures: Sequence[Failure] = ()) -> SavedBundle:
    """Write what a diagnosis rests on into one file, without data and without secrets.

    Args:
        path: The file to make; nothing is overwritten.
        query: What was diagnosed.
        failures: What the driver's log told; of their exceptions only classes and conditions are saved.

    Raises:
        UsageError: there is such a file already, or it would lie in the checkpoint.
        StorageError: the checkpoint cannot be read, or the file not be written (subclasses).
    """
    try:
        _refuse(path, query.location)
        with open(path, "xb", opener=open_privately) as stream:
            try:
                with BundleWriter(stream, _describe_about(query)) as writer:
                    _write(writer, query, failures)
                    parts = writer.finish()
            except BaseException:
                # Safe: it was created just above, where no file was, and it is half of one.
                path.unlink(missing_ok=True)
                raise
        return SavedBundle(path, parts, path.stat().st_size)
    except OSError as error:
        raise StorageError("the bundle cannot be written", subject=str(path), found=error.strerror) from error


def open_bundle(path: Path) -> Bundle:
    """Open what `save_bundle` wrote, whoever gave it to us: nothing is unpacked, and nothing in it is trusted.

    Raises:
        UsageError: there is no such file, or it cannot be read.
        BundleInvalidError: it is no bundle, not a whole one, or of another version.
    """
    archive = BundleArchive(path)
    try:
        location = parse_location(str(archive.manifest.get("location")))
        tree = tree_from_json(_name_roots(location), archive.read_json(LISTING))
        saved = {_WORLD: _decode_fields(archive.read_json(_WORLD))}
        saved[_FAILURES] = from_json(tuple[Failure, ...], archive.read_json(_FAILURES))
        return Bundle(archive, location, tree, saved)
    except (ShapeError, KafkaFactsError, LocationInvalidError) as error:
        archive.close()
        raise archive.invalid(error) from error
    except BaseException:  # also Ctrl-C: nobody holds it yet who could close it
        archive.close()
        raise


def _refuse(path: Path, location: Location) -> None:
    if path.exists() or path.is_symlink():
        raise UsageError("there is such a file already", subject=str(path), expected="the name of a new file")
    if not path.parent.is_dir():
        raise UsageError("there is no such folder", subject=str(path.parent), expected="a folder for the bundle")
    folder = Path(os.path.realpath(path.parent))
    own = [Path(os.path.realpath(root.path)) for root in _name_roots(location).values() if root.scheme == "file"]
    if any(folder.is_relative_to(root) for root in own):
        raise UsageError("a bundle does not belong into the checkpoint", subject=str(path), expected="another folder")


def _name_roots(location: Location) -> dict[str, Location]:
    return {CHECKPOINT: location, **({WORK: location.sibling(WORK_SUFFIX)} if location.name else {})}


def _describe_about(query: OpenQuery) -> dict[str, Any]:
    return {
        "lastgood": __version__,
        "python": platform.python_version(),
        "location": redact(str(query.location)),
        "is_remote": query.storage.parallel >= PARALLEL_REMOTE,
        "saved_at_ms": query.seen.now_ms,
    }


def _write(writer: BundleWriter, query: OpenQuery, failures: Sequence[Failure]) -> None:
    storage = query.storage
    tree = BundleTree(_name_roots(query.location))
    with open_threads(storage) as pool:
        _list_checkpoint(storage, query.location, tree, pool)
        chosen = _Chosen(query, tree)
        for contents in _ask_each(pool, chosen.contents, chosen.paths()):
            for path, content in contents:
                writer.add(path, content)
        work = {**_read_mirror(query), **dict(_read_records(query, pool))}
    for path, content in work.items():
        tree.add_file(path, len(content), None)
        writer.add(path, content)
    writer.add_json(_WORLD, _encode_fields(query.seen))
    writer.add_json(_FAILURES, to_json(tuple(failures)))
    writer.add_json(LISTING, tree.to_json())


def _list_checkpoint(storage: Storage, location: Location, tree: BundleTree, pool: Executor) -> None:
    """Every file of the checkpoint; of what does not belong to it only the names in its own folder."""
    if storage.names(location) is None:
        return
    tree.add_folder(CHECKPOINT)
    level = [(CHECKPOINT, location)]
    for depth in range(_DEPTH_MAX):
        listed = pool.map(lambda each: list(storage.scan(each[1]) or ()), level)
        below = []
        for (path, folder), entries in zip(level, listed, strict=True):
            for entry in entries:
                inner = f"{path}/{redact(entry.name)}"
                if not entry.is_folder:
                    tree.add_file(inner, entry.size, entry.modified_ms)
                    continue
                tree.add_folder(inner)
                if depth or entry.name in _OWN_FOLDERS:
                    below.append((inner, folder / entry.name))
        level = below


class _Chosen:
    """The files of a checkpoint whose contents are saved, or what stands in for them."""

    def __init__(self, query: OpenQuery, tree: BundleTree) -> None:
        self._storage = query.storage
        self._location = query.location
        self._sizes = {path.removeprefix(f"{CHECKPOINT}/"): entry.size for path, entry in tree.files}
        checkpoint = query.checkpoint
        logs = (checkpoint.offsets, checkpoint.commits)
        self._oldest = {log.folder: min(log.ids.last(_BATCHES_MAX), default=0) for log in logs}
        self._checked = {log.folder: min(log.ids.last(_CHECKSUMS_MAX), default=0) for log in logs}
        self._looked_into = set(_list_looked_into(checkpoint))

    def paths(self) -> Iterator[str]:
        return (path for path in self._sizes if is_part(f"{CHECKPOINT}/{path}") and self._is_chosen(path))

    def _is_chosen(self, path: str) -> bool:
        match classify(path):
            case LogFile(log=log, name=name):
                return name.is_canonical and name.batch_id >= self._oldest.get(log, 0)
            case QueryMetadataFile() | OperatorMetadataFile() | StateSchemaFile():
                return True
        return path in self._looked_into

    def contents(self, path: str) -> list[tuple[str, bytes]]:
        """What is saved of a file, and of its checksum file; nothing if it is gone since it was listed."""
        kind = classify(path)
        limit = PART_BYTES_MAX
        if isinstance(kind, StateStoreFile):
            if kind.file.kind is StateFileKind.ZIP:
                limit = ZIP_BYTES_MAX + 1
            else:
                limit = _STATE_BYTES_MAX
        raw = self._storage.read(self._location / path, limit=limit + 1)
        if raw is None or (len(raw) > limit and not isinstance(kind, StateStoreFile)):
            return []
        kept = make_stand_in(kind, raw[:limit])
        if kept is None:
            found = []
        else:
            found = [(f"{CHECKPOINT}/{path}", kept)]
        if kept is not None and isinstance(kind, LogFile) and kind.name.batch_id >= self._checked.get(kind.log, 2**63):
            folder, _, name = path.rpartition("/")
            beside = f"{folder}/.{name}.crc"
            checksum = None
            if beside in self._sizes:
                checksum = self._storage.read(self._location / beside, limit=limit)
            if checksum is not None:
                found.append((f"{CHECKPOINT}/{beside}", make_checksum_stand_in(checksum, raw, kept)))
        return found


def _list_looked_into(checkpoint: Checkpoint) -> Iterator[str]:
    """The files of the state that a reader of this checkpoint opens: those that a load of its newest versions reads."""
    state, committed = checkpoint.state, checkpoint.last_committed
    versions = range((committed or 0) + 1, (committed or 0) + (2 if checkpoint.orphan is None else 3))
    for operator in state.operators if state and committed is not None else ():
        for store in operator.stores:
            ids = find_unique_ids(store, state.commits if state else {})
            ways = itertools.product((Loads(store, ids, loading=loading) for loading in LOADINGS), versions)
            loaded = itertools.chain.from_iterable(loads.path(version) for loads, version in ways)
            files = {*loaded, *store.snapshots, *store.lineages}
            yield from (f"{store.folder}/{file.name}" for file in files)


def _ask_each(pool: Executor, ask: Callable[[ItemT], FoundT], items: Iterable[ItemT]) -> Iterator[FoundT]:
    """Answers in order, of which only a few are held at a time."""
    rest = iter(items)
    while chunk := list(itertools.islice(rest, _CHUNK)):
        yield from pool.map(ask, chunk)


def _read_mirror(query: OpenQuery) -> dict[str, bytes]:
    """The newest copies of the mirror, as one part of it."""
    if not query.location.name:
        return {}
    folder = locate_mirror(query.location)
    copies = query.seen.copies or tuple(read_mirror(query.storage, folder, days=_MIRROR_DAYS))
    kept: list[Copy] = []
    left = _MIRROR_BYTES_MAX
    for copy in sorted(copies, key=lambda each: each.seen_ms, reverse=True):
        content = make_stand_in(classify(copy.path), copy.content)
        left -= len(content or b"")
        if left < 0:
            break
        if content is not None:
            kept.append(replace(copy, content=content))
    if not kept:
        return {}
    return {_MIRROR: encode_copies(reversed(kept))}


def _read_records(query: OpenQuery, pool: Executor) -> Iterator[tuple[str, bytes]]:
    """The newest records, without the words of exceptions."""
    if not query.location.name:
        return
    folder = query.location.sibling(WORK_SUFFIX) / RECORDS_FOLDER
    names = select_newest_files(query.storage.names(folder) or ())
    contents = pool.map(lambda name: read_tail(query.storage, folder / name), names)
    for name, content in zip(names, contents, strict=True):
        records = [to_json(record.to_json()) for record in parse_records(content).records]
        yield f"{WORK}/{RECORDS_FOLDER}/{name}", b"".join(json.dumps(record).encode() + b"\n" for record in records)


def _encode_fields(observed: Observation) -> dict[str, Any]:
    names = [field.name for field in dataclasses.fields(Observation) if field.name not in _NOT_SAVED]
    told = {name: to_json(getattr(observed, name)) for name in names}
    return {**told, "kafka": None if observed.kafka is None else to_json(observed.kafka.to_json())}


def _decode_fields(told: Any) -> dict[str, Any]:
    """The fields of an observation but its checkpoint; those that are missing keep their defaults.

    Raises:
        ShapeError, KafkaFactsError: a value is not what it should be.
    """
    if not isinstance(told, dict):
        raise ShapeError(told, "world")
    hints = typing.get_type_hints(Observation)
    names = [
        field.name for field in dataclasses.fields(Observation) if field.name in told and field.name not in _NOT_SAVED
    ]
    found = {name: from_json(hints[name], told[name]) for name in names if name != "kafka"}
    if told.get("kafka") is None:
        kafka: KafkaFacts | None = None
    else:
        kafka = facts_from_json(told["kafka"])
    return {**found, "kafka": kafka}
