"""Text that others wrote, made safe to show: what steers a terminal or turns the order of reading is shown as text."""

from __future__ import annotations

import json
import re
from typing import Any

_HIDDEN = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1: escapes, line ends, backspaces
    "\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # no width, line ends, and what turns the order of reading
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # byte order mark, annotations, tags
    "\ud800-\udfff"  # half a character, which no encoding can write
)
_UNSAFE = re.compile(f"[{_HIDDEN}]")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""The same text on one line, with every control and bidirectional character as its escape.

    Example:
        >>> visible("orders\x1b[2J\u202etxt")
        'orders\\x1b[2J\\u202etxt'
    """
    return _UNSAFE.sub(_escaped, text)


def visible_lines(text: str) -> str:
    """As `visible`, but line ends stay: for a page, whose lines are its own."""
    return "\n".join(map(visible, text.split("\n")))


def json_line(value: Any) -> str:
    r"""A value as JSON on one line, exact, whose strings hold no such character but as `\uXXXX`."""
    # Outside of strings JSON has none of these characters, and within them an escape means the same.
    return _UNSAFE.sub(_escaped_in_json, json.dumps(value, ensure_ascii=False))


def _escaped(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    if char in _NAMED:
        return _NAMED[char]
    if code < 0x100:
        return f"\\x{code:02x}"
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\U{code:08x}"


def _escaped_in_json(found: re.Match[str]) -> str:
    if found[0] != "\x7f":
        return json.dumps(found[0])[1:-1]
    return r"\u007f"
