"""How the text of a file is written: where its characters and lines begin, and what it is in UTF-8."""

from __future__ import annotations

import codecs
from typing import Final

from lastgood.frozen import dataclass

_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF8: "UTF-8",
    codecs.BOM_UTF16_LE: "UTF-16LE",
    codecs.BOM_UTF16_BE: "UTF-16BE",
}
"""The longer ones first, which begin as others do."""
MARK_BYTES: Final = max(map(len, _MARKS))
_SHOWN = 40
_NO_CHARACTER = "\ufffe"
"""A byte order mark the wrong way round: text for Python, and not for Java."""


class NotTextError(Exception):
    """Bytes of a file are no text in its encoding."""


@dataclass(frozen=True, slots=True)
class TextEncoding:
    """Each character begins at a multiple of the bytes that the shortest has."""

    codec: str
    """As Python names it."""
    mark: bytes
    """What a file may begin with that is no text."""
    line_feed: bytes
    carriage_return: bytes

    @property
    def unit(self) -> int:
        """Bytes of the shortest character."""
        return len(self.line_feed)

    @property
    def line_ends(self) -> tuple[bytes, bytes]:
        """What ends a line; both together end one as well."""
        return self.line_feed, self.carriage_return

    def find_line_end(self, block: bytes) -> int:
        """Where the first line of a block has its end, which begins with a character; -1 if nowhere."""
        ends = (self._find(block, each) for each in self.line_ends)
        return min((end for end in ends if end >= 0), default=-1)

    def cut_lines(self, block: bytes) -> tuple[bytes, bytes]:
        """The whole lines of a block, and the rest; a carriage return at its end may be half a line end."""
        whole = len(block) // self.unit * self.unit
        feed = self._find_last(block, self.line_feed, whole)
        last = max(feed, self._find_last(block, self.carriage_return, max(whole - self.unit, 0)))
        end = 0 if last < 0 else last + self.unit
        return block[:end], block[end:]

    def _find(self, block: bytes, sign: bytes) -> int:
        found = block.find(sign)
        while found >= 0 and found % self.unit:
            found = block.find(sign, found + 1)
        return found

    def _find_last(self, block: bytes, sign: bytes, end: int) -> int:
        found = block.rfind(sign, 0, end)
        while found >= 0 and found % self.unit:
            found = block.rfind(sign, 0, found + self.unit - 1)
        return found

    def to_utf8(self, content: bytes) -> bytes:
        """The same text in UTF-8.

        What is no character of one byte becomes U+FFFD, as in Java; UTF-8 stays as it is.

        Raises:
            NotTextError: two bytes are no character; Java would replace those behind them as well.
        """
        if self.codec == UTF_8.codec:
            return content
        if self.unit == 1:
            return content.decode(self.codec, "replace").encode()
        try:
            text = content.decode(self.codec)
        except UnicodeDecodeError as error:
            found = content[error.start : error.start + self.unit].hex()
            raise _make_error(found, content[: error.start].decode(self.codec)) from error
        if _NO_CHARACTER in text:
            raise _make_error("U+FFFE", text.partition(_NO_CHARACTER)[0])
        return text.encode()


def find_marked(head: bytes) -> str | None:
    """Which encoding the byte order mark of a file tells; None if it has none."""
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    return None


def _make_error(found: str, before: str) -> NotTextError:
    return NotTextError(f"{found} is no character of its encoding, behind {before[-_SHOWN:]!r}")


def make_encoding(codec: str, mark: bytes = codecs.BOM_UTF8) -> TextEncoding:
    """That of a codec of Python."""
    return TextEncoding(codec, mark, "\n".encode(codec), "\r".encode(codec))


UTF_8: Final = make_encoding("utf-8")
