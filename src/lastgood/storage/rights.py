"""Who may read what lastgood writes on a disk: nobody else, but in a checkpoint or a table those who could before.

A driver may run as another user than lastgood, and has to read on: so what is written among its files gets the rights
of what it replaces, or of what lies beside it, whatever the umask.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import NamedTuple

WORK_SUFFIX = ".lastgood"
"""The work folder of a checkpoint stands beside it, under its name with this suffix; only lastgood reads it."""
FILE, FOLDER = 0o600, 0o700
_ALL, _NO_PROGRAM = 0o777, 0o666
_TO_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Rights(NamedTuple):
    """Mode, owner and group of a file; -1: as they come."""

    mode: int
    owner: int = -1
    group: int = -1

    def give(self, descriptor: int) -> None:
        """Give them to a file that is open."""
        if (self.owner, self.group) != (-1, -1):
            os.fchown(descriptor, self.owner, self.group)
        os.fchmod(descriptor, self.mode)


def is_private(path: str) -> bool:
    """Whether a file or folder lies in a work folder, or is one."""
    return any(part.endswith(WORK_SUFFIX) for part in path.split("/"))


def find_above_work_folder(path: str) -> str | None:
    """The folder in which the work folder of a path lies; None if it lies in none."""
    parts = path.split("/")
    place = next((number for number, part in enumerate(parts) if part.endswith(WORK_SUFFIX)), None)
    if place is None:
        return None
    return "/".join(parts[:place]) or "/"


def open_privately(path: str, flags: int) -> int:
    """An `opener`: a file that is made is for its owner alone; one that is there keeps its mode."""
    return os.open(path, flags | os.O_CLOEXEC, FILE)


def make_private(folder: Path) -> None:
    """Have a folder there; each that is made for it is for its owner alone, whatever the umask.

    Raises:
        OSError: it cannot be made.
    """
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(mode=FOLDER, exist_ok=True)


def make_folder(folder: Path) -> None:
    """Have a folder there: one of ours for us alone, another one for those whom the folder above is for.

    Raises:
        OSError: it cannot be made.
    """
    if folder.is_dir():
        return
    make_folder(folder.parent)
    with contextlib.suppress(FileExistsError):
        make_folder_at(str(folder), None, is_ours=is_private(str(folder)))


def make_folder_at(name: str, dir_fd: int | None, *, is_ours: bool) -> None:
    """Make one folder, of such rights.

    Args:
        name: In the folder that is open; a path where none is.
        dir_fd: The folder above; None: it is in `name`.
        is_ours: Whether it is for us alone.

    Raises:
        FileExistsError: something has that name.
        OSError: it cannot be made.
    """
    os.mkdir(name, FOLDER, dir_fd=dir_fd)
    if is_ours:
        return
    if dir_fd is not None:
        above = os.stat(".", dir_fd=dir_fd)
    else:
        above = Path(name).parent.stat()
    made = os.open(name, _TO_LIST | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        if os.geteuid() == 0:  # whoever owns the folder above writes into this one as well
            os.fchown(made, above.st_uid, above.st_gid)
        os.fchmod(made, stat.S_IMODE(above.st_mode) & _ALL)
    finally:
        os.close(made)


def choose_rights(name: str, dir_fd: int | None, *, is_ours: bool) -> Rights:
    """What a file that is to be written gets; the arguments are those of `make_folder_at`.

    What Spark reads, perhaps as another user, stays as readable as the file it replaces, else as those beside it.
    """
    with contextlib.suppress(FileNotFoundError):
        found = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
        if stat.S_ISREG(found.st_mode):
            return _make_rights(found)
    if is_ours:
        return Rights(FILE)
    folder = os.open("." if dir_fd is not None else str(Path(name).parent), _TO_LIST, dir_fd=dir_fd)
    try:
        return _choose_rights_in(folder)
    finally:
        os.close(folder)


def _choose_rights_in(folder: int) -> Rights:
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
                return _make_rights(entry.stat(follow_symlinks=False))
    above = _make_rights(os.fstat(folder))
    return above._replace(mode=above.mode & _NO_PROGRAM)


def _make_rights(found: os.stat_result) -> Rights:
    mode = stat.S_IMODE(found.st_mode) & _ALL
    # Only root can give a file away, and only root takes a file that its query could not read any more.
    if os.geteuid() == 0:
        return Rights(mode, found.st_uid, found.st_gid)
    return Rights(mode)
