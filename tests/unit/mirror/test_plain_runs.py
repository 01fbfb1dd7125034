from __future__ import annotations

from collections.abc import Mapping

import pytest

from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.mirror.copies import cut_into_pieces, decode_pieces, encode_copies
from lastgood.mirror.plain_runs import Batch, find_plain_runs

CONF = '"conf":{"spark.sql.shuffle.partitions":"2"}}'
COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'


def kafka(end: int) -> str:
    return f'{{"orders":{{"0":{end},"1":0}}}}'


def plan(number: int, end: str | None = None, *, at_ms: int | None = None, conf: str = CONF) -> str:
    time = 1000 + number if at_ms is None else at_ms
    return f'v1\n{{"batchWatermarkMs":0,"batchTimestampMs":{time},{conf}\n{end or kafka(5 * number)}'


def hold(plans: Mapping[int, str | None], commits: Mapping[int, str | None] | None = None) -> dict[int, Batch]:
    """As the mirror holds them; a commit of each plan, but where something else is said."""
    texts = dict.fromkeys(plans, COMMIT) | dict(commits or {})
    copies = [Copy("q", f"offsets/{each}", 7, 8, text.encode()) for each, text in plans.items() if text is not None]
    copies += [Copy("q", f"commits/{each}", 7, 8, text.encode()) for each, text in texts.items() if text is not None]
    found = {copy.path: copy for copy in decode_pieces(cut_into_pieces(encode_copies(copies)))}
    return {each: (found.get(f"offsets/{each}"), found.get(f"commits/{each}")) for each in plans}


def find(batches: Mapping[int, Batch]) -> list[range]:
    return [run for run in find_plain_runs(batches, sorted(batches)) if len(run) > 1]


def test_batches_that_go_on_from_each_other_are_one_run() -> None:
    assert find(hold({n: plan(n) for n in range(9)})) == [range(9)]
    assert find(hold({n: plan(n, f'{{"logOffset":{n}}}') for n in range(9)})) == [range(9)]
    two = {n: plan(n, f'{kafka(n)}\n{{"logOffset":{n}}}') for n in range(9)}
    assert find(hold(two)) == [range(9)]
    assert find(hold({n: plan(n) for n in (1, 2, 4, 5, 6)})) == [range(1, 3), range(4, 7)]
    assert find({}) == find(hold({7: plan(7)})) == []


def test_other_confs_or_an_unknown_commit_begin_another_run() -> None:
    other = CONF.replace('"2"', '"4"')
    plans = {n: plan(n, conf=CONF if n < 4 else other) for n in range(9)}
    assert find(hold(plans)) in ([range(4), range(4, 9)], [range(4)])  # what is not shared is not plain
    assert find(hold({n: plan(n) for n in range(9)}, {4: 'v1\n{"nextBatchWatermarkMs":9}'})) == [range(9)]


@pytest.mark.parametrize(
    "odd",
    [
        plan(4, kafka(14)),
        plan(4, kafka(-2)),
        plan(4, '{"orders":{"0":20}}'),
        plan(4, '{"orders":{"0":20,"2":0}}'),
        plan(4, '{"others":{"0":20,"1":0}}'),
        plan(4, '{"orders":{"0":20,"1":0}}\n{"orders":{"0":20,"1":0}}'),
        plan(4, '{"orders":{"0": 20,"1":0}}'),
        plan(4, '{"orders":{"0":20,"1":007}}'),
        plan(4, '{"orders":{"0":20,"1":9999999999999999999}}'),
        plan(4, "{"),
        plan(4, "20"),
        plan(4, at_ms=1003),
        plan(4, conf='"conf":{"a":{"b":"c"}}}'),
        plan(4).replace("v1", "v9"),
        plan(4).replace('"batchWatermarkMs":0', '"batchWatermarkMs":"x"'),
        plan(4)[:-1],
        "v1\n",
        "",
        None,
    ],
)
def test_a_batch_that_is_out_of_the_ordinary_ends_a_run(odd: str | None) -> None:
    runs = find(hold({n: odd if n == 4 else plan(n) for n in range(9)}))
    assert runs in ([range(4), range(5, 9)], [range(4), range(4, 9)])
    assert all(4 not in run[1:-1] for run in runs)


@pytest.mark.parametrize("odd", ["", "v9", "v1\n{", 'v1\n{"nextBatchWatermarkMs":"x"}', "v1\n ", None])
def test_a_batch_that_is_not_committed_as_it_should_be_ends_a_run(odd: str | None) -> None:
    assert find(hold({n: plan(n) for n in range(9)}, {4: odd})) == [range(4), range(5, 9)]


@pytest.mark.parametrize(
    ("ends", "conf"),
    [
        ('{{"x:{},y":{{"0":7}}}}', CONF),
        ('{{"x:{},y":{{"0": 7}}}}', CONF),
        ('{{"orders":{{"0":7,"1:{},":7}}}}', CONF),
        ('{{"orders":{{"0":\'{}\'}}}}', CONF),
        ('{{"sourceVersion":1,"reservoirVersion":{}}}', CONF),
        ('{{"orders":{{"0":{}}}}}', '"conf":{"a":"b"},"batchTimestampMs":5}}'),
        ('{{"orders":{{"0":{}}}}}', '"conf":{"a":"b"},"batchTimestampMs":5,"c":{"d":"e"}}'),
    ],
)
def test_texts_whose_numbers_mean_something_else_are_no_runs(ends: str, conf: str) -> None:
    """A name with a number in it, a time that is written twice: to JSON each is another plan than it seems."""
    assert find(hold({n: plan(n, ends.format(10 + n), conf=conf) for n in range(9)})) == []


def test_copies_that_do_not_stand_as_we_write_them_are_looked_at() -> None:
    batches = hold({n: plan(n) for n in range(9)})
    kept = batches[4][0]
    assert kept is not None
    own = Copy(kept.query_id, kept.path, kept.seen_ms, kept.modified_ms, kept.content)
    assert find({**batches, 4: (own, batches[4][1])}) == [range(4), range(5, 9)]


def test_a_plan_that_is_too_long_to_be_read_is_in_no_run() -> None:
    """A number of one more digit is one more byte: to who parses them the longest plan is one, and the next is none."""
    size = ENTRY_BYTES_MAX - len(plan(1, conf=CONF.replace('"2"', '""')))
    wide = CONF.replace('"2"', f'"{"2" * size}"')
    assert isinstance(parse_offset_entry(plan(1, conf=wide).encode()), OffsetEntry)
    assert isinstance(parse_offset_entry(plan(10, kafka(50), conf=wide).encode()), Damage)
    assert find(hold({n: plan(n, conf=wide) for n in range(9, 12)})) == []


def test_a_source_that_stands_behind_a_blank_is_no_part_of_the_confs() -> None:
    hidden = CONF + ' \n{"orders":{"0":-1}}'
    batches = hold({n: plan(n, f'{{"others":{{"0":{n}}}}}', conf=hidden) for n in range(9)})
    assert find(batches) == []
