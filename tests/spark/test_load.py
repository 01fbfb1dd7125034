"""`lastgood load`, as it is typed: loaded once, killed again and again, refused where nothing may be loaded."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from typed import call

from lastgood.load.specification import LoadSpec
from lastgood.load.unpacking import locate_index

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
    done = call(*list_words(file, table, "--chunk-size", "100KB"))
    told, size = json.loads(done.stdout), file.stat().st_size
    assert (told["rows"], told["corrupt"], told["resumed_at"], told["is_new"]) == (20_000, 0, None, True)
    assert told["chunks"] == -(-size // 100_000)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    progress = [line["progress"] for line in lines if "progress" in line]
    assert [each["chunks"] for each in progress] == list(range(told["chunks"] + 1))
    first, last = progress[0], progress[-1]
    assert (first["done"], first["size"], first["per_second"], first["seconds_left"]) == (0, size, None, None)
    assert (last["done"], last["rows"], last["seconds_left"]) == (size, 20_000, 0)
    assert last["per_second"] > 0
    assert Counter(read_ids(table)) == Counter(range(20_000))
    other_verbs_tell_of_it(told, file.stat().st_size)
    again = call(*list_words(file, table))
    assert (again.returncode, json.loads(again.stdout)["is_new"], json.loads(again.stdout)["rows"]) == (
        0,
        False,
        20_000,
    )
    extra = tmp_path / "extra.csv"
    write_rows(extra, range(5))
    listed = call(*list_words(extra, table), str(file))
    error = json.loads(listed.stdout)["error"]
    assert (listed.returncode, error["condition"]) == (91, "LOAD_DIFFERS")
    assert error["found"] == f"{file}, by the load on {told['checkpoint']}"
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
def test_file_of_a_folder_that_was_written_again_is_loaded_once_more(tmp_path: Path) -> None:
    folder, table = tmp_path / "in", f"delta:{tmp_path / 'table'}"
    folder.mkdir()
    write_rows(folder / "a.csv", range(3))
    write_rows(folder / "b.csv", range(10, 12))
    words = list_words(folder, table)
    run_load(words)
    write_rows(folder / "a.csv", range(100, 105))
    refused = call(*words)
    assert (refused.returncode, json.loads(refused.stdout)["error"]["condition"]) == (92, "INPUT_CHANGED")
    again = [*words, "--reprocess", str(folder / "a.csv")]
    assert run_load(again)["rows"] == 10
    assert sorted(read_ids(table)) == [0, 1, 2, 10, 11, *range(100, 105)]
    for each in (again, words):
        told = json.loads(call(*each).stdout)
        assert (told["is_new"], told["rows"]) == (False, 10)
    write_rows(folder / "aa.csv", range(20, 22))
    write_rows(folder / "c.csv", range(30, 32))
    assert run_load(words)["late"] == [str(folder / "aa.csv")]
    assert run_load(words)["late"] == []


def compare(words: list[str], code: int) -> dict[str, Any]:
    done = call(*words, "--verify")
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def change_in_the_midst(file: Path, before: str, after: str) -> None:
    """Change a record so that neither size nor time nor the checksums of both ends tell."""
    content, told = file.read_text(), file.stat()
    assert (content.count(before), len(before)) == (1, len(after))
    file.write_text(content.replace(before, after))
    os.utime(file, ns=(told.st_atime_ns, told.st_mtime_ns))


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "file"])
def test_what_was_loaded_is_compared_with_its_files(tmp_path: Path, kind: str) -> None:
    file, folder = tmp_path / "orders.csv", tmp_path / "table"
    write_rows(file, range(10_000))
    words = list_words(file, f"{kind}:{folder}")
    assert compare(words, 94)["error"]["found"] == "nothing of it is loaded"
    run_load([*words, "--chunk-size", "100KB"])
    told = compare(words, 0)
    assert (told["records"], told["rows"], told["lost"], told["surplus"]) == (10_000, 10_000, 0, 0)
    if kind == "delta":
        DeltaTable(folder).optimize.compact()
        assert compare(words, 0)["rows"] == 10_000, "rewritten by nobody but its own table"
        more = pa.table({"id": [7], "name": ["of others"], "amount": [0.5]})
        write_deltalake(folder, more, mode="append")
        assert compare(words, 94)["error"]["found"].endswith("(OPTIMIZE) rewrote or removed rows of it")
        return
    change_in_the_midst(file, "\n5000,name 53,1250.0\n", "\n5000,name 53,1250.5\n")
    told = compare(words, 1)
    assert (told["records"], told["rows"], told["lost"], told["surplus"]) == (10_000, 10_000, 1, 1)
    samples = [json.loads(each) for each in (*told["lost_samples"], *told["surplus_samples"])]
    assert samples == [{"id": 5000, "name": "name 53", "amount": amount} for amount in (1250.5, 1250.0)]


@pytest.mark.proof
def test_rows_of_others_in_the_table_are_not_those_of_the_load(tmp_path: Path) -> None:
    file, folder = tmp_path / "orders.csv", tmp_path / "table"
    write_deltalake(folder, pa.table({"id": [7], "name": ["of others"], "amount": [0.5]}))
    write_rows(file, range(3_000))
    words = list_words(file, f"delta:{folder}")
    run_load(words)
    told = compare(words, 0)
    assert (told["records"], told["rows"]) == (3_000, 3_000)
    assert len(read_ids(f"delta:{folder}")) == 3_001


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "file"])
def test_a_load_is_taken_back_and_made_anew(tmp_path: Path, kind: str) -> None:
    file, other, folder = tmp_path / "orders.csv", tmp_path / "others.csv", tmp_path / "table"
    table = f"{kind}:{folder}"
    write_rows(file, range(2_000))
    write_rows(other, range(5_000, 5_100))
    words, words_of_other = list_words(file, table), list_words(other, table)
    run_load([*words, "--chunk-size", "30KB"])
    if kind == "delta":
        run_load(words_of_other)
    else:
        refused = call(*words_of_other)
        assert (refused.returncode, json.loads(refused.stdout)["error"]["condition"]) == (96, "TABLE_TAKEN")
    write_rows(file, range(10_000, 10_050))
    assert call(*words).returncode == 92
    undone = call(*words, "--undo")
    assert undone.returncode == 0, undone.stdout + undone.stderr
    others = list(range(5_000, 5_100)) if kind == "delta" else []
    assert (sorted(read_ids(table)) if folder.exists() else []) == others
    told = run_load(words)
    assert (told["rows"], told["resumed_at"]) == (50, None)
    assert sorted(read_ids(table)) == sorted([*others, *range(10_000, 10_050)])
    assert compare(words, 0)["rows"] == 50


def write_records(file: Path, columns: list[str], ids: range) -> None:
    records = [{name: each if name == "id" else f"{name} {each}" for name in columns} for each in ids]
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(f"{json.dumps(each)}\n" for each in records))
    else:
        file.write_text("".join(f"{','.join(map(str, each.values()))}\n" for each in records))


@pytest.mark.proof
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_columns_that_came_since_are_taken_where_that_is_asked_for(tmp_path: Path, ending: str) -> None:
    folder, table = tmp_path / "in", tmp_path / "table"
    folder.mkdir()
    schemas = ["id BIGINT, name STRING", "id BIGINT, name STRING, note STRING", "id BIGINT, name STRING, note INT"]

    def list_typed(schema: str, *more: str) -> list[str]:
        own = ["--schema", schema] if ending == "csv" else []
        return ["load", str(folder), "--to", f"delta:{table}", "--format", "json", *own, *more]

    write_records(folder / f"a.{ending}", ["id", "name"], range(3))
    run_load(list_typed(schemas[0]))
    write_records(folder / f"b.{ending}", ["id", "name", "note"], range(3, 5))
    if ending != "jsonl":  # of which what no column is for is passed over
        refused = call(*list_typed(schemas[1]))
        assert (refused.returncode, "--evolve" in refused.stdout) == ((91, True) if ending == "csv" else (2, True))
    told = run_load(list_typed(schemas[1], "--evolve"))
    assert (told["rows"], told["corrupt"]) == (5, 0)
    rows = sorted(DeltaTable(table).to_pyarrow_table().to_pylist(), key=lambda row: row["id"])
    assert rows == [
        *({"id": each, "name": f"name {each}", "note": None} for each in range(3)),
        *({"id": each, "name": f"name {each}", "note": f"note {each}"} for each in range(3, 5)),
    ]
    assert not run_load(list_typed(schemas[1]))["is_new"]
    write_records(folder / f"c.{ending}", ["id", "name", "note"], range(5, 6))
    assert run_load(list_typed(schemas[1]))["rows"] == 6
    assert compare(list_typed(schemas[1]), 0)["records"] == 6
    if ending == "csv":
        write_records(folder / "d.csv", ["id", "name", "note"], range(6, 7))
        refused = call(*list_typed(schemas[2], "--evolve"))
        assert json.loads(refused.stdout)["error"]["found"] == "the column note as int, which was string"
        assert len(read_ids(f"delta:{table}")) == 6


@pytest.mark.proof
@pytest.mark.parametrize("is_gone", [False, True])
def test_load_stops_where_a_file_is_no_longer_what_it_was(tmp_path: Path, is_gone: bool) -> None:
    """So nobody has to vouch for its source: what was loaded stays, and nothing of another file comes to it."""
    file, table = tmp_path / "orders.csv", f"delta:{tmp_path / 'table'}"
    write_rows(file, range(300_000))
    words = list_words(file, table, "--chunk-size", "300KB")
    process = subprocess.Popen([LASTGOOD, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    await_chunk(tmp_path, process, random.Random(f"changed {SEED} {is_gone}"))
    if is_gone:
        file.rename(tmp_path / "elsewhere.csv")
    else:
        write_rows(file, range(1_000_000, 1_300_000))
    told, _ = process.communicate()
    assert (process.returncode, json.loads(told)["error"]["condition"]) == (93, "LOAD_FAILED")
    loaded = read_ids(table)
    assert Counter(loaded) == Counter(range(len(loaded)))
    again = call(*words)
    assert again.returncode == (2 if is_gone else 92)
    assert read_ids(table) == loaded


def other_verbs_tell_of_it(told: dict[str, Any], size: int) -> None:
    """Spark has written its offsets as lastgood knows them: bytes, in their order."""

    def ask(*words: str) -> dict[str, Any]:
        asked = call(*words, "--format", "json")
        assert asked.returncode == 0, asked.stdout
        answer: dict[str, Any] = json.loads(asked.stdout)
        return answer

    standing = ask("status", told["checkpoint"], "--sink", told["table"])
    assert (standing["grade"], standing["unknowns"]) == ("healthy", [])
    expected = {"table": told["table"], "files": 1, "done": size, "size": size, "rows": 20_000, "corrupt": 0}
    expected |= {"chunks": told["chunks"], "uncounted": 0, "is_whole": True, "unit": "bytes"}
    assert expected.items() <= standing["load"].items()
    checked = ask("verify", told["checkpoint"])
    assert (checked["contiguous"], checked["not_compared"]) == (True, [])
    batches = ask("inspect", told["checkpoint"], "--all")["batches"]
    assert sum(read["count"] for batch in batches for read in batch["sources"]) == size


@pytest.mark.proof
@pytest.mark.parametrize("whom", ["lastgood", "driver", "both"])
def test_whatever_is_killed_a_corrupt_record_is_apart_once(tmp_path: Path, whom: str) -> None:
    file, table, apart = tmp_path / "orders.csv", f"delta:{tmp_path / 'table'}", f"delta:{tmp_path / 'apart'}"
    write_rows(file, range(200_000))
    with file.open("a") as stream:
        stream.writelines(f"x{each},a,1\n" for each in range(100_000))
    words = list_words(file, table, "--chunk-size", "300KB", "--quarantine", apart)
    told = kill_and_load(tmp_path, words, whom, random.Random(f"apart {SEED} {whom}"), times=3)
    assert (told["rows"], told["corrupt"]) == (200_000, 100_000)
    assert Counter(read_ids(table)) == Counter(range(200_000))
    records = DeltaTable(tmp_path / "apart").to_pyarrow_table()["record"].to_pylist()
    assert sorted(records) == sorted(f"x{each},a,1" for each in range(100_000))


@pytest.mark.proof
@pytest.mark.parametrize("kind", ["delta", "file"])
@pytest.mark.parametrize("whom", ["lastgood", "driver", "both", "worker"])
def test_whatever_is_killed_each_record_is_there_once(tmp_path: Path, kind: str, whom: str) -> None:
    file, table = tmp_path / "orders.csv", f"{kind}:{tmp_path / 'table'}"
    write_rows(file, range(300_000))
    words = list_words(file, table, "--chunk-size", "300KB")
    told = kill_and_load(tmp_path, words, whom, random.Random(f"load {SEED} {kind} {whom}"), times=3)
    assert (told["rows"], told["corrupt"]) == (300_000, 0)
    assert Counter(read_ids(table)) == Counter(range(300_000))
    assert told["chunks"] <= -(-file.stat().st_size // 300_000)


def write_parquet(folder: Path) -> list[str]:
    rows = pa.table({"id": range(200_000), "name": [f"name {each}" for each in range(200_000)]})
    pq.write_table(rows, folder / "in.parquet", row_group_size=10_000)
    return ["in.parquet"]


def write_over_lines(folder: Path) -> list[str]:
    lines = [f'{each},"a ""name""\n{each}",{each / 4}\n' for each in range(200_000)]
    (folder / "in.csv").write_text("".join(lines))
    return ["in.csv", "--schema", SCHEMA, "--option", "multiLine=true", "--option", 'escape="', "--mode", "failfast"]


def write_packed(folder: Path) -> list[str]:
    lines = [f'{{"id":{each},"name":"name {each}"}}\n' for each in range(200_000)]
    (folder / "in.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return ["in.jsonl.gz", "--schema", "id BIGINT, name STRING", "--mode", "failfast"]


def write_folder(folder: Path) -> list[str]:
    (folder / "in").mkdir()
    for number in range(8):
        write_rows(folder / "in" / f"{number}.csv", range(number * 25_000, (number + 1) * 25_000))
    return ["in", "--schema", SCHEMA, "--option", "header=true", "--mode", "failfast"]


@pytest.mark.proof
@pytest.mark.parametrize("write", [write_parquet, write_over_lines, write_packed, write_folder])
def test_however_it_is_written_each_record_is_there_once(
    tmp_path: Path, write: Callable[[Path], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = f"delta:{tmp_path / 'table'}"
    words = ["load", *write(tmp_path), "--to", table, "--chunk-size", "300KB", "--format", "json"]
    chance = random.Random(f"load {SEED} {write.__name__}")
    try:
        told = kill_and_load(tmp_path, words, chance.choice(["driver", "both"]), chance, times=2)
    finally:
        remove_indexes(tmp_path)
    assert (told["rows"], told["corrupt"], told["is_new"]) == (200_000, 0, True)
    assert told["resumed_at"]
    assert Counter(read_ids(table)) == Counter(range(200_000))


def remove_indexes(folder: Path) -> None:
    """Those of packed files, which lie in the cache of this machine."""
    for told in folder.glob("table.lastgood/loads/*.lastgood/load.json"):
        for file in LoadSpec.from_json(json.loads(told.read_text())).files:
            locate_index(file).unlink(missing_ok=True)


def kill_and_load(folder: Path, words: list[str], whom: str, chance: random.Random, times: int) -> dict[str, Any]:
    """What a load tells in the end that was killed some times, each after another chunk."""
    for _ in range(times):
        with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            await_chunk(folder, process, chance)
            kill(process, whom, chance)
        assert list_commits(folder)
    return run_load(words)


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


@pytest.mark.proof
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_disk_that_is_full_is_told_and_the_same_command_goes_on_once_there_is_room(tmp_path: Path) -> None:
    file, disk = tmp_path / "orders.csv", tmp_path / "disk"
    names = random.Random(7)
    rows = [f"{each},{names.random()},{each / 4}" for each in range(300_000)]
    file.write_text("\n".join(["id,name,amount", *rows]) + "\n")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)], check=True)
    try:
        words = list_words(file, f"delta:{disk}/table", "--chunk-size", "1MB")
        full = subprocess.run([LASTGOOD, *words], capture_output=True, text=True)
        error = json.loads(full.stdout)["error"]
        assert (full.returncode, error["condition"], error["subject"]) == (93, "LOAD_FAILED", f"delta:{disk}/table")
        assert "a disk is full" in error["found"]
        assert error["effect"] == "what was loaded so far stays"
        subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
        told = run_load(words)
        assert told["resumed_at"] > 0
        assert Counter(read_ids(f"delta:{disk}/table")) == Counter(range(300_000))
    finally:
        subprocess.run(["umount", str(disk)], check=True)
