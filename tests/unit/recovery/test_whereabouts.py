from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.journal.plan_file import parse_plan
from lastgood.observe.evidence import EvidenceOptions
from lastgood.planning.plan import Plan, Promise
from lastgood.planning.price import Guarantee
from lastgood.recovery.whereabouts import (
    Note,
    note_begun,
    note_made,
    note_whereabouts,
    recall_evidence,
    recall_plan,
    recall_whereabouts,
)
from lastgood.signing import KeyRing, make_key

ID = "20261121-002156-0001"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


def test_what_was_noted_is_found_again() -> None:
    assert recall_whereabouts(ID) is None
    note_whereabouts(ID, "s3a://lake/chk")
    assert str(recall_whereabouts(ID)) == "s3a://lake/chk"


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"checkpoint": 7}', '{"checkpoint": "xyz://a"}', "7"])
def test_damaged_note_is_none(state: Path, content: str) -> None:
    note_whereabouts(ID, "/chk")
    next(state.rglob(f"{ID}.json")).write_text(content)
    assert recall_whereabouts(ID) is None


def test_note_never_leaves_its_folder_and_stands_in_nobodys_way(state: Path) -> None:
    note_whereabouts("../../evil", "/chk")
    assert [file.name for file in state.rglob("*.json")] == ["evil.json"]
    (state / "lastgood/recoveries/evil.json").unlink()
    (state / "lastgood/recoveries").rmdir()
    (state / "lastgood/recoveries").write_text("in the way")
    note_whereabouts(ID, "/chk")
    assert recall_whereabouts(ID) is None


def test_plan_is_the_same_whoever_has_signed_it() -> None:
    plan = planned()
    note_made(plan)
    keys = KeyRing((make_key(),), "test")
    assert recall_plan(parse_plan(plan.to_bytes(keys), "plan.json", keys)) is not None
    assert recall_plan(parse_plan(plan.to_bytes(), "plan.json")) is not None


def test_plan_is_known_to_the_last_byte_and_by_what_was_done_with_it() -> None:
    plan = planned()
    assert recall_plan(plan) is None
    note_made(plan)
    assert recall_plan(plan) == Note(is_own=True, is_begun=False, evidence=EvidenceOptions(), start_file=None)
    assert recall_plan(replace(plan, goal="fresh")) is None
    note_begun(plan, ("--sink", "/lake/t"), is_own=False)
    assert recall_plan(plan) == Note(
        is_own=False, is_begun=True, evidence=EvidenceOptions(sinks=("/lake/t",)), start_file=None
    )
    assert str(recall_whereabouts(plan.recovery)) == plan.checkpoint


def test_what_was_looked_at_is_remembered_unless_it_is_not_understood() -> None:
    note_whereabouts(ID, "/chk", ("--kafka", "broker:9092"))
    assert recall_evidence(ID) == EvidenceOptions(kafka="broker:9092")
    note_whereabouts(ID, "/chk", ("--no-such", "option"))
    assert recall_evidence(ID) == EvidenceOptions()
    assert recall_evidence("20261121-002156-0002") == EvidenceOptions()


def planned() -> Plan:
    return Plan(
        recovery=ID,
        goal="replan",
        checkpoint="/chk",
        query_id="q",
        guarantee=Guarantee.EXACTLY_ONCE,
        rests_on=(),
        promise=Promise("4.2", "resumes", 9, ""),
        made_at_ms=0,
        made_by="test",
    )
