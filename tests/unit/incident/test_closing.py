from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.incident.closing import CarriedOut, close_incident, list_carried_out
from lastgood.journal.incident import Attempt, Incident
from lastgood.journal.room import RecoveryStage
from lastgood.observe.evidence import EvidenceOptions
from lastgood.recovery.whereabouts import note_whereabouts
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder

RECOVERY = "20261121-002157-7f3a"
NOTHING = EvidenceOptions()


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CheckpointBuilder:
    """Seven batches are committed, an eighth is planned."""
    monkeypatch.chdir(tmp_path)
    built = CheckpointBuilder(tmp_path / "chk")
    built.run(7)
    built.plan()
    return built


def incident(query: CheckpointBuilder, **others: Any) -> Incident:
    fields: dict[str, Any] = {
        "position": {"planned": 7, "committed": 6},
        "attempts": (),
        "first_batch": None,
        "first_batch_at_ms": None,
        "promise": None,
        "outcome": "open",
        **others,
    }
    return Incident(
        id="20261121-002156-0001",
        checkpoint=str(query.folder),
        pipeline=None,
        failed_at_ms=STARTED_MS,
        cause=None,
        rerun=None,
        **fields,
    )


def close(query: CheckpointBuilder, found: Incident, *done: CarriedOut, options: EvidenceOptions = NOTHING) -> Incident:
    return close_incident(found, done, LocalStorage(), target=resolve_target(str(query.folder)), options=options)


def done(query: CheckpointBuilder, *stages: RecoveryStage) -> CarriedOut:
    return CarriedOut(RECOVERY, str(query.folder), None, tuple((each, 1) for each in stages), None, "/backup")


def test_incident_stays_open_until_its_first_batch_is_committed(query: CheckpointBuilder) -> None:
    found = incident(query)
    assert close(query, found) == found
    query.commit()
    after = close(query, found)
    assert (after.outcome, after.first_batch, after.rerun, after.promise_state) == ("recovered", 7, True, "kept")


@pytest.mark.parametrize(
    "others",
    [
        {"promise": {"state": "kept", "because": []}},
        {"promise": {"state": "broken", "because": []}},
        {"outcome": "person"},
        {"outcome": "stopped"},
    ],
)
def test_what_is_settled_or_left_to_a_person_stays_as_it_is(query: CheckpointBuilder, others: dict[str, Any]) -> None:
    query.commit()
    found = incident(query, **others)
    assert close(query, found) == found


@pytest.mark.parametrize(
    "stage", [RecoveryStage.BEGUN, RecoveryStage.APPLIED, RecoveryStage.TAKING_BACK, RecoveryStage.TAKEN_BACK]
)
def test_repair_that_is_half_done_or_taken_back_promises_nothing(
    query: CheckpointBuilder, stage: RecoveryStage
) -> None:
    query.commit()
    found = incident(query)
    assert close(query, found, done(query, RecoveryStage.BEGUN, stage)) == found
    assert close(query, found, done(query, RecoveryStage.BEGUN, RecoveryStage.CLOSED)).outcome == "recovered"


def test_plan_that_a_person_has_carried_out_closes_the_call(query: CheckpointBuilder) -> None:
    query.commit()
    found = incident(query, outcome="person")
    assert close(query, found, done(query, RecoveryStage.BEGUN, RecoveryStage.CLOSED)).outcome == "recovered"


def test_seal_is_no_batch(query: CheckpointBuilder) -> None:
    (query.folder / "commits/7").write_bytes(b"")
    found = incident(query)
    assert close(query, found) == found


def test_what_was_unknown_is_looked_up_again_and_kept_if_it_still_is(query: CheckpointBuilder) -> None:
    query.commit()
    unknown = {"state": "unknown", "because": ["nobody answered"]}
    found = incident(query, promise=unknown, first_batch=7, outcome="recovered")
    assert close(query, found).promise_state == "kept"
    other = query.folder.parent / "other"
    (other / "_delta_log").mkdir(parents=True)
    (other / "_delta_log/00000000000000000000.json").write_bytes(b"not json")
    assert close(query, found, options=EvidenceOptions(sinks=(f"delta:{other}",))) == found


def test_sink_is_that_of_this_machine_or_of_the_configuration(
    query: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the incident says of it lies in the lake."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    query.commit()
    log = query.folder.parent / "sink/_spark_metadata"
    log.mkdir(parents=True)
    (log / "6").write_bytes(b"v1")
    plan = {"evidence": ["--sink", "file:sink"], "from_batch": 7}
    attempt = Attempt(at_ms=1, did="restart", because="so it is", seconds=0.0, plan=plan)
    assert close(query, incident(query, attempts=(attempt,))).promise_state != "broken"
    note_whereabouts(incident(query).id, str(query.folder), ("--sink", "file:sink"))
    assert close(query, incident(query)).promise_state == "broken"
    note_whereabouts(incident(query).id, str(query.folder))
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{query.folder}"\nsink = "file:{log.parent}"\n'
    )
    assert close(query, incident(query)).promise_state == "broken"


def test_recovery_that_was_never_begun_is_none(query: CheckpointBuilder) -> None:
    location, storage = parse_location(str(query.folder)), LocalWriter()
    assert list_carried_out(storage, location, [RECOVERY], Config()) == ()
    folder = Path(f"{query.folder}.lastgood/recoveries/{RECOVERY}")
    folder.mkdir(parents=True)
    (folder / "plan.json").write_bytes(b"{}")
    assert list_carried_out(storage, location, [RECOVERY], Config()) == ()
    (folder / "begun.json").write_bytes(b'{"proof": "it was our own child"}')
    (found,) = list_carried_out(storage, location, [RECOVERY], Config())
    assert (found.plan, found.proof, found.state, found.stage) == (
        None,
        "it was our own child",
        "interrupted",
        RecoveryStage.BEGUN,
    )
    assert replace(found, stages=((RecoveryStage.TAKEN_BACK, None),)).to_json()["undo"] is None
