"""Sinks that are ahead of what is wanted go back, rows and mark; a real table is read by deltalake, not by us."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lastgood.delta_log.listing import name_commit
from lastgood.observe.evidence import EvidenceOptions
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.recovery.applying import apply_plan, undo
from lastgood.recovery.driver_death import DriverNotProvenDeadError
from lastgood.recovery.engine import Engine, PlanStaleError
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sinks.delta.carrying import CarriedDeltaStep
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.opening import open_sink
from lastgood.steps.carrying import Site, UndoRefusedError
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput

FIRST_MODIFIED = 1_790_000_000
DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Query:
    """A query of some batches, each five offsets of two partitions, with its table."""

    def __init__(
        self,
        folder: Path,
        committed: int,
        *,
        orphan: bool = False,
        shown: int | None = None,
        source: FileInput | None = None,
        marked_ms: int | None = None,
    ) -> None:
        self.marks_expire = marked_ms is not None
        self.marked_ms = marked_ms or int(time.time() * 1000)
        self.folder = folder
        self.checkpoint, self.table = folder / "checkpoint", folder / "table"
        self.builder = CheckpointBuilder(self.checkpoint, source)
        self.builder.run(committed)
        if orphan:
            self.builder.plan()
        for batch in range(committed if shown is None else shown + 1):
            self.write(batch)
        facts = {str(n): {"earliest": 0, "latest": 100} for n in range(2)}
        told = {
            "bootstrap": "broker:9092",
            "captured_at_ms": 1,
            "topics": {"orders": {"partitions": facts, "config": {"cleanup.policy": "delete"}}},
        }
        (folder / "kafka.json").write_text(json.dumps(told))

    def write(self, batch: int, rows: int = 3) -> None:
        """A batch, as Spark's streaming sink writes it."""
        properties = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch, self.marked_ms)])
        write_deltalake(
            self.table,
            pa.table({"batch": [batch] * rows}),
            mode="append",
            commit_properties=properties,
            configuration={"delta.setTransactionRetentionDuration": "interval 1 day"} if self.marks_expire else None,
        )
        told = {"queryId": QUERY_ID, "epochId": str(batch), "outputMode": "Append"}
        self.tell(batch, operation="STREAMING UPDATE", operationParameters=told)

    def tell(self, batch: int, **told: object) -> None:
        """Let the newest version say so of itself, and that it came half a second after its batch was planned."""
        file = self.table / "_delta_log" / name_commit(DeltaTable(self.table).version())
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        for action in actions:
            if "commitInfo" in action:
                action["commitInfo"] |= {"timestamp": STARTED_MS + 1000 * batch + 500, **told}
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))

    def rows(self) -> Counter[int]:
        found = DeltaTable(self.table).to_pyarrow_table().column("batch").to_pylist()
        return Counter(found)

    def recognised(self) -> int | None:
        """Up to which batch the table would drop what is written again."""
        return open_sink(str(self.table)).evidence(QUERY_ID, now_ms=int(time.time() * 1000)).skips_up_to

    def mark(self) -> int | None:
        return DeltaTable(self.table).transaction_version(QUERY_ID)

    def plan(self, goal: str = "resume") -> Plan:
        evidence = EvidenceOptions(sinks=(str(self.table),), kafka=str(self.folder / "kafka.json"))
        return make_plan(resolve_target(str(self.checkpoint)), PlanOptions(goal=goal, evidence=evidence))

    def apply(self, plan: Plan, *, driver_is_dead: bool = True) -> None:
        file = self.folder / "plan.json"
        file.write_bytes(plan.to_bytes())
        apply_plan(str(file), driver_is_dead=driver_is_dead)

    def logs(self) -> dict[str, bytes]:
        files = (each for each in self.checkpoint.rglob("*") if each.is_file())
        return {str(each.relative_to(self.checkpoint)): each.read_bytes() for each in files}

    def undo(self, plan: Plan) -> None:
        undo(plan.recovery, target=resolve_target(str(self.checkpoint)), driver_is_dead=True)


def require_there_and_back(query: Query, plan: Plan, shown: int) -> None:
    """Apply it, look, take it back, look again, and plan the same once more."""
    logs, rows, mark = query.logs(), query.rows(), query.mark()
    query.apply(plan)
    assert (query.rows(), query.mark()) == (Counter(dict.fromkeys(range(shown + 1), 3)), shown)
    query.undo(plan)
    assert (query.logs(), query.rows(), query.mark()) == (logs, rows, mark)
    again = query.plan(plan.goal)
    assert (again.promise, again.guarantee, again.position) == (plan.promise, plan.guarantee, plan.position)
    query.apply(again)
    assert (query.rows(), query.mark()) == (Counter(dict.fromkeys(range(shown + 1), 3)), shown)


def test_row_6_orphan_that_the_table_has_is_taken_back_and_planned_anew(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, orphan=True, shown=4)
    plan = query.plan("replan")
    assert (plan.guarantee, plan.promise.batch) == (Guarantee.EXACTLY_ONCE, 4)
    assert [step.to_json()["kind"] for step in plan.steps] == ["delta", "file"]
    assert "stops" in plan.steps[0].to_json()["effect"]
    require_there_and_back(query, plan, 3)


def test_row_9_table_that_is_ahead_of_older_logs_goes_back_to_them(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, shown=6)
    plan = query.plan()
    assert (plan.guarantee, plan.promise.batch) == (Guarantee.EXACTLY_ONCE, 4)
    require_there_and_back(query, plan, 3)


def test_row_9_is_refused_when_kafka_does_not_say_that_it_still_has_the_records(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, shown=6)
    (tmp_path / "kafka.json").write_text(
        (tmp_path / "kafka.json").read_text().replace('"earliest": 0', '"earliest": 21')
    )
    with pytest.raises(RepairRefusedError):
        query.plan()


def test_row_10_rows_of_others_stay(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, shown=5)
    write_deltalake(query.table, pa.table({"batch": [99]}), mode="append")
    query.write(6)
    plan = query.plan()
    query.apply(plan)
    assert (query.rows(), query.mark()) == (Counter({0: 3, 1: 3, 2: 3, 3: 3, 99: 1}), 3)
    write_deltalake(query.table, pa.table({"batch": [98]}), mode="append")
    query.undo(plan)
    assert query.rows() == Counter({**dict.fromkeys(range(7), 3), 99: 1, 98: 1})


def test_row_10_is_refused_when_the_rows_were_rewritten(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, shown=6)
    DeltaTable(query.table).optimize.compact()
    with pytest.raises(RepairRefusedError):
        query.plan()


@pytest.mark.parametrize("is_late", [False, True])
def test_plan_is_stale_when_its_rows_were_rewritten_since_and_the_seal_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    query = Query(tmp_path, 4, orphan=True, shown=4)
    plan, logs = query.plan("replan"), query.logs()

    def rewrite() -> None:
        DeltaTable(query.table).optimize.compact()

    if is_late:  # once the checkpoint is sealed
        monkeypatch.setattr(Engine, "_fence", lambda _: rewrite())
    else:
        rewrite()
    with pytest.raises(PlanStaleError):
        query.apply(plan)
    assert (query.logs(), query.mark()) == (logs, 4)
    assert query.plan().guarantee is Guarantee.EXACTLY_ONCE, "no recovery is open, and the query can be started"


def test_row_12_mark_that_a_restore_left_high_follows_the_rows_and_the_logs_too(tmp_path: Path) -> None:
    query = Query(tmp_path, 5)
    DeltaTable(query.table).restore(2)
    plan = query.plan()
    assert (plan.guarantee, plan.promise.batch) == (Guarantee.EXACTLY_ONCE, 3)
    require_there_and_back(query, plan, 2)


def files_of(folder: Path, count: int) -> FileInput:
    """So many files for a query to read."""
    (folder / "input").mkdir(exist_ok=True)
    for n in range(count):
        file = folder / f"input/f{n:03}.json"
        file.write_text("{}")
        os.utime(file, (FIRST_MODIFIED + n, FIRST_MODIFIED + n))
    return FileInput(f"file://{folder}/input")


@pytest.mark.parametrize("is_left", [True, False], ids=["the mark is still in the log", "the log has dropped it"])
def test_row_13_mark_that_has_expired_is_made_again(tmp_path: Path, is_left: bool) -> None:
    long_ago = int(time.time() * 1000) - 2 * DAY_MS
    query = Query(tmp_path, 4, orphan=True, shown=4, source=files_of(tmp_path, 5), marked_ms=long_ago)
    if not is_left:
        DeltaTable(query.table).create_checkpoint()
        (query.table / "_delta_log" / name_commit(0)).unlink()
    logs, rows = query.logs(), query.rows()
    assert query.recognised() is None
    plan = query.plan()
    assert (plan.guarantee, plan.promise.outcome, plan.promise.batch) == (Guarantee.EXACTLY_ONCE, "reruns", 4)
    (told,) = [step.to_json() for step in plan.steps]
    assert (told["kind"], told["mark"], told["batch"], told["mark_updated_ms"]) == ("delta", 4, 4, long_ago)
    query.apply(plan)
    assert (query.rows(), query.logs(), query.recognised()) == (rows, logs, 4)
    assert query.plan().steps == ()
    query.undo(plan)
    assert (query.rows(), query.logs(), query.recognised()) == (rows, logs, None)
    query.apply(query.plan())
    assert query.recognised() == 4


def test_row_13_is_row_2_where_the_table_lacks_the_batch(tmp_path: Path) -> None:
    long_ago = int(time.time() * 1000) - 2 * DAY_MS
    query = Query(tmp_path, 4, orphan=True, source=files_of(tmp_path, 5), marked_ms=long_ago)
    plan = query.plan()
    assert (plan.guarantee, plan.steps) == (Guarantee.EXACTLY_ONCE, ())


def test_row_13_mark_that_was_made_again_by_an_attempt_of_long_ago_is_made_once_more(tmp_path: Path) -> None:
    long_ago = int(time.time() * 1000) - 2 * DAY_MS
    query = Query(tmp_path, 4, orphan=True, shown=4, source=files_of(tmp_path, 5), marked_ms=long_ago)
    (step,) = query.plan().steps
    assert isinstance(step, DeltaStep)
    table, now_ms = parse_location(str(query.table)), int(time.time() * 1000)
    for at_ms, versions in ((long_ago, 1), (long_ago, 1), (now_ms, 2), (now_ms - 1, 2)):
        site = Site(
            recovery="20261121-160058-7f3a",
            checkpoint=table,
            storage=open_writable(table),
            kept=table,
            now_ms=at_ms,
            open_other=open_writable,
        )
        CarriedDeltaStep(step, site).do(())
        assert DeltaTable(query.table).version() == step.version + versions
    assert query.recognised() == 4


def test_row_12_of_files_needs_each_of_them_as_it_was(tmp_path: Path) -> None:
    files = [tmp_path / "input" / f"f{n:03}.json" for n in range(5)]
    query = Query(tmp_path, 5, source=files_of(tmp_path, 5))
    DeltaTable(query.table).restore(2)
    plan = query.plan()
    assert (plan.guarantee, plan.sources[0].reread_files) == (
        Guarantee.EXACTLY_ONCE,
        tuple(f"file://{file}" for file in files[3:]),
    )
    require_there_and_back(query, plan, 2)
    query = Query(tmp_path / "again", 5, source=FileInput(f"file://{tmp_path}/input"))
    DeltaTable(query.table).restore(2)
    files[4].unlink()
    with pytest.raises(RepairRefusedError) as refused:
        query.plan()
    assert "f004.json" in str(refused.value.found)


@pytest.mark.parametrize("name", ["delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors"])
def test_table_that_takes_no_removal_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    query = Query(tmp_path, 4, orphan=True, shown=4)
    file = query.table / "_delta_log" / name_commit(0)
    file.write_text(file.read_text().replace('"configuration":{}', f'"configuration":{{"{name}":"true"}}'))
    file.write_text(file.read_text().replace('"configuration": {}', f'"configuration": {{"{name}": "true"}}'))
    with pytest.raises(RepairRefusedError) as refused:
        query.plan("replan")
    assert refused.value.found == f"the table has {name} = true"


def test_table_of_a_function_tells_by_the_name_that_it_gives(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, orphan=True, shown=-1)
    for batch in range(5):
        properties = CommitProperties(app_transactions=[Transaction("etl", batch, query.marked_ms)])
        write_deltalake(query.table, pa.table({"batch": [batch]}), mode="append", commit_properties=properties)
        query.tell(batch)
    evidence = EvidenceOptions(sinks=(str(query.table),))
    guess = make_plan(resolve_target(str(query.checkpoint)), PlanOptions(evidence=evidence))
    assert guess.guarantee is Guarantee.AT_LEAST_ONCE
    plan = make_plan(resolve_target(str(query.checkpoint)), PlanOptions(evidence=replace(evidence, txn_app_id="etl")))
    assert (plan.guarantee, plan.steps, plan.evidence[-2:]) == (Guarantee.EXACTLY_ONCE, (), ("--txn-app-id", "etl"))
    apply_plan(plan)


def test_number_of_an_orphan_is_used_up_and_then_nobody_has_to_know_of_the_driver(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, orphan=True)
    plan = query.plan("replan")
    assert (plan.guarantee, plan.promise.batch) == (Guarantee.EXACTLY_ONCE, 5)
    logs, rows = query.logs(), query.rows()
    query.apply(plan, driver_is_dead=False)
    assert (query.rows(), query.mark()) == (rows, 4)
    with pytest.raises(DriverNotProvenDeadError):
        undo(plan.recovery, target=resolve_target(str(query.checkpoint)))
    query.undo(plan)
    assert (query.rows(), query.mark(), query.logs()) == (rows, 3, logs)


def test_death_is_to_be_proven_where_the_sink_is_not_known_to_be_the_only_one(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, orphan=True, shown=4)
    with pytest.raises(DriverNotProvenDeadError):
        query.apply(query.plan("replan"), driver_is_dead=False)


def test_undo_is_refused_when_vacuum_took_the_files(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, shown=5)
    plan = query.plan()
    query.apply(plan)
    DeltaTable(query.table).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(UndoRefusedError, match="VACUUM"):
        query.undo(plan)


def test_table_stays_readable_beyond_a_checkpoint_of_its_log(tmp_path: Path) -> None:
    query = Query(tmp_path, 4, shown=6)
    plan = query.plan()
    query.apply(plan)
    DeltaTable(query.table).create_checkpoint()
    assert (query.rows(), query.mark()) == (Counter(dict.fromkeys(range(4), 3)), 3)
    query.write(4)
    assert query.mark() == 4
