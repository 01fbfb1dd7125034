"""Lines of copies that stand as lastgood writes them, many at once: nearly all of a long mirror. Pure.

A line that is anything else is given as it is, for whoever parses JSON: nothing here can be read another way than JSON
is. In a plain line the content of a file stands in ASCII, in which nothing is escaped but quotes and ends
of lines, so that a copy holds that text and makes the content of it when it is asked for. What Spark pins in every plan
is the same text a thousand times: it is searched for once, and held once.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator
from typing import Final

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.lines import TIME_MS_END

LINE_BYTES_MIN: Final = len('{"path":"","query":"","seen_ms":0,"text":""}')
"""No line of a copy is shorter."""
_TEXT: Final = rb'(?:[ !#-\[\]-~]++|\\["n])*+'
_MARK: Final = b"\0"
"""Stands for the shared text; JSON writes this sign in another way."""
_SHARED_BEGINS: Final = rb",\"conf\":{"
_SHARED_ENDS: Final = rb"}}\n"
_COMMIT_BYTES_MAX: Final = 64
_SHARED_BYTES_MAX: Final = 16 * 1024
SHORT_BYTES_MAX: Final = 256
"""A text of a line that is not longer is held as it is: packed, it would take about as much."""


class PlainCopy(Copy):
    """A copy that holds the text of its line, and makes the content of that."""

    __slots__ = ("_held", "_shared")
    _held: bytes
    _shared: bytes | None

    def __init__(
        self,
        query_id: str | None,
        path: str,
        seen_ms: int,
        modified_ms: int | None,
        content: bytes,
        shared: bytes | None = None,
    ) -> None:
        """A copy; with `shared` its `content` is given as the text of JSON, with a mark for what is shared."""
        _SET_QUERY_ID(self, query_id)
        _SET_PATH(self, path)
        _SET_SEEN_MS(self, seen_ms)
        _SET_MODIFIED_MS(self, modified_ms)
        _SET_HELD(self, content)
        _SET_SHARED(self, shared)

    @property
    def content(self) -> bytes:
        """The bytes of the file, made anew each time."""
        held, shared = self.words
        if shared is None:
            return held
        return _unescape(held).replace(_MARK, shared)

    @property
    def is_short(self) -> bool:
        """Whether it takes so little that it need not be packed."""
        held, shared = self.words
        return shared is not None and len(held) <= SHORT_BYTES_MAX

    @property
    def is_empty(self) -> bool:
        """Whether the file was empty."""
        return not self.words[0]

    @property
    def words(self) -> tuple[bytes, bytes | None]:
        """Text and shared text: copies with the same words have the same content; with others they may as well."""
        return self._held, self._shared

    def is_same_as(self, other: Copy) -> bool:
        """Whether both are one version of a file, told by their words; False where these do not tell."""
        return isinstance(other, PlainCopy) and self.modified_ms == other.modified_ms and self.words == other.words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Copy) and list_fields(self) == list_fields(other)

    def __hash__(self) -> int:
        return hash(list_fields(self))


# What a frozen value is set by: a long mirror holds some hundred thousand of them.
_SET_QUERY_ID: Final = vars(Copy)["query_id"].__set__
_SET_PATH: Final = vars(Copy)["path"].__set__
_SET_SEEN_MS: Final = vars(Copy)["seen_ms"].__set__
_SET_MODIFIED_MS: Final = vars(Copy)["modified_ms"].__set__
_SET_HELD: Final = vars(PlainCopy)["_held"].__set__
_SET_SHARED: Final = vars(PlainCopy)["_shared"].__set__


def list_fields(copy: Copy) -> tuple[object, ...]:
    """What is equal of equal copies, however they are held."""
    return copy.query_id, copy.path, copy.seen_ms, copy.modified_ms, copy.content


@functools.cache
def _compile_lines() -> re.Pattern[bytes]:
    """A plain line, by its fields; or any other line, as the last of the groups. Most verbs need it not at all."""
    return re.compile(
        rb'^(?:\{"path":"((?:offsets|commits)/(?:0|[1-9][0-9]{0,17}))","query":"([ !#-\[\]-~]{0,256}+)",'
        rb'"seen_ms":(0|[1-9][0-9]{0,14}),"modified_ms":(0|[1-9][0-9]{0,14}),"text":"('
        + _TEXT
        + rb"(?:\0"
        + _TEXT
        + rb')?)"\}|(.{%d,}))$' % LINE_BYTES_MIN,
        re.MULTILINE,
    )


class PlainLines:
    """Parses pieces of a mirror, one after the other; what the plans in them share is found once."""

    def __init__(self) -> None:
        """Nothing is shared yet."""
        self._text = b""
        self._shared = b""

    def parse(self, lines: bytes) -> Iterator[PlainCopy | bytes]:
        """Each plain line as a copy, and any other as it stands, in their order.

        What is too short for a copy is left out, and so are plain lines of a time that no mirror has.

        Args:
            lines: Whole lines, separated by line feeds.
        """
        if _MARK in lines:  # no JSON, and nothing may stand for something else here
            for line in lines.split(b"\n"):
                if len(line) >= LINE_BYTES_MIN:
                    yield line
            return
        rows = _compile_lines().findall(self._shorten(lines))
        text_shared, shared = self._text, self._shared
        # What repeats from line to line is made once: ids, the time of a look, and commits, which are mostly the same.
        queries = {row[1] for row in rows}
        query_ids = {query: sys.intern(query.decode()) for query in queries}
        times = {seen: int(seen or 0) for seen in {row[2] for row in rows}}
        commits: dict[bytes, bytes] = {}
        for path, query, seen, modified, text, other in rows:
            if other:
                yield other.replace(_MARK, text_shared)
                continue
            seen_ms, modified_ms = times[seen], int(modified)
            if seen_ms < TIME_MS_END and modified_ms < TIME_MS_END:
                if len(text) <= _COMMIT_BYTES_MAX:
                    text = commits.setdefault(text, text)  # noqa: PLW2901 - the same bytes, held once
                yield PlainCopy(query_ids[query], path.decode(), seen_ms, modified_ms, text, shared)

    def _shorten(self, lines: bytes) -> bytes:
        """The lines with a mark wherever the text stands that they share; `other.replace` above is the way back."""
        at = lines.find(_SHARED_BEGINS)
        if at >= 0 and not (self._text and lines.startswith(self._text, at)):
            self._share(lines, at)
        if not self._text:
            return lines
        return lines.replace(self._text, _MARK)

    def _share(self, lines: bytes, at: int) -> None:
        """Share from now on what stands there, if that is plain, short, and the rest of one line of a plan."""
        end = lines.find(_SHARED_ENDS, at, at + _SHARED_BYTES_MAX)
        found = lines[at : end + len(_SHARED_ENDS)]
        if end < 0 or found.count(rb"\n") > 1 or found.count(_SHARED_BEGINS) > 1 or re.fullmatch(_TEXT, found) is None:
            return
        self._text = found
        self._shared = _unescape(found)


def _unescape(text: bytes) -> bytes:
    """The content whose text stands in a plain line: every backslash is before a quote or before an `n`."""
    return text.replace(b'\\"', b'"').replace(rb"\n", b"\n")
