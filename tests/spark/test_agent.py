"""The agent in real drivers: of several Sparks, of an older Python, killed, and with nowhere to write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from plugin_services import require_service
from pythons import find_python

import lastgood
from lastgood.lab.spark import SPARK_VERSIONS, SparkEnvironment, find_default_spark, make_small_conf, submit
from lastgood.process.child import CommandEnd
from lastgood.process.java import Java
from lastgood.records.files import DRIVER_FILE, Driver, parse_driver, parse_records
from lastgood.records.record import Crashed, Progress, QueryStarted, Record, StartFailed, Terminated
from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE

pytestmark = pytest.mark.spark

APP = Path(__file__).with_name("agent_app.py")
DEADLINE_SECONDS = 240
OURS = Path(lastgood.__file__).parents[1]
THEIRS = Path(psutil.__file__).parents[1]

IN_TEST = ("4.2.0",)
"""The default."""
VERSIONS = [
    pytest.param(version, marks=() if version in IN_TEST else pytest.mark.proof)
    for version in SPARK_VERSIONS
    if version != "4.1.4"
]


def run_app(
    spark: SparkEnvironment, java: Java, folder: Path, *arguments: str, agent: Path | None = None, path: str = ""
) -> tuple[CommandEnd, str]:
    """Submit the application; how it ended, and what was printed."""
    log = folder / "app.log"
    env = {"PYTHONPATH": os.pathsep.join(filter(None, (str(SITE_FOLDER), path)))}
    if agent is not None:
        env[FOLDER_VARIABLE] = str(agent)
    conf = {"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"}
    with (
        log.open("wb") as output,
        submit(
            APP, [str(folder), *arguments], environment=spark, java=java, conf=conf, env=env, cwd=folder, output=output
        ) as child,
    ):
        ending = child.wait(DEADLINE_SECONDS)
    assert ending is not None, log.read_text()
    return ending, log.read_text()


def records_in(folder: Path) -> list[Record]:
    """Every record, and no line that is none."""
    read = [parse_records(file.read_bytes()) for file in sorted(folder.glob("*.jsonl"))]
    assert [each.unread for each in read] == [0] * len(read)
    return [record for each in read for record in each.records]


def driver_in(folder: Path) -> Driver:
    (file,) = [file for file in folder.iterdir() if DRIVER_FILE.fullmatch(file.name)]
    driver = parse_driver(file.read_bytes())
    assert driver is not None
    return driver


def of(kind: type[Any], records: list[Record], name: str | None) -> list[Any]:
    return [record for record in records if isinstance(record, kind) and record.query_name == name]


def check_windows(records: list[Record], folder: Path, version: str) -> None:
    """What is told of the query with windows, by agent and recorder alike."""
    (started,) = of(QueryStarted, records, "windows")
    assert (started.checkpoint, started.spark_version) == (f"file:{folder}/windows", version)
    assert started.application_id.startswith("local-")
    batches = of(Progress, records, "windows")
    assert [each.batch_id for each in batches][:3] == [0, 1, 2]
    first, second = batches[:2]
    assert (first.query_id, first.run_id, first.checkpoint) == (started.query_id, started.run_id, started.checkpoint)
    assert (first.sources[0].start_offset, first.sources[0].end_offset["offset"]) == (None, 10)
    assert second.sources[0].start_offset == first.sources[0].end_offset
    assert second.event_time_min_ms <= second.event_time_avg_ms <= second.event_time_max_ms
    assert second.batch_watermark_ms == max(0, first.event_time_max_ms - 1000)
    assert (second.num_input_rows, second.num_rows_dropped_by_watermark) == (10, 0)
    assert second.num_state_rows >= 1
    assert second.state_memory_used_bytes > 0
    assert second.batch_duration_ms >= second.duration_ms["addBatch"]
    assert second.trigger_at_ms >= started.started_at_ms
    (ended,) = of(Terminated, records, "windows")
    assert (ended.query_id, ended.failure) == (started.query_id, None)


def check_failures(records: list[Record], folder: Path) -> None:
    (refused,) = [record for record in records if isinstance(record, StartFailed)]
    assert refused.checkpoint == f"{folder}/file/x"
    assert refused.failure.causes[0].language == "python"
    assert refused.failure.causes[-1].language == "java"
    (ended,) = of(Terminated, records, "poison")
    assert ended.checkpoint == f"file:{folder}/poison"
    assert ended.batch_id == 1
    assert ended.failure.causes[0].class_name == "org.apache.spark.sql.streaming.StreamingQueryException"
    innermost = ended.failure.causes[-1]
    assert (innermost.language, innermost.class_name, innermost.message) == (
        "python",
        "ValueError",
        "cannot parse record 17",
    )
    assert 'raise ValueError("cannot parse record 17")' in innermost.traceback
    assert ended.failure.start_offsets[0]["offset"] == 10
    assert ended.failure.end_offsets[0]["offset"] == 20


@pytest.mark.parametrize("version", VERSIONS)
def test_agent_and_recorder_tell_the_same_of_every_spark(
    version: str, spark_of: Callable[[str], SparkEnvironment], java: Java, tmp_path: Path
) -> None:
    agent, recorded = tmp_path / "agent", tmp_path / "recorded"
    agent.mkdir()
    # After pyspark itself, which spark-submit puts before what it inherits.
    path = os.pathsep.join([str(OURS), str(THEIRS)])
    ending, log = run_app(spark_of(version), java, tmp_path, "fail", str(recorded), agent=agent, path=path)
    assert ending.exit_code == 1, log
    assert "not started: " in log
    assert "cannot parse record 17" in log
    assert "Listener threw" not in log
    for records in (records_in(agent), records_in(recorded)):
        check_windows(records, tmp_path, version)
        check_failures(records, tmp_path)
    (ended,) = of(Terminated, records_in(agent), "poison")
    (crashed,) = [record for record in records_in(agent) if isinstance(record, Crashed)]
    assert crashed.query_id == ended.query_id
    driver = driver_in(agent)
    assert driver.exited_at_ms is not None
    assert (driver.queries, driver.dropped, driver.trouble) == ((), 0, None)


def environment_with(python: Path, spark: SparkEnvironment, folder: Path) -> Path:
    """A virtual environment of another Python with nothing but this pyspark, which is pure Python; its `python`."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "spark.pth").write_text(f"{spark.home.parent}\n")
    return folder / "bin" / "python"


def test_unchanged_application_of_an_older_python_is_seen_through_by_lastgood_run(
    spark_of: Callable[[str], SparkEnvironment], tmp_path: Path
) -> None:
    python = find_python("3.9") or find_python("3.10")
    if python is None:
        require_service("no Python 3.9 or 3.10 on this machine")
    theirs = environment_with(python, spark_of("3.5.9"), tmp_path / "environment")
    (tmp_path / "spark").mkdir()
    conf = "".join(f"{key} {value}\n" for key, value in {**make_small_conf(), "spark.master": "local[1]"}.items())
    (tmp_path / "spark" / "spark-defaults.conf").write_text(conf)
    (tmp_path / "lastgood.toml").write_text(f"""
[pipeline.app]
command = ["{theirs}", "{APP}", "{tmp_path}", "fail"]
env = {{ SPARK_CONF_DIR = "{tmp_path}/spark", SPARK_LOCAL_IP = "127.0.0.1" }}
policy = {{ max_attempts = 0 }}
""")
    command = [Path(sys.executable).parent / "lastgood", "run", f"--config={tmp_path}/lastgood.toml", "--format=json"]
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    assert done.returncode == 71, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (ended,) = [event for event in events if event.get("event") == "ended"]
    assert ended["error"] == "ValueError: cannot parse record 17"
    assert ended["positions"][f"{tmp_path}/poison"] == {"planned": 1, "committed": 0}
    assert f"{tmp_path}/windows" in ended["positions"]
    assert [event for event in events if event.get("event") == "noticed"] == []
    (agent,) = (tmp_path / "state" / "lastgood" / "agent" / "app").iterdir()
    driver = driver_in(agent)
    assert driver.python.startswith(("3.9.", "3.10."))
    check_failures(records_in(agent), tmp_path)


@pytest.mark.proof
def test_driver_that_is_killed_leaves_whole_lines_and_its_name(java: Java, tmp_path: Path) -> None:
    agent = tmp_path / "agent"
    agent.mkdir()
    with submit(
        APP,
        [str(tmp_path), "forever"],
        environment=find_default_spark(),
        java=java,
        conf={"spark.master": "local[1]", "spark.sql.shuffle.partitions": "1"},
        env={"PYTHONPATH": str(SITE_FOLDER), FOLDER_VARIABLE: str(agent)},
        cwd=tmp_path,
        output=subprocess.DEVNULL,
    ) as child:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while sum(file.read_bytes().count(b'"progress"') for file in agent.glob("*.jsonl")) < 3:
            assert time.monotonic() < deadline
            assert child.wait(0.05) is None
        driver = driver_in(agent)
        process = psutil.Process(driver.pid)
        assert abs(process.create_time() * 1000 - driver.process_started_at_ms) < 1000
        (query,) = driver.queries
        assert (query.query_name, query.checkpoint) == ("windows", f"file:{tmp_path}/windows")
        process.kill()
        child.wait(DEADLINE_SECONDS)
    batches = of(Progress, records_in(agent), "windows")
    assert [each.batch_id for each in batches] == list(range(len(batches)))
    assert driver_in(agent).exited_at_ms is None


@pytest.mark.proof
def test_query_commits_where_the_agent_cannot_write(java: Java, tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("")
    ending, log = run_app(find_default_spark(), java, tmp_path, "end", agent=tmp_path / "no-folder" / "agent")
    assert ending.is_success, log
    assert len(list((tmp_path / "windows" / "commits").glob("[0-9]"))) >= 3
    assert "lastgood" not in log.replace(str(OURS), "")
