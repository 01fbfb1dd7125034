"""Quoting with line ends within quotes: cut between records, and refused where that cannot be."""

from __future__ import annotations

import itertools
import os
import random

import pytest

from lastgood.errors import UsageError
from lastgood.load import quoting as subject
from lastgood.load.quoting import IrregularError, Quoting, find_quoting
from lastgood.load.ranges import Piece
from lastgood.storage.reading import parse_location

SEED = os.environ.get("LASTGOOD_SEED", "1")
DOUBLED = Quoting(b",", b'"', b'"', b"\n")
ESCAPED = Quoting("§".encode(), b"'", b"\\", b"\r\n")


def open_content(content: bytes):
    return lambda begin, limit: content[begin : begin + limit]


def make_record(records: Quoting, chance: random.Random) -> bytes:
    values = []
    for _ in range(chance.randint(1, 4)):
        if chance.random() < 0.5:
            values.append(chance.choice([b"", b"1", b"\\", b" a ", b"\xff"]))
            continue
        inner = [b"\n", b"\r", b"\r\n", b"a", records.separator, records.escape + records.quote, b"\\ ", b"\\\\ "]
        quoted = b"".join(chance.choices(inner, k=chance.randint(0, 6)))
        values.append(records.quote + quoted + records.quote)
    return records.separator.join(values)


@pytest.mark.parametrize("records", [DOUBLED, ESCAPED])
def test_each_record_is_read_once_however_it_is_cut(records: Quoting, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(f"records {SEED}")
    for _ in range(200):
        monkeypatch.setattr(subject, "BLOCK", chance.choice([1, 2, 5, 1000]))
        written = [make_record(records, chance) for _ in range(chance.randint(1, 12))]
        content = records.line_end.join(written) + chance.choice([b"", records.line_end])
        read, length = open_content(content), len(content)
        whole = Piece(0, 0, length, 0, length)
        pieces = list(records.list_pieces(whole, read, chance.randint(1, 40)))
        assert [each.begin for each in pieces] == [0, *(each.end for each in pieces[:-1])][: len(pieces)]
        found: list[bytes] = []
        for piece in pieces:
            for lines, quoted in records.read_piece(piece, read):
                found += [each for each in lines.split(records.line_end) if each]
                found += quoted
        assert sorted(found) == sorted(each for each in written if each), content


@pytest.mark.parametrize("records", [DOUBLED, ESCAPED])
def test_a_part_of_a_file_is_cut_within_it(records: Quoting) -> None:
    chance = random.Random(f"parts {SEED}")
    for _ in range(200):
        written = [make_record(records, chance) + records.line_end for _ in range(12)]
        ends = [0, *itertools.accumulate(map(len, written))]
        begin, end = sorted(chance.sample(ends, 2))
        part = Piece(0, begin, end, begin, end)
        for size in (1, chance.randint(1, 40), 1 << 20):
            pieces = list(records.list_pieces(part, open_content(b"".join(written)), size))
            assert [each.begin for each in pieces] == [begin, *(each.end for each in pieces[:-1])]
            assert pieces[-1].end == end
            assert {each.end for each in pieces} <= {*ends}


@pytest.mark.parametrize(
    ("records", "content"),
    [
        (DOUBLED, b'1,a"b\n2,"c\n'),
        (DOUBLED, b'1,"a"b\n'),
        (DOUBLED, b'1, "a"\n'),
        (DOUBLED, b'1,"a" \n'),
        (DOUBLED, b'1,"a\n2,b\n'),
        (DOUBLED, b"1,a\r\n"),
        (DOUBLED, b'"\x00"\n'),
        (DOUBLED, b'"1"\r\n'),
        (ESCAPED, "1§a\n".encode()),
        (ESCAPED, "1§a\r2\r\n".encode()),
        (ESCAPED, b"'a\\\\'\r\n"),
        (ESCAPED, b"'a''b'\r\n"),
        (ESCAPED, b"'a'\r"),
    ],
)
def test_what_is_not_regular_is_not_read(records: Quoting, content: bytes) -> None:
    piece = Piece(0, 0, len(content), 0, len(content))
    with pytest.raises(IrregularError, match="from byte 0 on"):
        list(records.read_piece(piece, open_content(content)))


@pytest.mark.parametrize(
    ("content", "end"),
    [(b'id,"a\nb"\n1,2\n', 9), (b'\n\nid,"a"\n1\n', 9), (b"id", 2), (b'"' + b"x" * 70_000 + b'"\n1', 70_003), (b"", 0)],
)
def test_header_is_the_first_record(content: bytes, end: int) -> None:
    assert DOUBLED.find_end_of_header(open_content(content), 0) == end


def test_header_is_regular() -> None:
    with pytest.raises(IrregularError):
        DOUBLED.find_end_of_header(open_content(b'i"d\n1\n'), 0)


@pytest.mark.parametrize(
    ("content", "options", "found"),
    [
        (b"1\r2\r", {}, "a carriage return alone"),
        (b"1" * 5000 + b"\r\n", {}, "far behind"),
        (b"1" * 70_000, {}, "none in its first 64 KiB"),
        (b"1\n", {"quote": ""}, "quote="),
        (b"1\n", {"escape": "é"}, "escape=é"),
        (b"1\n", {"sep": "\\", "escape": '"'}, "sep="),
        (b"1\n", {"sep": "||"}, "sep=||"),
        (b"1\n", {"comment": "#"}, "comment"),
        (b"1\n", {"charToEscapeQuoteEscaping": "#"}, "charToEscapeQuoteEscaping"),
    ],
)
def test_where_records_end_has_to_be_known(content: bytes, options: dict[str, str], found: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_quoting(options, open_content(content), parse_location("/in.csv"))
    assert found in (refused.value.found or "")


@pytest.mark.parametrize(
    ("content", "line_end"),
    [(b"1", b"\n"), (b"1\r\n2\n", b"\r\n"), (b'"a\nb"\r\n', b"\n"), (b"1" * 5000 + b"\n", b"\n")],
)
def test_line_end_is_the_first_of_the_file(content: bytes, line_end: bytes) -> None:
    assert find_quoting({}, open_content(content), parse_location("/in.csv")).line_end == line_end
