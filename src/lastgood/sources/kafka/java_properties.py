"""Java's property files, and the login configuration that Kafka's clients keep in one of their values. Pure.

What is read may be secret: no text of it stands in an error or in a repr.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field

from lastgood.errors import UsageError
from lastgood.frozen import dataclass

_LINE_END = re.compile("\r\n|\n|\r")
_SPACE = " \t\f"
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)?", re.DOTALL)
_PROPERTY_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

# What java.io.StreamTokenizer makes of a text, set up as Kafka's JaasConfig does.
_JAAS_TOKEN = re.compile(
    r"""
      (?P<skip> [\x00-\x20]+ | /\*.*?\*/ | /[^\r\n]* )
    | (?P<word> [^\x00-\#%-@\[-^`{-\x9f] [^\x00-\#%-,/:-@\[-^`{-\x9f]* )  # letters, _ and $; then digits, . and - too
    | (?P<quoted> "(?:\\[^\r\n]|[^"\\\r\n])*" | '(?:\\[^\r\n]|[^'\\\r\n])*' )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_JAAS_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_JAAS_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_CONTROL_FLAGS = frozenset({"required", "requisite", "sufficient", "optional"})


class PropertiesError(UsageError):
    """A Java properties file, or the login configuration in it, is not well formed."""

    condition = "PROPERTIES_INVALID"


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module with its options, out of `sasl.jaas.config`."""

    module: str
    """Name of its class."""
    options: Mapping[str, str] = field(repr=False)


def parse_properties(raw: bytes) -> dict[str, str]:
    """Read a properties file as `java.util.Properties` does, ISO 8859-1 and all; the last of two equal keys counts.

    Raises:
        PropertiesError: a Unicode escape is without its four hexadecimal digits.
    """
    properties = {}
    for number, line in _join_lines(raw.decode("iso-8859-1")):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty text too
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        properties[_unescape(key[0], number)] = _unescape(line[separator.end() :], number)
    return properties


def parse_jaas(text: str) -> JaasEntry:
    """Read the value of `sasl.jaas.config`: `MODULE required OPTION="VALUE" …;`.

    Raises:
        PropertiesError: it is not one such entry.
    """
    tokens = list(_split_jaas_tokens(text))
    words = [word for kind, word in tokens[:2] if kind != "sign"]
    if len(words) < 2 or words[1].lower() not in _CONTROL_FLAGS:
        raise _make_jaas_error("it does not begin with a module and 'required'")
    options: dict[str, str] = {}
    rest = iter(tokens[2:])
    for kind, key in rest:
        if (kind, key) == ("sign", ";"):
            break
        sign, value = next(rest, None), next(rest, None)
        if kind == "sign" or sign != ("sign", "=") or value is None or value[0] == "sign":
            raise _make_jaas_error(f"option {len(options) + 1} has no value")
        options[key] = value[1]
    else:
        raise _make_jaas_error("it does not end with a semicolon")
    if next(rest, None) is not None:
        raise _make_jaas_error("it has more than one module")
    return JaasEntry(words[0], options)


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines put together where one ends in a backslash, with the number of the first; no comments, no blank lines."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), start=1):
        line = natural.lstrip(_SPACE)
        if not parts:
            if not line or line[0] in "#!":
                continue
            first = number
        body = line.rstrip("\\")
        if (len(line) - len(body)) % 2:
            parts.append(line[:-1])
            continue
        yield first, "".join([*parts, line])
        parts = []
    if parts:
        yield first, "".join(parts)


def _unescape(text: str, line: int) -> str:
    def replaced(found: re.Match[str]) -> str:
        code = found[1] or ""
        if code == "u":
            raise PropertiesError(
                "a properties file is not well formed",
                found=f"in line {line}: \\u without four hexadecimal digits",
                expected="\\uXXXX; a backslash itself is written twice",
            )
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _PROPERTY_ESCAPES.get(code, code)

    units = _ESCAPE.sub(replaced, text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _split_jaas_tokens(text: str) -> Iterator[tuple[str, str]]:
    position = 0
    while position < len(text):
        found = _JAAS_TOKEN.match(text, position)
        if found is None or found.lastgroup is None:
            raise _make_jaas_error(f"character {position + 1} does not belong there; put values in quotes")
        position = found.end()
        if found.lastgroup == "quoted":
            yield "quoted", _JAAS_ESCAPE.sub(_unescape_jaas, found[0][1:-1])
        elif found.lastgroup != "skip":
            yield found.lastgroup, found[0]


def _unescape_jaas(found: re.Match[str]) -> str:
    code = found[1]
    if code.isdecimal() and code[0] < "8":
        return chr(int(code, 8))
    return _JAAS_ESCAPES.get(code, code)


def _make_jaas_error(found: str) -> PropertiesError:
    return PropertiesError(
        "the login configuration is not well formed",
        subject="sasl.jaas.config",
        found=found,
        expected='MODULE required username="NAME" password="PASSWORD";',
    )
