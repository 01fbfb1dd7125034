"""Sees that all files which the log of a Delta table names lie in the table, before somebody else's library opens them.

The log lies where others write. A path in it may be absolute, as of a shallow clone, or lead upwards; a file may be a
link, a pipe or a device. Delta's libraries go wherever it says.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.lines import split_byte_lines
from lastgood.delta_log.actions import read_action
from lastgood.delta_log.listing import DELTA_LOG, LAST_CHECKPOINT, SIDECARS, list_delta_log
from lastgood.delta_log.parquet_bounds import PageError, measure_bounds
from lastgood.delta_log.snapshot import import_pyarrow
from lastgood.errors import Retry, StorageError
from lastgood.storage.local_tree import LinkNotFollowedError
from lastgood.storage.parallel import Deadline, ask_all, ask_one
from lastgood.storage.reading import LocalStorage, Location, Storage

_FILE_BYTES_MAX = 1024 * 1024 * 1024
_AHEAD_BYTES_MAX = 8 * 1024 * 1024
_VERSION = re.compile(r"(?:\d{20}\.)?(\d{20})\.(?:compacted\.)?(.+)")
_OWN_NAME = re.compile(r"\.checkpoint\.([0-9a-f-]{36})\.")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_UUID_CHARACTERS = 20
"""Of a deletion vector in the table the id of its file, in base 85; what stands before it is a folder."""
_UNQUOTED_MAX = 8
_FILES = ("add", "remove", "cdc")
_COLUMNS = (
    *(
        f"{kind}.{name}"
        for kind in ("add", "remove")
        for name in ("path", "deletionVector.storageType", "deletionVector.pathOrInlineDv")
    ),
    "sidecar.path",
)


class TableLeadsElsewhereError(StorageError):
    """The log of a table names a file that is not of the table, or is none."""

    condition = "TABLE_LEADS_ELSEWHERE"
    exit_code = 24
    retry = Retry.AFTER_CHANGE

    def __init__(self, subject: Location | str, found: str) -> None:
        super().__init__(
            "the log of the table names a file that is not of the table",
            subject=str(subject),
            found=found,
            expected="files in the folder of the table, each a file of its own",
            effect="none of its files was opened",
        )


def require_own_files(storage: Storage, table: Location, *, deadline: Deadline) -> None:
    """See that a table, or a folder without such a log, can be opened by a library that goes wherever it leads.

    Whoever exchanges files between this look and that one is not held up by it.

    Args:
        storage: From `open_storage(table)`.
        table: The folder that holds `_delta_log`.
        deadline: When to stop waiting.

    Raises:
        TableLeadsElsewhereError: the log names a file elsewhere, or something in the table is no file.
        LinkNotFollowedError: something in the table is a link.
        StorageError: the storage does not answer in time, or a file of the log cannot be read (subclasses).
        ExtraMissingError: it holds Parquet, and pyarrow is not installed.
    """
    _Look(storage, table, deadline).require()


def may_lead_elsewhere(path: str) -> bool:
    """Whether a path that a log names may lead out of its table, however often it is escaped.

    Example:
        >>> may_lead_elsewhere("date=2026-11-21/part-0.parquet"), may_lead_elsewhere("a/%2e%2e/%2e%2e/b")
        (False, True)
    """
    for _ in range(_UNQUOTED_MAX):
        parts = re.split(r"[/\\]", path)
        if path.startswith(("/", "\\")) or "\0" in path or ".." in parts or _SCHEME.match(path):
            return True
        path, before = unquote(path), path
        if path == before:
            return False
    return True


class _Named(NamedTuple):
    """A file of which a log tells."""

    path: str
    is_absolute: bool = False
    """Whether it says so of itself, as a deletion vector may."""


class _Look:
    def __init__(self, storage: Storage, table: Location, deadline: Deadline) -> None:
        self._storage = storage
        self._table = table
        self._folder = table / DELTA_LOG
        self._deadline = deadline

    def require(self) -> None:
        ask_one(self._require_files, deadline=self._deadline, subject=str(self._table))
        names = list(self._storage.names(self._folder) or ())
        files = set(self._told(self._folder, _list_counted(names)))
        sidecars = sorted(each.path for each in files if each.path.startswith(f"{DELTA_LOG}/"))
        if sidecars:
            held = [path.rpartition("/")[2] for path in sidecars]
            files |= set(self._told(self._folder / SIDECARS, held))
        for each in files:
            self._require_inside(each)

    def _told(self, folder: Location, names: Sequence[str]) -> Iterator[_Named]:
        sizes = {entry.name: entry.size or 0 for entry in self._storage.scan(folder) or ()}
        long = [name for name in names if sizes.get(name, 0) > _AHEAD_BYTES_MAX]
        short = [name for name in names if sizes.get(name, 0) <= _AHEAD_BYTES_MAX]
        for some, parallel in ((short, self._storage.parallel), (long, 1)):  # of the long ones one is held at a time
            answers = ask_all(
                [partial(self._files_of, folder / name) for name in some],
                parallel=parallel,
                deadline=self._deadline,
                subject=str(folder),
            )
            for answer in answers:
                yield from answer.or_raise() or ()

    def _files_of(self, file: Location) -> set[_Named]:
        raw = self._storage.read(file, limit=_FILE_BYTES_MAX + 1)
        if raw is None:
            return set()
        if len(raw) > _FILE_BYTES_MAX:
            raise StorageError(
                "the log of the table is out of all proportion", subject=str(file), found=f"{len(raw):,} bytes and more"
            )
        actions = _read_parquet_actions(file, raw) if file.name.endswith(".parquet") else _read_json_actions(file, raw)
        return {each for action in actions for each in _collect_named(action, file)}

    def _require_inside(self, each: _Named) -> None:
        if each.is_absolute or may_lead_elsewhere(each.path):
            what = "a deletion vector" if each.is_absolute else "a file"
            raise TableLeadsElsewhereError(self._table, f"{what} at {each.path}")

    def _require_files(self) -> None:
        """See that on a disk nothing in the table is a link, a pipe, a socket or a device."""
        storage = self._storage
        left = [self._table] if isinstance(storage, LocalStorage) else []
        while left and isinstance(storage, LocalStorage):
            here = left.pop()
            with contextlib.suppress(FileNotFoundError):
                listing = storage.tree.list(storage.mount + here.path)  # open as long as it has a name
                for entry in listing:
                    if entry.is_symlink():
                        raise LinkNotFollowedError(listing.link(entry.name))
                    if entry.is_dir(follow_symlinks=False):
                        left.append(here / entry.name)
                    elif not entry.is_file(follow_symlinks=False):
                        raise TableLeadsElsewhereError(here / entry.name, "neither a file nor a folder")


def _list_counted(names: Sequence[str]) -> list[str]:
    """The files of a log that a reader of the newest version may open: those from its newest checkpoint on."""
    sure = [name for name in names if not _is_odd(name)]
    whole = [each.version for each in list_delta_log(sure).checkpoints]
    since = whole[-1] if whole else 0
    found = []
    for name in names:
        version = _VERSION.fullmatch(name)
        is_read = name.endswith((".json", ".parquet")) and name != LAST_CHECKPOINT
        if version is not None and is_read and int(version[1]) >= since:
            found.append(name)
    return found


def _is_odd(name: str) -> bool:
    """Whether it may be no checkpoint for some reader: where an id is to stand, something stands that is none."""
    found = _OWN_NAME.search(name)
    return found is not None and _ID.fullmatch(found[1]) is None


def _collect_named(action: Mapping[str, Any], file: Location) -> Iterator[_Named]:
    for kind in _FILES:
        body = action.get(kind)
        if isinstance(body, Mapping):
            path, vector = body.get("path"), body.get("deletionVector")
            if isinstance(path, str):
                yield _Named(path)
            if isinstance(vector, Mapping):
                yield from _collect_vector(vector, file)
    sidecar = action.get("sidecar")
    if isinstance(sidecar, Mapping) and isinstance(path := sidecar.get("path"), str):
        if "/" in unquote(path) or "\\" in unquote(path) or may_lead_elsewhere(path):
            raise TableLeadsElsewhereError(file, f"a part of its checkpoint at {path}")
        yield _Named(f"{DELTA_LOG}/{SIDECARS}/{path}")


def _collect_vector(told: Mapping[str, Any], file: Location) -> Iterator[_Named]:
    kind, where = told.get("storageType"), told.get("pathOrInlineDv")
    if kind is None and where is None:  # a row of Parquet without one
        return
    if kind == "i":
        return
    if kind == "p" and isinstance(where, str):
        yield _Named(where, is_absolute=True)
    elif kind == "u" and isinstance(where, str) and len(where) >= _UUID_CHARACTERS:
        folder = where[:-_UUID_CHARACTERS]
        if may_lead_elsewhere(folder):
            raise TableLeadsElsewhereError(file, f"a deletion vector in the folder {folder}")
    else:
        raise TableLeadsElsewhereError(file, f"a deletion vector of the kind {kind}")


def _read_json_actions(file: Location, raw: bytes) -> Iterator[Mapping[str, Any]]:
    for number, line in enumerate(split_byte_lines(raw), start=1):
        if line.strip():
            action = read_action(line, number)
            if isinstance(action, Damage):
                raise StorageError("the log of the table cannot be read", subject=str(file), found=str(action))
            yield action


def _read_parquet_actions(file: Location, raw: bytes) -> Iterator[Mapping[str, Any]]:
    parquet, arrow = import_pyarrow("pyarrow.parquet"), import_pyarrow("pyarrow")
    try:
        opened = parquet.ParquetFile(io.BytesIO(raw))
        there = [opened.metadata.schema.column(number).path for number in range(opened.metadata.num_columns)]
        columns = [name for name in _COLUMNS if name in there]
        bounds = measure_bounds(raw, opened.metadata, set(columns))
        if bounds.excess is not None:
            raise StorageError("the log of the table is out of all proportion", subject=str(file), found=bounds.excess)
        for batch in opened.iter_batches(batch_size=min(bounds.rows_at_once, 65_536), columns=columns):
            yield from batch.to_pylist()
    except (arrow.ArrowException, OSError, UnicodeDecodeError, PageError) as error:
        raise StorageError("the log of the table cannot be read", subject=str(file), found=str(error)) from error
