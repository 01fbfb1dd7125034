"""Code that was changed, held against its checkpoint: what is said of it, and what real Spark does then."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import forked
import pytest
from confluent_kafka import Producer
from conformance.sparks import RunningSpark, Sparks
from reading import read_files

import lastgood
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import (
    SPARK_VERSIONS,
    SparkEnvironment,
    find_default_spark,
    make_quick_conf,
    submit_command,
    submit_env,
)
from lastgood.process.java import Java
from lastgood.settings.target import resolve_target
from lastgood.spark import agent
from lastgood.spark.agent.fit import FAILS, RENAMED, REUSED, compare
from lastgood.spark.kept_code import note_code, read_kept
from lastgood.storage.writing import open_writable

pytestmark = pytest.mark.spark
AGENT = str(Path(agent.__file__).parent)
APP = Path(__file__).with_name("stale_code_app.py")
DEFAULT = "4.2.0"
OTHERS = [pytest.param(each, marks=pytest.mark.proof) for each in SPARK_VERSIONS if each != DEFAULT]
EXPECTED = {
    "as it was": [],
    "keys in another order": [("state/0", REUSED)],
    "maximum for sum": [("state/0", REUSED)],
    "another key": [("state/0", RENAMED)],
    "another type": [("state/0", FAILS)],
    "one aggregate more": [("state/0", FAILS)],
    "sum of something else": [("state/0", RENAMED)],
    "longer windows": [("windows", REUSED)],
    "one operator more": [("state", FAILS)],
    "no state": [("state", FAILS)],
    "sources in another order": [("sources/0", REUSED), ("sources/1", REUSED)],
    "one source less": [("sources", FAILS)],
}


def feed(folder: Path, number: int) -> None:
    """A file more for each source."""
    for source in "ab":
        file = folder / "input" / source / f"{number}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [
            {"t": f"2026-03-01T08:{number:02d}:{each:02d}Z", "k": each % 3, "j": each % 2, "v": each, "w": 1}
            for each in range(20)
        ]
        file.write_text("\n".join(map(json.dumps, rows)))
        os.utime(file, (1_795_000_000 + number, 1_795_000_000 + number))


@dataclass
class Code:
    """A query of which the first code has run, and others that may follow."""

    spark: RunningSpark
    folder: Path

    def call(self, name: str, code: str, checkpoint: str = "chk", **more: Any) -> dict[str, Any]:
        places = {"input": str(self.folder / "input"), "table": str(self.folder / f"table-{checkpoint}")}
        result: dict[str, Any] = self.spark.call(
            APP, name, code=code, checkpoint=str(self.folder / checkpoint), agent=AGENT, **places, **more
        )
        return result

    def feed(self, number: int) -> None:
        feed(self.folder, number)

    def copy(self, name: str) -> str:
        shutil.copytree(self.folder / "chk", self.folder / name)
        shutil.copytree(self.folder / "chk.lastgood", self.folder / f"{name}.lastgood", dirs_exist_ok=True)
        return name


@pytest.fixture
def begin(sparks: Sparks, tmp_path: Path) -> Any:
    def begun(version: str) -> Code:
        code = Code(sparks.of(version), tmp_path)
        for number in range(2):
            code.feed(number)
        assert code.call("start", "as it was") == {"error": None}
        return code

    return begun


@pytest.mark.proof
@pytest.mark.parametrize("version", SPARK_VERSIONS)
def test_spark_does_with_changed_code_what_is_said(version: str, begin: Any) -> None:
    """It fails where it is said to fail, and goes on without a word where it is said to take it for its own."""
    query: Code = begin(version)
    target = resolve_target(str(query.folder / "chk"))
    storage = open_writable(target.location)
    note_code(storage, target.location, query.call("describe", "as it was"), now_ms=1)
    kept = read_kept(storage, target.location)
    query.feed(2)
    expected = dict(EXPECTED)
    if version.startswith("3"):
        expected["no state"] = [("state", REUSED)]
    for code, wanted in expected.items():
        found = compare(kept, query.call("describe", code))
        assert [(each["subject"], each["outcome"]) for each in found] == wanted, (code, found)
        error = query.call("start", code, query.copy(code.replace(" ", "-")))["error"]
        assert (error is not None) == (FAILS in dict(map(reversed, wanted))), (code, error)


@pytest.mark.proof
@pytest.mark.services
@pytest.mark.parametrize("fails", [True, False])
def test_spark_does_with_other_topics_what_is_said(
    sparks: Sparks, broker: KafkaBroker, topic: str, tmp_path: Path, *, fails: bool
) -> None:
    """Where it is not to fail on lost data, it takes the offsets of one topic for those of another."""
    topics = {name: f"{topic}-{name}" for name in "abc"}
    options = {} if fails else {"failOnDataLoss": "false"}
    kafka = {"bootstrap": broker.bootstrap, "topics": topics, "options": options}
    query = Code(sparks.of(DEFAULT), tmp_path)
    for name in topics.values():
        broker.create_topic(name, partitions=1)
    feed_topics(broker, topics, 0)
    assert query.call("start", "as it was", **kafka) == {"error": None}
    target = resolve_target(str(query.folder / "chk"))
    storage = open_writable(target.location)
    note_code(storage, target.location, query.call("describe", "as it was", **kafka), now_ms=1)
    kept = read_kept(storage, target.location)
    feed_topics(broker, topics, 1)
    expected: dict[str, list[tuple[str, str]]] = {
        "as it was": [],
        "sources in another order": [(f"sources/{each}", FAILS if fails else REUSED) for each in range(2)],
        "another topic": [("sources/1", FAILS if fails else RENAMED)],
    }
    for code, wanted in expected.items():
        found = compare(kept, query.call("describe", code, **kafka))
        assert [(each["subject"], each["outcome"]) for each in found] == wanted, (code, found)
        error = query.call("start", code, query.copy(code.replace(" ", "-")), **kafka)["error"]
        assert (error is not None) == (FAILS in dict(map(reversed, wanted))), (code, error)


def feed_topics(broker: KafkaBroker, topics: Mapping[str, str], number: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for each in range(20):
        row = {"t": f"2026-03-01T08:{number:02d}:{each:02d}Z", "k": each % 3, "j": each % 2, "v": each, "w": 1}
        for name in topics.values():
            producer.produce(name, json.dumps(row))
    assert producer.flush(30) == 0


@pytest.mark.proof
def test_operator_that_was_removed_in_spark_3_is_named_and_no_failure_is_predicted(
    sparks: Sparks, tmp_path: Path
) -> None:
    before, after, operator = "one operator more", "as it was", 1
    query = Code(sparks.of("3.5.9"), tmp_path)
    for number in range(2):
        query.feed(number)
    assert query.call("start", before) == {"error": None}
    for number in range(2, 4):
        query.feed(number)
        assert query.call("start", after) == {"error": None}
    found = lastgood.diagnose(str(tmp_path / "chk"), spark="3.5.9")
    told = {each.condition.name: each for each in found.findings}
    assert "STATE_FILE_MISSING" not in told
    assert told["STATE_OPERATOR_ENDED"].evidence["operator"] == operator
    assert found.restart.outcome.value == "resumes"
    assert any("still has operator" in each for each in found.restart.unknowns)
    query.feed(5)
    assert query.call("start", after) == {"error": None}
    later = lastgood.diagnose(str(tmp_path / "chk"), spark="4.2.0")
    assert "STATE_FILE_MISSING" in {each.condition.name for each in later.findings}


def test_guard_tells_before_spark_touches_anything_and_notes_down_what_fits(begin: Any) -> None:
    query: Code = begin(DEFAULT)
    fit = query.call("guard", "as it was")["fit"]
    assert (fit["misfits"], fit["unknowns"]) == ([], [])
    assert json.loads((query.folder / "chk.lastgood/code.json").read_text())["version"] == "1.4"
    error = query.call("guard", "longer windows")["error"]
    assert error["condition"] == "CODE_DOES_NOT_FIT"
    assert "windows of 1200 s; there: windows of 600 s, as the code had it that ran before" in error["found"]
    assert "plan" in error["next"]
    assert "--goal recompute" in error["next"]
    assert "error" in query.call("guard", "another key")
    assert "fit" in query.call("guard", "another key", said={"accept_renamed": True})


def test_state_is_read_as_of_the_newest_batch_and_as_of_any_other_that_can_be_loaded(begin: Any) -> None:
    query: Code = begin(DEFAULT)
    newest = query.call("state", "as it was")["rows"]
    first = query.call("state", "as it was", said={"batch": 0})["rows"]
    assert sum(row[2] for row in newest) > sum(row[2] for row in first) > 0
    error = query.call("state", "as it was", said={"batch": 99})["error"]
    assert (error["condition"], error["found"]) == ("STATE_UNREADABLE", "it can, as of batches 0 to 2")
    other = query.call("state", "as it was", said={"operator": 7})["error"]
    assert (other["condition"], other["found"]) == ("STATE_UNREADABLE", "operators 0: stateStoreSave")


@dataclass
class Supervised:
    """The same query, started by `lastgood run` with one code after another."""

    folder: Path
    environment: SparkEnvironment
    java: Java

    def run(self, code: str, *options: str) -> forked.Ended:
        told = {
            "code": code,
            "checkpoint": str(self.folder / "chk"),
            "input": str(self.folder / "input"),
            "table": str(self.folder / "table"),
        }
        conf = make_quick_conf(self.environment, self.java)
        command = submit_command(APP, [json.dumps(told)], environment=self.environment, conf=conf)
        (self.folder / "lastgood.toml").write_text(
            f'[pipeline.app]\ncommand = {json.dumps(command)}\ncheckpoint = "{self.folder}/chk"\n'
            "policy = { max_attempts = 0 }\n"
        )
        env = {**submit_env(self.environment, self.java, os.environ), "XDG_STATE_HOME": str(self.folder / "state")}
        return forked.run("run", "--format=json", *options, env=env, cwd=self.folder)

    def notices(self, ended: forked.Ended, condition: str) -> list[str]:
        told = [json.loads(line) for line in ended.stdout.splitlines()]
        return [each["sentence"] for each in told if each.get("condition") == condition]


@pytest.mark.proof
def test_run_starts_no_code_that_would_take_the_state_for_its_own(java: Java, tmp_path: Path) -> None:
    query = Supervised(tmp_path, find_default_spark(), java)
    feed(tmp_path, 0)
    first = query.run("as it was")
    assert first.returncode == 0, first.stdout
    noted = json.loads((tmp_path / "chk.lastgood/code.json").read_text())
    assert noted["code"]["windows"] == [{"length_us": 600_000_000, "slide_us": 600_000_000, "begin_us": 0}]
    feed(tmp_path, 1)
    before = read_files(tmp_path / "chk")
    for code, found in {
        "longer windows": "[CODE_DOES_NOT_FIT] windows: windows of 1200 s; there: windows of 600 s",
        "keys in another order": "[CODE_DOES_NOT_FIT] state/0: grouped by window struct, j integer, k integer",
    }.items():
        ended = query.run(code)
        assert ended.returncode not in (0, None)
        (event,) = [each for each in map(json.loads, ended.stdout.splitlines()) if each.get("event") == "ended"]
        assert found in event["error"]
        assert event["failure"] == "code_incompatible"
        assert read_files(tmp_path / "chk") == before
    renamed = query.run("another key")
    assert renamed.returncode == 0, renamed.stdout
    (sentence,) = query.notices(renamed, "CODE_RENAMED")
    assert "key integer" in sentence
    feed(tmp_path, 2)
    asked = query.run("longer windows", "--on-code-change=start")
    assert asked.returncode == 0, asked.stdout
    assert json.loads((tmp_path / "chk.lastgood/code.json").read_text())["code"]["windows"][0]["length_us"] == 1.2e9
