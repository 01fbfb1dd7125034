"""Files are looked at before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.load.input_files import COMPARED_BYTES, is_continued, look_at_file
from lastgood.load.specification import InputFile, LoadFormat
from lastgood.storage.reading import LocalStorage, parse_location

STORAGE = LocalStorage()


def look(file: Path, form: LoadFormat = LoadFormat.CSV, **options: str) -> InputFile:
    return look_at_file(STORAGE, parse_location(str(file)), form, options)


@pytest.mark.parametrize(
    ("content", "options", "begins"),
    [
        (b"a,b\n1,2\n", {}, 0),
        (b"a,b\n1,2\n", {"header": "true"}, 4),
        (b"a,b\r\n1,2\n", {"header": "TRUE"}, 5),
        (b"\xef\xbb\xbfa,b\n1,2\n", {}, 3),
        (b"\xef\xbb\xbf\n \x01\na,b\n1,2\n", {"header": "true"}, 11),
        (b"#x\n\n#y\na,b\n1,2\n", {"header": "true", "comment": "#"}, 11),
        (b"#x\n #y\na,b\n1,2\n", {"header": "true", "comment": "#"}, 7),
        (b"a,b", {"header": "true"}, 3),
        (b"", {"header": "true"}, 0),
    ],
)
def test_first_record_comes_behind_mark_and_header(
    tmp_path: Path, content: bytes, options: dict[str, str], begins: int
) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(content)
    found = look(file, **options)
    assert (found.begins, found.size, found.is_ended) == (begins, len(content), content.endswith(b"\n"))


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("in.csv", b"\x1f\x8b\x08\x00", "gzip"),
        ("in.csv.gz", b"a\n", "a name that ends in .gz"),
        ("in.csv", b"PAR1", "Parquet"),
        ("in.csv", b"\xff\xfea\x00", "UTF-16"),
        ("in.csv", b"\xff\xfe\x00\x00a\x00\x00\x00", "UTF-32"),
        ("in.csv", b"ORC\x0a\x08ORC\x17", "ORC"),
    ],
)
def test_what_is_no_plain_text_is_refused(tmp_path: Path, name: str, content: bytes, found: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        look(file)
    assert found in (refused.value.found or "")


@pytest.mark.parametrize(
    ("text", "header", "begins"),
    [("\ufeffa\r\n\u0a00b\r\n", "true", 8), ("\ufeffa\n", "false", 2), ("a\n\u4e00\n", "true", 4)],
)
def test_first_record_of_two_bytes_a_character_comes_behind_them_too(
    tmp_path: Path, text: str, header: str, begins: int
) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(text.encode("utf-16-le"))
    found = look(file, encoding="UTF-16LE", header=header)
    assert (found.begins, found.is_ended) == (begins, True)


def test_a_carriage_return_at_the_end_may_be_half_a_line_end(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(b"a\r")
    assert not look(file).is_ended


def test_four_bytes_are_not_two(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(b"\xff\xfe\x00\x00a\x00\x00\x00")
    with pytest.raises(UsageError, match="not in this encoding"):
        look(file, encoding="UTF-16")


def test_half_a_character_at_the_end_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_bytes(b"a\0\n")
    with pytest.raises(UsageError, match="midst of a character"):
        look(file, encoding="UTF-16LE")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing.csv"):
        with pytest.raises(UsageError, match="no such file"):
            look(place)


@pytest.mark.parametrize("size", [10, COMPARED_BYTES, 3 * COMPARED_BYTES])
def test_a_file_goes_on_where_its_beginning_and_its_former_end_are_the_same(tmp_path: Path, size: int) -> None:
    file = tmp_path / "in.csv"
    content = bytes(each % 251 for each in range(size))
    file.write_bytes(content)
    before = look(file)
    for then, expected in (
        (content + b"more", True),
        (b"x" + content[1:] + b"more", False),
        (content[:-1] + b"\xffmore", False),
        (content, False),
        (content[:-1], False),
    ):
        file.write_bytes(then)
        assert is_continued(STORAGE, before, look(file), parse_location(str(file))) is expected
