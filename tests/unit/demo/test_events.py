from __future__ import annotations

import json

from lastgood.demo.events import Killed, Scene, Seconds

SCENE = Scene(
    at=0.0,
    letter="e",
    title="an outage longer than the retention",
    broke="it is down",
    did="it went on",
    guarantee="lossy",
    seconds=Seconds("after the start", 1.0, 2.0, 3.0),
    reread=4,
    lost={"flights": {0: ((10, 20), (30, 31)), 1: ((0, 5),)}},
    doubled={"flights": {2: ((7, 9),)}},
    beside=("lost for good",),
)


def test_scene_counts_what_it_says() -> None:
    assert (SCENE.lost_count, SCENE.doubled_count) == (16, 2)


def test_scene_is_a_line_of_json_with_its_ranges() -> None:
    told = json.loads(json.dumps(SCENE.to_json()))
    assert (told["event"], told["letter"], told["guarantee"]) == ("scene", "e", "lossy")
    assert told["seconds"] == {"since": "after the start", "detected": 1.0, "restarted": 2.0, "first_batch": 3.0}
    assert told["lost"] == {"flights": {"0": [[10, 20], [30, 31]], "1": [[0, 5]]}}
    assert told["doubled"] == {"flights": {"2": [[7, 9]]}}
    assert told["beside"] == ["lost for good"]


def test_kill_between_two_batches_names_none() -> None:
    assert Killed(at=0.0, pid=7, batch=None).to_json() == {
        "event": "killed",
        "at": "1970-01-01T00:00:00.000+00:00",
        "pid": 7,
        "batch": None,
    }
