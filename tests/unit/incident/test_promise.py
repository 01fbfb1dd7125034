from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.incident.promise import Kept, Promised, check_promise
from lastgood.ledger.opening import open_ledger
from lastgood.observe import open_query as evidence_module
from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.backup import create
from lastgood.planning.plan import Plan
from lastgood.records.record import Progress, RecordedSource
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder, FileInput
from lastgood.testing.storage import RefusingStorage

NOTHING = EvidenceOptions()
LATER_MS = 4_000_000_000_000


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LASTGOOD_LEDGER", raising=False)


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    """Seven batches are committed, an eighth is planned."""
    built = CheckpointBuilder(tmp_path / "chk")
    built.run(7)
    built.plan()
    return built


def check(query: CheckpointBuilder, plan: Plan | None, first: int = 7, **options: Any) -> Promised:
    return check_promise(plan, resolve_target(str(query.folder)), first, **{"evidence": NOTHING, **options})


def record(query: CheckpointBuilder, rows: int, *, start: int = 35, end: int = 40, at_ms: int = LATER_MS) -> None:
    folder = Path(f"{query.folder}.lastgood/records")
    folder.mkdir(parents=True, exist_ok=True)
    ends = [{"orders": dict.fromkeys(("0", "1"), offset)} for offset in (start, end)]
    source = RecordedSource(description="KafkaV2", start_offset=ends[0], end_offset=ends[1])
    told = Progress(
        recorded_at_ms=at_ms, query_id=QUERY_ID, batch_id=7, num_input_rows=rows, sources=(source,)
    ).to_json()
    (folder / "1795220516284-77.000001.jsonl").write_text(json.dumps(told) + "\n")


def file_sink(folder: Path, batches: int) -> EvidenceOptions:
    log = folder / "sink/_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    for number in range(batches):
        (log / str(number)).write_bytes(b"v1")
        os.utime(log / str(number), (LATER_MS // 1000 + 60, LATER_MS // 1000 + 60))  # after every plan
    return EvidenceOptions(sinks=(f"file:{folder / 'sink'}",))


def test_plain_restart_that_ran_its_batch_again_keeps_its_promise(query: CheckpointBuilder) -> None:
    plan = make_plan(resolve_target(str(query.folder)))
    query.commit()
    for each in (plan, None):
        found = check(query, each)
        assert found.state is Kept.KEPT
        assert any("batch 7 begins where the batch before it ends: orders/0 at 35" in line for line in found.because)


def test_plain_restart_is_kept_with_the_sink_and_broken_without_it(query: CheckpointBuilder, tmp_path: Path) -> None:
    sink = file_sink(tmp_path, 7)
    plan = make_plan(resolve_target(str(query.folder)), PlanOptions(evidence=sink))
    query.commit()
    found = check(query, plan, evidence=sink)
    assert (found.state, found.because[0]) == (
        Kept.BROKEN,
        f"{tmp_path / 'sink'} shows batch 6 as the newest, and batch 7 is committed",
    )
    file_sink(tmp_path, 8)
    assert check(query, plan, evidence=sink).state is Kept.KEPT


def test_batch_that_is_not_committed_breaks_the_promise(query: CheckpointBuilder) -> None:
    found = check(query, make_plan(resolve_target(str(query.folder))))
    assert found == Promised(Kept.BROKEN, ("batch 7 is planned, and not in the commit log",))
    assert found.to_json() == {"state": "broken", "because": list(found.because)}


@pytest.fixture
def restored(tmp_path: Path) -> tuple[CheckpointBuilder, Plan]:
    """The newest plan was cut off, and came back from the mirror."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    create(resolve_target(str(query.folder)))
    whole = (query.folder / "offsets/6").read_bytes()
    (query.folder / "offsets/6").write_bytes(b"v1\n{")
    plan = make_plan(resolve_target(str(query.folder)), PlanOptions(evidence=file_sink(tmp_path, 7)))
    assert plan.steps
    (query.folder / "offsets/6").write_bytes(whole)
    query.plan(at_ms=LATER_MS)
    query.commit()
    return query, plan


def test_rows_that_nobody_counted_leave_a_repair_open(restored: tuple[CheckpointBuilder, Plan], tmp_path: Path) -> None:
    query, plan = restored
    sink = file_sink(tmp_path, 8)
    found = check(query, plan, evidence=sink)
    assert (found.state, found.because[0]) == (
        Kept.UNKNOWN,
        "how many rows were read of 10 offsets is not known: nobody counted them",
    )
    assert check(query, plan, evidence=sink, rows=10).state is Kept.KEPT
    empty = check(query, plan, evidence=sink, rows=0)
    assert empty.state is Kept.BROKEN
    assert "no row was read of 10 offsets" in empty.because[0]


def test_recorder_tells_rows_and_where_spark_began(restored: tuple[CheckpointBuilder, Plan], tmp_path: Path) -> None:
    query, plan = restored
    sink = file_sink(tmp_path, 8)
    record(query, 10)
    found = check(query, plan, evidence=sink)
    assert found.state is Kept.KEPT
    assert any("as the recorder saw it" in line for line in found.because)
    record(query, 10, start=33)
    assert check(query, plan, evidence=sink).because[0].startswith("orders/0 begins at 33, and the plan put it at 35")
    record(query, 0, at_ms=1)  # from before the plan was made: of another life of the batch
    assert check(query, plan, evidence=sink).state is Kept.UNKNOWN


def test_batch_before_it_has_to_be_as_the_plan_left_it(
    restored: tuple[CheckpointBuilder, Plan], tmp_path: Path
) -> None:
    query, plan = restored
    entry = query.folder / "offsets/6"
    entry.write_text(entry.read_text().replace('"0":35', '"0":30'))
    found = check(query, plan, evidence=file_sink(tmp_path, 8), rows=10)
    assert found.state is Kept.BROKEN
    assert "offsets/6 is another plan than the one that was left there" in found.because
    assert "orders/0 begins at 30, and the plan put it at 35" in found.because


def test_ledger_tells_rows_where_no_recorder_wrote_beside_the_checkpoint(
    restored: tuple[CheckpointBuilder, Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, plan = restored
    source = RecordedSource(description="KafkaV2", end_offset={"orders": {"0": 40, "1": 40}})
    told = Progress(
        recorded_at_ms=LATER_MS,
        query_id=QUERY_ID,
        batch_id=7,
        num_input_rows=9,
        sources=(source,),
        checkpoint=f"file:{query.folder}",
    )
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with open_ledger(url) as ledger:
        ledger.record([told])
    monkeypatch.setenv("LASTGOOD_LEDGER", url)
    found = check(query, plan, evidence=file_sink(tmp_path, 8))
    assert (found.state, found.because[-1]) == (Kept.KEPT, "9 rows were read of 10 offsets, by the ledger")
    monkeypatch.setenv("LASTGOOD_LEDGER", f"sqlite:///{tmp_path / 'none.db'}")
    assert check(query, plan, evidence=file_sink(tmp_path, 8)).state is Kept.UNKNOWN


def test_reposition_is_kept_where_the_batch_begins_at_the_chosen_offsets(tmp_path: Path) -> None:
    from lastgood.observe.positions import StartChoice
    from lastgood.planning.price import Waiver

    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    options = PlanOptions("reposition", StartChoice(stable_lag=2), accept=(Waiver.DUPLICATES,))
    plan = make_plan(resolve_target(str(query.folder)), options)
    entry = query.folder / "offsets/6"
    text = entry.read_text()
    query.plan()
    query.commit()
    assert check(query, plan, rows=20).state is Kept.BROKEN  # nobody has applied it
    entry.write_text(text.replace(KafkaOffset({"orders": {0: 35, 1: 35}}).to_text(), '{"orders":{"0":25,"1":25}}'))
    assert check(query, plan, rows=20).state is Kept.KEPT


def test_purged_batch_is_told_by_the_mirror_and_else_unknown(query: CheckpointBuilder) -> None:
    query.commit()
    plan = make_plan(resolve_target(str(query.folder)))
    create(resolve_target(str(query.folder)))
    query.run(150)
    query.purge()
    assert check(query, None).state is Kept.KEPT
    for part in Path(f"{query.folder}.lastgood/mirror").rglob("*.json*"):
        part.unlink()
    found = check(query, None)
    assert found.state is Kept.UNKNOWN
    assert "not known any more" in found.because[0]
    assert check(query, plan).state is Kept.BROKEN  # that plan promised batch 8


def test_files_are_counted_by_their_log(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk", FileInput())
    query.run(3)
    assert check(query, None, 2).state is Kept.KEPT
    plan = make_plan(resolve_target(str(query.folder)))
    query.run(1)
    assert check(query, plan, 3, rows=1).state is Kept.KEPT
    assert check(query, plan, 3, rows=0).because[0].startswith("no row was read of 1 log entries")


def test_checkpoint_that_is_gone_is_unknown(tmp_path: Path) -> None:
    found = check_promise(None, resolve_target(str(tmp_path / "none")), 7, evidence=NOTHING)
    assert found == Promised(Kept.UNKNOWN, ("the checkpoint does not tell: there is no checkpoint",))


def test_where_the_first_batch_only_used_up_its_number_the_next_one_is_looked_at_too(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan(0)
    plan = make_plan(resolve_target(str(query.folder)))
    query.commit()
    assert check(query, plan).because[-1] == "batch 7 had nothing to read"
    query.plan()
    query.commit()
    found = check(query, plan)
    assert found.state is Kept.KEPT
    assert any(line.startswith("batch 8 begins where the batch before it ends") for line in found.because)
    assert check(query, plan, evidence=file_sink(tmp_path, 8)).because[0].endswith("batch 8 is committed")


def test_records_that_cannot_be_read_leave_it_open(query: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    query.commit()
    record(query, 10)
    silent = RefusingStorage(parse_location(f"{query.folder}.lastgood/records"))
    monkeypatch.setattr(evidence_module, "open_storage", lambda _: silent)
    found = check(query, None)
    assert (found.state, found.because[0].partition(":")[0]) == (Kept.UNKNOWN, "what a recorder saw is not known")
