"""In which encodings files may be written: those of Spark's CSV in which a line ends where a byte says so.

Others, such as UTF-16, Spark cuts in the midst of a character, unless it reads a file whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lastgood.errors import UsageError
from lastgood.load.quoting import MULTI_LINE, are_multi_line

ENCODING: Final = ("encoding", "charset")
"""The option by both of its names."""
_UTF_8 = "utf-8"
_CODECS = {_UTF_8: _UTF_8, "iso-8859-1": "latin-1", "us-ascii": "ascii"}
"""Python's names by Spark's, which knows no others but those of 16 and 32 bits."""


def require_known_encoding(options: Mapping[str, str]) -> None:
    """See that files in the encoding that is told can be read range by range.

    Raises:
        UsageError: it cannot.
    """
    told = [options[name] for name in ENCODING if name in options]
    if len(told) > 1:
        raise UsageError("an option is given twice", found=" and ".join(ENCODING), expected="one of them")
    if told and told[0].lower() not in _CODECS:
        raise UsageError(
            "a load does not read this encoding",
            found=told[0],
            expected=", ".join(name.upper() for name in _CODECS),
            next=f"iconv -f {told[0]} -t UTF-8 FILE, and the load of what it writes",
        )
    if told and told[0].lower() != _UTF_8 and are_multi_line(options):
        raise UsageError(
            "two options contradict each other", found=f"{MULTI_LINE} and the encoding {told[0]}", expected="one"
        )


def find_codec(options: Mapping[str, str]) -> str:
    """As Python names the encoding."""
    told = next((options[name] for name in ENCODING if name in options), _UTF_8)
    return _CODECS[told.lower()]


def encode_as_utf8(content: bytes, codec: str) -> bytes:
    """The same text in UTF-8; what is no character becomes U+FFFD, one for each byte, as in Java."""
    if codec == _UTF_8:
        return content
    return content.decode(codec, "replace").encode()
