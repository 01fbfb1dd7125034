from __future__ import annotations

import pytest

from lastgood.demo.script import SCENES, Script, parse_scenes
from lastgood.errors import UsageError

ALL = tuple(SCENES)


@pytest.mark.parametrize("scenes", [ALL, ("a",), ("b",), ("c", "e"), ("d",)])
@pytest.mark.parametrize("flights", [1_000, 40_001, 336_776])
def test_every_flight_has_its_scene(scenes: tuple[str, ...], flights: int) -> None:
    script = Script(flights=flights, scenes=scenes)
    assert script.first + sum(script.share(each) for each in scenes) == flights
    assert script.first >= 4 * script.limit


def test_too_large_a_batch_is_eight_times_as_large_as_any_other() -> None:
    script = Script()
    assert script.share("b") == 8 * script.limit
    assert script.kill_limit <= script.limit


@pytest.mark.parametrize("kills", [1, 3, 20])
def test_batches_are_left_for_each_kill_to_come_into(kills: int) -> None:
    script = Script(kills=kills, scenes=("a",))
    assert script.first == 100_000
    assert script.first // script.kill_limit >= 6 * (kills + 1)


@pytest.mark.parametrize(("text", "scenes"), [("a", ("a",)), ("e, b,b", ("b", "e")), ("a,b,c,d,e,f", ALL)])
def test_scenes_are_played_in_their_own_order(text: str, scenes: tuple[str, ...]) -> None:
    assert parse_scenes(text) == scenes


@pytest.mark.parametrize("text", ["", ",", "g", "a;b", "ab"])
def test_scene_that_there_is_not_is_a_clear_error(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_scenes(text)
    assert raised.value.expected == "of a,b,c,d,e,f"
