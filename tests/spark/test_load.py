"""`lastgood load`, as it is typed: loaded once, killed again and again, refused where nothing may be loaded."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset
import pytest
from deltalake import DeltaTable
from typed import call

pytestmark = pytest.mark.spark

LASTGOOD = Path(sys.executable).parent / "lastgood"
SEED = os.environ.get("LASTGOOD_SEED", "1")
SCHEMA = "id BIGINT, name STRING, amount DOUBLE"


def write_rows(file: Path, ids: range) -> None:
    rows = [f"{each},name {each % 97},{each / 4}" for each in ids]
    file.write_text("\n".join(["id,name,amount", *rows]) + "\n")


def read_ids(table: str) -> list[int]:
    kind, _, place = table.partition(":")
    if kind == "delta":
        return list(DeltaTable(place).to_pyarrow_table()["id"].to_pylist())
    listed = (Path(place) / "_spark_metadata").glob("[0-9]*")
    names = [json.loads(line)["path"] for log in listed for line in log.read_text().splitlines()[1:]]
    files = sorted({name.removeprefix("file://") for name in names})
    return list(pyarrow.dataset.dataset(files).to_table()["id"].to_pylist())


def list_words(file: Path, table: str, *more: str) -> list[str]:
    own = ["--schema", SCHEMA, "--option", "header=true", "--format", "json"]
    return ["load", str(file), "--to", table, *own, *more]


def run_load(words: list[str]) -> dict[str, Any]:
    done = subprocess.run([LASTGOOD, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.proof
def test_files_are_loaded_once_and_nothing_else_is(tmp_path: Path) -> None:
    file, table = tmp_path / "orders.csv", f"delta:{tmp_path / 'table'}"
    write_rows(file, range(20_000))
    told = run_load(list_words(file, table, "--chunk-size", "100KB"))
    assert (told["rows"], told["corrupt"], told["resumed_at"], told["is_new"]) == (20_000, 0, None, True)
    assert told["chunks"] == -(-file.stat().st_size // 100_000)
    assert Counter(read_ids(table)) == Counter(range(20_000))
    again = call(*list_words(file, table))
    assert (again.returncode, json.loads(again.stdout)["is_new"], json.loads(again.stdout)["rows"]) == (
        0,
        False,
        20_000,
    )
    other = call(*list_words(file, table, "--mode", "failfast"))
    assert (other.returncode, json.loads(other.stdout)["error"]["condition"]) == (91, "LOAD_DIFFERS")
    with file.open("a") as stream:
        stream.write("20000,new,1\n")
    grown = call(*list_words(file, table))
    assert (grown.returncode, json.loads(grown.stdout)["error"]["condition"]) == (92, "INPUT_CHANGED")
    told = run_load(list_words(file, table, "--follow-growth"))
    assert (told["rows"], told["resumed_at"]) == (20_001, file.stat().st_size - len("20000,new,1\n"))
    assert Counter(read_ids(table)) == Counter(range(20_001))
    write_rows(file, range(1, 20_001))
    changed = call(*list_words(file, table, "--follow-growth"))
    assert (changed.returncode, json.loads(changed.stdout)["error"]["condition"]) == (92, "INPUT_CHANGED")


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "file"])
@pytest.mark.parametrize("whom", ["lastgood", "driver", "both", "worker"])
def test_whatever_is_killed_each_record_is_there_once(tmp_path: Path, kind: str, whom: str) -> None:
    file, table = tmp_path / "orders.csv", f"{kind}:{tmp_path / 'table'}"
    write_rows(file, range(300_000))
    words = list_words(file, table, "--chunk-size", "300KB")
    chance = random.Random(f"load {SEED} {kind} {whom}")
    for _ in range(3):
        with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            await_chunk(tmp_path, process, chance)
            kill(process, whom, chance)
        before = len(list_commits(tmp_path))
        assert before > 0
    told = run_load(words)
    assert (told["rows"], told["corrupt"]) == (300_000, 0)
    assert Counter(read_ids(table)) == Counter(range(300_000))
    assert told["chunks"] <= -(-file.stat().st_size // 300_000)


def list_commits(folder: Path) -> list[Path]:
    return [each for each in folder.glob("table.lastgood/loads/*/commits/*") if each.name.isdecimal()]


def await_chunk(folder: Path, process: subprocess.Popen[bytes], chance: random.Random) -> None:
    """Until one chunk more is committed, and then some time."""
    there = len(list_commits(folder))
    deadline = time.monotonic() + 240
    while len(list_commits(folder)) <= there:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 2))


def kill(process: subprocess.Popen[bytes], whom: str, chance: random.Random) -> None:
    found = psutil.Process(process.pid).children(recursive=True)
    drivers = [each for each in found if is_named(each, "java")]
    workers = [
        each for each in found if is_named(each, "python") and any(is_named(up, "java") for up in each.parents())
    ]
    chosen = {
        "lastgood": [],
        "driver": drivers,
        "both": drivers,
        "worker": chance.sample(workers, min(2, len(workers))),
    }
    for each in chosen[whom]:
        each.kill()
    if whom in ("lastgood", "both"):
        process.kill()
    if whom == "worker":  # Spark may do without it, and goes on, or fails
        time.sleep(1)
        process.send_signal(signal.SIGKILL)
    process.wait(60)
    assert psutil.wait_procs(found, timeout=60)[1] == []


def is_named(process: psutil.Process, name: str) -> bool:
    try:
        return name in process.name()
    except psutil.NoSuchProcess:
        return False
