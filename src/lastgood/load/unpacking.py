"""The bytes of a file of a load, from any position on: as they lie there, or unpacked, where they are packed.

What is packed can be unpacked from its beginning only, or from points that have to be known. So it is unpacked once, to
its end: that shows that it is whole, and gives an index of such points. The index is kept on this machine; all tasks,
and all runs, read from the nearest point on.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import platformdirs

from lastgood.errors import UsageError
from lastgood.load.packing import BrokenError, Packing, find_packing, unpack
from lastgood.load.seekable import SeekableFile
from lastgood.load.specification import InputFile, LoadSpec
from lastgood.storage.reading import Location, Storage, open_storage, parse_location, read_part

Read = Callable[[int, int], bytes]
"""Gives at most so many bytes (the second) from a position (the first) on; fewer only at the end."""
_BLOCK = 1024 * 1024
_NAME = "packed-"
_KEPT_SECONDS = 30 * 86_400


@contextlib.contextmanager
def open_input(file: InputFile) -> Iterator[Read]:
    """What reads a file; of one that is packed the index has to be there.

    Raises:
        RuntimeError: it is not.
        StorageError: it cannot be read (subclasses).
    """
    location = parse_location(file.location)
    storage = open_storage(location)
    if not file.is_packed:
        yield lambda begin, limit: read_part(storage, location, begin=begin, limit=limit) or b""
        return
    if file.unpacked == 0:  # of which there is no index
        yield lambda *_: b""
        return
    if not locate_index(file).exists():
        raise RuntimeError(
            f"the index of {file.location}, which is packed, is not on this machine: the tasks that read packed files"
            " have to run where the load was begun"
        )
    seekable = SeekableFile(storage, location, file.size)
    with _find_packing(location).open(seekable, locate_index(file)) as unpacked:

        def read(begin: int, limit: int) -> bytes:
            unpacked.seek(begin)
            found: bytes = unpacked.read(limit)
            return found

        yield read


def locate_index(file: InputFile) -> Path:
    """Where the index of a file lies, on this machine; of the same file as it is now."""
    told = hashlib.sha256(json.dumps([file.location, file.size, file.modified_ms, file.head, file.tail]).encode())
    return platformdirs.user_cache_path("lastgood", ensure_exists=True) / f"{_NAME}{told.hexdigest()[:32]}"


def read_head(storage: Storage, location: Location, size: int) -> Read:
    """What reads the beginning of a packed file, without an index: it is unpacked from there each time."""

    def read(begin: int, limit: int) -> bytes:
        found = b""
        for piece in _unpack(storage, location, size):
            found += piece
            if len(found) >= begin + limit:
                break
        return found[begin : begin + limit]

    return read


def unpack_files(spec: LoadSpec, say: Callable[[str], None]) -> LoadSpec:
    """The load with the length of each packed file, of which there is an index from then on.

    Args:
        spec: The load.
        say: Is told, in a few words, what takes time.

    Raises:
        UsageError, ExtraMissingError, StorageError: as `make_index`.
    """
    return replace(spec, files=tuple(_unpack_file(each, say) for each in spec.files))


def _unpack_file(file: InputFile, say: Callable[[str], None]) -> InputFile:
    if not file.is_packed or (file.unpacked is not None and locate_index(file).exists()):
        return file
    name = parse_location(file.location).name

    def tell(done: int) -> None:
        say(f"unpacking {name} once: {done * 100 // file.size} %")

    return replace(file, unpacked=make_index(file, tell))


def make_index(file: InputFile, tell: Callable[[int], None]) -> int:
    """Unpack a file to its end, and keep an index of it, if there is none yet.

    Args:
        file: The file, which is packed.
        tell: Is told how many of its bytes are read.

    Returns:
        How many bytes it has unpacked.

    Raises:
        UsageError: it is not whole, or something else follows.
        ExtraMissingError: a part is not installed.
        StorageError: it cannot be read (subclasses).
    """
    location = parse_location(file.location)
    storage = open_storage(location)
    size = sum(map(len, _unpack(storage, location, file.size, tell)))
    index = locate_index(file)
    if not size or index.exists():
        return size
    draft = index.with_suffix(f".{os.getpid()}")
    try:
        found = _find_packing(location).make_index(SeekableFile(storage, location, file.size), draft, size)
    except (ValueError, RuntimeError) as error:
        draft.unlink(missing_ok=True)  # Safe: it is ours, and nobody looks for its name
        raise _make_broken_error(location, f"whole by one reader, by another {error}") from error
    if found != size:
        draft.unlink()  # Safe: as above
        raise _make_broken_error(location, f"{size} bytes by one reader, {found} by another")
    with draft.open("rb+") as written:
        os.fsync(written.fileno())  # whoever finds it believes that it is whole
    draft.replace(index)  # Safe: of one file, as it is now, every index is as good as another.
    _forget_old(index)
    return size


def _forget_old(index: Path) -> None:
    """Remove the indexes that nobody has made since long: whoever needs one makes it anew."""
    oldest = index.stat().st_mtime - _KEPT_SECONDS
    for each in index.parent.glob(f"{_NAME}*"):
        with contextlib.suppress(FileNotFoundError):  # another load does the same
            if each.stat().st_mtime < oldest:
                each.unlink()  # Safe: a load that has opened it goes on; every other makes it anew.


def _make_broken_error(location: Location, found: str) -> UsageError:
    name = _find_packing(location).name
    return UsageError(
        f"a file is not what {name} has packed",
        subject=str(location),
        found=found,
        expected=f"one or several members of {name}, whole, and nothing else",
        effect="nothing was written",
    )


def _unpack(
    storage: Storage, location: Location, size: int, tell: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """All of a packed file, piece by piece."""
    try:
        yield from unpack(_find_packing(location), _read_blocks(storage, location, size, tell))
    except BrokenError as error:
        raise _make_broken_error(location, str(error)) from error


def _read_blocks(storage: Storage, location: Location, size: int, tell: Callable[[int], None]) -> Iterator[bytes]:
    for begin in range(0, size, _BLOCK):
        yield read_part(storage, location, begin=begin, limit=_BLOCK) or b""
        tell(min(begin + _BLOCK, size))


def _find_packing(location: Location) -> Packing:
    """That of a file of which it is known that it is packed."""
    found = find_packing(location.name)
    assert found is not None
    return found
