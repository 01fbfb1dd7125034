"""The bytes of a file of a load, from any position on: as they lie there, or unpacked, where gzip has packed them.

What gzip has packed can be unpacked from its beginning only, or from a point of which the bytes before it are known. So
it is unpacked once, to its end: that shows that it is whole, and gives an index of such points. The index is kept on
this machine; all tasks, and all runs, read from the nearest point on.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs

from lastgood.errors import ExtraMissingError, UsageError
from lastgood.load.seekable import SeekableFile
from lastgood.load.specification import InputFile, LoadSpec
from lastgood.storage.reading import Location, Storage, open_storage, parse_location, read_part

GZIP_BEGIN = b"\x1f\x8b"
Read = Callable[[int, int], bytes]
"""Gives at most so many bytes (the second) from a position (the first) on; fewer only at the end."""
_BLOCK = 1024 * 1024
_PIECE = 16 * 1024 * 1024
_NAME = "gzip-"
_KEPT_SECONDS = 30 * 86_400
_POINTS_MOST = 500
"""A point takes 32 KiB, and every task has all of them."""
_SPACING_LEAST = 16 * 1024 * 1024


@contextlib.contextmanager
def open_input(file: InputFile) -> Iterator[Read]:
    """What reads a file; of one that is packed the index has to be there.

    Raises:
        StorageError: it cannot be read (subclasses).
    """
    location = parse_location(file.location)
    storage = open_storage(location)
    if not file.is_packed:
        yield lambda begin, limit: read_part(storage, location, begin=begin, limit=limit) or b""
        return
    with _import_library().IndexedGzipFile(
        fileobj=SeekableFile(storage, location, file.size), index_file=str(locate_index(file)), readbuf_size=_BLOCK
    ) as unpacked:

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
    library = _import_library()
    size = sum(map(len, _unpack(storage, location, file.size, tell)))
    index = locate_index(file)
    if not size or index.exists():
        return size
    spacing = max(_SPACING_LEAST, size // _POINTS_MOST)
    with library.IndexedGzipFile(
        fileobj=SeekableFile(storage, location, file.size), spacing=spacing, readbuf_size=_BLOCK
    ) as unpacked:
        unpacked.build_full_index()
        unpacked.seek(0, io.SEEK_END)
        if unpacked.tell() != size:
            raise make_broken_error(location, f"{size} bytes by one reader, {unpacked.tell()} by another")
        draft = index.with_suffix(f".{os.getpid()}")
        unpacked.export_index(str(draft))
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


def make_broken_error(location: Location, found: str) -> UsageError:
    """The error for what is no whole gzip file."""
    return UsageError(
        "a file is not what gzip has packed",
        subject=str(location),
        found=found,
        expected="one or several members of gzip, whole, and nothing else",
        effect="nothing was written",
    )


def _unpack(
    storage: Storage, location: Location, size: int, tell: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """All of a packed file, piece by piece."""
    member: Any = None
    for begin in range(0, size, _BLOCK):
        block = read_part(storage, location, begin=begin, limit=_BLOCK) or b""
        while block:
            if member is None or member.eof:
                member = zlib.decompressobj(zlib.MAX_WBITS | 16)
            try:
                yield member.decompress(block, _PIECE)
            except zlib.error as error:
                raise make_broken_error(location, str(error)) from error
            block = member.unused_data or member.unconsumed_tail
        tell(min(begin + _BLOCK, size))
    if member is None or not member.eof:
        raise make_broken_error(location, "it ends within a member")


def _import_library() -> Any:
    try:
        return importlib.import_module("indexed_gzip")
    except ImportError as error:
        raise ExtraMissingError(extra="load", module="indexed_gzip", needed_for="files that gzip has packed") from error
