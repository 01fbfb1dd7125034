"""Loads into tables on S3, with a real server: killed, held by another machine, taken over, compared, taken back."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from spark.test_load import LASTGOOD, list_words, run_load, write_rows
from typed import call

from lastgood.lab.s3 import S3Program, S3Server
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage, open_writable

pytestmark = pytest.mark.spark

ROWS = 20_000
CHUNK = "50KB"


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of its own on S3, which is where the environment says."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3a://lake/{tmp_path.name}"


def read_ids(s3: S3Server, table: str) -> Counter[int]:
    options = {**s3.environment, "AWS_ALLOW_HTTP": "true", "AWS_REGION": s3.environment["AWS_DEFAULT_REGION"]}
    return Counter(DeltaTable(table, storage_options=options).to_pyarrow_table()["id"].to_pylist())


def find_checkpoint(lake: str, storage: WritableStorage) -> Location | None:
    loads = parse_location(f"{lake}/table.lastgood/loads")
    names = [name for name in storage.names(loads) or () if not name.endswith(".lastgood/")]
    return loads / names[0].rstrip("/") if names else None


def count_commits(lake: str, storage: WritableStorage) -> int:
    checkpoint = find_checkpoint(lake, storage)
    if checkpoint is None:
        return 0
    return sum(name.isdecimal() for name in storage.names(checkpoint / "commits") or ())


def await_commits(lake: str, storage: WritableStorage, process: subprocess.Popen[bytes], least: int) -> None:
    while count_commits(lake, storage) < least:
        assert process.poll() is None
        time.sleep(0.2)


def read_error(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    error: dict[str, Any] = json.loads(process.communicate()[0])["error"]
    return error


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_table_on_s3_gets_each_record_once(
    s3: S3Server, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, storage = tmp_path / "orders.csv", open_writable(parse_location(lake))
    write_rows(file, range(ROWS))
    words = list_words(file, f"delta:{lake}/table", "--chunk-size", CHUNK)
    with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL) as killed:
        await_commits(lake, storage, killed, 2)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # as on a machine with other locks
            held = call(*words)
        assert (held.returncode, json.loads(held.stdout)["error"]["condition"]) == (73, "CHECKPOINT_HELD")
        assert "goes on on another machine" in json.loads(held.stdout)["error"]["sentence"]
        killed.kill()
    other = call(*list_words(file, f"delta:{lake}/table", "--chunk-size", "70KB"))
    assert (other.returncode, json.loads(other.stdout)["error"]["found"]) == (2, "70000")
    with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.PIPE) as overtaken:
        await_commits(lake, storage, overtaken, count_commits(lake, storage) + 2)
        checkpoint = find_checkpoint(lake, storage)
        assert checkpoint is not None
        leases = checkpoint.sibling(".lastgood/leases")
        newest = max(int(name.removesuffix(".json")) for name in storage.names(leases) or ())
        storage.write(leases / f"{newest + 1}.json", b"{}")
        error = read_error(overtaken)
    assert (overtaken.returncode, error["condition"]) == (73, "CHECKPOINT_HELD")
    assert "has gone on with this load" in error["sentence"]
    storage.remove(leases / f"{newest + 1}.json")
    told = run_load(words)
    assert (told["rows"], told["is_new"], told["chunks"]) == (ROWS, True, -(-file.stat().st_size // 50_000))
    assert read_ids(s3, f"{lake}/table") == Counter(range(ROWS))
    assert not run_load(words)["is_new"]
    compared = json.loads(call(*words, "--verify").stdout)
    assert (compared["records"], compared["rows"], compared["lost"]) == (ROWS, ROWS, 0)
    undone = json.loads(call(*words, "--undo").stdout)
    assert undone["version"] is not None
    assert read_ids(s3, f"{lake}/table") == Counter()
    assert count_commits(lake, storage) == 0
    assert storage.stat(parse_location(undone["kept"]) / "checkpoint/metadata") is not None


@pytest.mark.proof
@pytest.mark.timeout(1800)
def test_a_storage_that_is_lost_meanwhile_is_told_and_the_same_command_goes_on(
    s3_program: S3Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever notices it, the job, Spark or the command, the place is told, and that it may work later."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    file, lake = tmp_path / "orders.csv", "s3a://lake/lost"
    write_rows(file, range(ROWS))
    words = list_words(file, f"delta:{lake}/table", "--chunk-size", CHUNK)
    with S3Server(tmp_path / "s3", s3_program) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.PIPE) as process:
            await_commits(lake, open_writable(parse_location(lake)), process, 2)
            server.stop()
            error = read_error(process)
        told = (process.returncode, error["condition"])
        assert told in ((97, "LOAD_INTERRUPTED"), (10, "STORAGE_UNAVAILABLE")), error
        assert lake in error["subject"]
        assert error["effect"] == "what was loaded so far stays"
        server.start()
        assert run_load(words)["rows"] == ROWS
        assert read_ids(server, f"{lake}/table") == Counter(range(ROWS))


@pytest.mark.proof
@pytest.mark.timeout(600)
def test_what_spark_reads_itself_may_lie_on_s3(s3: S3Server, lake: str, tmp_path: Path) -> None:
    """Files whose columns it finds, and a table, under the other name of S3."""
    file, storage = tmp_path / "orders.csv", open_writable(parse_location(lake))
    write_rows(file, range(100))
    far = f"{lake}/orders.csv".replace("s3a:", "s3:")
    storage.write(parse_location(far), file.read_bytes())
    finding = ["load", far, "--infer-schema", "--option", "header=true", "--format", "json"]
    assert run_load([*finding, "--to", f"delta:{lake}/table"])["rows"] == 100
    ordered = ["load", f"{lake}/table", "--order-by", "id", "--chunk-rows", "30", "--format", "json"]
    assert run_load([*ordered, "--to", f"delta:{tmp_path}/copy"])["rows"] == 100
    assert read_ids(s3, f"{lake}/table") == Counter(range(100))
