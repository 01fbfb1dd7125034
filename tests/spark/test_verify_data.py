"""The audit against a real broker, real tables and real Spark: what is planted is found, at its place, and no more."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from deltalake import write_deltalake
from typed import restore_ctrl_c

import lastgood.spark
from lastgood.audit.spark_job import SparkSubmit
from lastgood.audit.specification import make_audit_spec
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, make_quick_conf, make_small_conf, submit
from lastgood.operations.verify import verify_data
from lastgood.process.java import Java
from lastgood.settings.target import resolve_target
from lastgood.spark.audit import Audit, AuditSpec

pytestmark = [pytest.mark.spark, pytest.mark.services, pytest.mark.timeout(1200)]

LASTGOOD = Path(sys.executable).parent / "lastgood"
JOB_FOLDER = Path(lastgood.spark.__file__).parent
DEADLINE_SECONDS = 180
AMOUNT = "amount=get_json_object(cast(value as string), '$.amount')"

Row = dict[str, Any]
Ends = Mapping[str, Mapping[int, int]]


class Stage:
    """Topics, checkpoints and tables for the audits."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self.folder = folder
        self.broker = broker

    def producer(self, **settings: object) -> Producer:
        return Producer({"bootstrap.servers": self.broker.bootstrap, "log_level": 0, **settings})

    def produce(self, topic: str, partition: int, values: Sequence[object], producer: Producer | None = None) -> None:
        """Write one record per value; a pair is key and value."""
        used = producer or self.producer()
        refused: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                refused.append(error)

        for each in values:
            key, value = each if isinstance(each, tuple) else (None, each)
            text = value if isinstance(value, str) else json.dumps(value)
            used.produce(topic, text, key=key, partition=partition, on_delivery=delivered)
        assert (used.flush(DEADLINE_SECONDS), refused) == (0, [])

    def checkpoint(self, name: str, *ends: Ends, starts: Ends | None = None) -> str:
        """A checkpoint whose one batch is committed, later than every record, and ended there; `ends` per source."""
        files = {
            "metadata": '{"id":"9818c18b-9839-4690-99f7-f5f3cde02c1d"}',
            "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
            "offsets/0": "\n".join(
                ["v1", '{"batchWatermarkMs":0,"batchTimestampMs":4102444800000,"conf":{}}', *map(json.dumps, ends)]
            ),
        }
        for index, end in enumerate(ends):
            zeros = {topic: dict.fromkeys(partitions, 0) for topic, partitions in end.items()}
            files[f"sources/{index}/0"] = "\0v1\n" + json.dumps(starts or zeros)
        for path, text in files.items():
            file = self.folder / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return str(self.folder / name)

    def delta(self, name: str, rows: Sequence[Row]) -> str:
        location = self.folder / f"{name}.table"
        write_deltalake(location, pa.Table.from_pylist(list(rows), schema=_schema(rows)))
        return f"delta:{location}"

    def spec(self, checkpoint: str, sink: str, **options: Any) -> AuditSpec:
        return make_audit_spec(resolve_target(checkpoint), kafka=self.broker.bootstrap, sink=sink, **options)


def _schema(rows: Sequence[Row]) -> pa.Schema:
    types = {"id": pa.string(), "topic": pa.string(), "partition": pa.int32()}
    return pa.schema([(name, types.get(name, pa.int64())) for name in rows[0]])


def by_id(stage: Stage) -> AuditSpec:
    """No positions in the table, all kinds of damage, some keys twice in the source, more than 100 ranges lost."""
    stage.broker.create_topic("by-id", partitions=3)
    records = {
        partition: [{"id": f"{partition}-{offset}", "amount": offset} for offset in range(size)]
        for partition, size in enumerate((100, 100, 300))
    }
    records[0][51] = records[0][50]
    records[1][61] = {"id": "1-60", "amount": 60}
    for partition, values in records.items():
        stage.produce("by-id", partition, [(value["id"], value) for value in values])
    stage.produce("by-id", 0, ["this is no JSON"])
    rows = [dict(value) for values in records.values() for value in values]
    rows.append({"id": None, "amount": None})
    lost = {"0-10", "0-11", "0-12", "1-5", *(f"2-{offset}" for offset in range(1, 300, 2))}
    rows = [row for row in rows if row["id"] not in lost]
    rows.remove({"id": "1-60", "amount": 60})
    rows += [{"id": key, "amount": int(key[2:])} for key in ("0-20", "1-30", "1-30")]
    for row in rows:
        if row["id"] in ("0-40", "0-41"):
            row["amount"] = 999 if row["id"] == "0-40" else None
    rows += [{"id": "ghost", "amount": 1}] * 2
    checkpoint = stage.checkpoint("by-id", {"by-id": {0: 101, 1: 97, 2: 300}})
    # 1-97 to 1-99 were read by a batch that is not committed: they are in the table already.
    return stage.spec(checkpoint, stage.delta("by-id", rows), keys=["id"], compare=[AMOUNT])


def by_position(stage: Stage) -> AuditSpec:
    """Rows say where they are from, the first 20 records have expired, and two sources are read."""
    stage.broker.create_topic("one")
    stage.broker.create_topic("two")
    rows: list[Row] = []
    for topic, size in (("one", 60), ("two", 10)):
        stage.produce(topic, 0, [{"amount": offset} for offset in range(size)])
        rows += [{"topic": topic, "partition": 0, "offset": offset, "amount": offset} for offset in range(size)]
    stage.broker.delete_records("one", {0: 20})
    rows[40]["amount"] = 999
    rows += [rows[35], rows[10]]
    del rows[65], rows[30]
    rows += [{"topic": "one", "partition": 9, "offset": 3, "amount": 1}]
    rows += [{"topic": None, "partition": None, "offset": None, "amount": 1}]
    checkpoint = stage.checkpoint("by-position", {"one": {0: 60}}, {"two": {0: 8}})
    return stage.spec(checkpoint, stage.delta("by-position", rows), compare=[AMOUNT])


def expired(stage: Stage) -> AuditSpec:
    """As `by_position`, but the rows do not say where they are from."""
    rows = [{"id": str(number), "amount": number} for number in range(60) if number != 30]
    stage.broker.create_topic("expired")
    stage.produce("expired", 0, [{"id": str(number), "amount": number} for number in range(60)])
    stage.broker.delete_records("expired", {0: 20})
    return stage.spec(stage.checkpoint("expired", {"expired": {0: 60}}), stage.delta("expired", rows), keys=["id"])


def transactions(stage: Stage) -> Iterator[AuditSpec]:
    """5 records committed, 5 aborted, the same 5 committed, 3 aborted; markers at 5, 11, 17, 21."""
    stage.broker.create_topic("transactions")
    producer = stage.producer(**{"transactional.id": "verify"})
    producer.init_transactions(DEADLINE_SECONDS)
    for numbers, is_kept in ((range(5), True), (range(5, 10), False), (range(5, 10), True), (range(10, 13), False)):
        producer.begin_transaction()
        stage.produce("transactions", 0, [{"id": str(number)} for number in numbers], producer)
        (producer.commit_transaction if is_kept else producer.abort_transaction)(DEADLINE_SECONDS)
    _await(lambda: stage.broker.latest_offsets("transactions") == {0: 22})  # a marker comes after the answer
    checkpoint = stage.checkpoint("transactions", {"transactions": {0: 22}})
    # Without 8; 3 twice; 5 and 10 from aborted records.
    ids = [0, 1, 2, 3, 4, 5, 6, 7, 9, 3, 5, 10]
    table = stage.delta("transactions", [{"id": str(number), "amount": 0} for number in ids])
    for level in (None, "read_committed", "read_uncommitted"):
        yield stage.spec(checkpoint, table, keys=["id"], isolation_level=level)


def compacted(stage: Stage) -> Iterator[AuditSpec]:
    """60 versions of 3 keys, most of them compacted away; the table has all, but for one key never seen."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
    stage.broker.create_topic("compacted", config=settings)
    versions = [(f"k{number % 3}", {"amount": number}) for number in range(60)]
    stage.produce("compacted", 0, versions)
    time.sleep(0.6)  # the active segment is never compacted: a record after segment.ms closes it
    stage.produce("compacted", 0, [("solo", {"amount": 60})])
    _await(lambda: len(_read(stage.broker, "compacted", last=60)) <= 4)
    checkpoint = stage.checkpoint("compacted", {"compacted": {0: 61}})
    rows = [{"id": key, "amount": value["amount"]} for key, value in versions]
    table = stage.delta("compacted-by-id", [*rows, {"id": "gone", "amount": 1}])
    yield stage.spec(checkpoint, table, keys=["id=cast(key as string)"])
    placed = [{"partition": 0, "offset": offset, "amount": offset} for offset in range(61)]
    table = stage.delta("compacted-by-position", [*placed, placed[59]])
    yield stage.spec(checkpoint, table)


def file_sink(stage: Stage) -> AuditSpec:
    """A folder of Spark's file sink with a file that a failed batch left behind; the query keeps even offsets."""
    stage.broker.create_topic("file-sink")
    stage.produce("file-sink", 0, [{"id": str(number)} for number in range(20)])
    folder = stage.folder / "file-sink.table"
    (folder / "_spark_metadata").mkdir(parents=True)
    for name in ("committed.parquet", "failed.parquet"):
        pq.write_table(pa.table({"id": [str(number) for number in range(0, 20, 2)]}), folder / name)
    file = folder / "committed.parquet"
    entry = {"path": file.as_uri(), "size": file.stat().st_size, "isDir": False, "modificationTime": 1}
    entry |= {"blockReplication": 1, "blockSize": 1, "action": "add"}
    (folder / "_spark_metadata" / "0").write_text("v1\n" + json.dumps(entry))
    checkpoint = stage.checkpoint("file-sink", {"file-sink": {0: 20}})
    return stage.spec(checkpoint, str(folder), keys=["id"], where="offset % 2 = 0")


def refused(stage: Stage) -> Iterator[AuditSpec]:
    """What cannot be compared."""
    stage.broker.create_topic("refused")
    stage.produce("refused", 0, [{"id": "1"}])
    checkpoint = stage.checkpoint("refused", {"refused": {0: 1}})
    table = stage.delta("refused", [{"id": "1", "amount": 1}])
    yield stage.spec(checkpoint, table, keys=["identity"])
    yield stage.spec(checkpoint, table, keys=["id=cast(kee as string)"])
    yield stage.spec(checkpoint, table, keys=["id"], where="offset >")
    yield stage.spec(checkpoint, table)
    yield stage.spec(checkpoint, f"delta:{stage.folder}/nowhere", keys=["id"])
    yield stage.spec(checkpoint, f"file:{stage.folder}/nowhere", keys=["id"])
    yield stage.spec(checkpoint, "table:nowhere", keys=["id"])
    yield stage.spec(checkpoint, table, keys=["id"], where="raise_error('not today') is null")


def _await(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def _read(broker: KafkaBroker, topic: str, *, last: int) -> list[int]:
    """The offsets of partition 0 that have a record, up to `last`."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    offsets: list[int] = []
    while not offsets or offsets[-1] < last:
        message = consumer.poll(DEADLINE_SECONDS)
        assert message is not None
        assert message.error() is None
        offsets.append(message.offset())
    consumer.close()
    return offsets


@pytest.fixture(scope="module")
def stage(java: Java, broker_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("verify")
    config = {"log.cleaner.backoff.ms": "200"}
    with KafkaBroker(folder / "broker", java=java, jars=broker_jars, config=config) as broker:
        yield Stage(folder, broker)


@pytest.fixture(scope="module")
def answers(stage: Stage, java: Java, spark_jars: tuple[Path, ...]) -> dict[str, Any]:
    """The audits that have all kinds of damage between them."""
    specs = {
        "by_id": by_id(stage),
        "by_position": by_position(stage),
        **{f"refused_{number}": spec for number, spec in enumerate(refused(stage))},
    }
    return answer(specs, stage, java, spark_jars)


@pytest.fixture(scope="module")
def other_answers(stage: Stage, java: Java, spark_jars: tuple[Path, ...]) -> dict[str, Any]:
    """The audits of topics and tables of which each has something of its own."""
    one, two, three = transactions(stage)
    compacted_by_id, compacted_by_position = compacted(stage)
    specs = {
        "expired": expired(stage),
        "transactions": one,
        "transactions_committed": two,
        "transactions_uncommitted": three,
        "compacted_by_id": compacted_by_id,
        "compacted_by_position": compacted_by_position,
        "file_sink": file_sink(stage),
    }
    return answer(specs, stage, java, spark_jars)


def answer(specs: Mapping[str, AuditSpec], stage: Stage, java: Java, spark_jars: tuple[Path, ...]) -> dict[str, Any]:
    """Every audit, answered in one Spark session: an `Audit`, or the job's error."""
    folder = stage.folder / next(iter(specs))
    folder.mkdir(exist_ok=True)
    question, told, log = (folder / name for name in ("specs.json", "answers.json", "spark.log"))
    question.write_text(json.dumps([spec.to_json() for spec in specs.values()]))
    script = Path(__file__).with_name("audit_cases.py")
    arguments = [str(JOB_FOLDER), str(question), str(told)]
    # To compile each query takes longer than to run it on some hundred rows; the tests of the command do compile them.
    conf = {
        **make_small_conf(spark_jars),
        "spark.driver.memory": "600m",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
    }
    with (
        log.open("wb") as output,
        submit(script, arguments, environment=find_default_spark(), java=java, conf=conf, output=output) as child,
    ):
        ending = child.wait(DEADLINE_SECONDS * 8)
    assert ending is not None, log.read_text()[-5000:]
    assert ending.is_success, log.read_text()[-5000:]
    found = dict(zip(specs, json.loads(told.read_text()), strict=True))
    return {
        name: Audit.of(each["result"], specs[name], seconds=0) if "result" in each else each["error"]
        for name, each in found.items()
    }


def totals(audit: Audit) -> dict[str, int]:
    return {kind: difference.total for kind, difference in audit.differences()}


def places(audit: Audit, kind: str) -> dict[str, tuple[int, list[tuple[int, int]]]]:
    """Partition → total and ranges."""
    partitions = dict(audit.differences())[kind].partitions
    return {f"{each.topic}-{each.partition}": (each.total, list(each.ranges)) for each in partitions}


def keys(audit: Audit, kind: str) -> list[object]:
    return [next(iter(sample["key"].values())) for sample in dict(audit.differences())[kind].samples]


def test_each_damage_is_counted_once_and_found_at_its_partition_and_offsets(answers: dict[str, Any]) -> None:
    audit = answers["by_id"]
    assert totals(audit) == {"lost": 4 + 1 + 150, "duplicated": 3, "changed": 2, "unknown": 2}
    lost = places(audit, "lost")
    assert lost["by-id-0"] == (3, [(10, 13)])
    assert lost["by-id-1"] == (2, [(5, 6), (61, 62)])  # of two records with one key and one row, the later
    assert places(audit, "duplicated") == {"by-id-0": (1, [(20, 21)]), "by-id-1": (2, [(30, 31)])}
    assert places(audit, "changed") == {"by-id-0": (2, [(40, 42)])}
    assert places(audit, "unknown") == {}
    assert keys(audit, "unknown") == ["ghost"]
    assert keys(audit, "changed") == ["0-40", "0-41"]
    assert audit.changed.samples[0] == {"key": {"id": "0-40"}, "topic": "by-id", "partition": 0, "offset": 40}
    assert (audit.isolation_level, audit.sink_version, audit.is_exact) == ("read_uncommitted", 0, False)


def test_of_many_ranges_the_first_hundred_are_told_and_the_others_counted(answers: dict[str, Any]) -> None:
    partition = answers["by_id"].lost.partitions[2]
    assert (partition.partition, partition.total, partition.ranges_left_out) == (2, 150, 50)
    assert partition.ranges == tuple((offset, offset + 1) for offset in range(1, 200, 2))
    assert len(answers["by_id"].lost.samples) == 10


def test_what_is_not_committed_yet_is_neither_lost_nor_unknown(answers: dict[str, Any]) -> None:
    audit = answers["by_id"]
    assert (audit.rows_before, audit.rows_after, audit.rows_not_verifiable) == (0, 3, 0)
    assert (audit.source_offsets, audit.source_records) == (498, 498)


def test_rows_with_positions_are_compared_by_them_without_being_asked_to(answers: dict[str, Any]) -> None:
    audit = answers["by_position"]
    assert audit.keys == ("topic", "partition", "offset")
    assert totals(audit) == {"lost": 2, "duplicated": 1, "changed": 1, "unknown": 2}
    assert places(audit, "lost") == {"one-0": (1, [(30, 31)]), "two-0": (1, [(5, 6)])}
    assert places(audit, "duplicated") == {"one-0": (1, [(35, 36)])}
    assert places(audit, "changed") == {"one-0": (1, [(40, 41)])}
    assert places(audit, "unknown") == {"one-9": (1, [(3, 4)])}


def test_what_kafka_no_longer_serves_is_not_compared_and_said(answers: dict[str, Any]) -> None:
    audit = answers["by_position"]
    shown = audit.to_json()["source"]
    assert shown["compared"] == {"one": {"0": [[20, 60]]}, "two": {"0": [[0, 8]]}}
    assert shown["not_served"] == {"one": {"0": [[0, 20]]}}
    assert (audit.rows_before, audit.rows_after) == (21, 2)


@pytest.mark.proof
def test_without_positions_rows_of_expired_records_are_not_called_unknown(other_answers: dict[str, Any]) -> None:
    audit = other_answers["expired"]
    assert totals(audit) == {"lost": 1, "duplicated": 0, "changed": 0, "unknown": 0}
    assert places(audit, "lost") == {"expired-0": (1, [(30, 31)])}
    assert (audit.rows_not_verifiable, audit.sink_rows) == (20, 59)


@pytest.mark.proof
def test_aborted_records_are_neither_lost_nor_duplicated(other_answers: dict[str, Any]) -> None:
    audit = other_answers["transactions"]
    assert totals(audit) == {"lost": 1, "duplicated": 1, "changed": 0, "unknown": 0}
    assert places(audit, "lost") == {"transactions-0": (1, [(15, 16)])}
    assert places(audit, "duplicated") == {"transactions-0": (1, [(3, 4)])}
    assert (audit.isolation_level, audit.aborted_records, audit.aborted_rows) == ("both", 8, 2)
    assert (audit.source_offsets, audit.source_records) == (22, 10)


@pytest.mark.proof
def test_isolation_level_that_is_given_decides_what_is_expected(other_answers: dict[str, Any]) -> None:
    committed, uncommitted = other_answers["transactions_committed"], other_answers["transactions_uncommitted"]
    assert totals(committed) == {"lost": 1, "duplicated": 2, "changed": 0, "unknown": 1}
    assert (committed.source_records, committed.aborted_records) == (10, 0)
    assert totals(uncommitted) == {"lost": 7, "duplicated": 1, "changed": 0, "unknown": 0}
    assert uncommitted.source_records == 18


@pytest.mark.proof
def test_rows_of_records_that_were_compacted_away_are_not_verifiable(other_answers: dict[str, Any]) -> None:
    audit = other_answers["compacted_by_id"]
    assert totals(audit) == {"lost": 1, "duplicated": 0, "changed": 0, "unknown": 0}
    assert places(audit, "lost") == {"compacted-0": (1, [(60, 61)])}
    assert audit.rows_not_verifiable == 61 - (audit.source_records - 1)


@pytest.mark.proof
def test_on_a_compacted_topic_a_doubled_position_is_still_a_duplicate(other_answers: dict[str, Any]) -> None:
    audit = other_answers["compacted_by_position"]
    assert totals(audit) == {"lost": 0, "duplicated": 1, "changed": 0, "unknown": 0}
    assert places(audit, "duplicated") == {"compacted-0": (1, [(59, 60)])}
    assert audit.rows_not_verifiable == 61 - audit.source_records > 0


@pytest.mark.proof
def test_file_sink_is_read_by_its_log_and_only_what_the_query_keeps_is_expected(other_answers: dict[str, Any]) -> None:
    audit = other_answers["file_sink"]
    assert totals(audit) == {"lost": 0, "duplicated": 0, "changed": 0, "unknown": 0}
    assert (audit.sink_rows, audit.source_records, audit.source_offsets) == (10, 10, 20)
    assert audit.sink.startswith("file:")


def test_what_cannot_be_compared_is_refused_by_kind(answers: dict[str, Any]) -> None:
    errors = [answers[f"refused_{number}"] for number in range(8)]
    kinds = ["no_such_column", "bad_expression", "bad_expression", "no_key", *["sink_unreadable"] * 3, "failed"]
    assert [error["kind"] for error in errors] == kinds
    assert errors[0] == {"kind": "no_such_column", "subject": "identity", "found": "id, amount"}
    assert errors[1]["subject"] == "cast(kee as string)"
    assert "kee" in errors[1]["found"]
    assert errors[2]["subject"] == "offset >"
    assert "not today" in errors[7]["found"]
    assert all("\n" not in error["found"] for error in errors)


def environment(folder: Path) -> dict[str, str]:
    cache = {name: value for name, value in os.environ.items() if name in {"LASTGOOD_CACHE", "JAVA_HOME"}}
    cache.setdefault("LASTGOOD_CACHE", str(Path.home() / ".cache" / "lastgood"))
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "COLUMNS": "120", **cache}


@pytest.mark.proof
def test_command_prints_one_object_and_exits_with_1_for_a_damaged_table(
    answers: dict[str, Any], stage: Stage, tmp_path: Path
) -> None:
    command = [LASTGOOD, "verify", stage.folder / "by-id", "--data", "--kafka", stage.broker.bootstrap]
    command += ["--sink", stage.folder / "by-id.table", "--key", "id", "--compare", AMOUNT, "--format", "json"]
    shown = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert (shown.returncode, shown.stderr) == (1, "")
    found, expected = json.loads(shown.stdout), answers["by_id"].to_json()
    assert found.pop("seconds") > expected.pop("seconds")
    assert found == expected


@pytest.mark.proof
def test_job_runs_on_the_spark_submit_that_is_given(
    other_answers: dict[str, Any],
    stage: Stage,
    java: Java,
    spark_jars: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    conf = make_quick_conf(find_default_spark(), java)
    given = ("spark-submit", *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")))
    told: list[str] = []
    audit = verify_data(
        resolve_target(str(stage.folder / "file-sink")),
        kafka=stage.broker.bootstrap,
        sink=f"file:{stage.folder}/file-sink.table",
        keys=["id"],
        where="offset % 2 = 0",
        spark=SparkSubmit(given, jars=",".join(map(str, spark_jars))),
        progress=told.append,
    )
    assert audit.is_exact
    assert audit.source_records == other_answers["file_sink"].source_records
    assert told == [
        "reading the checkpoint and asking Kafka",
        "starting Spark",
        "reading the sink",
        "reading the source and comparing",
    ]


def test_ctrl_c_ends_the_job_and_leaves_nothing_behind(stage: Stage, answers: dict[str, Any], tmp_path: Path) -> None:
    del answers  # the topic and table of the audits
    command = [LASTGOOD, "verify", stage.folder / "by-id", "--data", "--kafka", stage.broker.bootstrap]
    command += ["--sink", stage.folder / "by-id.table", "--key", "id"]
    verify = subprocess.Popen(
        command,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=restore_ctrl_c,
    )
    job: list[psutil.Process] = []

    def is_started() -> bool:
        assert verify.poll() is None
        with contextlib.suppress(psutil.NoSuchProcess):  # one that ended as we looked
            job[:] = psutil.Process(verify.pid).children(recursive=True)
            return any(process.name() == "java" for process in job)
        return False

    _await(is_started)
    verify.send_signal(signal.SIGINT)
    assert verify.wait(DEADLINE_SECONDS) == 130
    stdout, stderr = verify.communicate()
    assert (stdout, stderr.strip()) == (b"", b"")
    assert [process for process in job if not _has_ended(process)] == []


def _has_ended(process: psutil.Process) -> bool:
    """Also if whoever inherited it has not yet taken note of its end."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
