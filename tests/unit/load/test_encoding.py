from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.load.encoding import find_encoding, has_two_bytes, require_known_encoding
from lastgood.load.text import NotTextError
from lastgood.storage.reading import parse_location

PLACE = parse_location(str(Path("/in/orders.csv")))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoding": "UTF-32"}, "a load does not read this encoding"),
        ({"charset": "windows-1252"}, "a load does not read this encoding"),
        ({"encoding": ""}, "a load does not read this encoding"),
        ({"encoding": "UTF-8", "charset": "UTF-8"}, "an option is given twice"),
        ({"encoding": "ISO-8859-1", "multiLine": "true"}, "two options contradict each other"),
        ({"encoding": "UTF-16", "multiLine": "true"}, "two options contradict each other"),
    ],
)
def test_an_encoding_that_no_range_can_be_read_of_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_known_encoding(options)
    assert refused.value.sentence == sentence


@pytest.mark.parametrize(
    ("options", "content", "text"),
    [
        ({}, b"\xc3\xa4\xff", b"\xc3\xa4\xff"),
        ({"encoding": "utf-8", "multiLine": "true"}, b"\xc3\xa4\xff", b"\xc3\xa4\xff"),
        ({"charset": "ISO-8859-1"}, b"\xc3\xa4\xff", "Ã¤ÿ".encode()),
        ({"encoding": "US-ASCII"}, b"\xc3\xa4\xff", "\ufffd\ufffd\ufffd".encode()),
        ({"encoding": "UTF-16LE"}, b"\xe4\0\x3d\xd8\x00\xde", "ä\U0001f600".encode()),
        ({"charset": "utf-16be"}, b"\0\xe4", "ä".encode()),
    ],
)
def test_text_is_read_as_java_reads_it(options: dict[str, str], content: bytes, text: bytes) -> None:
    require_known_encoding(options)
    assert find_encoding(options, lambda *_: content, PLACE).to_utf8(content) == text


@pytest.mark.parametrize("content", [b"a\0\x3d\xd8b\0", b"\x00\xde", b"a\0b", b"\xfe\xff"])
def test_two_bytes_that_are_no_character_are_not_text(content: bytes) -> None:
    encoding = find_encoding({"encoding": "UTF-16LE"}, lambda *_: b"", PLACE)
    with pytest.raises(NotTextError):
        encoding.to_utf8(content)


@pytest.mark.parametrize(
    ("encoding", "head", "codec"),
    [
        ("UTF-16", b"\xff\xfea", "utf-16-le"),
        ("UTF-16", b"\xfe\xff", "utf-16-be"),
        ("UTF-16", b"", "utf-16-le"),
        ("UTF-16BE", b"\0a\0", "utf-16-be"),
        ("UTF-16BE", b"\xfe\xff\0", "utf-16-be"),
    ],
)
def test_which_byte_comes_first_the_file_says_or_the_option(encoding: str, head: bytes, codec: str) -> None:
    options = {"encoding": encoding}
    assert has_two_bytes(options)
    assert find_encoding(options, lambda *_: head, PLACE).codec == codec


@pytest.mark.parametrize(
    ("encoding", "head", "found"),
    [
        ("UTF-16", b"a\0b", "UTF-16 without a byte order mark"),
        ("UTF-16", b"\xef\xbb\xbf", "the byte order mark of UTF-8"),
        ("UTF-16LE", b"\xfe\xff\0", "the byte order mark of UTF-16BE"),
    ],
)
def test_a_file_that_begins_otherwise_is_refused(encoding: str, head: bytes, found: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_encoding({"encoding": encoding}, lambda *_: head, PLACE)
    assert (refused.value.subject, refused.value.found) == (str(PLACE), found)
