"""However a file is cut into chunks and pieces, its lines come back whole, each once, in their order."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.load import ranges
from lastgood.load.encoding import find_encoding
from lastgood.load.input_files import look_at_file
from lastgood.load.position import LoadPosition, read_position
from lastgood.load.ranges import (
    LongLineError,
    Piece,
    begin_of,
    find_end_of_chunk,
    find_line_end,
    list_pieces,
    read_lines,
)
from lastgood.load.specification import InputFile, LoadFormat
from lastgood.load.text import UTF_8, TextEncoding
from lastgood.load.unpacking import Read
from lastgood.storage.reading import LocalStorage, parse_location, read_part
from lastgood.values import ShapeError

STORAGE = LocalStorage()
CONTENT = st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r", b"\r\n", b"x" * 40]), max_size=60).map(b"".join)
LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


TEXT = st.lists(
    st.sampled_from(["a", "\u0a00", "\u0d0a\u0a0d", "\U0001f600", "\n", "\r", "\r\n", "\u4e00"]), max_size=60
)
LINE_OF_TEXT = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")


def look(folder: Path, contents: list[bytes], options: dict[str, str] | None = None) -> list[InputFile]:
    found = []
    for number, content in enumerate(contents):
        file = folder / f"{number}.csv"
        file.write_bytes(content)
        found.append(look_at_file(STORAGE, parse_location(str(file)), LoadFormat.CSV, options or {}))
    return found


def open_bytes(file: InputFile) -> Read:
    location = parse_location(file.location)
    return lambda begin, limit: read_part(STORAGE, location, begin=begin, limit=limit) or b""


def make_finder(encoding: TextEncoding = UTF_8) -> Callable[[InputFile, int, int], int]:
    """What finds the end of a line, in small steps."""

    def find_end(file: InputFile, begin: int, position: int) -> int:
        del begin
        return find_line_end(open_bytes(file), position, file.size, encoding, step=3 * encoding.unit)

    return find_end


def read_all(files: list[InputFile], chunk: int | None, tasks: int, encoding: TextEncoding = UTF_8) -> list[bytes]:
    """The lines, many at once, as the batches of a load read them."""
    at, blocks = begin_of(files), []
    while True:
        end = find_end_of_chunk(files, at, chunk, make_finder(encoding))
        assert at <= end
        for piece in list_pieces(files, at, end, tasks):
            blocks += read_lines(piece, open_bytes(files[piece.file]), encoding)
        if end == at:
            return blocks
        at = end


@given(
    contents=st.lists(CONTENT, min_size=1, max_size=3),
    chunk=st.one_of(st.none(), st.integers(1, 50)),
    tasks=st.integers(1, 4),
    block=st.integers(1, 20),
)
def test_every_line_comes_once_and_whole(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], chunk: int | None, tasks: int, block: int
) -> None:
    files = look(tmp_path_factory.mktemp("load"), contents)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "BLOCK", block)
        patch.setattr(ranges, "_SMALLEST", 1)
        lines = [line for block in read_all(files, chunk, tasks) for line in LINE.findall(block)]
    assert lines == [line for content in contents for line in LINE.findall(content)]


@given(
    texts=st.lists(TEXT.map("".join), min_size=1, max_size=3),
    name=st.sampled_from(["UTF-16LE", "UTF-16BE"]),
    chunk=st.one_of(st.none(), st.integers(1, 50)),
    tasks=st.integers(1, 4),
    block=st.integers(1, 20),
)
def test_so_does_every_line_of_two_bytes_a_character(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], name: str, chunk: int | None, tasks: int, block: int
) -> None:
    options = {"encoding": name}
    files = look(tmp_path_factory.mktemp("load"), [each.encode(name) for each in texts], options)
    encoding = find_encoding(options, lambda *_: b"", parse_location(files[0].location))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "BLOCK", block * encoding.unit)
        patch.setattr(ranges, "_SMALLEST", 1)
        blocks = read_all(files, chunk, tasks, encoding)
    lines = [line for each in blocks for line in LINE_OF_TEXT.findall(encoding.to_utf8(each).decode())]
    assert lines == [line for text in texts for line in LINE_OF_TEXT.findall(text)]


@pytest.mark.parametrize("content", [b"a" * 40, b"a\n" + b"b" * 25 + b"\nc\n"])
def test_a_line_that_would_be_held_whole_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(ranges, "LINE_MOST", 20)
    monkeypatch.setattr(ranges, "BLOCK", 8)
    with pytest.raises(LongLineError, match="more than 20 bytes"):
        read_all(look(tmp_path, [content]), None, 1)


def test_a_chunk_ends_with_the_line_that_its_last_byte_is_in(tmp_path: Path) -> None:
    (file,) = look(tmp_path, [b"aaa\nbbb\r\nccc"])
    ends = [
        find_end_of_chunk([file], LoadPosition(0, 0), most, make_finder()).position for most in (1, 4, 5, 8, 9, 10, 99)
    ]
    assert ends == [4, 4, 9, 9, 9, 12, 12]


@pytest.mark.parametrize(
    "cut",
    [lambda piece, size: [replace(piece, end=piece.end + size)], lambda piece, size: [replace(piece, begin=size)]],
)
def test_what_is_cut_has_to_be_all_of_it_and_no_more(tmp_path: Path, cut: Callable[[Piece, int], list[Piece]]) -> None:
    files = look(tmp_path, [b"1\n2\n"])
    with pytest.raises(RuntimeError, match="cut wrongly"):
        list(list_pieces(files, LoadPosition(0, 0), LoadPosition(0, 4), 2, cut))


def test_a_chunk_goes_on_in_the_next_file(tmp_path: Path) -> None:
    files = look(tmp_path, [b"a\n", b"", b"b\nc\n"])
    ends = [find_end_of_chunk(files, LoadPosition(0, 0), most, make_finder()) for most in (1, 2, 3, 100, None)]
    assert ends == [LoadPosition(1, 0), LoadPosition(1, 0), LoadPosition(2, 2), LoadPosition(2, 4), LoadPosition(2, 4)]


def test_a_position_is_what_a_log_holds() -> None:
    position = LoadPosition(1, 7)
    assert read_position('{"file": 1, "position": 7}') == position
    assert LoadPosition.from_json(position.to_json()) == position
    with pytest.raises(ShapeError):
        read_position('{"logOffset": 3}')
