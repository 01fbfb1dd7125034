"""What `read_kafka` settles before it asks anybody; its readings are proven with a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lastgood.errors import UsageError
from lastgood.sources.kafka.starting_offsets import StartingOffsetsError
from lastgood.spark import read_kafka


class Reader:
    """The readStream of a session; keeps what it is given."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}

    @property
    def readStream(self) -> Reader:  # noqa: N802 - Spark's name
        return self

    def format(self, source: str) -> Reader:
        self.told["format"] = source
        return self

    def options(self, **options: str) -> Reader:
        self.told |= options
        return self

    def load(self) -> dict[str, str]:
        return self.told

    @property
    def conf(self) -> dict[str, str]:
        return {"spark.orders.start": "earliest", "spark.orders.broken": "{"}


def test_without_a_recovery_the_options_say_where_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTGOOD_STARTING_OFFSETS", str(tmp_path))
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 10}
    frame: Any = read_kafka(Reader(), "orders", topic=["a", "b"], kafka="broker:9092", options=options)
    assert frame == {
        "format": "kafka",
        "subscribe": "a,b",
        "kafka.bootstrap.servers": "broker:9092",
        "startingoffsets": "earliest",
        "maxoffsetspertrigger": "10",
    }


def test_bootstrap_servers_may_be_an_option() -> None:
    options = {"kafka.bootstrap.servers": "broker:9092"}
    frame: Any = read_kafka(Reader(), "orders", subscribe_pattern="ord.*", options=options)
    assert (frame["subscribepattern"], frame["kafka.bootstrap.servers"]) == ("ord.*", "broker:9092")


@pytest.mark.parametrize(
    "arguments",
    [
        {"kafka": "b"},
        {"kafka": "b", "topic": "a", "subscribe_pattern": "a"},
        {"topic": "a"},
        {"kafka": "b", "topic": "a", "name": "../x", "starting_offsets": "/starts"},
    ],
)
def test_arguments_that_cannot_be_meant(arguments: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        read_kafka(Reader(), **{"name": "orders", **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["{", json.dumps({"query": "other", "recovery": "r", "starting_offsets": {}})])
def test_file_of_a_recovery_that_cannot_be_meant_so_stops_the_start(tmp_path: Path, content: str) -> None:
    (tmp_path / "orders.json").write_text(content)
    with pytest.raises(StartingOffsetsError):
        read_kafka(Reader(), "orders", topic="a", kafka="b", starting_offsets=tmp_path)


def test_folder_in_the_place_of_the_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "orders.json").mkdir()
    with pytest.raises(StartingOffsetsError) as raised:
        read_kafka(Reader(), "orders", topic="a", kafka="b", starting_offsets=tmp_path)
    assert raised.value.found == "Is a directory"


FILES = {
    "start.json": b"latest\n",
    "start.properties": b"# mine\nother = 1\norders.start = latest\n",
    "spark-defaults.conf": b"spark.master local\nspark.orders.start    latest\n",
    "bare": b"latest",
}
KEYS = {"start.properties": "orders.start", "spark-defaults.conf": "spark.orders.start"}


@pytest.mark.parametrize("name", FILES)
def test_file_of_the_application_s_configuration_is_read_in_each_of_its_forms(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.write_bytes(FILES[name])
    told = {"starting_offsets": file, "start_key": KEYS.get(name), "options": {"startingTimestamp": 1}}
    frame: Any = read_kafka(Reader(), "any name", topic="a", kafka="b", **told)  # type: ignore[arg-type]
    assert (frame["startingoffsets"], "startingtimestamp" in frame) == ("latest", False)


def test_what_run_hands_to_its_driver_names_file_and_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "app.conf").write_bytes(b"orders.start=earliest\n")
    monkeypatch.setenv("LASTGOOD_STARTING_OFFSETS", str(tmp_path / "app.conf"))
    monkeypatch.setenv("LASTGOOD_START_KEY", "orders.start")
    frame: Any = read_kafka(Reader(), "orders", topic="a", kafka="b")
    assert frame["startingoffsets"] == "earliest"
    monkeypatch.setenv("LASTGOOD_START_KEY", "bills.start")
    assert "startingoffsets" not in read_kafka(Reader(), "orders", topic="a", kafka="b")


def test_session_has_the_line_of_spark_defaults() -> None:
    frame: Any = read_kafka(Reader(), "orders", topic="a", kafka="b", start_key="spark.orders.start")
    assert frame["startingoffsets"] == "earliest"
    frame = read_kafka(Reader(), "orders", topic="a", kafka="b", start_key="spark.bills.start")
    assert "startingoffsets" not in frame
    with pytest.raises(StartingOffsetsError):
        read_kafka(Reader(), "orders", topic="a", kafka="b", start_key="spark.orders.broken")


def test_file_that_is_not_written_yet_lets_the_options_say_where_to_start(tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    assert "startingoffsets" not in read_kafka(Reader(), "any name", topic="a", kafka="b", starting_offsets=file)
    file.write_text("")
    assert "startingoffsets" not in read_kafka(Reader(), "any name", topic="a", kafka="b", starting_offsets=file)
