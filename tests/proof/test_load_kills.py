"""A large load that is killed at random instants: each record is there once, and little is done twice.

`LASTGOOD_KILLS=50 LASTGOOD_LOAD_BYTES=2e9` is the long one; `LASTGOOD_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from spark.test_load import LASTGOOD, SEED, kill, list_commits, list_words, run_load

pytestmark = [pytest.mark.spark, pytest.mark.proof, pytest.mark.timeout(7200)]

KILLS = int(os.environ.get("LASTGOOD_KILLS", "6"))
SIZE = int(float(os.environ.get("LASTGOOD_LOAD_BYTES", "100e6")))
CHUNKS = 60
WHOM = ("lastgood", "driver", "both", "worker")
SECONDS = (5, 45)
"""After which a load is killed: while Spark starts, or while some chunk is loaded."""
_ROWS_AT_ONCE = 50_000


def write_file(file: Path, size: int) -> int:
    """Records of about so many bytes; how many they are."""
    row = 0
    with file.open("w") as stream:
        stream.write("id,name,amount\n")
        while stream.tell() < size:
            some = range(row, row + _ROWS_AT_ONCE)
            stream.write("".join(f"{each},name {each % 97},{each / 4}\n" for each in some))
            row = some.stop
    return row


def list_plans(folder: Path) -> list[Path]:
    return [each for each in folder.glob("table.lastgood/loads/*/offsets/*") if each.name.isdecimal()]


def test_killed_again_and_again_each_record_is_there_once_and_little_is_done_twice(tmp_path: Path) -> None:
    chance = random.Random(f"kills {SEED}")
    file, table = tmp_path / "orders.csv", tmp_path / "table"
    rows = write_file(file, SIZE)
    words = list_words(file, f"delta:{table}", "--chunk-size", str(SIZE // CHUNKS))
    killed, again = dict.fromkeys(WHOM, 0), 0
    while sum(killed.values()) < KILLS:
        there = len(list_commits(tmp_path))
        with subprocess.Popen([LASTGOOD, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                process.wait(chance.uniform(*SECONDS))
                break  # everything is loaded
            except subprocess.TimeoutExpired:
                whom = chance.choice(WHOM)
                kill(process, whom, chance)
                killed[whom] += 1
        begun = len(list_plans(tmp_path)) - len(list_commits(tmp_path))
        assert len(list_commits(tmp_path)) >= there
        assert begun in (0, 1)
        again += begun
    told = run_load(words)
    print(f"killed {killed}, {again} chunks begun and not committed then, {told['chunks']} chunks, {SIZE:,} bytes")
    assert (told["rows"], told["corrupt"]) == (rows, 0)
    ids = DeltaTable(table).to_pyarrow_table(columns=["id"])["id"]
    assert (len(ids), pc.count_distinct(ids).as_py(), pc.sum(ids).as_py()) == (rows, rows, rows * (rows - 1) // 2)
