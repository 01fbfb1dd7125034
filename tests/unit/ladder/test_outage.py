from __future__ import annotations

import pytest

from lastgood.ladder.outage import Signs, format_duration, measure_outage
from lastgood.settings.policy import Policy

HOUR_MS = 3_600_000
NOW_MS = 1_700_000_000_000
POLICY = Policy(after_outage_seconds=3600)


def test_no_outage_matters_if_nobody_says_so() -> None:
    assert measure_outage(Policy(), Signs(committed_ms=0), NOW_MS) is None


@pytest.mark.parametrize(("ago_ms", "found"), [(HOUR_MS, None), (HOUR_MS + 1, 3600.001), (-HOUR_MS, None)])
def test_newest_commit_tells_how_long_it_was(ago_ms: int, found: float | None) -> None:
    assert measure_outage(POLICY, Signs(committed_ms=NOW_MS - ago_ms), NOW_MS) == found


def test_nothing_is_done_about_what_nobody_knows() -> None:
    assert measure_outage(POLICY, Signs(committed_ms=None), NOW_MS) is None


def test_time_in_which_the_command_ran_does_not_count() -> None:
    idle = Signs(committed_ms=NOW_MS - 9 * HOUR_MS, running_ms=NOW_MS - 1000)
    assert measure_outage(POLICY, idle, NOW_MS) is None
    down = Signs(committed_ms=NOW_MS - 9 * HOUR_MS, running_ms=NOW_MS - 2 * HOUR_MS)
    assert measure_outage(POLICY, down, NOW_MS) == 7200


def test_outage_that_was_answered_by_a_repair_is_not_answered_again() -> None:
    signs = Signs(committed_ms=NOW_MS - 9 * HOUR_MS, repaired_ms=NOW_MS - 8 * HOUR_MS)
    assert measure_outage(POLICY, signs, NOW_MS) is None


def test_repair_before_the_newest_commit_answers_nothing() -> None:
    signs = Signs(committed_ms=NOW_MS - 8 * HOUR_MS, repaired_ms=NOW_MS - 9 * HOUR_MS)
    assert measure_outage(POLICY, signs, NOW_MS) == 8 * 3600


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 min"), (3_725, "1 h 2 min"), (86_400, "1 d"), (90_061, "1 d 1 h")],
)
def test_durations_are_told_in_two_units(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
