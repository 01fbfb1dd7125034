"""`diagnose` on every real checkpoint: the prediction is what Spark did, and what is healthy has no finding."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import CORPUS, list_or_skip

from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.findings import Severity
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.query.prediction.restart import Outcome
from lastgood.settings.target import resolve_target

CASES = Path(__file__).parent / "cases"

FOUND = {
    "damaged-rm_all_offsets": "COMMITS_AHEAD",
    "damaged-rm_offset_last": "COMMITS_AHEAD",
    "damaged-commit_extra": "COMMITS_AHEAD",
    "damaged-offset_gap_ahead": "OFFSET_LOG_GAP",
    "damaged-offset_last_empty": "OFFSET_LOG_DAMAGED",
    "damaged-offset_last_truncated": "OFFSET_LOG_DAMAGED",
    "damaged-rm_metadata": "QUERY_ID_LOST",
    "damaged-metadata_garbage": "QUERY_ID_LOST",
    "damaged-rm_source_last": "SOURCE_LOG_DAMAGED",
    "agg-hdfs-rolled-back": "STALE_STATE_SNAPSHOT",
    "agg-hdfs-rm-last-version-files": "STATE_FILE_MISSING",
    "rm-partition0": "STATE_PARTITION_MISSING",
}


def cases() -> list[Path]:
    found = [path.parent for root in (CASES, CORPUS) for path in sorted(root.glob("*/about.json"))]
    assert len(found) > 15
    return found


def name(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


def about(case: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((case / "about.json").read_text())
    return told


def report(case: Path, **others: Any) -> Report:
    facts = case / "kafka.json"
    evidence = EvidenceOptions(kafka=str(facts) if facts.exists() else None)
    return diagnose(resolve_target(str(case / "checkpoint")), DiagnoseOptions(evidence, about(case)["spark"], **others))


@pytest.mark.parametrize(
    "case", list_or_skip([case for case in cases() if "batches_run" in about(case).get("restart", {})]), ids=name
)
def test_prediction_is_what_spark_did(case: Path) -> None:
    did = about(case)["restart"]
    restart = report(case).restart
    if did["error"] is None:
        assert (restart.error, restart.batch) == (None, did["batches_run"][0])
        return
    assert restart.error
    assert restart.error in "\n".join(texts(did))
    assert restart.outcome is (Outcome.FAILS_AFTER_SINK if did["batches_run"] else Outcome.FAILS)
    if did["batches_run"]:
        assert restart.batch == did["batches_run"][0]
    if "left" in did:
        assert restart.leaves_orphan == (did["left"]["last_offsets"] == restart.batch)


def texts(told: object) -> list[str]:
    if isinstance(told, dict):
        return [text for value in told.values() for text in texts(value)]
    if isinstance(told, list):
        return [text for value in told for text in texts(value)]
    return [told] if isinstance(told, str) else []


@pytest.mark.parametrize("case", [case for case in cases() if "healthy" in case.name], ids=name)
def test_healthy_checkpoint_resumes_and_has_no_finding_above_info(case: Path) -> None:
    found = report(case)
    assert found.restart.outcome is Outcome.RESUMES
    assert [finding for finding in found.findings if finding.severity > Severity.INFO] == []
    assert found.position.last_good == found.position.committed


@pytest.mark.parametrize(
    "case",
    list_or_skip([case for case in cases() if "uncommitted last batch" in about(case).get("state", "")]),
    ids=name,
)
def test_batch_that_is_planned_and_not_committed_runs_again(case: Path) -> None:
    found = report(case)
    if "or uncommitted" in about(case).get("state", "") and found.position.orphan is None:
        assert found.restart.outcome is Outcome.RESUMES  # this copy was taken between two batches
        return
    assert (found.restart.outcome, found.restart.batch) == (Outcome.RERUNS, found.position.planned)
    assert "ORPHAN_BATCH" in {finding.condition.name for finding in found.findings}


@pytest.mark.parametrize("case", cases(), ids=name)
def test_damage_is_found_under_its_name(case: Path) -> None:
    conditions = {finding.condition.name for finding in report(case).findings}
    for part, condition in FOUND.items():
        if case.name.endswith(part):
            assert condition in conditions


@pytest.mark.parametrize(
    "case", list_or_skip([case for case in cases() if "restart_failOnDataLoss_false" in about(case)]), ids=name
)
def test_without_fail_on_data_loss_what_is_gone_is_skipped(case: Path) -> None:
    did = about(case)["restart_failOnDataLoss_false"]
    restart = report(case, fail_on_data_loss=False).restart
    assert (restart.outcome, restart.batch) == (Outcome.RESUMES, did["batches_run"][0])


@pytest.mark.parametrize("case", cases(), ids=name)
def test_every_finding_can_be_read_and_acted_upon(case: Path) -> None:
    for finding in report(case).findings:
        assert re.fullmatch(r"[A-Z][A-Z0-9_]+", finding.condition.name)
        assert finding.effect.endswith(".")
        assert finding.subject
        json.dumps(finding.to_json())
