"""Loads into tables on S3, with a real server: killed, held by another machine, taken over, compared, taken back."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyarrow import parquet
from spark.test_load import LASTGOOD, list_words, run_load, write_rows
from typed import call

from lastgood.lab.s3 import S3Program, S3Server
from lastgood.sinks.files.sink import FileSink
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.writing import FsspecWriter, WritableStorage, open_writable

pytestmark = pytest.mark.spark

ROWS = 20_000
CHUNK = "50KB"


@pytest.fixture(autouse=True)
def _forget_servers() -> None:
    """A filesystem that was opened for one server is not that of another, which the environment names by now."""
    storage = open_writable(parse_location("s3a://lake"))
    assert isinstance(storage, FsspecWriter)
    type(storage.filesystem).clear_instance_cache()


@pytest.fixture
def lake(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A folder of its own on S3, which is where the environment says."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return f"s3a://lake/{tmp_path.name}"


def read_ids(s3: S3Server, table: str) -> Counter[int]:
    kind, _, place = table.partition(":")
    if kind == "file":
        return Counter(itertools.chain.from_iterable(map(read_ids_of_file, list_data_files(parse_location(place)))))
    return Counter(read_delta(s3, place)["id"].to_pylist())


def list_data_files(folder: Location) -> list[Location]:
    """Those that stand in Spark's log of a folder."""
    log = FileSink(open_storage(folder), folder).read()
    assert log is not None
    return [parse_location(each.path) for each in log.listed_files or ()]


def read_ids_of_file(file: Location) -> list[int]:
    raw = open_storage(file).read(file, limit=10**8)
    ids: list[int] = parquet.read_table(io.BytesIO(raw or b""))["id"].to_pylist()
    return ids


def read_delta(s3: S3Server, table: str) -> pa.Table:
    options = {**s3.environment, "AWS_ALLOW_HTTP": "true", "AWS_REGION": s3.environment["AWS_DEFAULT_REGION"]}
    return DeltaTable(table, storage_options=options).to_pyarrow_table()


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
@pytest.mark.parametrize("kind", ["delta", "file"])
def test_table_on_s3_gets_each_record_once(
    s3: S3Server, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file, storage = tmp_path / "orders.csv", open_writable(parse_location(lake))
    write_rows(file, range(ROWS))
    table = f"{kind}:{lake}/table"
    words = list_words(file, table, "--chunk-size", CHUNK)
    with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL) as killed:
        await_commits(lake, storage, killed, 2)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # as on a machine with other locks
            held = call(*words)
        assert (held.returncode, json.loads(held.stdout)["error"]["condition"]) == (73, "CHECKPOINT_HELD")
        assert "goes on on another machine" in json.loads(held.stdout)["error"]["sentence"]
        killed.kill()
    other = call(*list_words(file, table, "--chunk-size", "70KB"))
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
    assert read_ids(s3, table) == Counter(range(ROWS))
    assert not run_load(words)["is_new"]
    compared = json.loads(call(*words, "--verify").stdout)
    assert (compared["records"], compared["rows"], compared["lost"]) == (ROWS, ROWS, 0)
    undone = json.loads(call(*words, "--undo").stdout)
    if kind == "delta":
        assert undone["version"] is not None
        assert read_ids(s3, table) == Counter()
    else:
        assert storage.stat(parse_location(undone["rows_kept"]) / "_spark_metadata") is not None
        left = [each.name for each in storage.walk(parse_location(f"{lake}/table")) or ()]
        assert left == ["_lastgood_load.json"]
        again = call(*words)
        assert (again.returncode, json.loads(again.stdout)["error"]["condition"]) == (96, "TABLE_TAKEN")
    assert count_commits(lake, storage) == 0
    assert storage.stat(parse_location(undone["kept"]) / "checkpoint/metadata") is not None


@pytest.mark.parametrize("end", ["", "\n"])
def test_of_a_file_on_s3_the_last_record_comes_once_whatever_is_behind_it(lake: str, tmp_path: Path, end: str) -> None:
    file = f"{lake}/in.csv"
    open_writable(parse_location(lake)).write(parse_location(file), f"id,name\n1,a\n2,b{end}".encode())
    words = ["load", file, "--to", f"delta:{tmp_path / 'table'}", "--option", "header=true", "--format", "json"]
    assert run_load([*words, "--schema", "id INT, name STRING"])["rows"] == 2
    assert DeltaTable(tmp_path / "table").to_pyarrow_table().sort_by("id").to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 2, "name": "b"},
    ]


@contextlib.contextmanager
def stopped(process: subprocess.Popen[bytes], chance: Random) -> Iterator[None]:
    """It and all that it has started sleep, and wake in any order."""
    command = psutil.Process(process.pid)
    found = [command, *command.children(recursive=True)]
    try:
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.suspend()
        yield
    finally:
        for each in chance.sample(found, len(found)):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()


@pytest.mark.proof
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["delta", "file"])
def test_one_that_sleeps_while_another_machine_goes_on_changes_nothing(
    s3: S3Server, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, seed: int
) -> None:
    """It sleeps anywhere in a chunk, until its lease is another's and all is loaded, and goes on with that chunk."""
    file, storage, chance = tmp_path / "orders.csv", open_writable(parse_location(lake)), Random(seed)
    write_rows(file, range(ROWS))
    table = f"{kind}:{lake}/table"
    words = list_words(file, table, "--chunk-size", "10KB")
    with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.PIPE) as sleeper:
        await_commits(lake, storage, sleeper, chance.randint(1, 5))
        time.sleep(chance.uniform(0, 1))
        with stopped(sleeper, chance), monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))  # as on a machine with other locks
            assert run_load(words)["rows"] == ROWS
        error = read_error(sleeper)
    assert (sleeper.returncode, error["condition"]) == (73, "CHECKPOINT_HELD")
    assert read_ids(s3, table) == Counter(range(ROWS))
    compared = json.loads(call(*words, "--verify").stdout)
    assert (compared["records"], compared["rows"], compared["lost"]) == (ROWS, ROWS, 0)


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
        assert read_ids(server, f"delta:{lake}/table") == Counter(range(ROWS))


@pytest.mark.proof
@pytest.mark.timeout(900)
def test_records_go_apart_on_s3_and_one_that_is_lost_there_is_seen(s3: S3Server, lake: str, tmp_path: Path) -> None:
    file, storage = tmp_path / "orders.csv", open_writable(parse_location(lake))
    write_rows(file, range(ROWS))
    lines = file.read_bytes().splitlines(keepends=True)
    broken = range(5000, ROWS, 5000)
    for number in broken:
        lines[1 + number] = b"broken %d\n" % number
    file.write_bytes(b"".join(lines))
    apart = f"{lake}/apart"
    words = list_words(file, f"delta:{lake}/table", "--chunk-size", CHUNK, "--quarantine", f"delta:{apart}")
    with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL) as killed:
        await_commits(lake, storage, killed, 3)
        killed.kill()
    told = run_load(words)
    assert (told["rows"], told["corrupt"]) == (ROWS - len(broken), len(broken))
    assert read_ids(s3, f"delta:{lake}/table") == Counter(set(range(ROWS)) - set(broken))
    records = read_delta(s3, apart)["record"].to_pylist()
    assert sorted(records) == sorted(f"broken {number}" for number in broken)
    assert not run_load(words)["is_new"]
    log = parse_location(f"{apart}/_delta_log")
    last = max(name for name in storage.names(log) or () if name.endswith(".json"))
    whole = storage.read(log / last, limit=10**6) or b""
    storage.write(log / last, b'{"commitInfo":{"operation":"WRITE"}}\n')  # as by a writer who came at the same time
    lost = call(*words)
    error = json.loads(lost.stdout)["error"]
    assert (lost.returncode, error["subject"]) == (93, f"delta:{apart}")
    assert "stands in 0 versions" in error["found"]
    storage.write(log / last, whole)
    undone = json.loads(call(*words, "--undo").stdout)
    assert undone.get("version") is not None, undone
    assert read_ids(s3, f"delta:{lake}/table") == Counter()
    assert read_delta(s3, apart).num_rows == 0


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
    assert read_ids(s3, f"delta:{lake}/table") == Counter(range(100))
