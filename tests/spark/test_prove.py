"""`plan --prove`: real Spark plans the next batch on a copy of the logs, and the plan is held against what it did."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from deltalake import DeltaTable, write_deltalake
from reading import read_files
from typed import restore_ctrl_c

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.journal.plan_file import parse_plan
from lastgood.lab.kafka import KafkaBroker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.survey import survey
from lastgood.planning.plan import Promise
from lastgood.planning.proving import PlanDisprovedError
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.recovery.prover import Prover
from lastgood.settings.target import resolve_target
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput, KafkaInput

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("java")]

LASTGOOD = [sys.executable, "-c", "from lastgood.cli.main import main; main()"]
DEADLINE_SECONDS = 120
READ = 15
UNREAD = 7


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go; a proof leaves none."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def on_topic(broker: KafkaBroker, topic: str, folder: Path, *, orphan: bool, committed: int = 3) -> Path:
    """A query that has committed so many batches of the topic, and perhaps planned one more."""
    broker.create_topic(topic, 2)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for n in range(READ + UNREAD):
        for partition in range(2):
            producer.produce(topic, str(n), partition=partition)
    assert producer.flush(30) == 0
    query = CheckpointBuilder(folder / "chk", KafkaInput(topic), checksums=True)
    query.run(committed)
    if orphan:
        query.plan()
    return folder / "chk"


def on_files(folder: Path, *, orphan: bool) -> Path:
    """The same on a folder of files; two more are new."""
    (folder / "input").mkdir()
    for n in range(6):
        (folder / "input" / f"f{n:03d}.json").write_text('{"id": 1}\n')
    query = CheckpointBuilder(folder / "chk", FileInput(f"file://{folder}/input"), checksums=True)
    query.run(3)
    if orphan:
        query.plan()
    return folder / "chk"


def prove(*words: object, code: int = 0) -> dict[str, Any]:
    command = [*LASTGOOD, "plan", *map(str, words), "--prove", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.services
def test_batch_that_is_run_again_is_proven_with_its_ranges_and_nothing_is_touched(
    broker: KafkaBroker, spark_jars: tuple[Path, ...], topic: str, tmp_path: Path, scratch: Path
) -> None:
    checkpoint = on_topic(broker, topic, tmp_path, orphan=True)
    before = read_files(checkpoint)
    told = prove(checkpoint, "--kafka", broker.bootstrap, "-o", "plan.json")
    line = f"proven with Spark 4.2.0: next batch 3 reads {topic}/0 15..20, {topic}/1 15..20"
    assert (told["proof"]["proven"], told["proof"]["line"]) == (True, line)
    assert parse_plan(Path("plan.json").read_bytes(), "plan.json").to_json()["proof"] == told["proof"]
    assert read_files(checkpoint) == before
    assert list(scratch.iterdir()) == []
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})  # in a variable: without it no answer ever comes
    groups = admin.list_consumer_groups().result(60).valid
    assert not [group for group in groups if "spark" in group.group_id]
    del spark_jars


@pytest.mark.proof
@pytest.mark.services
def test_first_batch_is_proven_to_begin_where_its_source_has_written_down(
    broker: KafkaBroker, spark_jars: tuple[Path, ...], topic: str, tmp_path: Path
) -> None:
    checkpoint = on_topic(broker, topic, tmp_path, orphan=True, committed=0)
    begin = checkpoint / "sources/0/0"
    begin.write_bytes(begin.read_bytes().replace(b'"0":0,"1":0', b'"0":2,"1":3'))
    (checkpoint / "sources/0/.0.crc").unlink()
    for reads in (f"{topic}/0 2..5, {topic}/1 3..5", f"{topic}/0 from 2, {topic}/1 from 3"):
        proof = prove(checkpoint, "--kafka", broker.bootstrap)["proof"]
        assert (proof["proven"], proof["line"]) == (True, f"proven with Spark 4.2.0: next batch 0 reads {reads}")
        assert not any("begins" in each for each in proof["leaves_open"])
        for name in ("0", ".0.crc"):
            (checkpoint / "offsets" / name).unlink(missing_ok=True)
    del spark_jars


@pytest.mark.proof
@pytest.mark.services
def test_plan_that_changes_the_logs_is_proven_and_a_false_promise_is_not(
    broker: KafkaBroker, spark_jars: tuple[Path, ...], topic: str, tmp_path: Path
) -> None:
    checkpoint = on_topic(broker, topic, tmp_path, orphan=True)
    evidence = EvidenceOptions(kafka=broker.bootstrap)
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions("replan", evidence=evidence, prove=True))
    assert plan.proof is not None
    assert plan.proof.line == f"proven with Spark 4.2.0: next batch {READ // 5} is empty"
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(READ // 5):
        (log / str(number)).write_bytes(b"v1")
    evidence = replace(evidence, sinks=(f"file:{log.parent}",))
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions("replan", evidence=evidence, prove=True))
    assert plan.steps
    assert plan.proof is not None
    assert plan.proof.batch == plan.promise.batch
    assert plan.proof.reads == (f"{topic}/0 from 15", f"{topic}/1 from 15")
    promise = Promise("4.2", "resumes", 9, "a false one")
    with pytest.raises(PlanDisprovedError) as caught:
        Prover.here().prove(replace(plan, promise=promise), survey(resolve_target(str(checkpoint)), evidence=evidence))
    assert caught.value.found == f"Spark 4.2.0 did batch {plan.promise.batch} instead of 9"
    del spark_jars


@pytest.mark.proof
def test_folder_of_files_is_proven_and_a_checkpoint_on_which_spark_fails_is_not(tmp_path: Path) -> None:
    checkpoint = on_files(tmp_path, orphan=True)
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions(prove=True))
    assert plan.proof is not None
    assert (plan.proof.batch, plan.proof.reads) == (3, ("source 0 log entries 3..3",))
    (checkpoint / "offsets/3").write_bytes(b"")
    (checkpoint / "offsets/.3.crc").unlink()
    with pytest.raises(PlanDisprovedError) as caught:
        Prover.here().prove(plan, survey(resolve_target(str(checkpoint)), evidence=EvidenceOptions()))
    assert "Incomplete log file" in (caught.value.found or "")


@pytest.mark.proof
def test_query_that_has_nothing_to_read_is_proven_to_start(tmp_path: Path) -> None:
    checkpoint = on_files(tmp_path, orphan=False)
    for path in (tmp_path / "input").glob("f00[345].json"):
        path.unlink()
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions(prove=True))
    assert plan.proof is not None
    assert plan.proof.line == "proven with Spark 4.2.0: it starts, and has nothing to read yet"


@pytest.mark.proof
def test_table_is_proven(spark_jars: tuple[Path, ...], tmp_path: Path) -> None:
    table = tmp_path / "table"
    for n in range(3):
        write_deltalake(table, pa.table({"n": [n]}), mode="append")
    checkpoint = on_files(tmp_path, orphan=False)
    (tmp_path / "chk/sources/0").rename(tmp_path / "gone")
    for number in range(3):
        entry = checkpoint / f"offsets/{number}"
        table_id = str(DeltaTable(table).metadata().id)
        line = DeltaOffset(1, table_id, number, -1, is_starting_version=False).to_text().encode()
        entry.write_bytes(b"\n".join([*entry.read_bytes().split(b"\n")[:2], line]))
        (checkpoint / f"offsets/.{number}.crc").unlink()
    plan = make_plan(resolve_target(str(checkpoint)), PlanOptions())
    found = survey(resolve_target(str(checkpoint)), evidence=EvidenceOptions())
    tables = {"0": DeltaFacts(str(table), table_id)}
    proof = Prover.here().prove(plan, replace(found, seen=replace(found.seen, tables=tables))).proof
    assert proof is not None
    assert (proof.is_proven, proof.batch) == (True, 3)
    del spark_jars


def test_plan_that_cannot_be_proven_is_saved_and_the_reason_told(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    told = prove("chk", "-o", "plan.json", code=3)
    assert told["proof"]["line"] == "NOT proven: source 0 reads Kafka, and no broker is given: --kafka SERVERS"
    assert Path("plan.json").exists()


def test_who_is_interrupted_leaves_nothing_behind(tmp_path: Path, scratch: Path) -> None:
    checkpoint = on_files(tmp_path, orphan=True)
    before = read_files(checkpoint)
    command = [*LASTGOOD, "plan", str(checkpoint), "--prove", "-o", "plan.json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=restore_ctrl_c,
    ) as running:
        below: list[psutil.Process] = []

        def is_started() -> bool:
            with contextlib.suppress(psutil.NoSuchProcess):  # one that ended as we looked
                below[:] = psutil.Process(running.pid).children(recursive=True)
                return any("java" in each.name() for each in below)
            return False

        deadline = time.monotonic() + DEADLINE_SECONDS
        while not is_started():
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(running.pid, signal.SIGINT)
        running.communicate(timeout=DEADLINE_SECONDS)
    assert running.returncode == 130
    assert not psutil.wait_procs(below, timeout=DEADLINE_SECONDS)[1]
    assert (list(scratch.iterdir()), Path("plan.json").exists(), read_files(checkpoint)) == ([], False, before)
