from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Transaction, write_deltalake
from deltalake.transaction import CommitProperties

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.diagnosis.engine import Report
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.observe.positions import StartChoice
from lastgood.operations.diagnose import diagnose
from lastgood.operations.recover import recover
from lastgood.planning.price import Waiver
from lastgood.query.prediction.restart import Outcome
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

ROWS = pa.table({"i": [1, 2, 3]})
ROW = "26/11/21 10:00:00 ERROR MicroBatchExecution: Query [id = {0}, runId = {0}] terminated with error"


@dataclass(frozen=True)
class Table:
    """A Delta table, of which each batch reads one version."""

    table_id: str
    per_batch: int = 1

    def end(self, ends: Sequence[int]) -> DeltaOffset:
        return DeltaOffset(1, self.table_id, len(ends), -1, is_starting_version=False)

    def log(self, ends: Sequence[int]) -> None:
        del ends


@pytest.fixture
def table(tmp_path: Path) -> Path:
    folder = tmp_path / "table"
    for _ in range(4):
        write_deltalake(folder, ROWS, mode="append")
    return folder


def log_of(table: Path, table_id: str | None) -> str:
    """What Spark logs when a query dies."""
    offsets = {"reservoirId": table_id, "reservoirVersion": 2} if table_id else None
    told = f"{{DeltaSource[{table.as_uri()}]: {json.dumps(offsets)}}}"
    return "\n".join(
        [
            ROW.format(QUERY_ID),
            "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] it died",
            "=== Streaming Query ===",
            f"Identifier: [id = {QUERY_ID}, runId = {QUERY_ID}]",
            f"Current Committed Offsets: {told}",
            f"Current Available Offsets: {told}",
            "",
        ]
    )


def report(tmp_path: Path, table: Path, told: str | None) -> Report:
    log = tmp_path / "driver.log"
    log.write_text(log_of(table, told))
    return diagnose(resolve_target(str(tmp_path / "checkpoint")), DiagnoseOptions(log=str(log)))


def conditions(found: Report) -> list[str]:
    return [finding.condition.name for finding in found.findings if finding.condition.name.startswith("SOURCE_")]


def test_log_tells_where_the_table_is_that_a_query_reads(table: Path, tmp_path: Path) -> None:
    table_id = str(DeltaTable(table).metadata().id)
    made_ms = time.time_ns() // 1_000_000
    CheckpointBuilder(tmp_path / "checkpoint", Table(table_id), started_ms=made_ms).run(2)
    found = report(tmp_path, table, table_id)
    assert {source: facts.latest_version for source, facts in found.observed.tables.items()} == {"0": 3}
    assert conditions(found) == []


def test_table_that_was_created_again_is_found_by_its_place(table: Path, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "checkpoint", Table("8f7ff7b4-7ae8-4b51-9ec0-8d3c7b0a9a37")).run(2)
    assert conditions(report(tmp_path, table, None)) == ["SOURCE_TABLE_REPLACED"]


def test_table_that_is_gone_is_told(table: Path, tmp_path: Path) -> None:
    table_id = str(DeltaTable(table).metadata().id)
    CheckpointBuilder(tmp_path / "checkpoint", Table(table_id)).run(2)
    shutil.rmtree(table)
    assert conditions(report(tmp_path, table, table_id)) == ["SOURCE_TABLE_GONE"]


def test_table_of_another_id_is_not_taken_for_one_of_several(table: Path, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "checkpoint", Table("8f7ff7b4-7ae8-4b51-9ec0-8d3c7b0a9a37")).run(2)
    log = log_of(table, "another").replace("}}", "}, DeltaSource[file:/other]: {}}")
    (tmp_path / "driver.log").write_text(log)
    found = diagnose(resolve_target(str(tmp_path / "checkpoint")), DiagnoseOptions(log=str(tmp_path / "driver.log")))
    assert found.observed.tables == {}


def test_table_at_a_place_that_nobody_can_read_is_unknown(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "checkpoint", Table("8f7ff7b4-7ae8-4b51-9ec0-8d3c7b0a9a37")).run(2)
    log = log_of(Path("/t"), None).replace("file:///t", "strange://t")
    (tmp_path / "driver.log").write_text(log)
    found = diagnose(resolve_target(str(tmp_path / "checkpoint")), DiagnoseOptions(log=str(tmp_path / "driver.log")))
    assert conditions(found) == ["SOURCE_UNKNOWN"]


# --- sinks ----------------------------------------------------------------------------------------------------------


def test_function_that_gives_its_own_name_is_asked_by_it_and_nothing_is_proven(table: Path, tmp_path: Path) -> None:
    """A new checkpoint under the old name: the table drops its first batches."""
    write_deltalake(
        table, ROWS, mode="append", commit_properties=CommitProperties(app_transactions=[Transaction("my-app", 5, 1)])
    )
    CheckpointBuilder(tmp_path / "checkpoint", started_ms=4_000_000_000_000).run(2)
    found = diagnose(
        resolve_target(str(tmp_path / "checkpoint")), DiagnoseOptions(EvidenceOptions(sinks=(f"delta:{table}",)))
    )
    (skip,) = [finding for finding in found.findings if finding.condition.name == "SINK_WOULD_SKIP"]
    assert (skip.severity.name, skip.evidence["would_skip"]) == ("WARNING", [2, 5])
    assert skip.effect.startswith("If the query writes as my-app, the only name in the table: batches 2 to 5")
    assert (found.position.sink, found.position.sink_known, found.position.skipped_up_to) == (None, False, None)


def test_plan_that_was_moved_back_by_a_recovery_is_told_as_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    target = str(query.folder)
    options = PlanOptions("reposition", StartChoice(stable_lag=2), accept=(Waiver.DUPLICATES,))
    done = recover(resolve_target(target), options, driver_is_dead=True).recovery
    assert done is not None

    def told() -> list[tuple[str, str]]:
        found = diagnose(resolve_target(target)).findings
        return [(each.severity.name, each.next) for each in found if each.condition.name == "SOURCE_OFFSET_WENT_BACK"]

    assert told() == [("INFO", f"lastgood report {done.id} --checkpoint {target}")]
    Path(f"{target}.lastgood/recoveries/{done.id}/plan.json").write_bytes(b"{}")
    assert [severity for severity, _ in told()] == ["WARNING"]


# --- how topics are subscribed --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("subscription", "outcome", "unknowns"),
    [
        ("Subscribe[orders]", Outcome.FAILS, 0),
        ("Assign[orders-0]", Outcome.FAILS, 0),
        ("SubscribePattern[ord.*]", Outcome.RESUMES, 0),
        (None, Outcome.FAILS, 1),
    ],
)
def test_log_tells_how_the_topic_that_is_gone_was_subscribed(
    tmp_path: Path, subscription: str | None, outcome: Outcome, unknowns: int
) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    facts, log = tmp_path / "kafka.json", tmp_path / "driver.log"
    facts.write_text(json.dumps({"topics": {"others": {"partitions": {"0": {}}}}, "gone": ["orders"]}))
    lines = [
        ROW.format(QUERY_ID),
        "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] it died",
        "=== Streaming Query ===",
        f"Identifier: [id = {QUERY_ID}, runId = {QUERY_ID}]",
        f'Current Committed Offsets: {{KafkaV2[{subscription}]: {{"orders":{{"0":15,"1":15}}}}}}',
        f'Current Available Offsets: {{KafkaV2[{subscription}]: {{"orders":{{"0":15,"1":15}}}}}}',
    ]
    log.write_text("\n".join(lines))
    told = None if subscription is None else str(log)
    options = DiagnoseOptions(EvidenceOptions(kafka=str(facts)), fail_on_data_loss=False, log=told)
    restart = diagnose(resolve_target(str(tmp_path / "chk")), options).restart
    of_topics = [each for each in restart.unknowns if "--sink" not in each]
    assert (restart.outcome, len(of_topics)) == (outcome, unknowns)
