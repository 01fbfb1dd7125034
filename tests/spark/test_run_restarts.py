"""Two queries in one driver under `lastgood run --restart-in-session`: one that fails is back, and the driver stays."""

from __future__ import annotations

import functools
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from spark.supervised import Lines, Running

from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import SPARK_VERSIONS, provide_spark
from lastgood.process.java import Java
from lastgood.settings.config import ConfiguredQuery
from lastgood.supervise.events import Ended, Noticed, PromiseChecked, QueryRestarted, Recovered, Repaired, Started
from lastgood.supervise.session_restarts import LEAST_SECONDS

APP = Path(__file__).with_name("restarts_app.py")
FIRST, SECOND = "first", "second"


@contextmanager
def run(folder: Path, how: str, version: str | None = None, what: str = "lines", **more: Any) -> Iterator[Running]:
    spark = None if version is None else provide_spark(version, progress=lambda _: None)
    running = Running(folder, FIRST, SECOND, app=APP, more=[how, what], restart_in_session=True, spark=spark, **more)
    with running:
        put(running)
        running.await_lines()
        yield running


class Rows(Lines):
    """A query that writes a Delta table, of lines or of how often each has come."""

    @property
    def configured(self) -> ConfiguredQuery:
        return replace(super().configured, sink=f"delta:{self.output}")

    def shown(self) -> Counter[str]:
        if not (self.output / "_delta_log" / "00000000000000000000.json").exists():
            return Counter()
        rows = DeltaTable(str(self.output)).to_pyarrow_table().to_pylist()
        counts: Counter[str] = Counter()
        for row in rows:
            counts[row["value"]] += row.get("count", 1)
        return counts


class RowsOfFunction(Rows):
    """The function of foreachBatch gives a mark of its own."""

    @property
    def configured(self) -> ConfiguredQuery:
        return replace(super().configured, txn_app_id=str(self.checkpoint))


class Records(Rows):
    """A query that reads a topic."""

    broker: KafkaBroker

    @property
    def source(self) -> str:
        return f"{self.broker.bootstrap}/{self.topic}"

    @functools.cached_property
    def topic(self) -> str:
        topic = f"{self.name}-{uuid.uuid4()}"
        self.broker.create_topic(topic, partitions=2)
        return topic

    def put(self, files: int = 4) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(self.count, self.count + 10 * files):
            producer.produce(self.topic, str(number).encode())
        producer.flush()
        self.count += 10 * files


def put(running: Running) -> None:
    for query in running.queries:
        query.put()


def fail(running: Running, query: Lines) -> int:
    """Have a query fail once; gives how many events there were before."""
    seen = len(running.events)
    (query.folder / "fails").touch()
    query.put()
    return seen


def require_back(running: Running, query: Lines, seen: int) -> None:
    """It came back alone, and every line of both is there once."""
    restarted = running.await_event(QueryRestarted, seen)
    assert (restarted.checkpoint, restarted.error) == (str(query.checkpoint), "ValueError: it does not go on")
    put(running)
    running.await_lines()
    promised = running.await_event(PromiseChecked, seen)
    assert (promised.checkpoint, promised.state) == (str(query.checkpoint), "kept")
    assert all(each.shown() == each.exactly for each in running.queries)
    told = running.events[seen:]
    assert not any(isinstance(each, Ended | Started) for each in told)
    assert {each.checkpoint for each in told if isinstance(each, Recovered)} == {str(query.checkpoint)}


def find_ways(query: Lines) -> list[str]:
    """How it came back from each incident."""
    files = sorted((query.folder / "chk.lastgood" / "incidents").glob("*.json"))
    return [json.loads(each.read_text())["back"]["way"] for each in files]


@pytest.mark.parametrize("how", ["wait_for_any", "wait_for_last_a_while"])
def test_a_query_for_which_the_application_waits_is_back_and_its_driver_stays(
    how: str, java: Java, tmp_path: Path
) -> None:
    assert java is not None
    with run(tmp_path, how) as running:
        second = running.queries[1]
        require_back(running, second, fail(running, second))
    assert find_ways(second) == ["session"]


@pytest.mark.proof
@pytest.mark.parametrize("how", ["wait_for_any_a_while", "wait_for_last", "wait_for_first"])
def test_so_it_is_however_the_application_waits(how: str, java: Java, tmp_path: Path) -> None:
    assert java is not None
    with run(tmp_path, how) as running:
        first, second = running.queries
        require_back(running, second, fail(running, second))
        time.sleep(LEAST_SECONDS)
        require_back(running, first, fail(running, first))
    assert [find_ways(each) for each in (first, second)] == [["session"], ["session"]]


@pytest.mark.proof
@pytest.mark.parametrize(
    ("what", "kind"),
    [("table", Rows), ("counts", Rows), ("rocksdb", Rows), ("function", RowsOfFunction), ("topic", Records)],
)
def test_so_it_is_whatever_it_reads_keeps_and_writes(
    what: str,
    kind: type[Lines],
    java: Java,
    spark_jars: Sequence[Path],
    broker: KafkaBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert java is not None
    monkeypatch.setattr(Records, "broker", broker, raising=False)
    with run(tmp_path, "wait_for_any", what=what, lines=kind, jars=spark_jars) as running:
        for query in running.queries:
            require_back(running, query, fail(running, query))
        time.sleep(LEAST_SECONDS)
        require_back(running, query, fail(running, query))
    assert [find_ways(each) for each in running.queries] == [["session"], ["session", "session"]]


@pytest.mark.proof
@pytest.mark.parametrize("version", SPARK_VERSIONS)
def test_on_each_spark(version: str, java: Java, tmp_path: Path) -> None:
    assert java is not None
    with run(tmp_path, "wait_for_any", version) as running:
        second = running.queries[1]
        require_back(running, second, fail(running, second))


@pytest.mark.proof
def test_one_that_fails_again_at_once_is_left_to_a_start_of_the_command(java: Java, tmp_path: Path) -> None:
    assert java is not None
    with run(tmp_path, "wait_for_any") as running:
        second = running.queries[1]
        (second.folder / "fails-always").touch()
        seen = fail(running, second)
        running.await_event(QueryRestarted, seen)
        running.await_event(Ended, seen)
        (second.folder / "fails-always").unlink()
        (second.folder / "fails").unlink()
        put(running)
        running.await_lines()
        assert all(each.shown() == each.exactly for each in running.queries)
        told = [each for each in running.events[seen:] if isinstance(each, QueryRestarted | Ended | Started)]
    assert [type(each) for each in told[:3]] == [QueryRestarted, Ended, Started]


@pytest.mark.proof
def test_one_that_needs_a_repair_is_left_to_a_start_of_the_command(java: Java, tmp_path: Path) -> None:
    assert java is not None
    with run(tmp_path, "wait_for_any") as running:
        second = running.queries[1]
        seen, taken = len(running.events), int(second.newest_plan.name) + 1
        (second.checkpoint / f"offsets/{taken}").write_bytes(second.newest_plan.read_bytes()[:20])
        second.put()  # Spark finds the name of its next plan taken
        repaired = running.await_event(Repaired, seen)
        assert repaired.checkpoint == str(second.checkpoint)
        put(running)
        running.await_lines()
        assert all(each.shown() == each.exactly for each in running.queries)
        assert not any(isinstance(each, QueryRestarted) for each in running.events[seen:])


@pytest.mark.proof
def test_one_that_has_written_state_of_its_batch_is_left_to_a_start_of_the_command(
    java: Java, spark_jars: Sequence[Path], tmp_path: Path
) -> None:
    """Executors may write a snapshot of that state down, beside what the next run makes of the batch."""
    assert java is not None
    with run(tmp_path, "wait_for_any", what="checked counts", lines=Rows, jars=spark_jars) as running:
        second = running.queries[1]
        seen = fail(running, second)
        running.await_event(Ended, seen)
        put(running)
        running.await_lines()
        assert all(each.shown() == each.exactly for each in running.queries)
        assert any("not committed" in each.sentence for each in running.events[seen:] if isinstance(each, Noticed))


@pytest.mark.proof
def test_one_that_the_application_starts_again_is_left_to_it(java: Java, tmp_path: Path) -> None:
    assert java is not None
    with run(tmp_path, "look_after_them") as running:
        second = running.queries[1]
        seen = fail(running, second)
        put(running)
        running.await_lines()
        time.sleep(20)
        assert all(each.shown() == each.exactly for each in running.queries)
        assert not any(isinstance(each, QueryRestarted | Ended) for each in running.events[seen:])
    assert (tmp_path / "app.log").read_text().count("started by the application") == 1
