"""What a report holds; how it is asked for and read stands in tests/cli/test_report.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastgood.incident.closing import CarriedOut
from lastgood.incident.report import IncidentReport, TimelineTurn
from lastgood.incident.report_page import format_page
from lastgood.journal.incident import Attempt, Incident
from lastgood.journal.incidents import Incidents
from lastgood.journal.room import RecoveryStage, RecoveryUnknownError
from lastgood.operations.report import report
from lastgood.records.record import Progress, RecordedSource
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder

RECOVERY = "20261121-002157-7f3a"
KAFKA = {
    "index": 0,
    "kind": "kafka",
    "reread": {},
    "lost": {"orders": {"0": [[5, 9]]}},
    "duplicated": {},
    "bound": False,
}
FILES = {
    "index": 1,
    "kind": "file",
    "reread": [f"s3a://in/{n}.json" for n in range(25)],
    "lost": [],
    "duplicated": [],
    "bound": True,
}
PLAN = {
    "recovery": RECOVERY,
    "goal": "reposition",
    "guarantee": "lossy",
    "rests_on": ["commits/6"],
    "needs": [],
    "accepted": ["loss"],
    "sources": [KAFKA, FILES],
    "sinks": [{"kind": "delta", "location": "/lake/out", "batch": None}],
    "steps": [{"do": "rewrite offsets/6: it starts there", "undo": "put it back"}],
}


def repair(**others: Any) -> Attempt:
    fields: dict[str, Any] = {"recovery": RECOVERY, "plan": PLAN, "proof": "our own child", **others}
    return Attempt(at_ms=STARTED_MS + 2000, did="repair", because="expired", seconds=0.5, **fields)


def incident(checkpoint: str = "/lake/chk/orders", **others: Any) -> Incident:
    fields: dict[str, Any] = {
        "pipeline": "orders",
        "cause": {"because": "records have expired", "class": "source_expired", "exit_code": 1, "signal": None},
        "position": {"planned": 7, "committed": 6},
        "attempts": (repair(),),
        "first_batch": 7,
        "rerun": False,
        "first_batch_at_ms": STARTED_MS + 43_000,
        "promise": {"state": "kept", "because": ["batch 7 was committed, as promised"]},
        "outcome": "recovered",
        **others,
    }
    return Incident(id="20261121-002156-0001", checkpoint=checkpoint, failed_at_ms=STARTED_MS, **fields)


def done(*stages: tuple[RecoveryStage, int | None]) -> CarriedOut:
    return CarriedOut(RECOVERY, "/lake/chk/orders", None, stages, "our own child", "/lake/chk/orders.lastgood/before")


APPLIED = done(
    (RecoveryStage.BEGUN, STARTED_MS + 2100), (RecoveryStage.APPLYING, None), (RecoveryStage.CLOSED, STARTED_MS + 2400)
)


def test_timeline_is_in_order_of_time_and_says_how_long_things_took() -> None:
    assert IncidentReport(incident(), (APPLIED,)).timeline == (
        TimelineTurn(STARTED_MS, "source_expired: records have expired"),
        TimelineTurn(STARTED_MS + 2000, "repaired: expired", 0.5),
        TimelineTurn(STARTED_MS + 2100, "the checkpoint was sealed"),
        TimelineTurn(STARTED_MS + 2400, "the checkpoint was opened again: a driver may start", 0.3),
        TimelineTurn(STARTED_MS + 43_000, "batch 7 was committed"),
    )


@pytest.mark.parametrize(
    ("stage", "outcome"),
    [
        (RecoveryStage.CLOSED, "recovered"),
        (RecoveryStage.TAKEN_BACK, "undone"),
        (RecoveryStage.APPLYING, "interrupted"),
    ],
)
def test_what_became_of_the_last_recovery_is_the_outcome(stage: RecoveryStage, outcome: str) -> None:
    found = IncidentReport(incident(), (done((stage, 1)),))
    assert (found.outcome, found.to_json()["outcome"]) == (outcome, outcome)


def test_json_holds_every_field_that_is_documented() -> None:
    told = IncidentReport(incident(), (APPLIED,)).to_json()
    documented = Path(__file__).parents[3] / "docs/reference/report.md"
    text = documented.read_text()
    for field in (*told, *told["attempts"][0], *told["recoveries"][0], *told["promise"]):
        assert f"`{field}`" in text, field
    json.dumps(told)


def test_page_tells_all_of_an_incident() -> None:
    text = format_page(IncidentReport(incident(), (APPLIED,)))
    for part in (
        "# Incident 20261121-002156-0001: orders",
        "| back after | 43.0 s, with batch 7 |",
        "Records have expired.",
        "- class: `source\\_expired`".replace("\\", ""),
        "1. Repaired: expired",
        "   - rewrite offsets/6: it starts there",
        "| 0 (kafka) | lost | orders/0 | [5, 9) | 4 |",
        "and 5 more |  | at most 25 files |",
        "- delta sink `/lake/out` showed when it was planned: not known",
        "- accepted: loss",
        "- our own child",
        "**Kept.**",
        "has gone on since",
    ):
        assert part in text, part
    assert "signal" not in text


def test_page_of_a_plain_restart_says_that_it_cost_nothing() -> None:
    plain = {**PLAN, "sources": [], "steps": [], "guarantee": "exactly_once"}
    attempt = Attempt(at_ms=STARTED_MS, did="restart", because="so it is", seconds=0.1, plan=plain)
    text = format_page(IncidentReport(incident(attempts=(attempt,))))
    assert "Nothing: no record is read again, lost, or written twice." in text
    assert "Nothing was changed." in text


def test_page_of_an_incident_of_which_hardly_anything_is_known_is_whole() -> None:
    nothing = incident(
        cause=None,
        pipeline=None,
        position={},
        attempts=(),
        first_batch=None,
        first_batch_at_ms=None,
        promise=None,
        outcome="open",
    )
    text = format_page(IncidentReport(nothing))
    assert "| 2026-11-21 00:21:56 UTC | 0.0 s | it failed |  |" in text
    assert "None" not in text


def test_tables_keep_their_columns_whatever_a_name_holds() -> None:
    odd = {**KAFKA, "lost": {"a|b`c": {"0": [[5, 9]]}}}
    text = format_page(IncidentReport(incident(attempts=(repair(plan={**PLAN, "sources": [odd]}),))))
    assert "| 0 (kafka) | lost | a\\|b\\`c/0 | [5, 9) | 4 |" in text


def test_lost_records_carry_the_time_that_a_recorder_saw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(8)
    Incidents(LocalWriter(), parse_location(str(query.folder))).write(incident(str(query.folder)))
    folder = Path(f"{query.folder}.lastgood/records")
    folder.mkdir(parents=True)
    lines = [
        Progress(
            recorded_at_ms=STARTED_MS + at,
            trigger_at_ms=STARTED_MS + at,
            query_id=QUERY_ID,
            batch_id=at,
            sources=(RecordedSource(description="KafkaV2", latest_offset={"orders": {"0": latest}}),),
        )
        for at, latest in ((0, 5), (1000, 9))
    ]
    (folder / "1795220516284-77.000001.jsonl").write_text("".join(json.dumps(each.to_json()) + "\n" for each in lines))
    found = report("last", target=resolve_target(str(query.folder)))
    assert [(each.after_ms, each.before_ms) for each in found.lost] == [(STARTED_MS, STARTED_MS + 1000)]
    written = "after 2026-11-21 00:21:56 UTC, before 2026-11-21 00:21:57 UTC"
    assert f"| orders | 0 | 5 to 8 | 4 | {written} |" in format_page(found)


def test_recovery_of_which_nothing_was_done_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / f"chk.lastgood/recoveries/{RECOVERY}"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_bytes(b"{}")
    with pytest.raises(RecoveryUnknownError, match="nothing of it was done"):
        report(RECOVERY, target=resolve_target(str(tmp_path / "chk")))
    (folder / "begun.json").write_bytes(b"{}")
    found = report(RECOVERY, target=resolve_target(str(tmp_path / "chk")))
    assert (found.outcome, found.incident.attempts[0].because) == ("interrupted", "its file cannot be read")
    assert "the checkpoint is sealed until it is finished or taken back" in format_page(found)
