"""Where checkpoints live: Spark's form of a location, and the few operations that we need on any filesystem.

It knows nothing of what the files mean. Nothing is cached: what is asked is asked of the filesystem.
"""

from __future__ import annotations

import contextlib
import copy
import os
import posixpath
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from lastgood.errors import ExtraMissingError, LastgoodError, Retry, StorageError, make_owner_command
from lastgood.redaction import redact_error
from lastgood.storage.hdfs import make_dependable, make_webhdfs_settings
from lastgood.storage.local_tree import Link, LinkNotFollowedError, OpenFolder, Tree, read_content
from lastgood.storage.location import (
    DBFS_MOUNT,
    Location,
    LocationInvalidError,
    find_storage_kind,
    resolve_location,
)
from lastgood.storage.services import (
    is_unreachable,
    lacks_credentials,
    make_impatient,
    make_service_settings,
    parse_milliseconds,
)

__all__ = [
    "PARALLEL_LOCAL",
    "PARALLEL_REMOTE",
    "Entry",
    "FsspecStorage",
    "LocalStorage",
    "Location",
    "LocationInvalidError",
    "Storage",
    "StorageDeniedError",
    "are_same",
    "format_fsspec_path",
    "open_storage",
    "parse_location",
    "read_part",
    "translate_errors",
]

_Answer = TypeVar("_Answer")

PARALLEL_LOCAL = 16
"""Requests at once to a path of this machine: it may be a network share or an object store mounted as one."""
PARALLEL_REMOTE = 100  # to a storage service: what costs is the wait for each, not the work
_LINKS_TOLD_MAX = 1000
_COMPARED_BYTES = 4 * 1024 * 1024
_MODIFIED_KEYS = ("LastModified", "last_modified", "mtime", "updated", "modificationTime", "created")


class StorageDeniedError(StorageError):
    """A file or folder is there, but its owner does not let us read or write it."""

    condition = "STORAGE_DENIED"
    exit_code = 12
    retry = Retry.AFTER_CHANGE


def parse_location(text: str) -> Location:
    """Read a location as Spark takes it: see `resolve_location`. A relative path counts from the current folder.

    Raises:
        LocationInvalidError: see `resolve_location`; or it is relative, and the current folder was removed.
    """
    try:
        return resolve_location(text, here=os.getcwd)
    except FileNotFoundError as error:
        raise LocationInvalidError(
            "a relative location counts from the current folder, and that was removed",
            subject=text,
            expected="an absolute location, or another current folder",
        ) from error


class Entry(NamedTuple):
    """What a listing tells of a file or folder."""

    name: str
    """Last part of the path; in `walk` the path below the folder that was asked for."""
    is_folder: bool
    size: int | None
    """Bytes; None for a folder and where it was not looked up."""
    modified_ms: int | None
    """Time of the last change, milliseconds since 1970; None where it was not looked up or nobody knows."""

    @property
    def listed_name(self) -> str:
        """As `Storage.names` tells it: that of a folder ends with a slash."""
        if self.is_folder:
            return f"{self.name}/"
        return self.name


class Storage(Protocol):
    """Reading from one filesystem. Safe to use from several threads at once.

    What is not there is `None`, never an exception. Every method raises StorageDeniedError where we may not look and
    StorageError where the filesystem does not answer; both name the location. A name that is told has no part that is
    empty, `.` or `..`, and no NUL: keys of an object store that do are left out.
    """

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""

    def names(self, folder: Location) -> Iterator[str] | None:
        """Names of what lies directly in a folder, in no order; None if there is no such folder.

        Folders end with a slash. What is neither file nor folder (pipes, sockets, dangling links) is left out. The
        fastest way to list a large folder: nothing else is looked up.
        """

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """What lies directly in a folder, in no order; None if there is no such folder.

        Sizes and times are left out, where each would be one more request, without `facts`, and for names with a
        leading dot.
        """

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """Every file below a folder; None if there is no such folder (object stores: or no file in it).

        A local disk is walked four folders deep, because links may lead in a circle.
        """

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """The first `limit` bytes of a file; None if there is no such file."""

    def stat(self, location: Location) -> Entry | None:
        """One file or folder; None if there is none."""


def open_storage(location: Location, options: Mapping[str, Any] | None = None) -> Storage:
    """Give access to the filesystem that `location` names; nothing is asked of it yet.

    Args:
        location: What the user named on that filesystem; on a disk of this machine no link below it is followed.
        options: Passed on to fsspec's filesystem (`endpoint_url`, `key`, …; HDFS is read by WebHDFS: `port`, `user`).
            The environment fills in: `AWS_ENDPOINT_URL`, `AWS_PROFILE`, …, or `FSSPEC_S3_ENDPOINT_URL`, ….

    Raises:
        ExtraMissingError: the library for this kind of storage is not installed.
        StorageError: `dbfs:` outside of Databricks, or the options are refused.
    """
    if location.scheme == "file":
        return LocalStorage(root=location)
    if location.scheme == "dbfs":
        if not Path(DBFS_MOUNT).is_dir():
            raise StorageError(
                "dbfs: can be read only where it is mounted",
                subject=str(location),
                found=f"no folder {DBFS_MOUNT}",
                expected="the driver of a Databricks cluster",
            )
        return LocalStorage(DBFS_MOUNT, root=location)
    kind = find_storage_kind(location.scheme)
    if kind.open is not None:
        storage: Storage = kind.open(location, options or {})
        return storage
    return FsspecStorage(_open_filesystem(location, options or {}))


def _open_filesystem(location: Location, options: Mapping[str, Any]) -> Any:
    import fsspec  # noqa: PLC0415 - 0.1 s that a local checkpoint need not pay

    kind = find_storage_kind(location.scheme)
    canonical, extra, module = kind.scheme, kind.extra, kind.module
    settings: dict[str, Any] = {"use_listings_cache": False}
    protocol = "webhdfs" if kind.is_host else canonical
    try:
        factory = fsspec.get_filesystem_class(protocol)
    except (ImportError, ValueError) as error:  # fsspec knows of adlfs only by what adlfs itself registers
        raise ExtraMissingError(extra=extra, module=module, needed_for=f"a location on {location.scheme}://") from error
    configured = fsspec.config.conf.get(protocol, {})
    with translate_errors(location):
        if kind.is_host:
            where = make_webhdfs_settings(
                canonical, location.authority, env=os.environ, given={**configured, **options}
            )
            return make_dependable(factory)(**{**options, **settings, **where}, parallel=PARALLEL_REMOTE)
        settings |= make_service_settings(
            canonical, location.authority, os.environ, configured, requests=PARALLEL_REMOTE
        )
        return make_impatient(factory, canonical)(**{**settings, **options})


@contextlib.contextmanager
def translate_errors(location: Location) -> Iterator[None]:
    """Turn what a filesystem raises into our errors; what is not there stays FileNotFoundError."""
    try:
        yield
    except (LastgoodError, FileNotFoundError, MemoryError):
        raise
    except NotADirectoryError as error:
        raise FileNotFoundError(str(location)) from error
    except PermissionError as error:
        # a system says no more than the sentence
        if error.errno:
            told = None
        else:
            told = str(error)
        raise StorageDeniedError(
            "the storage does not let us look",
            subject=str(location),
            found=told,
            next=make_owner_command(str(location)),
        ) from error
    except Exception as error:  # each backend has its own tree of exceptions: here they all mean "no answer"
        if lacks_credentials(error):
            raise StorageDeniedError(
                "the storage wants credentials, and there are none", subject=str(location), found=str(error)
            ) from error
        reason = redact_error(error)
        raise StorageError(
            "the storage does not answer", subject=str(location), found=f"{type(error).__name__}: {reason}".rstrip(": ")
        ) from error


class LocalStorage:
    """Files of this machine, read with the system's own calls."""

    def __init__(self, mount: str = "", *, root: Location | None = None) -> None:
        """Read what is there.

        Args:
            mount: The folder under which the filesystem of the locations is mounted.
            root: The location that a user named: below it, and in its work folder, no link is followed, and one that
                is met is an error. None: all are followed.
        """
        self.mount = mount
        self.root = root
        self.tree = Tree(None if root is None else mount + root.path)
        self._left_out: dict[str, Link] | None = None

    def leave_links_out(self) -> LocalStorage:
        """The same, for who reads and tells of links: they are as if not there, and stand in `left_out`."""
        storage = copy.copy(self)
        vars(storage)["_left_out"] = {}
        return storage

    @property
    def left_out(self) -> tuple[Link, ...]:
        """The links that were met and left out so far, by path."""
        return tuple(sorted(dict(self._left_out or {}).values()))

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""
        return PARALLEL_LOCAL

    def names(self, folder: Location) -> Iterator[str] | None:
        """Names of what lies directly in a folder; see `Storage.names`."""
        found = self._listing(folder)
        if found is None:
            return None
        return self._names(folder, found)

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """What lies directly in a folder; see `Storage.scan`."""
        found = self._listing(folder)
        if found is None:
            return None
        return self._entries(folder, found, facts=facts)

    def _listing(self, folder: Location) -> OpenFolder | None:
        return self._ask(folder, lambda: self.tree.list(self.mount + folder.path))

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """Every file below a folder; see `Storage.walk`."""
        listing = self.scan(folder)
        if listing is None:
            return None
        return self._below(folder, listing, "", 4)

    def _below(self, folder: Location, listing: Iterator[Entry], prefix: str, depth: int) -> Iterator[Entry]:
        for entry in listing:
            if not entry.is_folder:
                if prefix:
                    yield entry._replace(name=prefix + entry.name)
                else:
                    yield entry
            elif depth:  # a bound, because links may lead in a circle
                inner = folder / entry.name
                yield from self._below(inner, self.scan(inner) or iter(()), f"{prefix}{entry.name}/", depth - 1)

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """The first `limit` bytes of a file; see `Storage.read`."""
        return self._read(file, limit)

    def read_part(self, file: Location, *, begin: int, limit: int) -> bytes | None:
        """At most `limit` bytes of a file from byte `begin` on; None if there is no such file; else as `read`."""
        return self._read(file, limit, begin)

    def _read(self, file: Location, limit: int, begin: int = 0) -> bytes | None:
        try:
            with translate_errors(file):
                # Without O_NONBLOCK a pipe would hang us until somebody writes to it.
                descriptor = self.tree.open(self.mount + file.path, os.O_RDONLY | os.O_NONBLOCK)
                try:
                    told = os.fstat(descriptor)
                    if not stat.S_ISREG(told.st_mode):
                        return None
                    if begin:
                        os.lseek(descriptor, begin, os.SEEK_SET)
                    return read_content(descriptor, max(0, told.st_size - begin), limit)
                finally:
                    os.close(descriptor)
        except FileNotFoundError:
            return None
        except LinkNotFollowedError as error:
            self._leave_out(error)
            return None

    def stat(self, location: Location) -> Entry | None:
        """One file or folder; see `Storage.stat`."""
        found = self._ask(location, lambda: self.tree.stat(self.mount + location.path))
        if found is None:
            return None
        is_folder, modified_ms = stat.S_ISDIR(found.st_mode), found.st_mtime_ns // 1_000_000
        return Entry(location.name, is_folder, None if is_folder else found.st_size, modified_ms)

    def allocated(self, file: Location) -> int | None:
        """Bytes of the blocks that a file takes; None if there is none."""
        found = self._ask(file, lambda: self.tree.stat(self.mount + file.path))
        return None if found is None else found.st_blocks * 512

    def _ask(self, location: Location, call: Callable[[], _Answer]) -> _Answer | None:
        try:
            with translate_errors(location):
                return call()
        except FileNotFoundError:
            return None
        except LinkNotFollowedError as error:
            self._leave_out(error)
            return None

    def _leave_out(self, error: LinkNotFollowedError) -> None:
        if self._left_out is None:
            raise error
        if len(self._left_out) < _LINKS_TOLD_MAX:
            self._left_out[error.link.path] = error.link

    def _is_left_out(self, folder: OpenFolder, found: os.DirEntry[str]) -> bool:
        if folder.follows or not found.is_symlink():
            return False
        self._leave_out(LinkNotFollowedError(folder.link(found.name)))
        return True

    def _names(self, folder: Location, listing: OpenFolder) -> Iterator[str]:
        with translate_errors(folder):
            for found in listing:
                if found.is_file(follow_symlinks=False):  # nearly all, and none a link
                    yield found.name
                elif not self._is_left_out(listing, found):
                    if found.is_file():
                        yield found.name
                    elif found.is_dir():
                        yield f"{found.name}/"

    def _entries(self, folder: Location, listing: OpenFolder, *, facts: bool) -> Iterator[Entry]:
        with translate_errors(folder):
            for found in listing:
                if not self._is_left_out(listing, found):
                    if found.is_dir():
                        yield Entry(found.name, is_folder=True, size=None, modified_ms=None)
                    elif found.is_file():
                        yield _make_local_entry(found, facts=facts and not found.name.startswith("."))


def find_allocated_bytes(storage: Storage, file: Location) -> int | None:
    """How much room a file takes on a disk of this machine, however long it is; None where nobody tells."""
    return storage.allocated(file) if isinstance(storage, LocalStorage) else None


def _make_local_entry(found: os.DirEntry[str], *, facts: bool) -> Entry:
    size = modified_ms = None
    if facts:
        with contextlib.suppress(FileNotFoundError):  # purged between listing and asking
            known = found.stat()
            size, modified_ms = known.st_size, known.st_mtime_ns // 1_000_000
    return Entry(found.name, is_folder=False, size=size, modified_ms=modified_ms)


class FsspecStorage:
    """Anything that fsspec can open."""

    def __init__(self, filesystem: Any) -> None:
        """Use `filesystem`, made with its listing cache off."""
        self.filesystem = filesystem

    @property
    def parallel(self) -> int:
        """How many requests at once pay off."""
        return PARALLEL_REMOTE

    def names(self, folder: Location) -> Iterator[str] | None:
        """Names of what lies directly in a folder; see `Storage.names`."""
        entries = self.scan(folder)
        if entries is None:
            return None
        return (entry.listed_name for entry in entries)

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        """What lies directly in a folder; see `Storage.scan`."""
        path = format_fsspec_path(folder)
        listed = self._ask(folder, lambda: self.filesystem.ls(path, detail=True))
        if listed is None:
            return None
        own = path.strip("/")
        inside = [found for found in listed if found["name"].strip("/") != own]
        if not inside and any(found.get("size") for found in listed):
            return None  # a file; the empty marker of a folder, too, lists itself
        return _select_named((posixpath.basename(found["name"].rstrip("/")), found) for found in inside)

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        """Every file below a folder; see `Storage.walk`."""
        path = format_fsspec_path(folder)
        listed = self._ask(folder, lambda: self.filesystem.find(path, detail=True))
        if not listed:
            return None
        skip = len(path.strip("/")) + 1
        files = (found for found in listed.values() if not found["name"].endswith("/"))  # that would mark a folder
        return _select_named((found["name"].lstrip("/")[skip:], found) for found in files)

    def read(self, file: Location, *, limit: int) -> bytes | None:
        """The first `limit` bytes of a file; see `Storage.read`."""
        path = format_fsspec_path(file)
        failure = None
        try:
            content = self._ask(file, lambda: self.filesystem.cat_file(path, start=0, end=limit))
        except StorageError as error:
            if is_unreachable(error.__cause__):
                raise
            content, failure = b"", error
        if content is None or content:
            return content and bytes(content)
        # WebHDFS reads a folder as nothing; several services refuse any range of an empty object.
        entry = self.stat(file)
        if entry is None or entry.is_folder:
            return None
        if failure and entry.size != 0:
            raise failure
        return b""

    def read_part(self, file: Location, *, begin: int, limit: int) -> bytes | None:
        """At most `limit` bytes of a file from byte `begin` on; None if there is no such file."""
        if limit <= 0:  # a range that ends before it begins is none: S3 gives the whole object for it
            return b""
        if not begin:
            return self.read(file, limit=limit)
        path = format_fsspec_path(file)
        try:
            content = self._ask(file, lambda: self.filesystem.cat_file(path, start=begin, end=begin + limit))
        except StorageError as error:
            if is_unreachable(error.__cause__):
                raise
            entry = self.stat(file)
            if entry is not None and (entry.size is None or begin < entry.size):
                raise
            return None if entry is None else b""  # behind its end, which object stores refuse
        if content is None:
            return None
        return bytes(content)

    def stat(self, location: Location) -> Entry | None:
        """One file or folder; see `Storage.stat`."""
        path = format_fsspec_path(location)
        found = self._ask(location, lambda: self.filesystem.info(path))
        if found is None:
            return None
        return _make_fsspec_entry(found, location.name)

    def _ask(self, location: Location, call: Callable[[], Any]) -> Any:
        try:
            with translate_errors(location):
                return call()
        except FileNotFoundError:
            return None


def read_part(storage: Storage, file: Location, *, begin: int, limit: int) -> bytes | None:
    """At most `limit` bytes of a file from byte `begin` on; None if there is no such file.

    Raises:
        StorageError: as `Storage.read`.
    """
    if isinstance(storage, LocalStorage | FsspecStorage):
        return storage.read_part(file, begin=begin, limit=limit)
    content = storage.read(file, limit=begin + limit)
    if content is None:
        return None
    return content[begin:]


def format_fsspec_path(location: Location) -> str:
    """The path by which the filesystem itself knows a location."""
    kind = find_storage_kind(location.scheme)
    if kind.is_bucket:
        return location.authority + location.path
    if not kind.is_container:
        return location.path
    return location.authority.partition("@")[0] + location.path


def _select_named(listed: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[Entry]:
    """What a service lists, without keys that no file can have for a name: a key is any text, and may hold `..`."""
    for name, found in listed:
        if "\0" not in name and not {"", ".", ".."}.intersection(name.split("/")):
            yield _make_fsspec_entry(found, name)


def _make_fsspec_entry(found: Mapping[str, Any], name: str) -> Entry:
    if found.get("type") == "directory":
        return Entry(name, is_folder=True, size=None, modified_ms=None)
    value = next((found[key] for key in _MODIFIED_KEYS if found.get(key) is not None), None)
    return Entry(name, is_folder=False, size=found.get("size"), modified_ms=parse_milliseconds(value))


def are_same(storage: Storage, first: Location, second: Location, size: int) -> bool:
    """Whether two files of this size are the same byte for byte; neither is held as a whole."""
    parts = range(0, size, _COMPARED_BYTES)
    return all(
        read_part(storage, first, begin=at, limit=_COMPARED_BYTES)
        == read_part(storage, second, begin=at, limit=_COMPARED_BYTES)
        for at in parts
    )
