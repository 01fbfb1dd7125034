"""Whether a path lies on a disk of this machine, and not on a share or on an object store that is mounted as one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from lastgood.storage.location import Location

MOUNTS = Path("/proc/self/mounts")
_OWN_DISKS = ("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "ramfs", "f2fs", "jfs", "reiserfs")


def find_own_disk(location: Location, mounts: Path = MOUNTS) -> str | None:
    """The kind of file system that holds a location (`ext4`), if it is one of this machine's own disks; else None.

    Args:
        location: On any storage.
        mounts: Where the system lists what is mounted; where there is no such file nothing is known.
    """
    if location.scheme != "file":
        return None
    path = Path(os.path.realpath(location.path))
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:  # not Linux
        return None
    mounted = [line.split(" ")[1:3] for line in lines if line.count(" ") > 2]
    holding = [(_unescape(folder), kind) for folder, kind in reversed(mounted)]  # a later one hides an earlier one
    around = [(len(folder), kind) for folder, kind in holding if path.is_relative_to(folder)]
    kind = None
    if around:
        kind = max(around, key=lambda each: each[0])[1]
    return kind if kind in _OWN_DISKS else None


def _unescape(folder: str) -> str:
    """A folder as it is called, of how that file writes it, which has numbers for blanks."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), folder)
