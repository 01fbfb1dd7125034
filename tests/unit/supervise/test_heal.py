"""What is left where records are gone, or their topic is another one; all else that is tried is in `tests/spark`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from planning import broker

from lastgood.errors import StorageError
from lastgood.failures.ending import Cause
from lastgood.journal.plan_file import parse_plan
from lastgood.ladder.rungs import CommandStanding
from lastgood.recovery.applying import undo
from lastgood.settings.config import Kafka, Pipeline
from lastgood.settings.policy import Policy
from lastgood.settings.target import Target, resolve_target
from lastgood.spark.agent.fit import KEPT_FILE
from lastgood.storage.reading import parse_location
from lastgood.supervise import heal
from lastgood.supervise.agents import Agents
from lastgood.supervise.care import PersonNeededError
from lastgood.supervise.events import Event, Noticed, Repaired
from lastgood.supervise.heal import Healer
from lastgood.testing.checkpoints import CheckpointBuilder

BATCHES = 3
"""Of five offsets of each of two partitions."""


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three batches are committed, and the sink shows them; of what is unread, Kafka has deleted a part."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    CheckpointBuilder(tmp_path / "chk").run(BATCHES)
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(BATCHES):
        (log / str(number)).write_bytes(b"v1")
    return tmp_path / "chk"


def healer(
    checkpoint: Path,
    told: list[Event],
    *bounds: tuple[int, int],
    accept: tuple[str, ...] = (),
    topic_id: str | None = None,
    is_sink_known: bool = True,
) -> Healer:
    facts = checkpoint.parent / "facts.json"
    facts.write_text(json.dumps(broker(*bounds, topic_id=topic_id).to_json()))
    kafka = Kafka(bootstrap=str(facts))
    pipeline = Pipeline(
        name="orders", command=("true",), kafka=kafka, policy=Policy(accept=accept), driver_check=("true",)
    )
    sink = f"file:{checkpoint.parent}/sink" if is_sink_known else None
    target = Target(str(checkpoint), sink=sink, kafka=kafka)
    return Healer(pipeline, {parse_location(str(checkpoint)): target}, tell=told.append)


def test_what_expired_unread_is_left_to_a_person_with_the_plan_saved(checkpoint: Path) -> None:
    told: list[Event] = []
    made = healer(checkpoint, told, (18, 30), (15, 30))
    with pytest.raises(PersonNeededError) as raised:
        made.before_start(CommandStanding())
    made.close()
    assert raised.value.file is not None
    plan = parse_plan(Path(raised.value.file).read_bytes(), "plan")
    assert [waiver.value for waiver in plan.needs] == ["loss"]
    assert plan.sources[0].lost == {"orders": {0: ((15, 18),)}}
    assert raised.value.next is not None
    assert "--accept loss" in raised.value.next
    assert told == []


def test_what_expired_unread_is_jumped_over_if_the_policy_accepts_loss(checkpoint: Path) -> None:
    told: list[Event] = []
    made = healer(checkpoint, told, (18, 30), (15, 30), accept=("loss",))
    assert made.before_start(CommandStanding()) is None
    made.close()
    (repaired,) = [event for event in told if isinstance(event, Repaired)]
    assert (repaired.goal, repaired.guarantee) == ("reposition", "lossy")
    assert repaired.price == ["source 0: lost 3 offsets: orders/0 [15, 18)"]
    assert '{"orders":{"0":18,"1":15}}' in (checkpoint / "offsets" / str(BATCHES - 1)).read_text()


def test_what_is_all_there_is_started_as_it_stands(checkpoint: Path) -> None:
    told: list[Event] = []
    made = healer(checkpoint, told, (15, 30), (3, 30))
    assert made.before_start(CommandStanding()) is None
    made.close()
    assert [event.name for event in told] == ["diagnosed"]


def read_kept_file(folder: Path) -> list[Any]:
    return list(json.loads((folder / KEPT_FILE).read_text()))


def test_guard_is_told_before_each_start_what_the_checkpoint_keeps_now(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Event] = []
    made = healer(checkpoint, told, (15, 15), (15, 15))
    made.agents = Agents(checkpoint.parent / "agent")
    assert made.before_start(CommandStanding()) is None
    (kept,) = read_kept_file(checkpoint.parent / "agent")
    assert (kept["checkpoint"], kept["kept"]["sources"]) == (str(checkpoint), [{"topics": ["orders"]}])

    def fail(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(heal, "read_kept", fail)
    assert made.before_start(CommandStanding()) is None
    assert read_kept_file(checkpoint.parent / "agent") == []  # nothing of before is held against the code
    assert "CODE_NOT_COMPARED" in [each.condition for each in told if isinstance(each, Noticed)]
    made.close()


def test_topic_that_is_longer_after_it_was_created_again_is_left_to_a_person(checkpoint: Path) -> None:
    told: list[Event] = []
    started(checkpoint, "old")
    made = healer(checkpoint, told, (0, 99), (0, 99), topic_id="new")
    with pytest.raises(PersonNeededError) as raised:
        made.before_start(CommandStanding())
    made.close()
    assert raised.value.file is not None
    plan = parse_plan(Path(raised.value.file).read_bytes(), "plan")
    assert [waiver.value for waiver in plan.needs] == ["loss", "duplicates"]
    assert "orders was created again: what was unread of it before is lost" in plan.rests_on


def test_topic_that_was_created_again_is_read_from_its_beginning_once_if_the_policy_accepts_it(
    checkpoint: Path,
) -> None:
    told: list[Event] = []
    accept = ("loss", "duplicates")
    started(checkpoint, "old")
    made = healer(checkpoint, told, (2, 99), (0, 99), accept=accept, topic_id="new")
    assert made.before_start(CommandStanding()) is None
    made.close()
    assert '{"orders":{"0":2,"1":0}}' in (checkpoint / "offsets" / str(BATCHES - 1)).read_text()
    again = healer(checkpoint, told, (2, 99), (0, 99), accept=accept, topic_id="new")
    assert again.before_start(CommandStanding()) is None
    again.close()
    assert [event.name for event in told if event.name != "repairing"] == ["repaired", "diagnosed"]


def test_repair_that_is_taken_back_leaves_the_offsets_with_the_topic_that_was_read(checkpoint: Path) -> None:
    told: list[Event] = []
    accept = ("loss", "duplicates")
    started(checkpoint, "old")
    made = healer(checkpoint, told, (0, 99), (0, 99), accept=accept, topic_id="new")
    assert made.before_start(CommandStanding()) is None
    made.close()
    assert noted(checkpoint) == {"orders": "new"}
    undo("last", target=resolve_target(str(checkpoint)), driver_is_dead=True)
    assert noted(checkpoint) == {"orders": "old"}


def test_query_that_was_repaired_is_not_repaired_again_before_it_was_started(checkpoint: Path) -> None:
    told: list[Event] = []
    shutil.rmtree(checkpoint)
    query = CheckpointBuilder(checkpoint)
    query.run(BATCHES)
    query.plan()
    made = healer(checkpoint, told, (0, 99), (0, 99), accept=("duplicates",), is_sink_known=False)
    stuck = CommandStanding(failures=3, cause=Cause(checkpoint=str(checkpoint)))
    for _ in range(2):  # another query of the application has to wait
        assert made.before_start(stuck) is None
    repaired = [event.goal for event in told if isinstance(event, Repaired)]
    made.close()
    assert repaired == ["replan"]


def started(checkpoint: Path, topic_id: str) -> None:
    """It was started while the topic had this id."""
    told: list[Event] = []
    made = healer(checkpoint, told, (0, 30), (0, 30), topic_id=topic_id)
    assert made.before_start(CommandStanding()) is None
    made.close()


def test_topic_of_which_kafka_is_silent_is_taken_for_what_it_was(checkpoint: Path) -> None:
    told: list[Event] = []
    for topic_id in ("old", None):
        made = healer(checkpoint, told, (0, 30), (0, 30), topic_id=topic_id)
        assert made.before_start(CommandStanding()) is None
        made.close()
    assert noted(checkpoint) == {"orders": "old"}


def noted(checkpoint: Path) -> object:
    return json.loads(Path(f"{checkpoint}.lastgood/topics.json").read_text())["topics"]
