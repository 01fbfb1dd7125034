"""In which encodings files may be written: those of Spark's CSV, but UTF-32, in which nobody writes.

UTF-16 Spark cuts in the midst of a character, unless it reads a file whole. Here it is read as the same text in UTF-8.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from typing import Final

from lastgood.errors import UsageError
from lastgood.load.quoting import MULTI_LINE, are_multi_line
from lastgood.load.text import MARK_BYTES, UTF_8, TextEncoding, find_marked, make_encoding
from lastgood.load.unpacking import Read
from lastgood.storage.reading import Location

ENCODING: Final = ("encoding", "charset")
"""The option by both of its names."""
_OF_TWO_BYTES = {
    "utf-16le": make_encoding("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-16be": make_encoding("utf-16-be", codecs.BOM_UTF16_BE),
}
_ENCODINGS = {
    UTF_8.codec: UTF_8,
    "iso-8859-1": make_encoding("latin-1"),
    "us-ascii": make_encoding("ascii"),
    **_OF_TWO_BYTES,
}
"""By Spark's names, which knows no others but UTF-32 and the following."""
_MARKED = "utf-16"
"""One of those of two bytes: the byte order mark of each file tells which."""


def require_known_encoding(options: Mapping[str, str]) -> None:
    """See that files in the encoding that is told can be read range by range.

    Raises:
        UsageError: it cannot.
    """
    told = [options[name] for name in ENCODING if name in options]
    if len(told) > 1:
        raise UsageError("an option is given twice", found=" and ".join(ENCODING), expected="one of them")
    if told and told[0].lower() not in (*_ENCODINGS, _MARKED):
        raise UsageError(
            "a load does not read this encoding",
            found=told[0],
            expected=", ".join(name.upper() for name in (*_ENCODINGS, _MARKED)),
            next=f"iconv -f {told[0]} -t UTF-8 FILE, and the load of what it writes",
        )
    if told and told[0].lower() != UTF_8.codec and are_multi_line(options):
        raise UsageError(
            "two options contradict each other", found=f"{MULTI_LINE} and the encoding {told[0]}", expected="one"
        )


def has_two_bytes(options: Mapping[str, str]) -> bool:
    """Whether the encoding that is told is one of which Spark reads a file only as a whole."""
    name = _find_name(options)
    return name == _MARKED or name in _OF_TWO_BYTES


def find_encoding(options: Mapping[str, str], read: Read, location: Location) -> TextEncoding:
    """How a file is written.

    Args:
        options: Those of Spark's reader.
        read: Reads the file.
        location: The file.

    Raises:
        UsageError: it does not begin as the options say, or they do not say how it is written.
        StorageError: it cannot be read (subclasses).
    """
    name = _find_name(options)
    if not has_two_bytes(options):
        return _ENCODINGS[name]
    head = read(0, MARK_BYTES)
    seen = find_marked(head)
    wanted: str | None
    if name != _MARKED:
        wanted = name.upper()
    elif head:
        wanted = seen
    else:
        wanted = next(iter(_OF_TWO_BYTES)).upper()  # of nothing each is right
    if wanted is None:
        raise UsageError(
            "the byte order of a file is not known",
            subject=str(location),
            found="UTF-16 without a byte order mark",
            expected=f"--option encoding={' or '.join(each.upper() for each in _OF_TWO_BYTES)}",
        )
    if seen not in (None, wanted) or wanted.lower() not in _OF_TWO_BYTES:
        raise UsageError(
            "a file is not in this encoding",
            subject=str(location),
            found=f"the byte order mark of {seen}",
            expected=name.upper(),
        )
    return _OF_TWO_BYTES[wanted.lower()]


def _find_name(options: Mapping[str, str]) -> str:
    """The encoding that is told, as Spark names it."""
    for option in ENCODING:
        if option in options:
            return options[option].lower()
    return UTF_8.codec
