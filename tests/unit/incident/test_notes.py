from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.incident.notes import note_recover
from lastgood.journal.incident import Incident
from lastgood.journal.incidents import Incidents, locate_incident
from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.backup import create
from lastgood.operations.recover import recover
from lastgood.recovery.applying import Owner
from lastgood.recovery.deciding import decide
from lastgood.recovery.decision import Decision, Verdict
from lastgood.recovery.plans import PlanOptions
from lastgood.recovery.whereabouts import recall_whereabouts
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    """Seven batches are committed, and the file sink has them."""
    built = CheckpointBuilder(tmp_path / "chk")
    built.run(7)
    create(resolve_target(str(built.folder)))
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(7):
        (log / str(number)).write_bytes(b"v1")
    return built


SINK = EvidenceOptions(sinks=("file:sink",))


def incidents(query: CheckpointBuilder) -> Incidents:
    return Incidents(LocalWriter(), parse_location(str(query.folder)))


def noted(query: CheckpointBuilder, decision: Decision, at_ms: int = STARTED_MS) -> list[str]:
    """What a person is told."""
    told: list[str] = []
    note_recover(decision, resolve_target(str(query.folder)), began_at_ms=at_ms, tell=told.append)
    return told


def decided(query: CheckpointBuilder, options: PlanOptions | None = None) -> Decision:
    """What `recover` comes to for a supervisor, which writes it down itself."""
    return decide(resolve_target(str(query.folder)), options, driver_is_dead=True, owner=Owner())


def repaired(query: CheckpointBuilder) -> Decision:
    (query.folder / "offsets/6").write_bytes(b"v1\n{")
    decision = decided(query, PlanOptions(evidence=SINK))
    assert decision.recovery is not None
    return decision


def only(query: CheckpointBuilder) -> Incident:
    (incident_id,) = incidents(query).list()
    return incidents(query).read(incident_id)


def test_repair_is_written_down_with_plan_and_proof(query: CheckpointBuilder) -> None:
    decision = repaired(query)
    assert noted(query, decision) == []
    found = only(query)
    assert (found.outcome, found.pipeline, found.failed_at_ms) == ("open", None, STARTED_MS)
    assert found.position == {"planned": 6, "committed": 6}
    (attempt,) = found.attempts
    assert decision.plan is not None
    assert (attempt.did, attempt.recovery, attempt.proof) == (
        "repair",
        decision.plan.recovery,
        "--driver-is-dead was given",
    )
    assert found.cause is not None
    assert found.cause["because"] == decision.plan.steps[0].why
    assert attempt.because == decision.plan.summary
    assert str(recall_whereabouts(found.id)) == str(query.folder)


def test_plain_start_and_trying_later_are_not_written_down(query: CheckpointBuilder) -> None:
    query.plan()
    assert noted(query, decided(query)) == []
    assert noted(query, Decision(Verdict.LATER, "somebody else is at work")) == []
    assert incidents(query).list() == []


def test_person_who_is_called_again_and_again_is_one_incident(query: CheckpointBuilder) -> None:
    query.plan()
    decision = decided(query, PlanOptions(goal="replan"))
    for minute in range(103):
        assert noted(query, decision, STARTED_MS + 60_000 * minute) == []
    found = only(query)
    assert (found.outcome, found.failed_at_ms, len(found.attempts)) == ("person", STARTED_MS, 100)
    assert [attempt.at_ms for attempt in found.attempts[:2]] == [STARTED_MS, STARTED_MS + 60_000 * 4]
    assert found.attempts[-1].file == str(decision.file)
    noted(query, replace(decision, plan=None, because="something else"), STARTED_MS + 10**8)
    assert len(incidents(query).list()) == 2


def test_pipeline_is_named_where_the_configuration_knows_it(query: CheckpointBuilder) -> None:
    Path("lastgood.toml").write_text(f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{query.folder}"\n')
    note_recover(repaired(query), resolve_target("orders"), began_at_ms=STARTED_MS)
    assert only(query).pipeline == "orders"


def test_next_call_closes_the_last_incident(query: CheckpointBuilder, tmp_path: Path) -> None:
    noted(query, repaired(query))
    before = only(query)
    query.plan()
    noted(query, decided(query))
    assert only(query) == before  # no batch yet
    query.commit()
    (tmp_path / "sink/_spark_metadata/7").write_bytes(b"v1")
    noted(query, decided(query))
    found = only(query)
    assert (found.outcome, found.first_batch, found.promise_state) == ("recovered", 7, "unknown")  # nobody counted rows
    assert found.first_batch_at_ms is not None


def test_broken_promise_is_told_to_a_person(query: CheckpointBuilder) -> None:
    noted(query, repaired(query))
    query.plan()
    query.commit()
    told = noted(query, decided(query))
    assert only(query).promise_state == "broken"
    assert "shows batch 6 as the newest, and batch 7 is committed" in told[0]
    assert told[1] == f"see lastgood report {only(query).id} --checkpoint {query.folder}"
    assert noted(query, decided(query)) == []  # once


def test_damaged_last_incident_stands_in_nobodys_way(query: CheckpointBuilder) -> None:
    noted(query, repaired(query))
    Path(locate_incident(parse_location(str(query.folder)), only(query).id).path).write_bytes(b"")
    assert noted(query, decided(query)) == []
    assert noted(query, repaired(query), STARTED_MS + 60_000) == []
    assert incidents(query).last() is not None


def test_what_cannot_be_written_down_is_told_and_no_error(query: CheckpointBuilder) -> None:
    decision = repaired(query)
    folder = Path(f"{query.folder}.lastgood/incidents")
    shutil.rmtree(folder, ignore_errors=True)
    folder.write_text("in the way")
    (told,) = noted(query, decision)
    assert told.startswith("the incident is not written down: ")


def test_recover_writes_down_what_it_did_by_itself(query: CheckpointBuilder) -> None:
    (query.folder / "offsets/6").write_bytes(b"v1\n{")
    decision = recover(resolve_target(str(query.folder)), PlanOptions(evidence=SINK), driver_is_dead=True)
    assert decision.recovery is not None
    assert [attempt.recovery for attempt in only(query).attempts] == [decision.recovery.id]
