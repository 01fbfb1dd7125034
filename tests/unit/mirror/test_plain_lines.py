from __future__ import annotations

import json
import random
import tracemalloc
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.lines import TIME_MS_END
from lastgood.mirror import mirror
from lastgood.mirror.copies import (
    compress,
    cut_into_pieces,
    decode_copies,
    decode_pieces,
    decompress_whole_lines,
    encode_copies,
    pack_copies,
)
from lastgood.mirror.plain_lines import PlainCopy

CONF = ',"conf":{"spark.sql.shuffle.partitions":"2","spark.sql.streaming.multipleWatermarkPolicy":"min"}}\n'
PLAN = 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d' + CONF + '{"orders":{"0":%d}}'
PIECES = [CONF, ',"conf":{', "}}\n", '"', "\\", "\n", "n", '"}', "\0", "\x01", "\x7f", "é", "\u2028", "v1", "{", ","]


def plan(number: int, content: str | None = None, **changed: object) -> Copy:
    text = PLAN % (1000 + number, 5 * number) if content is None else content
    return replace(Copy("9818c18b", f"offsets/{number}", 7, 8, text.encode()), **changed)


def read(raw: bytes) -> list[Copy]:
    return list(decode_pieces(cut_into_pieces(raw)))


contents = st.lists(st.sampled_from(PIECES)).map(lambda pieces: "".join(pieces).encode()) | st.binary()


@given(
    st.lists(
        st.builds(
            Copy,
            st.none() | st.sampled_from(["9818c18b", "", "é", '"', "a b"]),
            st.sampled_from(["metadata", "offsets/7", "offsets/007", "commits/0", "sources/0/9.compact"]),
            st.integers(0, TIME_MS_END - 1),
            st.none() | st.integers(0, TIME_MS_END - 1),
            contents,
        )
    )
)
def test_the_same_copies_come_out_that_went_in(copies: list[Copy]) -> None:
    raw = encode_copies(copies)
    assert read(raw) == list(decode_copies(raw)) == copies
    assert list(pack_copies(decode_pieces(decompress_whole_lines(compress(raw))))) == copies


@given(st.integers(), st.integers(1, 6))
def test_a_line_of_which_bytes_were_changed_is_read_as_json_reads_it(seed: int, changes: int) -> None:
    """Whoever may write in a lake may write any line: none may be taken for what it is not, since it looks plain."""
    chance = random.Random(seed)
    raw = bytearray(encode_copies([plan(n) for n in range(4)]))
    for _ in range(changes):
        at = chance.randrange(len(raw))
        put = chance.choice(
            [b"\0", b"\\", b'"', b"\n", b"0", b"n", b"\xff", b"\x01", b"\r", b"}}\\n", b',\\"conf\\":{', b""]
        )
        raw[at : at + chance.randrange(3)] = put
    assert read(bytes(raw)) == list(decode_copies(bytes(raw)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"text":"v1', b'"text":"\\u0076\\u0031'),
        (b'"text":"v1', b'"text":"\\ud800'),
        (b'"text":"v1', b'"text":"\\\\"'),
        (b'"text":"v1', b'"text":"\0'),
        (b'"text":"v1', b'"text":"\t'),
        (b'"text":"v1', b'"text":"x","text":"v1'),
        (b"offsets/1", b"offsets/01"),
        (b"offsets/1", b"offsets/-1"),
        (b"offsets/1", b"offsets/../1"),
        (b"offsets/1", b"offsets/1234567890123456789"),
        (b"offsets/1", b"state/1"),
        (b'"seen_ms":7', b'"seen_ms":07'),
        (b'"seen_ms":7', b'"seen_ms":-7'),
        (b'"seen_ms":7', b'"seen_ms":7.0'),
        (b'"seen_ms":7', b'"seen_ms":999999999999999'),
        (b'"modified_ms":8', b'"modified_ms":999999999999999'),
        (b'"modified_ms":8,', b""),
        (b'"query":"9818c18b"', b'"query":null'),
        (b'"query":"9818c18b"', b'"query":7'),
        (b'"query":"9818c18b"', b'"query":"\\u0041"'),
        (b'{"path"', b' {"path"'),
        (b'"}\n', b'"}\r\n'),
        (b'"}\n', b'"} x\n'),
        (b'"}\n', b'","base64":""}\n'),
    ],
)
def test_a_line_that_only_looks_like_a_plain_one_is_read_as_json_reads_it(before: bytes, after: bytes) -> None:
    odd = encode_copies([plan(1)]).replace(before, after)
    raw = encode_copies([plan(0)]) + odd + encode_copies([plan(2)])
    assert read(raw) == list(decode_copies(raw))
    assert [copy.path for copy in read(raw)][:: len(read(raw)) - 1] == ["offsets/0", "offsets/2"]


def test_a_text_that_is_shared_twice_in_a_line_or_by_none_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = [plan(0), plan(1, "v1\n{" + CONF + CONF), plan(2, CONF), plan(3, CONF[:-1]), plan(4, "")]
    other = [replace(copy, content=copy.content.replace(b'"min"', b'"max"')) for copy in odd]
    assert read(encode_copies([*odd, *other, *odd])) == [*odd, *other, *odd]
    monkeypatch.setattr("lastgood.mirror.copies._PIECE_BYTES", 300)  # what is shared changes from piece to piece
    assert read(encode_copies([*odd, *other, *odd])) == [*odd, *other, *odd]


def test_a_plain_copy_is_equal_to_any_other_of_the_same_file() -> None:
    (found,) = read(encode_copies([plan(7)]))
    assert isinstance(found, PlainCopy)
    assert (found, hash(found), found.size) == (plan(7), hash(replace(found)), len(plan(7).content))
    assert found.is_same_as(read(encode_copies([plan(7, seen_ms=9)]))[0])
    assert not found.is_same_as(read(encode_copies([plan(7, modified_ms=9)]))[0])
    assert not found.is_same_as(plan(7))  # it does not tell by its words, and is asked by its content
    assert replace(found, content=b"other").content == b"other"
    assert [each.is_empty for each in read(encode_copies([plan(7, ""), plan(7)]))] == [True, False]


def test_what_plans_share_is_held_once() -> None:
    raw = encode_copies([plan(n) for n in range(5000)])
    wide = raw.replace(b'\\"min\\"', b'\\"' + b"m" * 1500 + b'\\"')
    tracemalloc.start()
    try:
        kept = tuple(pack_copies(decode_pieces(cut_into_pieces(wide))))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in kept) > 8_000_000
    assert held < 3_000_000
    assert json.loads(kept[7].content.split(b"\n")[1])["batchTimestampMs"] == 1007


def test_short_lines_are_not_even_parsed_beside_a_line_that_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr("lastgood.mirror.copies._parse_copy", parsed.append)
    assert read(b"\0" * 50 + b"\n" * 1000 + b'{"a":1}\n' * 1000) == []
    assert len(parsed) == 1


def test_what_is_shared_is_short() -> None:
    """Else who writes in a lake could have each of many copies hold a megabyte, which packed takes nothing."""
    raws = [encode_copies([plan(n)]).replace(b'\\"min\\"', b'\\"%d' % n + b"m" * 100_000 + b'\\"') for n in range(50)]
    raw = b"".join(raws)
    tracemalloc.start()
    try:
        kept = tuple(pack_copies(decode_pieces(decompress_whole_lines(compress(raw)))))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in kept) > 5_000_000
    assert held < 1_000_000
    assert list(kept) == list(decode_copies(raw))


def test_of_a_long_file_of_many_versions_the_first_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Copy] = []
    compute = mirror._compute_digest
    monkeypatch.setattr(mirror, "_compute_digest", lambda copy: looked.append(copy) or compute(copy))
    seen = mirror._Seen()
    versions = read(encode_copies([plan(0, modified_ms=at) for at in range(50)]))
    assert [seen.add(each) for each in [*versions, *versions]] == [True] * 50 + [False] * 50
    assert looked.count(versions[0]) <= 2
