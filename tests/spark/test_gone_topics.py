"""Topics that are gone, however a query reads them: Spark ends as was said beforehand."""

from __future__ import annotations

import itertools
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import lastgood
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, submit
from lastgood.process.java import Java
from lastgood.query.prediction.restart import Outcome, Restart

APP = Path(__file__).with_name("gone_topics_app.py")
DEADLINE_SECONDS = 900
RECORDS = 6
SECONDS = 10
WAYS = ("subscribe", "subscribePattern", "assign")
TOPICS = "ab"
NEW, READ, OTHER, SKIPPED = "new", "read", "other", "skipped"
"""What comes next: a batch that is still to be planned, or one that is planned and reads both topics, or only the one
that stays, or that the sink has already."""


@dataclass(frozen=True)
class Case:
    """One query, and what becomes of its topics."""

    prefix: str
    way: str
    fail_on_data_loss: bool
    gone: str
    planned: str

    def topic(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    @property
    def seconds(self) -> int | None:
        """How long it is watched, where it may wait for a topic for ever."""
        return SECONDS if (self.way, self.gone, self.planned) == ("subscribePattern", TOPICS, NEW) else None

    def options(self, broker: KafkaBroker) -> dict[str, str]:
        names = [self.topic(each) for each in TOPICS]
        value = {
            "subscribe": ",".join(names),
            "subscribePattern": f"{self.prefix}-.*",
            "assign": json.dumps({name: [0] for name in names}),
        }[self.way]
        option = {"failOnDataLoss": str(self.fail_on_data_loss).lower()}
        return {"kafka.bootstrap.servers": broker.bootstrap, self.way: value, **option}


def cases() -> list[Case]:
    shapes = [("b", NEW), ("b", READ), ("b", OTHER), ("b", SKIPPED), ("ab", NEW), ("ab", READ)]
    each = itertools.product(WAYS, (True, False), shapes)
    run = uuid.uuid4().hex[:6]
    return [Case(f"{run}-{number}", way, option, *shape) for number, (way, option, shape) in enumerate(each)]


def produce(broker: KafkaBroker, topics: Sequence[str]) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for topic in topics:
        for number in range(RECORDS):
            producer.produce(topic, f"{topic}-{number}".encode())
    assert producer.flush(30) == 0


def take_back(folder: Path, entry: str) -> None:
    file = folder / entry
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink()


def said(case: Case, folder: Path, broker: KafkaBroker) -> Restart:
    """What lastgood says, told how the query reads its topics only where that is a pattern."""
    pattern = f"{case.prefix}-.*" if case.way == "subscribePattern" else None
    report = lastgood.diagnose(
        str(folder / "chk"),
        kafka=broker.bootstrap,
        subscribe_pattern=pattern,
        fail_on_data_loss=case.fail_on_data_loss,
        sink=f"file:{folder}/out",
        spark="4.2",
    )
    return report.restart


def logs(folder: Path, log: str) -> set[int]:
    return {int(each.name) for each in (folder / "chk" / log).iterdir() if each.name.isdigit()}


def differences(restart: Restart, error: str | None, folder: Path) -> list[str]:
    """Where Spark did something else than was said."""
    offsets, commits = logs(folder, "offsets"), logs(folder, "commits")
    if restart.outcome is not Outcome.FAILS:
        return [] if restart.batch in commits or error is None else [f"batch {restart.batch} did not run: {error}"]
    found = []
    if error is None or restart.error is None or restart.error not in error:
        found.append(f"said {restart.error!r}, Spark: {error}")
    if (restart.batch is not None and restart.batch in commits) or restart.leaves_orphan != (2 in offsets - commits):
        found.append(f"planned {offsets}, committed {commits}")
    return found


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_topics_that_are_gone(broker: KafkaBroker, java: Java, spark_jars: Sequence[Path], tmp_path: Path) -> None:
    each = cases()
    folders = {case: tmp_path / case.prefix for case in each}

    def run(*, until_read: bool = True) -> list[str | None]:
        asked: list[dict[str, Any]] = [
            {
                "options": case.options(broker),
                "folder": str(folders[case]),
                "seconds": None if until_read else case.seconds,
            }
            for case in each
        ]
        places, result, log = tmp_path / "cases.json", tmp_path / "result", tmp_path / "app.log"
        places.write_text(json.dumps(asked))
        with (
            log.open("ab") as output,
            submit(
                APP,
                [str(places), str(result)],
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

    for case in each:
        for name in TOPICS:
            broker.create_topic(case.topic(name))
        produce(broker, [case.topic(name) for name in TOPICS])
    assert run() == [None] * len(each)
    produce(broker, [case.topic(name) for case in each for name in ("a" if case.planned == OTHER else TOPICS)])
    assert run() == [None] * len(each)
    for case, folder in folders.items():
        if case.planned != NEW:
            take_back(folder, "chk/commits/1")
        if case.planned in (READ, OTHER):
            take_back(folder, "out/_spark_metadata/1")
        produce(broker, [case.topic(name) for name in TOPICS])
        for name in case.gone:
            broker.delete_topic(case.topic(name))
    told = {case: said(case, folder, broker) for case, folder in folders.items()}
    wrong = []
    for case, error in zip(each, run(until_read=False), strict=True):
        wrong += [f"{case}: {line}" for line in differences(told[case], error, folders[case])]
    assert wrong == []
