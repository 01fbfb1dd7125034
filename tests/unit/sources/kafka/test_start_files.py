"""The file that tells an application where to start, in each of its forms."""

from __future__ import annotations

import json

import pytest

from lastgood.errors import UsageError
from lastgood.sources.kafka.java_properties import parse_properties
from lastgood.sources.kafka.start_files import StartFile, StartForm, parse_start
from lastgood.sources.kafka.starting_offsets import StartingOffsets, StartingOffsetsError

OFFSETS = {"orders": {1: 9, 0: 15}, "bills": {0: -2}}
VALUE = '{"bills":{"0":-2},"orders":{"0":15,"1":9}}'


def properties(key: str = "orders.start", form: StartForm = StartForm.PROPERTIES) -> StartFile:
    return StartFile("/etc/orders.conf", form, key)


@pytest.mark.parametrize("before", [None, b"", b"earliest\n", b'{"orders":{"0":3}}'])
def test_json_is_all_of_its_file(before: bytes | None) -> None:
    assert StartFile("start.json").content(before, OFFSETS) == f"{VALUE}\n".encode()


@pytest.mark.parametrize("before", [b"print('mine')", b"[1]", b'{"orders": 3}', b"\xff"])
def test_file_that_holds_something_else_is_not_overwritten(before: bytes) -> None:
    with pytest.raises(StartingOffsetsError):
        StartFile("start.json").content(before, OFFSETS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, b"orders.start=VALUE\n"),
        (b"a=1", b"a=1\norders.start=VALUE\n"),
        (b"orders.start = old\nb=2\n", b"b=2\norders.start=VALUE\n"),
        (b"orders.start: \\\n  old\r\nb=2\r\n", b"b=2\r\norders.start=VALUE\n"),
        (b"#orders.start=old\n", b"#orders.start=old\norders.start=VALUE\n"),
        (b"# a comment \\\norders.start=old\n", b"# a comment \\\norders.start=VALUE\n"),
        (b"orders.start=1\norders.start=2\n", b"orders.start=VALUE\n"),
        (b"\n  \n", b"\n  \norders.start=VALUE\n"),
    ],
)
def test_one_line_of_a_properties_file_changes_and_no_other(before: bytes | None, after: bytes) -> None:
    found = properties().content(before, OFFSETS)
    assert found == after.replace(b"VALUE", VALUE.encode())
    assert json.loads(parse_properties(found)["orders.start"]) == json.loads(VALUE)


@pytest.mark.parametrize("key", ["orders:start", "orders start", "a=b", "#a", "back\\slash", "größe"])
def test_any_key_is_read_back_as_it_was_given(key: str) -> None:
    found = properties(key).content(b"x=1\n", OFFSETS)
    assert parse_properties(found) == {"x": "1", key: VALUE}
    assert properties(key).content(found, OFFSETS) == found


def test_spark_defaults_have_a_space() -> None:
    found = properties("spark.orders.start", StartForm.SPARK_DEFAULTS).content(b"spark.master local\n", OFFSETS)
    assert found == f"spark.master local\nspark.orders.start {VALUE}\n".encode()


@pytest.mark.parametrize(
    ("form", "key"),
    [
        (StartForm.JSON, "key"),
        (StartForm.PROPERTIES, None),
        (StartForm.PROPERTIES, " "),
        (StartForm.SPARK_DEFAULTS, None),
        (StartForm.SPARK_DEFAULTS, "orders.start"),
    ],
)
def test_key_that_does_not_fit_the_form_is_refused(form: StartForm, key: str | None) -> None:
    with pytest.raises(UsageError):
        StartFile("file", form, key)


FORMS = [StartFile("start.json"), properties(), properties("spark.start", StartForm.SPARK_DEFAULTS)]


@pytest.mark.parametrize("file", FORMS, ids=[each.form.value for each in FORMS])
def test_what_is_written_is_read_back_in_every_form(file: StartFile) -> None:
    content = file.content(None, OFFSETS)
    found = parse_start(content, "orders", "f", key=file.key)
    assert found == StartingOffsets("orders", None, OFFSETS)
    assert file.says(content, OFFSETS)


@pytest.mark.parametrize("content", [None, b"", b"earliest", b"{", b"\xff", b'{"orders":{"0":15}}'])
def test_file_that_says_something_else_is_told(content: bytes | None) -> None:
    assert not StartFile("start.json").says(content, OFFSETS)
    assert not properties().says(content, OFFSETS)


@pytest.mark.parametrize(
    ("content", "found"), [(b"", None), (b" \n", None), (b"latest\n", "latest"), (b" earliest", "earliest")]
)
def test_words_of_spark_may_stand_there(content: bytes, found: str | None) -> None:
    assert parse_start(content, "orders", "f") == found


@pytest.mark.parametrize("content", [b"print()", b"[1]", b"{", b'{"orders": 3}', b'{"orders":{"0":-3}}', b"\xff"])
def test_what_says_no_offsets_is_an_error_that_names_the_file(content: bytes) -> None:
    with pytest.raises(StartingOffsetsError) as raised:
        parse_start(content, "orders", "/etc/start.json")
    assert raised.value.subject == "/etc/start.json"
