"""Files and folders of this machine, of which the part that others may write to holds no link that is followed.

A location that a user names may be a link, or lie behind one: so disks are mounted. What lies below it, and in its work
folder beside it, is whoever's can write there: a link in it would lead lastgood to read, or to write, elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lastgood.errors import Retry, StorageError
from lastgood.storage.rights import WORK_SUFFIX, is_private, make_folder, make_folder_at

_AS_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_OWN = os.O_CLOEXEC | os.O_NOFOLLOW
_HELD_MAX = 32
_NOT_FOLLOWED = frozenset({errno.ELOOP, errno.EMLINK, errno.ENOTDIR})


class Link(NamedTuple):
    """A link that was not followed."""

    path: str
    target: str
    """Its text, as it stands there."""

    def __str__(self) -> str:
        """The way `ls` shows it."""
        return f"{self.path} -> {self.target}"


class LinkNotFollowedError(StorageError):
    """A link stands below a location, where none is followed: whoever put it there would say what is read or written.

    Spark follows links, lastgood does not: the location itself may be one, nothing below it and nothing in its work
    folder. Put what the link leads to in its place, or name that place instead.
    """

    condition = "LINK_NOT_FOLLOWED"
    exit_code = 34
    retry = Retry.AFTER_CHANGE

    def __init__(self, link: Link) -> None:
        super().__init__(
            "a link is not followed",
            subject=link.path,
            found=f"a link to {link.target}",
            expected="a file or folder of its own",
            effect="nothing was read or written through it",
        )
        self.link = link


class OpenFolder:
    """A folder that is closed when nobody reads on, also if nobody ever began to."""

    def __init__(self, path: str, descriptor: int | None) -> None:
        """List a folder, by its descriptor where there is one, which is ours from then on."""
        self.path = path
        self._descriptor = descriptor
        self._listing = os.scandir(path if descriptor is None else descriptor)

    @property
    def follows(self) -> bool:
        """Whether the links in it are followed."""
        return self._descriptor is None

    def __iter__(self) -> Iterator[os.DirEntry[str]]:
        return iter(self._listing)

    def link(self, name: str) -> Link:
        """What a link in it says."""
        target = "?"  # gone again
        with contextlib.suppress(OSError):
            target = os.readlink(name, dir_fd=self._descriptor)
        return Link(f"{self.path}/{name}", target)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be listed
            self._listing.close()
        if self._descriptor is not None:
            os.close(self._descriptor)


class Place(NamedTuple):
    """By what a file or folder is opened, made, renamed: a name in a folder that is open, or a path."""

    name: str
    folder: _Held | None = None

    @property
    def dir_fd(self) -> int | None:
        """For the functions of `os`; open as long as this is held."""
        return None if self.folder is None else self.folder.descriptor


class Tree:
    """Everything on the disks of this machine, with one root below which, and in whose work folder, no link counts.

    A folder stays open once a file in it was asked for, and is used again as long as its path leads to it: that costs
    less than to walk the path anew, and a folder that was put in its place is seen.
    """

    def __init__(self, root: str | None) -> None:
        """Follow no link below `root`, nor in its work folder beside it; None: follow all."""
        if root is None:
            self._root = None
        else:
            self._root = root.rstrip("/")
        if not self._root:
            self._work = None
        else:
            self._work = self._root + WORK_SUFFIX
        self._held: dict[str, _Held] = {}

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Open a file; see `os.open`.

        Raises:
            LinkNotFollowedError: it is a link, or the way to it leads over one.
            OSError: as `os.open`.
        """
        folder, _, name = path.rpartition("/")
        held = self._held.get(folder)
        if held is not None and name != ".." and held.is_at(folder):  # as for nearly all files of a log
            try:
                return os.open(name, flags | _OWN, mode, dir_fd=held.descriptor)
            except OSError:
                pass
        place = self.place(path)
        if place.folder is None:
            return os.open(path, flags | os.O_CLOEXEC, mode)
        with _explain_links(path, place):
            return os.open(place.name, flags | _OWN, mode, dir_fd=place.dir_fd)

    def list(self, path: str) -> OpenFolder:
        """Open a folder to list it; raises as `open`."""
        if path == self._root:
            return OpenFolder(path, os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        is_ours = self._way(path) is not None
        return OpenFolder(path, self.open(path, os.O_RDONLY | os.O_DIRECTORY) if is_ours else None)

    def stat(self, path: str) -> os.stat_result:
        """What the system tells of a file or folder; raises as `open`."""
        place = self.place(path)
        if place.folder is None:
            return Path(path).stat()
        told = os.stat(place.name, dir_fd=place.dir_fd, follow_symlinks=False)
        if stat.S_ISLNK(told.st_mode):
            raise _make_not_followed_error(path, place)
        return told

    def place(self, path: str, *, make: bool = False) -> Place:
        """Where a file or folder is, or is to be.

        Args:
            path: Absolute.
            make: Whether the folders above it are made where they are not there.

        Raises:
            LinkNotFollowedError: the way to it leads over a link.
            OSError: a folder above it is not there, or cannot be made.
        """
        way = self._way(path)
        if way is None:
            if make:
                make_folder(Path(path).parent)
            return Place(path)
        base, parts = way
        if make:
            make_folder(Path(base))
        folder = self._folder(base, parts[:-1], make=make)
        return Place(parts[-1], folder)

    def _way(self, path: str) -> tuple[str, tuple[str, ...]] | None:
        """A folder that may be a link, and the parts from there that may not; None if any may."""
        if self._root is None or self._work is None:
            return None
        if path.startswith(f"{self._root}/"):
            return self._root, _split_path(path[len(self._root) + 1 :])
        if path == self._work or path.startswith(f"{self._work}/"):
            above, _, name = self._work.rpartition("/")
            below: tuple[str, ...] = ()
            if path != self._work:
                below = _split_path(path[len(self._work) + 1 :])
            return above or "/", (name, *below)
        return None

    def _folder(self, base: str, parts: tuple[str, ...], *, make: bool) -> _Held:
        path = "/".join((base.rstrip("/"), *parts)) or "/"
        held = self._held.get(path)
        if held is not None and held.is_at(path):
            return held
        if not parts:
            return self._hold(path, os.open(base, _AS_PLACE), may_be_link=True)
        above = self._folder(base, parts[:-1], make=make)
        place = Place(parts[-1], above)
        if make:
            with contextlib.suppress(FileExistsError):
                make_folder_at(place.name, place.dir_fd, is_ours=is_private(path))
        with _explain_links(path, place):
            return self._hold(path, os.open(place.name, _AS_PLACE | os.O_NOFOLLOW, dir_fd=place.dir_fd))

    def _hold(self, path: str, descriptor: int, *, may_be_link: bool = False) -> _Held:
        held = _Held(descriptor, may_be_link=may_be_link)
        if len(self._held) >= _HELD_MAX:
            self._held = {}  # whoever uses one of them holds it
        self._held[path] = held
        return held


def _split_path(path: str) -> tuple[str, ...]:
    parts = tuple(path.split("/"))
    if ".." in parts:  # no name of ours, and it would lead out
        raise FileNotFoundError(errno.ENOENT, "no such name", path)
    return parts


class _Held:
    """A folder that is open; closed when nobody holds it any more."""

    __slots__ = ("_device", "_inode", "_may_be_link", "descriptor")

    def __init__(self, descriptor: int, *, may_be_link: bool) -> None:
        self.descriptor = descriptor
        self._may_be_link = may_be_link
        told = os.fstat(descriptor)
        self._device, self._inode = told.st_dev, told.st_ino

    def is_at(self, path: str) -> bool:
        """Whether it is what stands at `path` now; while it is open, no other folder gets its number."""
        try:
            told = os.stat(path, follow_symlinks=self._may_be_link)  # noqa: PTH116 - for each of a hundred thousand files
        except OSError:
            return False
        return told.st_ino == self._inode and told.st_dev == self._device

    def __del__(self) -> None:
        os.close(self.descriptor)


@contextlib.contextmanager
def _explain_links(path: str, place: Place) -> Iterator[None]:
    """Say that it is a link that was in the way: the system says so in several words, and of other things too."""
    try:
        yield
    except OSError as error:
        if error.errno in _NOT_FOLLOWED and _is_link(place):
            raise _make_not_followed_error(path, place) from error
        raise


def _is_link(place: Place) -> bool:
    try:
        return stat.S_ISLNK(os.stat(place.name, dir_fd=place.dir_fd, follow_symlinks=False).st_mode)
    except OSError:
        return False


def _make_not_followed_error(path: str, place: Place) -> LinkNotFollowedError:
    target = "?"
    with contextlib.suppress(OSError):
        target = os.readlink(place.name, dir_fd=place.dir_fd)
    return LinkNotFollowedError(Link(path, target))


def read_content(descriptor: int, size: int, limit: int) -> bytes:
    """The first `limit` bytes, whatever `size` the system tells: a file may grow, a share may hand it out in parts."""
    # No buffer is as large as a limit that is not reached: it would stay a mapping of its own for each content.
    pieces: list[bytes] = []
    left, wanted = limit, size + 1
    while left > 0 and (piece := os.read(descriptor, min(left, wanted))):
        pieces.append(piece)
        left -= len(piece)
        wanted = max(wanted - len(piece), 65_536)
    if len(pieces) == 1:
        return pieces[0]
    return b"".join(pieces)
