"""A topic that a planned batch is the first to read, and that is not what it was: Spark ends as was said beforehand."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

import lastgood
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.java import Java

APP = Path(__file__).with_name("topics_app.py")
DEADLINE_SECONDS = 300
RECORDS = 6


def produce(broker: KafkaBroker, topic: str, count: int = RECORDS) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, f"{topic}-{number}".encode())
    assert producer.flush(30) == 0


def expire(broker: KafkaBroker, topic: str) -> None:
    broker.delete_records(topic, {0: 3})


def delete(broker: KafkaBroker, topic: str) -> None:
    broker.delete_topic(topic)


def shorten(broker: KafkaBroker, topic: str) -> None:
    broker.recreate_topic(topic)
    produce(broker, topic, 2)


DAMAGES: tuple[Callable[[KafkaBroker, str], None], ...] = (expire, delete, shorten)
OPTIONS = ("subscribePattern", "subscribe")


@pytest.mark.proof
def test_topic_that_is_new_with_the_planned_batch(
    broker: KafkaBroker, java: Java, spark_jars: Sequence[Path], tmp_path: Path
) -> None:
    name = uuid.uuid4().hex[:8]
    cases = {f"{option}-{damage.__name__}": (option, damage) for option in OPTIONS for damage in DAMAGES}

    def run(topics: str) -> list[str | None]:
        places: list[str] = []
        for case, (option, _) in cases.items():
            all_of_them = f"{name}-{case}-.*"
            listed = ",".join(f"{name}-{case}-{each}" for each in topics)
            places += [option, listed if option == "subscribe" else all_of_them, str(tmp_path / case)]
        result, log = tmp_path / "result", tmp_path / "app.log"
        with (
            log.open("ab") as output,
            submit(
                APP,
                [broker.bootstrap, str(result), *places],
                environment=find_default_spark(),
                java=java,
                jars=tuple(spark_jars),
                cwd=tmp_path,
                output=output,
            ) as child,
        ):
            ending = child.wait(DEADLINE_SECONDS)
        assert ending is not None, log.read_text()
        assert ending.is_success, log.read_text()
        told: list[str | None] = json.loads(result.read_text())
        return told

    for topics in ("a", "ab"):
        for case in cases:
            broker.create_topic(f"{name}-{case}-{topics[-1]}")
            produce(broker, f"{name}-{case}-{topics[-1]}")
        assert run(topics) == [None] * len(cases)
    for case, (_, damage) in cases.items():
        folder = tmp_path / case
        (folder / "chk/commits/1").unlink()
        (folder / "chk/commits/.1.crc").unlink()
        (folder / "out/_spark_metadata/1").unlink()
        (folder / "out/_spark_metadata/.1.crc").unlink()
        damage(broker, f"{name}-{case}-b")
    said = []
    for case, (option, _) in cases.items():
        chk, sink = f"{tmp_path}/{case}/chk", f"file:{tmp_path}/{case}/out"
        pattern = f"{name}-{case}-.*" if option == "subscribePattern" else None
        said.append(lastgood.diagnose(chk, kafka=broker.bootstrap, subscribe_pattern=pattern, sink=sink))
    seen = run("ab")
    for case, report, error in zip(cases, said, seen, strict=True):
        assert report.restart.error is not None, case
        assert error is not None, case
        assert report.restart.error in error
