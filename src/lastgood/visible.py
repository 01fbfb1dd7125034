"""Text that others wrote, made safe to show: what steers a terminal or turns the order of reading is shown as text.

And so much of it as a person reads: a lake may hold any number of topics, files and findings, of any length.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeVar

from lastgood.frozen import dataclass

SHOWN_MAX = 50
"""So many of what is of one kind a person gets to see at once."""
TEXT_MAX = 8_000
"""So many characters of one text."""
WHOLE = "--format json names all"
"""Where the rest is to be had."""

_HIDDEN = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1: escapes, line ends, backspaces
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # no width, line ends, and what turns the order of reading
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # byte order mark, annotations, tags
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0"  # shown by nobody, as a soft hyphen or a filler
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0080-\U000e0fff"
    "\ud800-\udfff"  # half a character, which no encoding can write
)
_UNSAFE = re.compile(f"[{_HIDDEN}]")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Excerpt(Generic[_T]):
    """The first of what there is, for a person."""

    shown: Sequence[_T]
    left: int
    """How many more there are."""

    @property
    def in_a_line(self) -> str:
        """All of it as one line."""
        more = [f"and {self.left:,} more"] if self.left else []
        return ", ".join([*map(str, self.shown), *more])

    @property
    def more(self) -> tuple[str, ...]:
        """One line that says how many more there are, and where; none if these are all."""
        return (f"and {self.left:,} more: {WHOLE}",) if self.left else ()


def take_excerpt(found: Iterable[_T], most: int = SHOWN_MAX) -> Excerpt[_T]:
    """The first of what there is, and how many more.

    Example:
        >>> take_excerpt(range(60_000), 2)
        Excerpt(shown=[0, 1], left=59998)
    """
    left = iter(found)
    return Excerpt(list(islice(left, most)), sum(1 for _ in left))


def take_first_lines(lines: Iterable[str], most: int = SHOWN_MAX) -> Iterator[str]:
    """The first lines, and one that says how many more there are, and where.

    Example:
        >>> list(take_first_lines(["a", "b", "c"], 1))
        ['a', 'and 2 more: --format json names all']
    """
    part = take_excerpt(lines, most)
    yield from part.shown
    yield from part.more


def shorten(text: str, most: int = TEXT_MAX) -> str:
    """A text that a person can read: of a longer one its beginning, and how long it is.

    Example:
        >>> shorten("abcdef", 3)
        'abc… (6 characters)'
    """
    return text if len(text) <= most else f"{text[:most]}… ({len(text):,} characters)"


def make_visible(text: str) -> str:
    r"""The same text on one line, with every control and bidirectional character as its escape.

    Example:
        >>> make_visible("orders\x1b[2J\u202etxt")
        'orders\\x1b[2J\\u202etxt'
    """
    return _UNSAFE.sub(_escape, text)


def make_lines_visible(text: str) -> str:
    """As `make_visible`, but line ends stay: for a page, whose lines are its own."""
    return "\n".join(map(make_visible, text.split("\n")))


def join_words(words: Iterable[str]) -> str:
    r"""A command line whose every character is seen, and that a shell takes for these very words.

    What `make_visible` would show as an escape stands there in `$'…'`, byte by byte, which names the same file in any
    locale: so bash, zsh, ksh and every shell of POSIX 2024 read it.

    Example:
        >>> print(join_words(["rm", "it's mine", "a\x1b[2J\u202eb"]))
        rm 'it'"'"'s mine' $'a\033[2J\342\200\256b'
    """
    return " ".join(map(_quote, words))


def _quote(word: str) -> str:
    if _UNSAFE.search(word) is None:
        return shlex.quote(word)
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{_UNSAFE.sub(_escape_for_shell, plain)}'"


def _escape_for_shell(found: re.Match[str]) -> str:
    char = found[0]
    # As Python shows a byte of a name that is no UTF-8.
    is_byte = "\udc80" <= char <= "\udcff"
    raw = char.encode(errors="surrogateescape" if is_byte else "surrogatepass")
    return "".join(f"\\{byte:03o}" for byte in raw)


def format_json_line(value: Any) -> str:
    r"""A value as JSON on one line, exact, whose strings hold no such character but as `\uXXXX`."""
    line = json.dumps(value, ensure_ascii=False)
    if line.isascii() and "\x7f" not in line:  # the others of ASCII JSON has escaped itself
        return line
    # Outside of strings JSON has none of these characters, and within them an escape means the same.
    return _UNSAFE.sub(_escape_in_json, line)


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def _escape_in_json(found: re.Match[str]) -> str:
    if found[0] != "\x7f":
        return json.dumps(found[0])[1:-1]
    return r"\u007f"
