"""Nothing that lastgood writes beside a checkpoint can hold a secret, whoever has put one into its texts."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hostile.attacker import call, tree
from hypothesis import given, settings
from hypothesis import strategies as st
from spellings import SECRET, SPELLINGS, spelled

from lastgood.journal.incident import Attempt, Incident, parse_incident, shorten_plan
from lastgood.journal.plan_file import parse_plan
from lastgood.journal.room import RecoveryStage, Room
from lastgood.planning.plan import ASKED, Alternative, Plan, PlannedSink
from lastgood.planning.price import Waiver
from lastgood.planning.proof import Proof
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.supervise import events
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.written import redact_written

EVENTS = [each for each in events.Event.__subclasses__() if each.__module__ == events.__name__]


def told(name: str) -> str:
    """A secret in some spelling, on one line."""
    return f"it says {spelled(name)}".replace("\n", " ")


def plan_of(folder: Path) -> Plan:
    """The newest batch is to be planned anew."""
    query = CheckpointBuilder(folder / "chk")
    query.run(3)
    query.plan()
    return make_plan(resolve_target(str(folder / "chk")), PlanOptions("replan", accept=tuple(Waiver)))


def talkative(plan: Plan, text: str) -> Plan:
    """The same plan, with this in each text of it."""
    return dataclasses.replace(
        plan,
        options={**plan.options, ASKED: ["--at", text], "more": {"said": [text]}},
        rests_on=(text,),
        promise=dataclasses.replace(plan.promise, because=text),
        sinks=(PlannedSink(0, "fence", text, 1, True, None, None),),
        evidence=("--sink", text, "--password", text),
        steps=tuple(dataclasses.replace(step, why=text) for step in plan.steps),
        alternatives=(Alternative("replan", None, text, f"lastgood plan {text}"),),
        proof=Proof(is_proven=False, spark="4.0", because=text),
    )


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    return plan_of(tmp_path_factory.mktemp("plan"))


def test_a_plan_cannot_hold_one_and_does_the_same(plan: Plan) -> None:
    for text in map(told, SPELLINGS):
        raw = talkative(plan, text).to_bytes()
        assert SECRET.encode() not in raw, text
        read = parse_plan(raw, "plan.json")
        assert read.to_bytes() == raw
        assert [vars_of(step) for step in read.steps] == [vars_of(step) for step in plan.steps]
        for name in ("listings", "guards", "seal", "checkpoint"):
            assert getattr(read, name) == getattr(plan, name)


def vars_of(step: Any) -> dict[str, Any]:
    """What it does, but for what it is for."""
    return {each.name: getattr(step, each.name) for each in dataclasses.fields(step) if each.name != "why"}


@pytest.mark.parametrize("name", SPELLINGS)
def test_nor_can_an_incident_or_a_stage(plan: Plan, name: str, tmp_path: Path) -> None:
    text = told(name)
    kept = shorten_plan(talkative(plan, text))
    attempt = Attempt(at_ms=1, did="stop", because=text, seconds=1.0, plan=kept, proof=text, file=text)
    incident = Incident(
        id="20261121-160100-aaaa",
        checkpoint="/chk",
        failed_at_ms=1,
        cause={"error": text, "because": text, "log": text},
        attempts=(attempt,),
        promise={"state": "broken", "because": [text]},
    )
    raw = incident.to_bytes()
    assert SECRET.encode() not in raw
    assert parse_incident(raw, "incident").to_bytes() == raw
    room = Room(parse_location(str(tmp_path / "chk")), plan.recovery, LocalWriter())
    room.enter(
        RecoveryStage.BEGUN, {"proof": text, "seal": ["offsets/7"], "listings": {"offsets": "x"}, "said": [text]}
    )
    assert room.note(RecoveryStage.BEGUN)["seal"] == ["offsets/7"]
    for file in tmp_path.rglob("*.json"):
        assert SECRET not in file.read_text()


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_nor_can_an_event(kind: type[events.Event]) -> None:
    for text in map(told, SPELLINGS):
        of_kind = {float: 1.0, int: 1, bool: True, list[str]: [text], dict[str, dict[str, int | None]]: {}}
        hints = get_type_hints(kind)
        fields = {each.name: of_kind.get(hints[each.name], text) for each in dataclasses.fields(kind)}
        event = kind(**fields | ({"recovery": "20261121-160058-7f3a"} if "recovery" in fields else {}))
        assert SECRET not in json.dumps(event.to_json()), text


_TEXTS = st.sampled_from([*map(told, SPELLINGS), "/chk/token=5", "a", "password", "***"])


@settings(max_examples=200)
@given(st.recursive(st.none() | st.integers() | _TEXTS, lambda each: st.lists(each) | st.dictionaries(_TEXTS, each)))
def test_a_second_time_nothing_changes(value: object) -> None:
    once = redact_written({"value": value, "evidence": value, "path": value})
    assert redact_written(once) == once


def test_a_folder_whose_name_looks_like_a_secret_is_repaired_all_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "token=5/password=x"
    folder.mkdir(parents=True)
    plan = plan_of(folder)
    before = tree(folder / "chk")
    (tmp_path / "plan.json").write_bytes(plan.to_bytes())
    done = call("apply", tmp_path / "plan.json", "--driver-is-dead", "--format", "json")
    assert (done.code, done.json["checkpoint"]) == (0, str(folder / "chk"))
    assert tree(folder / "chk") != before
    assert call("undo", "last", "--checkpoint", folder / "chk", "--driver-is-dead").code == 0
    assert tree(folder / "chk") == before
