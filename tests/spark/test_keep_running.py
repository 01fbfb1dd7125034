"""`lastgood.spark.keep_running` in a session that goes on, with real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import LIBRARIES, Sparks

from lastgood.journal.incidents import Incidents
from lastgood.settings.keys import find_keys
from lastgood.spark.agent.driver import FOLDER_VARIABLE
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("keep_running_app.py")
CONFIG = """
[pipeline.lines]
command = ["true"]
checkpoint = "{checkpoint}"
policy = {{ max_attempts = 2, backoff = "10ms" }}
"""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def live(spark: Any, folder: Path, sink: str = "file", **more: Any) -> dict[str, Any]:
    told = {"folder": str(folder), "sink": sink, "failures": 2, "damage": False, **more}
    found: dict[str, Any] = spark.call(APP, "live", **told)
    assert found["is_whole"]
    assert not found["is_left"]
    assert found["is_beside"]
    return found


def pick(found: dict[str, Any], event: str) -> list[dict[str, Any]]:
    return [each for each in found["events"] if each["event"] == event]


def test_a_query_that_fails_is_back_in_the_same_session(sparks: Sparks, tmp_path: Path) -> None:
    found = live(sparks.of("4.2.0"), tmp_path)
    assert [each["way"] for each in pick(found, "started")] == ["session"] * 3
    assert len({each["pid"] for each in pick(found, "started")}) == 1
    assert [each["failure"] for each in pick(found, "ended")] == ["poison_data", "poison_data", None]
    assert [each["state"] for each in pick(found, "promised")] == ["kept", "kept"]
    location = parse_location(str(tmp_path / "chk"))
    incident = Incidents(open_writable(location), location, find_keys()).last()
    assert incident is not None
    assert incident.back is not None
    assert incident.back.way == "session"
    assert list(incident.parts) == ["noticed", "judged", "repaired", "waited", "started", "first batch"]


def test_a_query_with_state_is_back_as_well(sparks: Sparks, tmp_path: Path) -> None:
    found = live(sparks.of("4.2.0"), tmp_path, "delta")
    assert [each["state"] for each in pick(found, "promised")] == ["kept", "kept"]


def test_what_is_broken_of_one_with_state_is_left_to_a_person(sparks: Sparks, tmp_path: Path) -> None:
    """The session may still hold state of the run before, and write it down beside what a repair makes."""
    told = {"folder": str(tmp_path), "sink": "delta", "damage": True}
    error = sparks.of("4.2.0").call(APP, "leave_to_person", **told)
    assert error["condition"] == "PERSON_NEEDED"
    assert "end this session" in error["effect"]


def test_so_is_one_that_has_written_state_of_a_batch_that_is_not_committed(sparks: Sparks, tmp_path: Path) -> None:
    """Executors may write a snapshot of that down later, beside what the next run makes of the batch."""
    told = {"folder": str(tmp_path), "sink": "checked", "damage": False}
    error = sparks.of("4.2.0").call(APP, "leave_to_person", **told)
    assert error["condition"] == "QUERY_NOT_ENDED"
    assert "which is not committed" in error["found"]
    assert error["next"].startswith("end the session")


def test_what_is_broken_is_repaired_before_it_is_started_again(sparks: Sparks, tmp_path: Path) -> None:
    found = live(sparks.of("4.2.0"), tmp_path, damage=True)
    assert {each["guarantee"] for each in pick(found, "repaired")} == {"exactly_once"}
    assert len(pick(found, "repaired")) == 2


@pytest.mark.proof
@pytest.mark.parametrize("version", ["3.5.9", "4.0.5", "4.1.4", "4.3.0"])
def test_on_each_spark(sparks: Sparks, tmp_path: Path, version: str) -> None:
    live(sparks.of(version), tmp_path, damage=True, libraries=LIBRARIES)


@pytest.mark.parametrize(
    ("how", "condition", "running"),
    [
        ("elsewhere", "USAGE", 1),
        ("none", "USAGE", 0),
        ("held", "CHECKPOINT_HELD", 0),
        ("under run", "USAGE", 0),
        ("fails", "ATTEMPTS_EXHAUSTED", 0),
        ("fails late", "ATTEMPTS_EXHAUSTED", 0),
    ],
)
def test_what_cannot_be_kept_running_is_said(
    sparks: Sparks, tmp_path: Path, how: str, condition: str, running: int
) -> None:
    config = tmp_path / "lastgood.toml"
    config.write_text(CONFIG.format(checkpoint=tmp_path / "chk"))
    env = {FOLDER_VARIABLE: "/run"} if how == "under run" else {}
    told = {
        "folder": str(tmp_path),
        "how": how,
        "env": env,
        "config": str(config) if condition == "ATTEMPTS_EXHAUSTED" else None,
    }
    found = sparks.of("4.2.0").call(APP, "refuse", **told)
    assert (found["error"]["condition"], found["running"]) == (condition, running)
    if condition == "ATTEMPTS_EXHAUSTED":
        assert {each["error"] for each in pick(found, "ended")} == {"RuntimeError: no such table"}
