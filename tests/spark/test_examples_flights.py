"""The two applications of `examples/flights` on a real broker and real Spark, started as a user starts them."""

from __future__ import annotations

import importlib.util
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from lastgood.lab.examples import locate_flights
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.child import Child
from lastgood.process.java import Java

pytestmark = [pytest.mark.spark, pytest.mark.services]

DEADLINE_SECONDS = 240
FLIGHTS = 3000
TOPIC = "flights"
PLACE = ("topic", "partition", "offset")

Row = dict[str, Any]
Start = Callable[..., Child]


@pytest.fixture(scope="module")
def produce() -> ModuleType:
    """`produce.py` as a module."""
    spec = importlib.util.spec_from_file_location("produce", locate_flights() / "produce.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def flights(produce: ModuleType, broker: KafkaBroker) -> list[Row]:
    """The flights that are in the topic."""
    broker.create_topic(TOPIC, partitions=3)
    sent = list(islice(produce.flights(), FLIGHTS))
    producer = produce.FlightProducer(broker.bootstrap, TOPIC)
    assert producer.send(iter(sent), rate=0) == producer.acknowledged == FLIGHTS
    return sent


@pytest.fixture
def start(
    flights: list[Row], broker: KafkaBroker, java: Java, spark_jars: tuple[Path, ...], tmp_path: Path
) -> Iterator[Start]:
    """Starts an application of the folder on `tmp_path`."""
    assert len(flights) == FLIGHTS
    started: list[Child] = []

    def begin(script: str, *options: str) -> Child:
        arguments = ["--bootstrap-servers", broker.bootstrap, "--topic", TOPIC, "--table", str(tmp_path / "table")]
        arguments += ["--checkpoint", str(tmp_path / "checkpoint"), *options]
        with (tmp_path / "spark.log").open("ab") as output:
            child = submit(
                locate_flights() / script,
                arguments,
                environment=find_default_spark(),
                java=java,
                jars=spark_jars,
                conf={"spark.driver.memory": "600m"},
                output=output,
            )
        started.append(child)
        return child

    yield begin
    for child in started:
        child.stop()


def run(start: Start, folder: Path, script: str, *options: str) -> list[Row]:
    """The rows of the table after the application has ended."""
    ending = start(script, "--available-now", *options).wait(DEADLINE_SECONDS)
    assert ending is not None
    assert ending.is_success, (folder / "spark.log").read_text()[-5000:]
    return rows_of(folder / "table")


def rows_of(table: Path) -> list[Row]:
    batches = QueryBuilder().register("t", DeltaTable(table)).execute("select * from t").read_all()
    return pa.table(batches).to_pylist()


def timestamp(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_table_is_the_input_flight_by_flight_and_each_has_an_offset_of_its_own(
    start: Start, flights: list[Row], broker: KafkaBroker, tmp_path: Path
) -> None:
    rows = run(start, tmp_path, "flights_to_delta.py", "--max-offsets-per-trigger", "1000")
    places = {tuple(row[name] for name in PLACE) for row in rows}
    ends = broker.latest_offsets(TOPIC)
    assert places == {(TOPIC, partition, offset) for partition, end in ends.items() for offset in range(end)}
    written = sorted(({k: v for k, v in row.items() if k not in PLACE} for row in rows), key=lambda row: row["id"])
    times = ("event_time", "time_hour")
    assert written == [{**flight, **{name: timestamp(flight[name]) for name in times}} for flight in flights]
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]*"))) >= 3


@pytest.mark.proof
def test_windows_that_are_closed_equal_those_of_all_flights_at_once(
    start: Start, flights: list[Row], tmp_path: Path
) -> None:
    rows = run(start, tmp_path, "delays_by_airport.py", "--window", "1 hour", "--watermark", "1 hour")
    assert sorted(rows, key=_place) == sorted(_closed_windows(flights), key=_place)


def _place(row: Row) -> tuple[str, datetime]:
    return row["origin"], row["window_start"]


def _closed_windows(flights: list[Row]) -> list[Row]:
    """Delays per airport and hour, of the hours that a watermark of one hour has passed."""
    watermark = max(timestamp(flight["event_time"]) for flight in flights) - timedelta(hours=1)
    windows: dict[tuple[str, datetime], list[int | None]] = {}
    for flight in flights:
        begin = timestamp(flight["event_time"]).astimezone(UTC).replace(minute=0, second=0)
        if begin + timedelta(hours=1) <= watermark:
            windows.setdefault((flight["origin"], begin), []).append(flight["dep_delay"])
    closed = []
    for (origin, begin), all_delays in windows.items():
        delays = [delay for delay in all_delays if delay is not None]
        closed.append(
            {
                "origin": origin,
                "window_start": begin,
                "window_end": begin + timedelta(hours=1),
                "flights": len(all_delays),
                "cancelled": len(all_delays) - len(delays),
                "dep_delay_mean": sum(delays) / len(delays) if delays else None,
                "dep_delay_max": max(delays, default=None),
            }
        )
    return closed


@pytest.mark.proof
def test_application_ends_on_sigterm_and_goes_on_where_it_was(start: Start, tmp_path: Path) -> None:
    application = start("flights_to_delta.py", "--max-offsets-per-trigger", "500", "--trigger", "0 seconds")
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (tmp_path / "checkpoint" / "commits" / "1").exists():
        assert application.ending is None, (tmp_path / "spark.log").read_text()[-5000:]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    application.send(signal.SIGTERM)
    assert application.wait(DEADLINE_SECONDS) is not None
    assert "Traceback" not in (tmp_path / "spark.log").read_text()
    rows = run(start, tmp_path, "flights_to_delta.py")
    assert sorted(row["id"] for row in rows) == [f"2013-{number:06d}" for number in range(1, FLIGHTS + 1)]
