"""Advice on real checkpoints: what calls for none gets none, whatever else is the matter with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.diagnosis.rules_advice import CONDITIONS
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.settings.target import resolve_target

CASES = Path(__file__).parent / "cases"
LOGS = Path(__file__).parents[1] / "unit" / "failures" / "logs"
OF_THE_PLACE = "CHECKPOINT_ON_LOCAL_DISK"
"""True of every case, on a machine that has disks."""
UNBOUNDED = {"UNBOUNDED_STATE"}
"""Three batches and more without a watermark, by operators that keep each key."""
GIVEN = {
    "3.5-agg-hdfs-healthy": UNBOUNDED,
    "3.5-agg-rocksdb-healthy": UNBOUNDED,
    "4.0-agg-rocksdb-changelog-healthy": UNBOUNDED,
    "4.0-transform-with-state": {"CHECKPOINT_OF_OTHER_ENVIRONMENT"},
    "4.2-repartitioned-fewer": UNBOUNDED,
    "4.2-repartitioned-more-ckptv2": UNBOUNDED,
    "4.2-repartitioned-nokey": UNBOUNDED,
    "4.3-agg-rocksdb-ckptv2-healthy": UNBOUNDED,
    "4.3-named-source-and-sink": UNBOUNDED,
    "4.3-state-version-removed": UNBOUNDED,
}
WEEK_MS = 7 * 86_400_000


def cases() -> list[Path]:
    return [path.parent for path in sorted(CASES.glob("*/about.json"))]


def given(case: Path, log: Path | None = None) -> set[str]:
    facts = case / "kafka.json"
    evidence = EvidenceOptions(kafka=str(facts) if facts.exists() else None)
    options = DiagnoseOptions(evidence, log=None if log is None else str(log), max_downtime_ms=WEEK_MS)
    names = {each.name for each in CONDITIONS} - {OF_THE_PLACE}
    return {
        each.condition.name for each in diagnose(resolve_target(str(case / "checkpoint")), options).findings
    } & names


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_advice_is_given_where_the_case_calls_for_it_and_nowhere_else(case: Path) -> None:
    assert given(case) == GIVEN.get(case.name, set())


def test_an_aggregation_without_keys_keeps_one_row_and_does_not_grow() -> None:
    found = diagnose(resolve_target(str(CASES / "4.2-repartitioned-nokey" / "checkpoint"))).findings
    unbounded = [each for each in found if each.condition.name == "UNBOUNDED_STATE"]
    assert [(each.subject, each.evidence["name"]) for each in unbounded] == [("state/1", "dedupe")]


@pytest.mark.parametrize("log", sorted(LOGS.glob("*/*.log")), ids=lambda log: log.name)
def test_the_failure_of_another_query_adds_no_advice(log: Path) -> None:
    case = CASES / "4.2-kafka-multi-topic"
    told = given(case, log) - given(case)
    assert told == ({"SHUFFLE_NOT_TRACKED"} if log.name == "dynamic-allocation.log" else set())  # it names no query
