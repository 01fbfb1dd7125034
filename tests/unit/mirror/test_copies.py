from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.checkpoint.copies import Copy, select_standing
from lastgood.checkpoint.lines import TIME_MS_END
from lastgood.mirror.copies import (
    compress,
    decode_copies,
    decode_lines,
    decompress,
    decompress_lines,
    encode_copies,
    pack_copies,
)

METADATA = b'v1\n{"batchWatermarkMs":0,"batchTimestampMs":%d,"conf":{}}\n%s'


def copy(path: str = "offsets/7", content: bytes = b"x", *, seen_ms: int = 1, modified_ms: int | None = 1) -> Copy:
    return Copy("9818c18b", path, seen_ms, modified_ms, content)


def plan(batch_id: int, at_ms: int, *, seen_ms: int, source: bytes = b'{"t":{"0":1}}') -> Copy:
    return copy(f"offsets/{batch_id}", METADATA % (at_ms, source), seen_ms=seen_ms)


def commit(batch_id: int, *, seen_ms: int) -> Copy:
    return copy(f"commits/{batch_id}", b'v1\n{"nextBatchWatermarkMs":0}', seen_ms=seen_ms)


@given(
    st.lists(
        st.builds(
            Copy,
            st.none() | st.text(),
            st.sampled_from(["metadata", "offsets/7", "commits/0", "sources/0/9.compact", "sources/my source/0"]),
            st.integers(0, TIME_MS_END - 1),
            st.none() | st.integers(0, TIME_MS_END - 1),
            st.binary() | st.text().map(lambda text: text.encode(errors="replace")),
        )
    )
)
def test_the_same_bytes_come_out_that_went_in(copies: list[Copy]) -> None:
    assert list(decode_copies(encode_copies(copies))) == copies
    assert list(decode_copies(decompress(compress(encode_copies(copies))))) == copies


@pytest.mark.parametrize("content", [b"", b"\0v1\n{}", b"\xff\xfe", b"v1\r\n\xe2\x80\xa8\x85", "v1\n‍é".encode()])
def test_bytes_that_are_no_ordinary_text_are_kept(content: bytes) -> None:
    raw = encode_copies([copy(content=content), copy("commits/7")])
    assert raw.count(b"\n") == 2
    assert [each.content for each in decode_copies(raw)] == [content, b"x"]


def test_text_can_be_read_by_people_in_the_mirror() -> None:
    line = json.loads(encode_copies([copy(content=b"v1\n{}")]))
    assert line == {"path": "offsets/7", "query": "9818c18b", "seen_ms": 1, "modified_ms": 1, "text": "v1\n{}"}


def test_a_torn_last_line_is_left_out() -> None:
    raw = encode_copies([copy(content=b"one"), copy(content=b"two" * 100)])
    for cut in range(raw.index(b"\n") + 1, len(raw) - 1):
        assert [each.content for each in decode_copies(raw[:cut])] == [b"one"]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no JSON",
        b"[]",
        b"5",
        b"[" * 100_000,
        b'{"path":"offsets/7"}',
        b'{"path":"offsets/7","query":null,"seen_ms":1,"base64":"?"}',
        b'{"path":"offsets/7","query":null,"seen_ms":"1","text":""}',
        b'{"path":"offsets/7","query":5,"seen_ms":1,"text":""}',
        b'{"path":7,"query":null,"seen_ms":1,"text":""}',
        b'{"path":"offsets/7","query":null,"seen_ms":1,"modified_ms":"x","text":""}',
        b'{"path":"offsets/7","query":null,"seen_ms":1,"text":"\\ud800"}',
        b'{"path":"../../etc/passwd","query":null,"seen_ms":1,"text":""}',
        b'{"path":"sources/../0","query":null,"seen_ms":1,"text":""}',
        b'{"path":"/etc/passwd","query":null,"seen_ms":1,"text":""}',
        b'{"path":"state/0/0/1.delta","query":null,"seen_ms":1,"text":""}',
    ],
)
def test_a_line_that_is_none_of_ours_is_left_out(line: bytes) -> None:
    raw = encode_copies([copy()])
    assert list(decode_copies(raw + line + b"\n" + raw)) == [copy(), copy()]


def test_members_can_be_put_behind_each_other() -> None:
    assert decompress(compress(b"one\n") + compress(b"two\n")) == b"one\ntwo\n"
    assert compress(b"same") == compress(b"same")
    assert gzip.decompress(compress(b"any reader")) == b"any reader"
    large = bytes(range(256)) * 4096
    assert decompress(compress(large) * 3) == large * 3


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_what_stands_behind_a_torn_member_is_not_lost(cut: int) -> None:
    before, torn, after = (compress(encode_copies([copy(content=word)])) for word in (b"one", b"two" * 9, b"three"))
    raw = before + torn[:-cut] + after
    found = [each.content for each in decode_copies(decompress(raw))]
    assert found[0] == b"one"
    assert found[-1] == b"three"
    assert found in ([b"one", b"three"], [b"one", b"two" * 9, b"three"])
    assert next(decode_copies(decompress(before + torn[:-cut]))).content == b"one"


@given(st.binary(max_size=300))
def test_whatever_lies_in_the_mirror_can_be_read(raw: bytes) -> None:
    whole = compress(encode_copies([copy()]))
    assert list(decode_copies(decompress(whole + raw)))[:1] == [copy()]
    list(decode_copies(decompress(raw)))
    list(decode_copies(raw))


def test_of_each_file_the_version_seen_last_counts() -> None:
    """Whatever the order in which two writers' files are read."""
    first, second = plan(7, 1000, seen_ms=10), plan(7, 1000, seen_ms=20, source=b'{"t":{"0":2}}')
    other = commit(6, seen_ms=5)
    assert select_standing([second, other, first]) == {"offsets/7": second, "commits/6": other}


def test_a_damaged_version_does_not_count_where_there_is_a_whole_one() -> None:
    whole = plan(7, 1000, seen_ms=10)
    assert select_standing([whole, replace(whole, seen_ms=20, content=b"")]) == {"offsets/7": whole}
    for path in ("commits/7", "sources/0/7", "metadata"):
        good = replace(commit(7, seen_ms=10), path=path)
        assert select_standing([good, replace(good, seen_ms=20, content=b"")]) == {path: good}
    torn = replace(whole, content=b"v1")
    assert select_standing([torn]) == {"offsets/7": torn}
    assert select_standing([torn, replace(whole, seen_ms=20)]) == {"offsets/7": replace(whole, seen_ms=20)}


def test_a_batch_that_was_planned_anew_takes_back_what_came_after_it() -> None:
    """Rolled back to batch 5, then 6 was planned anew: what 6 and 7 once were is no part of the query any more."""
    old = [each for n in (5, 6, 7) for each in (plan(n, 1000 * n, seen_ms=n), commit(n, seen_ms=n))]
    again = plan(6, 9000, seen_ms=9)
    found = select_standing([*old, again])
    assert found == {"offsets/5": old[0], "commits/5": old[1], "offsets/6": again}
    committed = commit(6, seen_ms=9)
    assert select_standing([*old, again, committed])["commits/6"] == committed


def test_an_edited_plan_takes_nothing_back() -> None:
    """It keeps its processing time, by which Spark's own new plan is told from an edit."""
    old = [each for n in (5, 6, 7) for each in (plan(n, 1000 * n, seen_ms=n), commit(n, seen_ms=n))]
    edited = plan(6, 6000, seen_ms=9, source=b'{"t":{"0":9}}')
    assert len(select_standing([*old, edited])) == 6
    assert select_standing([*old, edited])["offsets/6"] == edited


def test_packed_copies_are_the_same_copies() -> None:
    plain = [copy(path=f"offsets/{n}", content=bytes([n % 256]) * (n * 37 % 3000), seen_ms=n) for n in range(900)]
    small = list(pack_copies(plain))
    assert small == plain == small
    assert [each.content for each in reversed(small)] == [each.content for each in reversed(plain)]
    assert small[7] != plain[8]
    assert hash(small[7]) == hash(plain[7])
    assert {each.size for each in small} == {each.size for each in plain}
    assert encode_copies(small) == encode_copies(plain)
    changed = replace(small[7], content=b"other")
    assert (changed.content, changed.path) == (b"other", "offsets/7")
    assert list(pack_copies([])) == []
    assert [each.content for each in pack_copies([copy(content=b"")])] == [b""]


def long_log(count: int) -> Iterator[Copy]:
    """So many plans, one after the other, as a mirror gives them."""
    conf = ",".join(f'"spark.sql.some.conf.{n}":"value"' for n in range(30))
    for n in range(count):
        text = f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{n},"conf":{{{conf}}}}}\n{{"orders":{{"0":{5 * n}}}}}'
        yield copy(f"offsets/{n}", text.encode(), seen_ms=n)


def test_packed_copies_of_a_long_log_take_little_memory() -> None:
    tracemalloc.start()
    try:
        kept = tuple(pack_copies(long_log(5000)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(each.size for each in kept) > 5_000_000
    assert held < 2_500_000


def test_lines_are_the_same_whether_they_come_one_at_a_time_or_as_a_whole() -> None:
    raw = b"".join(compress(encode_copies([copy(content=bytes(n))])) for n in range(0, 300, 7))
    torn = raw + compress(b"x" * 100)[:-9] + raw
    for each in (raw, torn, b"", b"no gzip"):
        assert list(decode_lines(decompress_lines(each))) == list(decode_copies(decompress(each)))
