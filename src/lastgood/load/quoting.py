"""Records of CSV that may have line ends within quotes: where they end, and that this is certain.

What a quote means depends on all that is before it. So whoever plans goes by their number alone, which is fast: a line
end behind an even number of them ends a record. Whoever reads a piece sees that each record of it is regular, for which
that is so. If one is not, the batch fails, and nothing of it counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.load.ranges import BLOCK, Piece, read_whole
from lastgood.load.unpacking import Read
from lastgood.storage.reading import Location

MULTI_LINE = "multiLine"
_RECORD_MOST = 64 * 1024 * 1024
"""Bytes that are read until a record has ended."""
_LOOK = 64 * 1024
_SEEN_BY_SPARK = 4096
"""Spark's parser goes by the first line end if that is in what it reads first, which is more than this."""
_LINE_FEED = b"\n"
_ODD_ENDS = {_LINE_FEED: rb"\r", b"\r\n": rb"\r(?!\n)|(?<!\r)\n"}
_SPELLED = {"\\t": "\t"}
_UNKNOWN = ("comment", "charToEscapeQuoteEscaping", "unescapedQuoteHandling")
"""Options with which it is not known here what a quote means."""


class IrregularError(Exception):
    """A record of which nobody can tell by its quotes where it ends."""

    def __init__(self, position: int, record: bytes) -> None:
        begin = record[:60].decode(errors="replace")
        super().__init__(f"a record from byte {position} on has quotes or line ends that are not regular: {begin!r}")


@dataclass(frozen=True)
class Quoting:
    """How the records of a file are written."""

    separator: bytes
    quote: bytes
    escape: bytes
    """What stands before a quote within quotes; may be a quote itself."""
    line_end: bytes

    @cached_property
    def _regular(self) -> re.Pattern[bytes]:
        """A regular record, without its line end: each value is quoted from its begin to its end, or has no quote.

        One with a NUL within quotes is none: Spark's parser takes it for a sign that escapes.
        """
        quote, escape, separator = map(re.escape, (self.quote, self.escape, self.separator))
        within = b"[^%b\0]++|%b%b" % (quote, quote, quote)
        if self.quote != self.escape:
            # Of several before a quote it is not known here whether they escape each other.
            others = b"[^%b%b\0]" % (quote, escape)
            within = b"%b++|%b++(?=%b)|(?<!%b)%b%b" % (others, escape, others, escape, escape, quote)
        bare = b"(?:(?!%b)[^%b\r\n])*+" % (separator, quote)
        if len(self.separator) == 1:
            bare = b"[^%b%b\r\n]*+" % (quote, separator)
        value = b"(?:%b(?:%b)*+%b|%b)" % (quote, within, quote, bare)
        return re.compile(b"%b(?:%b%b)*+" % (value, separator, value))

    def find_end(self, read: Read, begin: int, position: int, length: int) -> int:
        """Where the record ends that has a position in it; the length if there is no other behind it.

        Args:
            read: Reads the file.
            begin: Where a record begins, before the position.
            position: The position.
            length: Of the file, or where a record ends behind the position: more is not read.

        Raises:
            StorageError: it cannot be read (subclasses).
        """
        at, quotes, last = begin, 0, b""
        while at < length and (block := read(at, min(BLOCK, length - at))):
            content = last + block  # with the byte before it, which may escape its first one
            look = len(last)
            if at + len(block) > position:
                there = look + max(position - at, 0)
                quotes += self._count_quotes(content, look, there)
                look = there
                while (end := content.find(_LINE_FEED, look)) >= 0:
                    quotes += self._count_quotes(content, look, end)
                    look = end + 1
                    if quotes % 2 == 0:
                        return at - len(last) + look
            quotes += self._count_quotes(content, look, len(content))
            at += len(block)
            last = block[-1:]
        return length

    def _count_quotes(self, content: bytes, begin: int, end: int) -> int:
        """How many there are that begin or end something."""
        found = content.count(self.quote, begin, end)
        if self.quote != self.escape:
            found -= content.count(self.escape + self.quote, max(begin - 1, 0), end)
        return found

    def list_pieces(self, piece: Piece, read: Read, size: int) -> Iterator[Piece]:
        """A piece, cut between records into pieces of about a size, in bytes.

        Raises:
            StorageError: it cannot be read (subclasses).
        """
        at = piece.begin
        while at < piece.end:
            end = self.find_end(read, at, min(at + size, piece.end) - 1, piece.end)
            yield replace(piece, begin=at, end=end)
            at = end

    def read_piece(self, piece: Piece, read: Read) -> Iterator[tuple[bytes, list[bytes]]]:
        """The records of a piece, many at once: lines without a quote, and records that have quotes, without line ends.

        Raises:
            IrregularError: a record is not regular, so that nobody knows whether the piece ends with one.
            EOFError: the file ends before the piece.
            StorageError: it cannot be read (subclasses).
        """
        at, rest = piece.begin, b""
        while at < piece.end:
            block = read_whole(read, at, min(BLOCK, piece.end - at))
            at += len(block)
            content = rest + block
            lines, records, used = self._split(content, at - len(content), is_end=at == piece.end)
            rest = content[used:]
            if len(rest) > _RECORD_MOST:
                raise IrregularError(at - len(rest), rest)
            yield lines, records

    def _split(self, content: bytes, position: int, *, is_end: bool) -> tuple[bytes, list[bytes], int]:
        """The records that end in some content, which begins with one, and how many of its bytes these are."""
        lines, records, at = [], [], 0
        while (quote := content.find(self.quote, at)) >= 0:
            begin = max(content.rfind(_LINE_FEED, at, quote) + 1, at)
            lines.append(content[at:begin])
            at = begin
            end = self._match(content, begin, is_end=is_end)
            if end is None and is_end:
                raise IrregularError(position + begin, content[begin:])
            if end is None:
                break
            records.append(content[begin:end])
            at = min(end + len(self.line_end), len(content))
        else:
            end = len(content) if is_end else max(content.rfind(_LINE_FEED) + 1, at)
            lines.append(content[at:end])
            at = end
        whole = b"".join(lines)
        self._require_line_ends(whole, position)
        return whole, records, at

    def _match(self, content: bytes, begin: int, *, is_end: bool) -> int | None:
        """Where a regular record ends, before its line end; None if there is none, as far as the content goes."""
        found = self._regular.match(content, begin)
        if found is None:
            return None
        end = found.end()
        is_ended = content.startswith(self.line_end, end) or (is_end and end == len(content))
        return end if is_ended else None

    def _require_line_ends(self, lines: bytes, position: int) -> None:
        """See that lines end as the first one of the file does, and have no other carriage return."""
        returns, both = lines.count(b"\r"), lines.count(b"\r\n")
        is_regular = not returns if self.line_end == _LINE_FEED else returns == both == lines.count(_LINE_FEED)
        if not is_regular:
            odd = re.search(_ODD_ENDS[self.line_end], lines)
            assert odd is not None  # since the numbers differ
            raise IrregularError(position, lines[lines.rfind(_LINE_FEED, 0, odd.start()) + 1 : odd.end()])

    def find_end_of_header(self, read: Read, begins: int) -> int:
        """Behind the first record that is not empty, which Spark takes for the header.

        Raises:
            IrregularError: it is not regular.
            StorageError: the file cannot be read (subclasses).
        """
        at = begins
        while self.line_end == read(at, len(self.line_end)):
            at += len(self.line_end)
        size = _LOOK
        while True:
            content = read(at, size)
            end = self._match(content, 0, is_end=len(content) < size)
            if end is not None:
                return at + min(end + len(self.line_end), len(content))
            if len(content) < size or size > _RECORD_MOST:
                raise IrregularError(at, content)
            size *= 2


def are_multi_line(options: Mapping[str, str]) -> bool:
    """Whether the options of Spark's reader say that records may have line ends within quotes."""
    return options.get(MULTI_LINE, "").lower() == "true"


def find_separator(options: Mapping[str, str]) -> str:
    """What stands between two values, by the options of Spark's reader."""
    told = options.get("sep", options.get("delimiter", ","))
    return _SPELLED.get(told, told)


def find_quoting(options: Mapping[str, str], read: Read, location: Location) -> Quoting:
    """How the records of a file are written that may have line ends within quotes.

    Args:
        options: Those of Spark's reader.
        read: Reads the file.
        location: The file.

    Raises:
        UsageError: with these options, or this file, it is not known where a record ends.
        StorageError: it cannot be read (subclasses).
    """
    quote, escape = options.get("quote", '"'), options.get("escape", "\\")
    separator = find_separator(options)
    told = [name for name in _UNKNOWN if name in options]
    for name, value in (("quote", quote), ("escape", escape)):
        if len(value) != 1 or not value.isascii() or value in "\r\n" or value in separator:
            told.append(f"{name}={value}")
    if told or len(separator) != 1 or separator in "\r\n\\":
        raise UsageError(
            "where a record ends is not known with this option",
            found=told[0] if told else f"sep={separator}",
            expected=f"with {MULTI_LINE}=true a separator, a quote and an escape, of one sign each",
        )
    return Quoting(separator.encode(), quote.encode(), escape.encode(), _find_line_end(read, location))


def _find_line_end(read: Read, location: Location) -> bytes:
    """The first line end of a file, wherever it stands: Spark's parser takes it for that of all records."""
    content = read(0, _LOOK)
    found = re.search(rb"\r\n?|\n", content)
    if found is None and len(content) < _LOOK:
        return _LINE_FEED
    is_plain = found is not None and (found[0] == _LINE_FEED or (found[0] == b"\r\n" and found.end() < _SEEN_BY_SPARK))
    if found is None or not is_plain:
        raise UsageError(
            "how the lines of a file end is not known",
            subject=str(location),
            found="none in its first 64 KiB" if found is None else "a carriage return alone, or far behind",
            expected=f"a line feed, alone or behind a carriage return, in its first {_SEEN_BY_SPARK} bytes",
        )
    return found[0]
