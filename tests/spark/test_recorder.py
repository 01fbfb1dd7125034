"""The recorder in real applications: sinks that misbehave, Spark Connect, Kafka's topic ids and lost data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from plugin_services import require_service

import lastgood
from lastgood.lab.cache import hold_exclusively, locate_cache
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.ports import LOOPBACK
from lastgood.lab.spark import find_default_spark, submit
from lastgood.ledger.opening import open_ledger
from lastgood.observe.ledger import fill_ledger
from lastgood.process.child import Child
from lastgood.process.java import Java
from lastgood.records.files import parse_records
from lastgood.records.record import Crashed, Progress, QueryStarted, Record, Terminated
from lastgood.settings.target import resolve_target
from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE

pytestmark = pytest.mark.spark

HERE = Path(__file__).parent
DEADLINE_SECONDS = 240
PATH = os.pathsep.join([str(Path(lastgood.__file__).parents[1]), str(Path(psutil.__file__).parents[1])])
"""Where the applications find lastgood and what it needs: after pyspark, which spark-submit puts first."""


def run_app(app: str, arguments: Sequence[object], java: Java, folder: Path, jars: Sequence[Path] = ()) -> None:
    log = folder / "app.log"
    conf = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}
    env = {"PYTHONPATH": PATH, "XDG_STATE_HOME": str(folder / "state")}
    with (
        log.open("wb") as output,
        submit(
            HERE / app,
            list(map(str, arguments)),
            environment=find_default_spark(),
            java=java,
            jars=jars,
            conf=conf,
            env=env,
            cwd=folder,
            output=output,
        ) as child,
    ):
        ending = child.wait(DEADLINE_SECONDS)
    assert ending is not None
    assert ending.is_success, log.read_text()


def records_in(folder: Path) -> list[Record]:
    read = [parse_records(file.read_bytes()) for file in sorted(folder.glob("*.jsonl"))]
    assert [each.unread for each in read] == [0] * len(read)
    return [record for each in read for record in each.records]


@pytest.mark.proof
def test_query_goes_on_whatever_becomes_of_its_records(java: Java, tmp_path: Path) -> None:
    """Five recorders, begun late: one writes beside the checkpoint, one to a sink that hangs, three to ledgers.

    Of these one is locked for good, one until half of the batches are done, and one cannot be made until then.
    """
    run_app("recorder_app.py", [tmp_path, tmp_path / "result"], java, tmp_path)
    told = json.loads((tmp_path / "result").read_text())
    assert told["exception"] is None
    assert told["listeners_left"] == 0
    assert (told["trouble"]["beside"], told["trouble"]["stuck"]) == (None, None)
    is_locked, is_away = "LedgerLockedError: others write to the ledger", "LedgerError: the ledger cannot be reached"
    assert told["trouble"]["locked"] == is_locked
    # Where the batches are done before the first attempt is given up, these two had no trouble at all.
    assert told["trouble"]["freed"] in (is_locked, None)
    assert told["trouble"]["later"] in (is_away, None)
    assert (told["recorded"]["stuck"], told["recorded"]["locked"]) == (0, 0)
    assert told["dropped"]["locked"] >= 1
    records = records_in(tmp_path / "checkpoint.lastgood" / "records")
    assert len(records) == told["recorded"]["beside"]
    assert isinstance(records[0], QueryStarted)
    assert records[0].started_at_ms is None
    batches = [record.batch_id for record in records if isinstance(record, Progress)]
    assert batches == list(range(batches[0], batches[-1] + 1))
    assert batches[-1] >= 10
    assert isinstance(records[-1], Terminated)
    assert records[-1].failure is None
    for name in ("freed.db", "later/ledger.db"):
        check_ledger(tmp_path / name, batches)
    assert (told["dropped"]["freed"], told["dropped"]["later"]) == (0, 0)


def check_ledger(file: Path, batches: list[int]) -> None:
    """It has all that was recorded beside the checkpoint, but what was over before its own recorder listened."""
    with open_ledger(str(file), create=False) as ledger:
        (query,) = ledger.queries()
        known = ledger.batch_ids(query)
        assert known == [each for each in batches if each >= known[0]]
        assert known[0] < 10
        assert all(batch.is_committed for batch in ledger.batches(query, known).values())
        (run,) = ledger.runs(query)
        assert (run.query_name, run.ended_at_ms is None) == ("rows", False)
        assert (run.last_batch_id or 0) >= known[-1]


@pytest.fixture(scope="module")
def connect_python() -> Path:
    """A Python with what the client of Spark Connect needs beside pyspark, kept in a cache that checkouts share."""
    spark = find_default_spark()
    folder = locate_cache(None, os.environ) / f"connect-{spark.version}"
    python = folder / "bin" / "python"
    with hold_exclusively(folder.with_suffix(".lock"), on_wait=lambda: None):
        if not (folder / "complete").exists():
            needed = [each.partition(";")[0] for each in requires("pyspark") or () if 'extra == "connect"' in each]
            commands: list[list[str | Path]] = [
                [sys.executable, "-m", "venv", "--clear", folder],
                [python, "-m", "pip", "install", "--quiet", "--no-input", *needed],
            ]
            for command in commands:
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode:
                    require_service(f"no client for Spark Connect: {done.stderr.strip().splitlines()[-1]}")
            (folder / "complete").touch()
    return python


def test_connect_is_recorded_from_within_and_from_without(connect_python: Path, java: Java, tmp_path: Path) -> None:
    agent, recorded, log = tmp_path / "agent", tmp_path / "recorded", tmp_path / "app.log"
    agent.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))}
    path = [SITE_FOLDER, Path(lastgood.__file__).parents[1], find_default_spark().home.parent]
    env: Mapping[str, str] = {
        **kept,
        "JAVA_HOME": str(java.home),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": str(connect_python),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        FOLDER_VARIABLE: str(agent),
        "SPARK_TESTING": "1",  # so that the server takes a free port, not 15002, and tells its client which
    }
    command = [str(connect_python), str(HERE / "connect_app.py"), str(tmp_path), str(recorded)]
    with log.open("wb") as output, Child(command, env=env, cwd=tmp_path, output=output) as child:
        ending = child.wait(DEADLINE_SECONDS)
    assert ending is not None
    said = log.read_text()
    assert ending.exit_code == 1, said
    assert "cannot parse record 17" in said, said
    assert "listener" not in said
    for records in (records_in(agent), records_in(recorded)):
        check_connect(records, tmp_path)
    (crashed,) = [record for record in records_in(agent) if isinstance(record, Crashed)]
    assert crashed.failure.causes[-1].message == "cannot parse record 17"


def check_connect(records: list[Record], folder: Path) -> None:
    batches = [record for record in records if isinstance(record, Progress) and record.query_name == "quiet"]
    assert [record.batch_id for record in batches] == list(range(len(batches)))
    assert len(batches) >= 4
    assert batches[1].sources[0].start_offset == batches[0].sources[0].end_offset
    ended = {record.query_name: record for record in records if isinstance(record, Terminated)}
    assert ended["quiet"].checkpoint == f"{folder}/quiet"
    assert ended["quiet"].failure is None
    failure = ended["poison"].failure
    assert ended["poison"].checkpoint == f"{folder}/poison"
    assert failure is not None
    assert failure.condition == "PYTHON_EXCEPTION"
    assert (failure.causes[-1].class_name, failure.causes[-1].message) == ("ValueError", "cannot parse record 17")


@pytest.fixture
def topics(broker: KafkaBroker, topic: str) -> tuple[str, str]:
    """A topic with two partitions of ten records, and one whose first five records are gone."""
    orders, expired = f"{topic}.orders", f"{topic}.expired"
    for name, partitions in ((orders, 2), (expired, 1)):
        broker.create_topic(name, partitions=partitions)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for number in range(10 * partitions):
            producer.produce(name, str(number), partition=number % partitions)
        assert producer.flush(DEADLINE_SECONDS) == 0
    broker.delete_records(expired, {0: 5})
    return orders, expired


@pytest.mark.services
def test_kafka_is_read_from_where_a_recovery_said_and_told_with_its_topic_ids(
    broker: KafkaBroker, topics: tuple[str, str], spark_jars: tuple[Path, ...], java: Java, tmp_path: Path
) -> None:
    orders, expired = topics
    starts = tmp_path / "starts"
    starts.mkdir()
    wanted: dict[str, dict[str, Any]] = {
        "recovered": {orders: {"0": 4}},
        "pattern": {orders: {"0": 4, "1": 9}},
        "gone": {orders: {"0": 4, "7": 1}},
        "expired": {expired: {"0": 0}},
    }
    for name, offsets in wanted.items():
        content = {"query": name, "recovery": "20261120-0312-7f3a", "starting_offsets": offsets}
        (starts / f"{name}.json").write_text(json.dumps(content))
    recorded, result = tmp_path / "recorded", tmp_path / "result"
    run_app("kafka_app.py", [broker.bootstrap, orders, expired, tmp_path, recorded, result], java, tmp_path, spark_jars)
    told = json.loads(result.read_text())
    assert told["recovered"] == {f"{orders}-0": 4, f"{orders}-1": 0}
    assert told["pattern"] == {f"{orders}-0": 4, f"{orders}-1": 9}
    assert told["options"] == {f"{orders}-0": 0, f"{orders}-1": 0}
    assert told["gone"] == ["SOURCE_PARTITIONS_GONE", f"no {orders}-7"]
    assert told["missing"][0] == "SOURCE_TOPIC_MISSING"
    assert told["unreachable"][0] == "KAFKA_UNREACHABLE"
    assert told["expired"] == "StreamingQueryException"
    records = records_in(recorded)
    check_topic_ids(records, orders, broker.topic_id(orders))
    check_lost_data(records, expired)
    check_history(records, orders, broker.topic_id(orders), tmp_path)


def check_topic_ids(records: list[Record], topic: str, topic_id: str) -> None:
    sources = {
        record.query_name: record.sources[0]
        for record in records
        if isinstance(record, Progress) and record.batch_id == 0 and record.query_name != "expired"
    }
    assert sources.keys() == {"recovered", "pattern", "options"}
    assert all(source.topic_ids == {topic: topic_id} for source in sources.values())
    assert all(source.topic_ids_at_ms is not None for source in sources.values())
    subscriptions = {name: source.subscription for name, source in sources.items()}
    assert {name: each and (each.kind, each.value) for name, each in subscriptions.items()} == {
        "recovered": ("subscribe", topic),
        "options": ("subscribe", topic),
        "pattern": ("subscribe_pattern", f"{topic[:-1]}."),
    }
    assert sources["pattern"].end_offset == {topic: {"0": 10, "1": 10}}


def check_lost_data(records: list[Record], topic: str) -> None:
    """What Spark tells of data loss seen inside `foreachBatch` is mere text; the chain is known all the same."""
    (ended,) = [record for record in records if isinstance(record, Terminated) and record.query_name == "expired"]
    failure = ended.failure
    assert failure is not None
    conditions = {cause.class_name: cause.condition for cause in failure.causes}
    lost = "org.apache.spark.sql.kafka010.KafkaIllegalStateException"
    assert conditions[lost] == "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"
    assert failure.causes[-1].class_name == "org.apache.kafka.clients.consumer.OffsetOutOfRangeException"
    assert failure.end_offsets == ({topic: {"0": 10}},)


def check_history(records: list[Record], topic: str, topic_id: str, folder: Path) -> None:
    """A ledger that recorder and checkpoints have told knows which batch read an offset, and of which topic."""
    with open_ledger(str(folder / "ledger.db")) as ledger:
        ledger.record(records)
        for name in ("recovered", "pattern", "options"):
            fill_ledger(resolve_target(str(folder / name)), ledger)
        queries = {query.name: query for query in ledger.queries()}
        assert queries.keys() == {"recovered", "pattern", "options", "expired"}
        held = {name: ledger.holding(topic, 0, 3, queries=[query]) for name, query in queries.items()}
        assert [(each.from_offset, each.to_offset) for each in held.pop("options")] == [(0, 10)]
        assert set(map(len, held.values())) == {0}
        (found,) = ledger.holding(topic, 1, 9, queries=[queries["pattern"]])
        assert (found.batch_id, found.from_offset, found.to_offset) == (0, 9, 10)
        assert [each.topic_id for each in ledger.topics(queries["pattern"])] == [topic_id]
        (failed,) = [each for each in ledger.failures() if each.kind == "terminated"]
        assert failed.query_name == "expired"
