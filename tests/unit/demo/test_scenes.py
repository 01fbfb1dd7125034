from __future__ import annotations

from lastgood.demo.events import Seconds
from lastgood.demo.scenes import make_scene, sum_price

PLAN = {
    "guarantee": "at_least_once",
    "sources": [
        {"reread": {"flights": {"0": [[0, 10]]}}, "lost": {}, "duplicated": {"flights": {"0": [[4, 6]]}}},
        {"reread": {"flights": {"0": [[10, 12]], "1": [[3, 4]]}}, "lost": {}, "duplicated": {}},
    ],
}


def test_price_is_that_of_all_sources() -> None:
    assert sum_price(PLAN, "reread") == {"flights": {0: ((0, 12),), 1: ((3, 4),)}}
    assert sum_price(PLAN, "lost") == {}


def test_scene_says_what_the_plan_says() -> None:
    shown = make_scene("d", PLAN, at=1.0, broke="nothing", did="back", seconds=Seconds("", 0.0, 0.0, 0.0))
    assert (shown.guarantee, shown.reread, shown.lost_count, shown.doubled_count) == ("at least once", 13, 0, 2)
    assert "CURRENT-3" in shown.title
