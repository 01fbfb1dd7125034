from __future__ import annotations

from lastgood.observe.progress import LogProgress
from lastgood.supervise.stalls import Stalls


class World:
    def __init__(self, after_seconds: float | None = 60.0) -> None:
        self.now = 0.0
        self.asked = 0
        self.is_ahead = False
        self.stalls = Stalls(after_seconds, self._ask, clock=lambda: self.now)

    def _ask(self, checkpoint: str) -> bool:
        assert checkpoint == "chk"
        self.asked += 1
        return self.is_ahead


def test_batch_that_is_not_committed_in_time_is_a_stall() -> None:
    observed = World()
    observed.stalls.note("chk", LogProgress(7, 6))
    observed.now = 59.9
    assert observed.stalls.find_stalled() is None
    observed.now = 60
    stall = observed.stalls.find_stalled()
    assert stall is not None
    assert (stall.checkpoint, stall.cause.line) == ("chk", "batch 7 was not committed within 60 s")
    assert observed.asked == 0


def test_progress_begins_the_time_anew() -> None:
    observed = World()
    observed.stalls.note("chk", LogProgress(7, 6))
    observed.now = 50
    observed.stalls.note("chk", LogProgress(7, 7))
    observed.stalls.note("chk", LogProgress(8, 7))
    observed.now = 100
    assert observed.stalls.find_stalled() is None


def test_query_without_anything_to_do_is_no_stall_and_seldom_asked_about() -> None:
    observed = World()
    observed.stalls.note("chk", LogProgress(7, 7))
    for observed.now in range(60, 180, 10):
        assert observed.stalls.find_stalled() is None
    assert observed.asked == 2


def test_query_that_plans_nothing_though_its_sources_hold_more_is_a_stall() -> None:
    observed = World()
    observed.stalls.note("chk", LogProgress(7, 7))
    observed.now, observed.is_ahead = 60, True
    stall = observed.stalls.find_stalled()
    assert stall is not None
    assert stall.cause.line == "no batch was planned for 60 s, and the sources hold more"


def test_new_run_begins_the_time_anew() -> None:
    observed = World()
    observed.stalls.note("chk", LogProgress(7, 6))
    observed.now = 1000
    observed.stalls.begin()
    observed.stalls.note("chk", LogProgress(7, 6))
    assert observed.stalls.find_stalled() is None


def test_nothing_is_a_stall_unless_the_policy_says_so() -> None:
    observed = World(None)
    observed.stalls.note("chk", LogProgress(7, 6))
    observed.now = 10_000
    assert observed.stalls.find_stalled() is None
