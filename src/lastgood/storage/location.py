"""Where something lies: a file or folder of any storage, as Spark names it. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from lastgood.errors import Retry, StorageError
from lastgood.frozen import dataclass
from lastgood.storage.clouds import name_account_host

DBFS_MOUNT = "/dbfs"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)


_HOST = "[A-Za-z0-9._-]+"
_NO_TEXT = re.compile("[\ud800-\udfff]")
"""Bytes of a name that are no UTF-8, as Python shows them: no plan, event or incident can name them."""
_ANY_BUCKET = re.compile(r"[^\s#?\\\x00-\x1f\x7f]+")
_ANY_CONTAINER = re.compile(rf"[A-Za-z0-9$._-]+@[A-Za-z0-9_-]+\.{_HOST}")
_ANY_HOST = re.compile(rf"{_HOST}(:[0-9]+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageKind:
    """One line of the table of all kinds of storages."""

    scheme: str
    same: tuple[str, ...] = ()
    """Other schemes that name the same places."""
    authority: re.Pattern[str] | None = None
    """What is between `//` and the path; None: nothing, it is mounted on this machine. A library makes a URL of it:
    with `#`, `?`, `\\` or one more `@` it would ask another host than the one that we have compared."""
    form: str = ""
    """How the authority is to be typed."""
    is_bucket: bool = False
    is_container: bool = False
    is_host: bool = False
    extra: str = ""
    """Which extra of lastgood brings its library."""
    module: str = ""
    """The library."""
    open: Callable[[Location, Mapping[str, Any]], Any] | None = None
    """Gives access to it, to write as well (`storage.writing.WritableStorage`), with the options of who asks; None: a
    path of this machine, or fsspec knows it."""
    creates_exclusively: bool = False
    """Whether a suite has seen that of several who create one file there only one does."""
    writes_at_once: bool = False
    """Whether a driver puts an entry of a log there in one act, and not after a look."""


STORAGE_KINDS: Final[dict[str, StorageKind]] = {
    kind.scheme: kind
    for kind in (
        StorageKind(scheme="file", creates_exclusively=True, writes_at_once=True),
        StorageKind(scheme="dbfs"),
        StorageKind(
            scheme="s3",
            same=("s3a", "s3n"),
            authority=_ANY_BUCKET,
            form="BUCKET",
            is_bucket=True,
            extra="s3",
            module="s3fs",
            creates_exclusively=True,
        ),
        StorageKind(
            scheme="gs",
            authority=_ANY_BUCKET,
            form="BUCKET",
            is_bucket=True,
            extra="gcs",
            module="gcsfs",
            creates_exclusively=True,
        ),
        StorageKind(
            scheme="abfss",
            same=("abfs", "wasbs", "wasb"),
            authority=_ANY_CONTAINER,
            form="CONTAINER@ACCOUNT.dfs.core.windows.net",
            is_container=True,
            extra="azure",
            module="adlfs",
            creates_exclusively=True,
        ),
        *(
            StorageKind(
                scheme=scheme,
                authority=_ANY_HOST,
                form="HOST",
                is_host=True,
                extra="hdfs",
                module="requests",
                creates_exclusively=True,
                writes_at_once=True,
            )
            for scheme in ("hdfs", "webhdfs", "swebhdfs")
        ),
    )
}
"""By scheme. A new kind of storage is a module beside this file, and a line here."""


def find_storage_kind(scheme: str) -> StorageKind:
    """The kind of storage that a scheme of a location names; of one that nobody knows as little as can be."""
    found = STORAGE_KINDS.get(scheme)
    if found is not None:
        return found
    named = (kind for kind in STORAGE_KINDS.values() if scheme in kind.same)
    return next(named, None) or StorageKind(scheme=scheme)


def _list_schemes() -> tuple[str, ...]:
    return (*STORAGE_KINDS, *(scheme for kind in STORAGE_KINDS.values() for scheme in kind.same))


class LocationInvalidError(StorageError):
    """A location is none that Spark and lastgood understand."""

    condition = "LOCATION_INVALID"
    exit_code = 13
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder as Spark names it; `location / "offsets/7"` is a file below it.

    Make one with `storage.reading.parse_location`. `str()` gives the form to show and to paste into Spark.
    """

    scheme: str
    """As the user wrote it: `s3a` stays `s3a`. `file` for plain paths."""
    authority: str
    """Bucket, container and account, or host; empty for local paths."""
    path: str
    """Absolute, without `.`, `..`, double or trailing slashes."""

    def __str__(self) -> str:
        """A plain path for local files, else the URI."""
        if self.scheme == "file":
            return self.path
        if self.scheme == "dbfs":
            return f"{self.scheme}:{self.path}"
        return f"{self.scheme}://{self.authority}{self.path}"

    def __truediv__(self, below: str) -> Location:
        """The file or folder `below` this folder; `below` is taken as it is."""
        return Location(self.scheme, self.authority, f"{self.path.rstrip('/')}/{below}")

    @property
    def name(self) -> str:
        """The last part of the path; empty for the root."""
        return posixpath.basename(self.path)

    @property
    def identity(self) -> str:
        """The same text for every way to write the same place, such as `s3://`, `s3a://` or `/dbfs/` and `dbfs:/`."""
        kind = find_storage_kind(self.scheme)
        scheme, authority, path = kind.scheme, self.authority, self.path
        if scheme == "file" and path.startswith(f"{DBFS_MOUNT}/"):
            scheme, path = "dbfs", path.removeprefix(DBFS_MOUNT)
        if kind.is_host:
            authority = authority.lower().removesuffix(":8020")
        if kind.is_container:  # two addresses of one account
            authority = authority.replace(".blob.", ".dfs.", 1)
        return f"{scheme}://{authority}{path}"

    @property
    def host(self) -> str | None:
        """Whom it names that is to be asked; None where the environment says that, as for a bucket."""
        kind = find_storage_kind(self.scheme)
        if kind.is_container:
            return name_account_host(self.authority)
        host = self.authority.lower()
        if kind.is_host:
            if kind.scheme == "hdfs":
                return host.removesuffix(":8020")
            return host
        return None

    def sibling(self, suffix: str) -> Location:
        """The location beside this one whose name has `suffix` added: `CHECKPOINT` → `CHECKPOINT.lastgood`.

        Raises:
            LocationInvalidError: this is the root of a filesystem or bucket, which has nothing beside it.
        """
        if not self.name:
            raise LocationInvalidError("the root of a storage has no neighbour", subject=str(self))
        return Location(self.scheme, self.authority, self.path + suffix)


def _give_root() -> str:
    return "/"


def resolve_location(text: str, *, here: Callable[[], str] = _give_root) -> Location:
    """Read a location as Spark takes it: a plain path, `file:`, `s3a://`, `hdfs://`, `abfss://`, `gs://`, `dbfs:/`.

    Nothing is decoded: as in Hadoop, `%20`, `?` and `#` in a location are these very characters.

    Args:
        text: The location.
        here: Gives the folder from which a relative path counts; asked for such a one alone.

    Raises:
        LocationInvalidError: unknown scheme, a login, or a bucket, container, host or absolute path is missing, or
            holds characters that none has.
    """
    _require_text(text)
    found = _SCHEME.fullmatch(text)
    if found is None or "/" in found[1]:
        if text.startswith("/"):
            path = text
        else:
            path = posixpath.join(here(), text)
        return Location("file", "", _normalise(path))  # as Hadoop: by text, no links
    scheme, rest = found[1].lower(), found[2]
    if scheme not in _list_schemes():
        raise _make_invalid_error(text, f"one of {', '.join(f'{known}:' for known in _list_schemes())}")
    kind = find_storage_kind(scheme)
    authority, path = "", rest
    if rest.startswith("//"):
        authority = rest[2:].partition("/")[0]
        path = rest[2 + len(authority) :]
    if ":" in authority and "@" in (text if kind.is_bucket else authority):
        raise _make_invalid_error(text, "a location without a login: its keys belong to the environment")
    if kind.authority is None:
        return _parse_mounted(text, scheme, authority, path)
    if kind.authority.fullmatch(authority) is None:
        if scheme.startswith("wasb"):
            form = kind.form.replace(".dfs.", ".blob.")
        else:
            form = kind.form
        raise _make_invalid_error(text, f"{scheme}://{form}/FOLDER, named by letters, digits, '.', '-' and '_'")
    return Location(scheme, authority, _normalise(path or "/"))


def _require_text(text: str) -> None:
    if not text.strip() or "\0" in text:
        raise _make_invalid_error(text, "a path, or a URI such as s3a://bucket/folder")
    if _NO_TEXT.search(text) is not None:
        raise _make_invalid_error(text, "a name in UTF-8, as Spark can write it down and read it")


def _parse_mounted(text: str, scheme: str, authority: str, path: str) -> Location:
    if authority not in ("", "localhost") or not path.startswith("/"):
        raise _make_invalid_error(text, f"{scheme}:/FOLDER")
    path = _normalise(path)
    if scheme == "dbfs" and (path + "/").startswith("/Volumes/"):
        scheme = "file"  # a Unity Catalog volume is mounted under the same path
    return Location(scheme, "", path)


def _normalise(path: str) -> str:
    return "/" + posixpath.normpath(path).lstrip("/")


def _make_invalid_error(text: str, expected: str) -> LocationInvalidError:
    return LocationInvalidError("the location is not understood", subject=text or "(empty)", expected=expected)
