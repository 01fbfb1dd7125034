"""Ranges of the files of a load: what one batch reads, cut for its tasks, and read back as whole lines.

A task has the lines that begin within its piece; the last of them may end behind it. So pieces may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from lastgood.frozen import dataclass
from lastgood.load.position import LoadPosition
from lastgood.load.specification import InputFile
from lastgood.load.text import UTF_8, TextEncoding
from lastgood.load.unpacking import Read

BLOCK = 8 * 1024 * 1024
"""Bytes that a task reads at once."""
LINE_MOST = 128 * 1024 * 1024
"""Bytes of a line: what is longer has other line ends, or none, and would be held whole."""
_LOOK = 64 * 1024
_SMALLEST = 1024 * 1024


class LongLineError(Exception):
    """A line is too long to be held."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file that one task reads."""

    file: int
    begin: int
    end: int
    range_begin: int
    """Where the batch begins in this file, on the begin of a record."""
    range_end: int
    """Where it ends there."""


def begin_of(files: Sequence[InputFile]) -> LoadPosition:
    """Where a load begins."""
    return LoadPosition(0, files[0].begins)


def find_end_of_chunk(
    files: Sequence[InputFile], start: LoadPosition, most: int | None, find_end: Callable[[InputFile, int, int], int]
) -> LoadPosition:
    """Where a batch ends that begins at a position.

    Args:
        files: All of the load.
        start: Where it begins.
        most: How many bytes it reads, but that it ends with a record; None: all that there are.
        find_end: Where the record ends that has a position of a file in it (the second), from one on where one begins.
    """
    at, left = start, most
    while True:
        file = files[at.file]
        if left is not None and at.position + left < file.length:
            end = find_end(file, at.position, max(at.position + left - 1, at.position))
            if end < file.length:
                return LoadPosition(at.file, end)
        if left is not None:
            left = max(0, left - (file.length - at.position))
        if at.file + 1 == len(files):
            return LoadPosition(at.file, file.length)
        at = LoadPosition(at.file + 1, files[at.file + 1].begins)
        if left == 0:
            return at


def cut_anywhere(piece: Piece, size: int) -> Iterator[Piece]:
    """A piece, cut into pieces of a size, in bytes."""
    for at in range(piece.begin, piece.end, size):
        yield replace(piece, begin=at, end=min(at + size, piece.end))


def list_pieces(
    files: Sequence[InputFile],
    start: LoadPosition,
    end: LoadPosition,
    tasks: int,
    cut: Callable[[Piece, int], Iterable[Piece]] = cut_anywhere,
) -> Iterator[Piece]:
    """What the tasks of a batch read, of about the same size each.

    Args:
        files: All of the load.
        start: Where the batch begins.
        end: Where it ends.
        tasks: How many there are.
        cut: Cuts a piece into some of about a size, in bytes.
    """
    ranges = []
    for number in range(start.file, end.file + 1):
        begin = start.position if number == start.file else files[number].begins
        until = end.position if number == end.file else files[number].length
        if begin < until:
            ranges.append(Piece(number, begin, until, begin, until))
    size = max(_SMALLEST, -(-sum(each.end - each.begin for each in ranges) // max(tasks, 1)))
    for each in ranges:
        at = each.begin
        for piece in cut(each, size):
            if piece.begin != at or not at < piece.end <= each.end:
                break
            yield piece
            at = piece.end
        if at != each.end:
            raise RuntimeError(f"bytes {each.begin} to {each.end} were cut wrongly, at {at}: this is a bug of lastgood")


def find_line_end(
    read: Read, position: int, length: int | None, encoding: TextEncoding = UTF_8, step: int = _LOOK
) -> int:
    """Where the next line begins, from a position within a line, or at its first byte, on; the length if none does.

    Args:
        read: Reads the file.
        position: A position.
        length: Of the file; None: it is where nothing more can be read.
        encoding: How it is written.
        step: How much is read at a time, in bytes: a multiple of a character's.

    Raises:
        StorageError: it cannot be read (subclasses).
    """
    at = position - position % encoding.unit
    both = encoding.carriage_return + encoding.line_feed
    while length is None or at < length:
        block = read(at, step)
        if not block:
            break
        found = encoding.find_line_end(block)
        if found >= 0:
            end = at + found
            if read(end, len(both)) == both:
                return end + len(both)
            return end + encoding.unit
        at += len(block)
    return at if length is None else length


def read_lines(piece: Piece, read: Read, encoding: TextEncoding = UTF_8) -> Iterator[bytes]:
    """Whole lines, many at once, each with its end but perhaps the last one.

    Args:
        piece: Which lines: those that begin within it.
        read: Reads the file.
        encoding: How it is written.

    Raises:
        EOFError: it ends before the piece.
        LongLineError: a line is too long.
        StorageError: it cannot be read (subclasses).
    """
    at = _find_first_line(piece, read, encoding)
    rest = b""
    while at < piece.end:
        block = read_whole(read, at, min(BLOCK, piece.end - at))
        at += len(block)
        whole, rest = encoding.cut_lines(rest + block)
        _require_short(len(rest), at)
        if whole:
            yield whole
    if rest:
        end = find_line_end(read, at - 1, piece.range_end, encoding)
        _require_short(len(rest) + end - at, at)
        yield rest + read_whole(read, at, max(0, end - at))


def _require_short(size: int, position: int) -> None:
    if size > LINE_MOST:
        raise LongLineError(f"a line around byte {position} has more than {LINE_MOST} bytes: it would be held whole")


def read_whole(read: Read, begin: int, size: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: there are others.
        StorageError: the file cannot be read (subclasses).
    """
    content = read(begin, size)
    if len(content) != size:
        raise EOFError(f"{len(content)} of {size} bytes from {begin} on")
    return content


def _find_first_line(piece: Piece, read: Read, encoding: TextEncoding) -> int:
    """Where the first line begins that begins within the piece; behind it if none does."""
    if piece.begin == piece.range_begin:
        return piece.begin
    return find_line_end(read, piece.begin - 1, piece.range_end, encoding)
