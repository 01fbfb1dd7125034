from __future__ import annotations

import pytest

from lastgood.errors import UsageError
from lastgood.load.encoding import encode_as_utf8, find_codec, require_known_encoding


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"encoding": "UTF-16"}, "a load does not read this encoding"),
        ({"charset": "windows-1252"}, "a load does not read this encoding"),
        ({"encoding": ""}, "a load does not read this encoding"),
        ({"encoding": "UTF-8", "charset": "UTF-8"}, "an option is given twice"),
        ({"encoding": "ISO-8859-1", "multiLine": "true"}, "two options contradict each other"),
    ],
)
def test_an_encoding_that_no_range_can_be_read_of_is_refused(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        require_known_encoding(options)
    assert refused.value.sentence == sentence


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, b"\xc3\xa4\xff"),
        ({"encoding": "utf-8", "multiLine": "true"}, b"\xc3\xa4\xff"),
        ({"charset": "ISO-8859-1"}, "Ã¤ÿ".encode()),
        ({"encoding": "US-ASCII"}, "\ufffd\ufffd\ufffd".encode()),
    ],
)
def test_text_is_read_as_java_reads_it(options: dict[str, str], text: bytes) -> None:
    require_known_encoding(options)
    assert encode_as_utf8(b"\xc3\xa4\xff", find_codec(options)) == text
