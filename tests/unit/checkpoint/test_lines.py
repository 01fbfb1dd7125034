from __future__ import annotations

import pytest

from lastgood.checkpoint import lines
from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import (
    decode,
    encode,
    extract_long,
    read_json,
    read_object,
    split_byte_lines,
    split_log,
    to_json,
)


def kind(result: object) -> DamageKind | None:
    return result.kind if isinstance(result, Damage) else None


def test_a_log_is_split_as_java_splits_lines() -> None:
    log = split_log(b"v1\r\na\rb\nc\n", newest=1)
    assert not isinstance(log, Damage)
    assert (log.version, log.body) == (1, ("a", "b", "c"))


@pytest.mark.parametrize("raw", [b"v1\r\na\rb\nc\n", b"v1\na\r\n\r\nb", b"\n", b"a\r\r\nb", b"a\r", b"\r\n\r\n", b"v1"])
def test_lines_of_bytes_are_those_of_text(raw: bytes) -> None:
    text = raw.decode().replace("\r\n", "\n").replace("\r", "\n")
    expected = text.removesuffix("\n").split("\n")
    assert [line.decode() for line in split_byte_lines(raw)] == expected


def test_no_bytes_have_no_lines() -> None:
    assert list(split_byte_lines(b"")) == []


@pytest.mark.parametrize("line", ["v1", "v+1", "v01", "v0001"])
def test_version_lines_are_read_as_javas_parse_int_does(line: str) -> None:
    assert lines.read_version(line, newest=1) == 1


@pytest.mark.parametrize(
    "line", ["", "1", "v", "v0", "v-1", "V1", "v1 ", " v1", "vv1", "v1.0", "v2147483648", "v99999999999"]
)
def test_what_is_no_version_line_is_named_with_what_stands_there(line: str) -> None:
    assert lines.read_version(line, newest=1) == Damage(DamageKind.BAD_VERSION_LINE, line, 1)


def test_a_version_after_the_newest_is_too_new() -> None:
    assert lines.read_version("v3", newest=2) == Damage(DamageKind.VERSION_TOO_NEW, "v3", 1)


def test_only_the_commit_log_may_have_spaces_around_its_version() -> None:
    assert kind(split_log(b" v1 \n{}", newest=1)) is DamageKind.BAD_VERSION_LINE
    assert kind(split_log(b" v1 \n{}", newest=1, trim=True)) is None


def test_no_bytes_are_empty_and_bad_bytes_are_no_text() -> None:
    assert decode(b"") == Damage(DamageKind.EMPTY)
    assert decode(b"v1\n\xff\xfe{") == Damage(DamageKind.NOT_UTF8, "\\xff\\xfe{")


def test_an_entry_beyond_the_largest_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "ENTRY_BYTES_MAX", 4)
    assert kind(decode(b"12345")) is DamageKind.TOO_LARGE
    monkeypatch.undo()
    assert kind(split_log(b"v1\n" + b"\n" * 20_000, newest=1)) is DamageKind.TOO_LARGE


@pytest.mark.parametrize(
    "text",
    [
        '{"l',
        '{"logOffset"',
        '{"logOffset":',
        '{"a":1,',
        '{"a":1',
        "[1,2",
        "{",
        "[",
        '"abc',
        '{"a":"x\\',
        '{"a":"\\u12',
        '{"a":"\\u',
        " \t",
        '{"a": ',
    ],
)
def test_json_that_ends_too_early_is_truncated(text: str) -> None:
    assert kind(read_json(text, 3)) is DamageKind.TRUNCATED


@pytest.mark.parametrize(
    "text",
    [
        "not json",
        "{garbage",
        '{"a":tru',
        '{"a":"b" "c"',
        '{"a":"b\tc"}',
        '{"a":NaN}',
        '{"a":-Infinity}',
        "\ufeff{}",
        "{'a':1}",
        '{"a":01}',
        '{"a":"x\\q"}',
        '{"a":"\\u12"}',
        "/**/{}",
        "\0",
        "1" * 5000,
    ],
)
def test_json_that_jackson_refuses_is_no_json(text: str) -> None:
    assert kind(read_json(text, 3)) is DamageKind.NOT_JSON


def test_json_is_read_up_to_its_end_and_no_further_as_jackson_does() -> None:
    assert read_json('{"nextBatchWatermarkMs":5}xyz') == {"nextBatchWatermarkMs": 5}
    assert read_json("\n 5 6") == 5


def test_json_nested_without_end_is_too_deep() -> None:
    assert kind(read_json("[" * 100_000)) is DamageKind.TOO_DEEP


def test_an_object_is_asked_for_and_nothing_else_will_do() -> None:
    assert read_object('{"a":null}') == {"a": None}
    assert read_object("[1]", 2) == Damage(DamageKind.UNEXPECTED_JSON, "[1]", 2)
    assert read_object("{", 2) == Damage(DamageKind.TRUNCATED, "{", 2)


def test_json_is_written_as_spark_writes_it() -> None:
    assert to_json({"a": "ä/\n", "b": [1, None, True]}) == '{"a":"ä/\\n","b":[1,null,true]}'


def test_half_a_surrogate_pair_is_written_as_java_does() -> None:
    assert encode("a\ud800b") == b"a?b"


def test_a_long_is_extracted_as_json4s_does() -> None:
    fields: dict[str, lines.Json] = {"n": 5, "null": None, "text": "5", "flag": True, "float": 5.5, "huge": 2**63}
    assert [extract_long(fields, name) for name in ("n", "null", "absent")] == [5, 0, 0]
    assert [extract_long(fields, name) for name in ("text", "flag", "float", "huge")] == [None] * 4


def test_a_damage_can_be_shown_whatever_was_found() -> None:
    assert str(make_damage(DamageKind.NOT_JSON, "x" * 200, 2)) == "not json in line 2: " + "x" * 79 + "…"
    assert make_damage(DamageKind.NOT_JSON, "\ud800\n").found == "\\ud800\\n"
    assert make_damage(DamageKind.NOT_UTF8, b"\xff'").found == "\\xff'"
    assert str(Damage(DamageKind.EMPTY)) == "empty"
