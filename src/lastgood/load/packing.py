"""How files of a load are packed: what tells it, how they are unpacked from their beginning, and from any position."""

from __future__ import annotations

import bz2
import contextlib
import importlib
import io
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from lastgood.errors import ExtraMissingError
from lastgood.frozen import dataclass
from lastgood.load.seekable import SeekableFile
from lastgood.load.specification import BZIP2_ENDING, GZIP_ENDING
from lastgood.notes import read_json

_BLOCK = 1024 * 1024
_PIECE = 16 * 1024 * 1024
"""Bytes that are unpacked at a time, at most."""
_POINTS_MOST = 500
"""A point of gzip takes 32 KiB, and every task has all of them."""
_SPACING_LEAST = 16 * 1024 * 1024

Opened = contextlib.AbstractContextManager[Any]
"""A file that is unpacked as it is read, and can be sought in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """One way to pack a file."""

    name: str
    ending: str
    """Of the names of its files, by which Spark knows them."""
    begin: bytes
    """Of their content."""
    start: Callable[[], Any]
    """What unpacks a member."""
    unpack_some: Callable[[Any, bytes], Iterator[bytes]]
    """Gives it some bytes, and yields what it makes of them."""
    make_index: Callable[[SeekableFile, Path, int], int]
    """Writes an index of a file, which has so many bytes unpacked, into a new one; how many bytes it has found.

    Raises ValueError or RuntimeError where the file is broken.
    """
    open: Callable[[SeekableFile, Path], Opened]
    """Opens a file with its index."""


def _start_gzip() -> Any:
    return zlib.decompressobj(zlib.MAX_WBITS | 16)


def _unpack_gzip(member: Any, block: bytes) -> Iterator[bytes]:
    yield member.decompress(block, _PIECE)
    while member.unconsumed_tail:
        yield member.decompress(member.unconsumed_tail, _PIECE)


def _unpack_bzip2(member: Any, block: bytes) -> Iterator[bytes]:
    yield member.decompress(block, _PIECE)
    while not member.needs_input and not member.eof:
        yield member.decompress(b"", _PIECE)


def _make_gzip_index(file: SeekableFile, draft: Path, size: int) -> int:
    spacing = max(_SPACING_LEAST, size // _POINTS_MOST)
    library = _import_library("indexed_gzip", "gzip")
    with library.IndexedGzipFile(fileobj=file, spacing=spacing, readbuf_size=_BLOCK) as unpacked:
        unpacked.build_full_index()
        found: int = unpacked.seek(0, io.SEEK_END)
        unpacked.export_index(str(draft))
    return found


def _open_gzip(file: SeekableFile, index: Path) -> Opened:
    library = _import_library("indexed_gzip", "gzip")
    opened: Opened = library.IndexedGzipFile(fileobj=file, index_file=str(index), readbuf_size=_BLOCK)
    return opened


def _make_bzip2_index(file: SeekableFile, draft: Path, size: int) -> int:
    """Each block has its place, in bits.

    In one thread: an error of the storage in one of the library's own would end the whole process.
    """
    del size
    library = _import_library("indexed_bzip2", "bzip2")
    with library.IndexedBzip2File(file, parallelization=1) as unpacked:
        found: int = unpacked.seek(0, io.SEEK_END)
        draft.write_text(json.dumps(list(unpacked.block_offsets().items())))
    return found


def _open_bzip2(file: SeekableFile, index: Path) -> Opened:
    library = _import_library("indexed_bzip2", "bzip2")
    opened = library.IndexedBzip2File(file, parallelization=1)
    opened.set_block_offsets(dict(read_json(index.read_text())))
    unpacked: Opened = opened
    return unpacked


def _import_library(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissingError(extra="load", module=module, needed_for=f"files that {name} has packed") from error


PACKINGS: Final = (
    Packing(
        name="gzip",
        ending=GZIP_ENDING,
        begin=b"\x1f\x8b",
        start=_start_gzip,
        unpack_some=_unpack_gzip,
        make_index=_make_gzip_index,
        open=_open_gzip,
    ),
    Packing(
        name="bzip2",
        ending=BZIP2_ENDING,
        begin=b"BZh",
        start=bz2.BZ2Decompressor,
        unpack_some=_unpack_bzip2,
        make_index=_make_bzip2_index,
        open=_open_bzip2,
    ),
)
"""Those that a load reads."""
_ERRORS = (zlib.error, OSError)


class BrokenError(Exception):
    """What is said to be packed so is not, or not whole."""


def find_packing(name: str) -> Packing | None:
    """How a file is packed, by its name; None: not at all, or as no load reads it."""
    for each in PACKINGS:
        if name.lower().endswith(each.ending):
            return each
    return None


def unpack(packing: Packing, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """All of a file, piece by piece.

    Args:
        packing: How it is packed.
        blocks: Its bytes.

    Raises:
        BrokenError: it is not packed so, or not whole, or something else follows.
    """
    member: Any = None
    for some in blocks:
        block = some
        while block:
            if member is None or member.eof:
                member = packing.start()
            try:
                yield from packing.unpack_some(member, block)
            except _ERRORS as error:
                raise BrokenError(str(error)) from error
            block = member.unused_data
    if member is None or not member.eof:
        raise BrokenError("it ends within a member")
