from __future__ import annotations

import pytest

from lastgood.diagnosis.pace import find_median, measure_pace
from lastgood.query.advice_facts import RecordedBatch


def batches(triggers_ms: list[int], counts: list[int], behind: int | None = None) -> list[RecordedBatch]:
    return [
        RecordedBatch(batch_id=n, trigger_at_ms=at, duration_ms=500, offsets=count, behind=behind)
        for n, (at, count) in enumerate(zip(triggers_ms, counts, strict=True))
    ]


def test_too_few_batches_and_batches_without_work_tell_nothing() -> None:
    assert measure_pace([]) is None
    assert measure_pace(batches([0, 1, 2, 3], [9] * 4)) is None
    assert measure_pace(batches([0, 1, 2, 3, 4], [9, 9, 9, 9, 0])) is None


def test_the_rate_is_the_median_over_the_batches() -> None:
    found = measure_pace(batches([0, 1, 2, 3, 4], [10, 10, 10, 10, 10_000]))
    assert found is not None
    assert (found.rate_per_second, found.duration_ms, found.longest.batch_id) == (20.0, 500, 0)
    assert found.seconds_for(1000) == 50


@pytest.mark.parametrize(
    ("triggers_ms", "expected"),
    [
        ([60_000 * n + 3 for n in range(6)], 60_000),
        ([10_000 * n + 30 for n in range(6)], 10_000),
        ([60_000, 120_001, 180_002, 240_003, 290_777, 300_004], 60_000),
        ([7_777 * n for n in range(6)], None),
        ([0] * 3, None),
    ],
)
def test_a_trigger_fires_at_multiples_of_its_interval(triggers_ms: list[int], expected: int | None) -> None:
    found = measure_pace([*batches(triggers_ms, [9] * len(triggers_ms)), *batches([], [])])
    assert (found.interval_ms if found else None) == expected


def test_a_limit_shows_where_batches_stop_although_there_is_more() -> None:
    even, uneven = [100, 99, 100, 100, 100], [100, 50, 100, 100, 100]
    found = [
        measure_pace(batches([1, 2, 3, 4, 5], counts, behind)) for counts, behind in ((even, 7), (even, 0), (uneven, 7))
    ]
    assert [each.limit if each else None for each in found] == [100, None, None]


def test_the_limit_that_fits_leaves_a_margin_and_is_a_round_number() -> None:
    found = measure_pace(batches([30_000 * n for n in range(5)], [777] * 5))
    assert found is not None
    assert found.fitting_limit == 37_000  # 80 % of 1,554 offsets a second for 30 s
    slow = measure_pace(batches([1, 3, 5, 7, 9], [1] * 5))
    assert slow is not None
    assert slow.fitting_limit == 96


def test_the_median_of_nothing_is_nothing() -> None:
    assert (find_median([]), find_median([3]), find_median([3, 1]), find_median([5, 1, 3])) == (0, 3, 3, 3)
