"""Real failures of a real Spark, told apart by what its driver printed, what Python raised, and what the agent saw."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lastgood.failures.classify import RULES, Failure
from lastgood.failures.driver_log import DriverLog, read_driver_log
from lastgood.failures.failure_class import FailureClass
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import SparkEnvironment, find_default_spark, submit
from lastgood.process.java import Java
from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE

pytestmark = pytest.mark.spark

APP = Path(__file__).with_name("failures_app.py")
DEADLINE_SECONDS = 300
CASES = {
    "udf": FailureClass.POISON_DATA,
    "another_driver": FailureClass.CONCURRENT_RUN,
    "stale_crc": FailureClass.LOG_DAMAGED,
    "cut_offsets": FailureClass.LOG_DAMAGED,
    "state_gone_in_foreach_batch": FailureClass.STATE_DAMAGED,
    "two_sources": FailureClass.CODE_INCOMPATIBLE,
    "expired_in_foreach_batch": FailureClass.SOURCE_EXPIRED,
    "expired_to_delta": FailureClass.SOURCE_EXPIRED,
    "recreated": FailureClass.SOURCE_RECREATED,
    "foreach_batch": FailureClass.POISON_DATA,
}
NOT_IN_PYTHON = {
    "stale_crc": FailureClass.CONCURRENT_RUN,
    "expired_to_delta": FailureClass.UNKNOWN,
}
"""What Python raises holds the message of one cause only; that of Java's log goes to the ground."""


@dataclass
class Driver:
    """What is left of a driver all of whose queries failed."""

    folder: Path
    log: bytes
    records: bytes


@pytest.fixture(scope="module")
def driver(
    java: Java, spark_jars: tuple[Path, ...], broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Driver:
    folder = tmp_path_factory.mktemp("failures")
    agent, log = folder / "agent", folder / "driver.log"
    agent.mkdir()
    with (
        log.open("wb") as output,
        submit(
            APP,
            [str(folder), broker.bootstrap, *CASES],
            environment=find_default_spark(),
            java=java,
            jars=spark_jars,
            conf={"spark.driver.memory": "600m"},
            env={"PYTHONPATH": str(SITE_FOLDER), FOLDER_VARIABLE: str(agent)},
            cwd=folder,
            output=output,
        ) as child,
    ):
        ending = child.wait(DEADLINE_SECONDS)
    assert ending is not None, log.read_text()
    assert ending.exit_code == 1, log.read_text()
    assert "has not failed" not in log.read_text()
    return Driver(folder, log.read_bytes(), b"".join(file.read_bytes() for file in sorted(agent.glob("*.jsonl"))))


def classes(log: DriverLog) -> dict[str | None, FailureClass]:
    return {each.query_name: each.cls for each in log.failures}


def failures(driver: Driver) -> dict[str | None, Failure]:
    return {each.query_name: each for each in read_driver_log(io.BytesIO(driver.log)).failures}


def test_log_of_a_driver_tells_what_each_query_died_of(driver: Driver) -> None:
    log = read_driver_log(io.BytesIO(driver.log))
    assert classes(log) == CASES
    assert log.num_failures == len(CASES)
    assert log.failure is not None
    assert log.failure.query_name == "foreach_batch"
    for failure in log.failures:
        assert failure.checkpoint == f"file:{driver.folder}/chk/{failure.query_name}"


def test_agent_tells_the_same(driver: Driver) -> None:
    assert classes(read_driver_log(io.BytesIO(driver.records))) == CASES


def test_exceptions_of_python_alone_tell_all_but_what_lies_deeper(driver: Driver) -> None:
    log = read_driver_log(io.BytesIO((driver.folder / "python.log").read_bytes()))
    of = {query.query_id: query.name for query in log.facts.queries}
    assert {of[each.query_id or ""]: each.cls for each in log.failures} == CASES | NOT_IN_PYTHON


def test_failures_name_batch_file_offsets_and_code(driver: Driver) -> None:
    found = failures(driver)
    assert (found["udf"].batch_id, found["state_gone_in_foreach_batch"].batch_id) == (1, 2)
    checkpoints = f"file:{driver.folder}/chk"
    assert found["stale_crc"].checkpoint_file == f"{checkpoints}/stale_crc/offsets/.1.crc"
    state = found["state_gone_in_foreach_batch"].checkpoint_file
    assert state in {f"{checkpoints}/state_gone_in_foreach_batch/state/0/{partition}/2.delta" for partition in (0, 1)}
    for name, start, end in (("expired_in_foreach_batch", 10, 20), ("recreated", 10, 5)):
        (named,) = found[name].offsets
        assert (named.topic, named.partition, named.start, named.end) == (name, 0, start, end)
    for name, function in (("udf", "parse"), ("foreach_batch", "write")):
        code = found[name].user_code
        assert code is not None
        assert (code.file, code.function) == (str(APP), function)


def test_log_tells_topic_offsets_and_sink(driver: Driver, broker: KafkaBroker) -> None:
    facts = read_driver_log(io.BytesIO(driver.log)).facts
    assert (facts.spark_version, facts.bootstrap_servers) == (find_default_spark().version, (broker.bootstrap,))
    (query,) = [each for each in facts.queries if each.name == "expired_to_delta"]
    (source,) = query.sources
    assert source.subscription is not None
    assert (source.subscription.kind, source.subscription.value) == ("subscribe", "expired_to_delta")
    assert source.start_offset == {"expired_to_delta": {"0": 10}}
    assert source.end_offset == {"expired_to_delta": {"0": 20}}
    assert query.sink is not None
    assert (query.sink.kind, query.sink.location) == ("delta", f"{driver.folder}/table/expired_to_delta")
    assert (query.last_planned, query.last_committed) == (1, 0)
    assert query.fail_on_data_loss is True


def conditions_in(jar: Path) -> set[str]:
    """The error conditions that a jar defines."""
    with zipfile.ZipFile(jar) as archive:
        files = [name for name in archive.namelist() if name.startswith("error/") and name.endswith(".json")]
        return {condition for name in files for condition in conditions(json.loads(archive.read(name)))}


def conditions(told: dict[str, Any]) -> set[str]:
    within = {
        f"{name}.{sub}" for name, each in told.items() if isinstance(each, dict) for sub in each.get("subClass", ())
    }
    return set(told) | within


def test_conditions_of_the_rules_are_ones_that_spark_delta_and_kafka_know(
    spark_of: Callable[[str], SparkEnvironment], spark_jars: tuple[Path, ...]
) -> None:
    homes = [find_default_spark().home, spark_of("4.3.0").home]
    jars = [*spark_jars, *(jar for home in homes for jar in (home / "jars").glob("spark-common-utils_*.jar"))]
    known = {condition for jar in jars for condition in conditions_in(jar)}
    known |= conditions(json.loads((homes[0] / "errors" / "error-conditions.json").read_text()))
    unknown = [(rule.name, each) for rule in RULES for each in rule.conditions if each not in known]
    assert unknown == []
