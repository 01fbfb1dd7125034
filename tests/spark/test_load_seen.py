"""What a person sees of a load while it goes on: on a terminal, in a notebook, and by `status` from another one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import start_new_kernel
from typed import call

from lastgood.lab.spark import find_default_spark, make_quick_conf, submit_env
from lastgood.process.java import Java

pytestmark = [pytest.mark.spark, pytest.mark.proof]
LASTGOOD = Path(sys.executable).with_name("lastgood")
ROWS = 200_000
CHUNK = "400kB"
DEADLINE_SECONDS = 300


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "orders.csv"
    file.write_text("".join(f"{each},name\n" for each in range(ROWS)))
    return file


def list_words(file: Path) -> list[str]:
    to = f"file:{file.with_name('table')}"
    return ["load", str(file), "--to", to, "--schema", "id INT, name STRING", "--chunk-size", CHUNK]


def test_a_terminal_shows_a_bar_and_another_one_the_pace(file: Path, java: Java) -> None:
    assert java is not None
    words = list_words(file)
    screen = pexpect.spawn(str(LASTGOOD), words, timeout=DEADLINE_SECONDS, encoding="utf-8", dimensions=(40, 120))
    screen.expect(r"chunk 2, [\d,]+ rows")
    screen.expect(r"chunk 4, [\d,]+ rows")
    (place,) = (file.with_name("table.lastgood") / "loads").glob("*/metadata")
    told = call("status", place.parent).stdout
    screen.expect(pexpect.EOF)
    screen.close()
    assert screen.exitstatus == 0
    shown = screen.before
    assert isinstance(shown, str)
    assert re.search(rf"Loaded \S+orders.csv into \S+: {ROWS:,} rows of 2.\d MB, in \d+ chunks", shown)
    assert re.search(r"held by +lastgood load, process \d+ on ", told)
    assert re.search(r"pace +[\d.]+ [kM]B/s in the newest chunks, \d+ s left", told)
    again = call(*words)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.startswith(f"Already loaded: {file}, {ROWS:,} rows in ")


def test_a_program_reads_lines_of_json(file: Path, java: Java) -> None:
    assert java is not None
    done = call(*list_words(file), "--format", "json")
    told = [json.loads(line) for line in done.stderr.splitlines()]
    progress = [each["progress"] for each in told if "progress" in each]
    assert [each["chunks"] for each in progress] == list(range(len(progress)))
    assert [each["done"] for each in progress] == sorted(each["done"] for each in progress)
    assert (progress[0]["done"], progress[0]["seconds_left"]) == (0, None)
    assert (progress[-1]["done"], progress[-1]["rows"]) == (file.stat().st_size, ROWS)
    assert (progress[-1]["seconds_left"], progress[-1]["per_second"] > 0) == (0, True)
    assert json.loads(done.stdout)["rows"] == ROWS


@pytest.fixture
def kernel(java: Java, spark_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[BlockingKernelClient]:
    """A notebook's own process."""
    spark = find_default_spark()
    options = [word for each in make_quick_conf(spark, java, spark_jars).items() for word in ("--conf", "=".join(each))]
    more = {"PYSPARK_SUBMIT_ARGS": subprocess.list2cmdline(["--master", "local[2]", *options, "pyspark-shell"])}
    env = {**submit_env(spark, java, os.environ), **more, "IPYTHONDIR": str(tmp_path / "ipython")}
    manager, client = start_new_kernel(kernel_name="python3", env=env, startup_timeout=DEADLINE_SECONDS)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run_cell(kernel: BlockingKernelClient, code: str) -> list[dict[str, Any]]:
    """What a cell shows below itself, one after the other."""
    shown: list[dict[str, Any]] = []
    answer = kernel.execute_interactive(code, timeout=DEADLINE_SECONDS, output_hook=shown.append)
    assert answer["content"]["status"] == "ok", answer["content"]
    return shown


def show_lines(kernel: BlockingKernelClient, code: str) -> list[str]:
    """What one place below a cell shows, one after the other."""
    shown = run_cell(kernel, code)
    told = [each for each in shown if each["msg_type"] in ("display_data", "update_display_data")]
    assert len({each["content"]["transient"]["display_id"] for each in told}) == 1
    return [each["content"]["data"]["text/plain"] for each in told]


@pytest.mark.parametrize("kind", ["delta", "file"])
def test_a_notebook_shows_a_line_that_is_written_again(file: Path, kernel: BlockingKernelClient, kind: str) -> None:
    run_cell(
        kernel,
        "from pyspark.sql import SparkSession; import lastgood.spark; spark = SparkSession.builder.getOrCreate()",
    )
    asked = f"{str(file)!r}, '{kind}:{file.with_name('table')}', schema='id INT, name STRING', chunk_size=400_000"
    lines = show_lines(kernel, f"loaded = lastgood.spark.load({asked})")
    assert lines[0] == "looking"
    assert re.fullmatch(rf"100 %: 2.\d MB of 2.\d MB, {ROWS:,} rows in \d chunks, [\d.]+ [kM]B/s, 0 s left", lines[-1])
    assert len(lines) > 5
    assert show_lines(kernel, f"loaded = lastgood.spark.load({asked})") == ["looking", "already loaded"]
