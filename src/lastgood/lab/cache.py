"""Where the lab keeps what it has fetched, and how several processes share that folder."""

from __future__ import annotations

import contextlib
import errno
import fcntl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import platformdirs

from lastgood.errors import NoSpaceError, StorageError

CACHE_VARIABLE = "LASTGOOD_CACHE"
"""Environment variable that names the cache folder."""


def locate_cache(cache: Path | None, env: Mapping[str, str]) -> Path:
    """The folder for what is fetched: `cache`, else `LASTGOOD_CACHE` in `env`, else the user's cache folder."""
    return (cache or Path(env.get(CACHE_VARIABLE) or platformdirs.user_cache_dir("lastgood"))).absolute()


@contextlib.contextmanager
def explain_cache_errors(folder: Path) -> Iterator[None]:
    """Turn what the system refuses within the cache into an error that says so.

    Raises:
        NoSpaceError: the disk is full.
        StorageError: something in `folder` cannot be read or written.
    """
    try:
        yield
    except OSError as error:
        kind = NoSpaceError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StorageError
        raise kind(
            "the cache of the lab cannot be used",
            subject=str(error.filename or folder),
            found=error.strerror,
            expected="a folder that can be read and written",
            next=f"free space there, or set {CACHE_VARIABLE} to another folder",
        ) from error


@contextlib.contextmanager
def hold_exclusively(lock: Path, *, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold `lock` alone among all threads and processes; the system lets it go when the holder dies.

    Args:
        lock: A file beside what is protected; it is created and stays.
        on_wait: Called once if somebody else holds it.
    """
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("ab") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
