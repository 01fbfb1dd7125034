"""`lastgood inspect` as a user starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typed import call

from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput

LASTGOOD = Path(sys.executable).parent / "lastgood"
CASES = Path(__file__).parents[1] / "corpus" / "cases"
LAST = "Nothing has been changed.\n"


def run(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "TZ": "UTC"}
    return call("inspect", *arguments, env=env, cwd=cwd)


def as_json(*arguments: str | Path) -> dict[str, Any]:
    done = run(*arguments, "--format", "json")
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 1)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint"
    query = CheckpointBuilder(folder)
    query.run(30)
    query.plan()
    return folder


def test_batches_are_a_table_newest_first(checkpoint: Path) -> None:
    done = run(checkpoint, "--limit", "3")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        f"{checkpoint}  query {QUERY_ID}\n"
        "stateless, micro batch, written by Spark 4.2 up to before 4.3; planned 30, committed 29\n"
        "\n"
        "batch  planned at           committed  watermark        read                                    \n"
        "   30  2026-11-21 00:22:26  no         -          10 offsets  planned, not committed: runs again\n"
        "   29  2026-11-21 00:22:25  yes        -          10 offsets                                    \n"
        "   28  2026-11-21 00:22:24  yes        -          10 offsets                                    \n"
        "28 older batches: --all, or --limit N\n" + LAST
    )


def test_all_batches_are_shown_if_asked_for(checkpoint: Path) -> None:
    done = run(checkpoint, "--all")
    assert done.stdout.count("10 offsets") == 31
    assert "older batches" not in done.stdout


def test_the_json_is_one_object_and_the_same_as_the_librarys(checkpoint: Path) -> None:
    from lastgood.operations.inspect import inspect_batches

    assert as_json(checkpoint) == inspect_batches(resolve_target(str(checkpoint))).to_json()


def test_one_batch_is_shown_in_full(checkpoint: Path) -> None:
    done = run(checkpoint, "--batch", "7")
    assert done.returncode == 0
    for line in (
        f"batch 7 of {checkpoint}\n",
        "  planned    2026-11-21 00:22:03\n",
        "  committed  yes\n",
        "             orders/1  offsets 35 to 39\n",
        "  spark.sql.shuffle.partitions = 2\n",
        '.option("endingOffsets", \'{"orders": {"0": 40, "1": 40}}\').load()\n',
    ):
        assert line in done.stdout
    assert done.stdout.endswith(LAST)
    found = as_json(checkpoint, "--batch", "7")
    assert (found["found"], found["batch"]["batch"], found["batch"]["conf"]["spark.sql.shuffle.partitions"]) == (
        None,
        7,
        "2",
    )
    assert found["batch"]["next_batch_watermark_ms"] == 0


def test_batch_zero_can_be_asked_for(checkpoint: Path) -> None:
    assert as_json(checkpoint, "--batch", "0")["batch"]["batch"] == 0


@pytest.mark.parametrize(
    ("question", "how", "batch"),
    [
        (("--offset", "orders/1/57"), "orders/1/57", 11),
        (("--time", "2026-11-21T00:22:03.5Z"), "2026-11-21 00:22:03", 7),
        (("--time", str(STARTED_MS)), "2026-11-21 00:21:56", 0),
        (("--time", str(10**18)), f"{10**18} ms", 30),
    ],
)
def test_the_batch_that_holds_something_is_found(
    question: tuple[str, str], how: str, batch: int, checkpoint: Path
) -> None:
    assert run(checkpoint, *question).stdout.startswith(f"{how} is in batch {batch}\n")
    found = as_json(checkpoint, *question)
    assert (found["found"], found["batch"]["batch"], found["batch"]["committed"]) == (how, batch, batch < 30)


def test_the_batch_that_read_a_file_is_found(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path, FileInput()).run(14)
    done = run(tmp_path, "--file", "f011.json")
    assert done.stdout.startswith("file:///data/input/f011.json is in batch 11\n")
    assert 'spark.read…load(["file:///data/input/f011.json"])\n' in done.stdout


def test_a_file_that_was_read_is_looked_up(tmp_path: Path) -> None:
    source = FileInput((tmp_path / "in").as_uri())
    CheckpointBuilder(tmp_path / "chk", source).run(3)
    (tmp_path / "in").mkdir()
    file = tmp_path / "in/f001.json"
    told = []
    for modified in (None, 1_790_000_001, 1_790_000_009):
        if modified is not None:
            file.write_text("{}")
            os.utime(file, (modified, modified))
        told.append(run(tmp_path / "chk", "--file", "f001.json").stdout)
    assert ["the file now: gone" in told[0], "the file now: as it was read" in told[1]] == [True, True]
    assert "written again at" in told[2]
    assert "no batch reads it now" in told[2]
    now = as_json(tmp_path / "chk", "--file", "f001.json")["file"]
    assert (now["state"], now["then"], now["modified_ms"]) == ("changed", "ignored", 1_790_000_009_000)


def test_state_is_shown_with_its_size_growth_and_skew() -> None:
    case = CASES / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint"
    done = run(case, "--state")
    assert done.returncode == 0
    assert "stateful, micro batch" in done.stdout
    assert "operator 0: largest partition 1.0 x the mean" in done.stdout
    assert done.stdout.endswith("of state in all\ncan be loaded as of batches 0 to 7\n" + LAST)
    found = as_json(case, "--state")
    assert [(store["operator"], store["partition"]) for store in found["stores"]] == [(0, 0), (0, 1)]
    assert found["size"] == sum(store["size"] for store in found["stores"]) > 0


def test_damage_is_shown_whatever_its_bytes(checkpoint: Path) -> None:
    (checkpoint / "offsets/30").write_bytes(b"v1\n[/bold] [red]x\n")
    (checkpoint / "metadata").write_bytes(b"[/]")
    done = run(checkpoint)
    assert done.returncode == 0
    assert "damaged  offsets/30: not json in line 2: [/bold] [red]x\n" in done.stdout
    assert "plan damaged: not json in line 2: [/bold] [red]x" in done.stdout


def test_a_location_with_brackets_is_shown_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "[red] a [/b]"
    CheckpointBuilder(folder).run(1)
    assert run(folder).stdout.startswith(f"{folder}  query")
    assert f"of {folder}\n" in run(folder, "--batch", "0").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "condition"),
    [
        (("--batch", "99"), 21, "BATCH_UNKNOWN"),
        (("--offset", "orders/1/9999"), 40, "NOT_IN_HISTORY"),
        (("--file", "x"), 40, "NOT_IN_HISTORY"),
        (("--time", "5"), 40, "NOT_IN_HISTORY"),
        (("--offset", "orders"), 2, "USAGE"),
        (("--time", "yesterday"), 2, "USAGE"),
        (("--time", "0001-01-01T00:00+23:59"), 40, "NOT_IN_HISTORY"),
        (("--time", "0001-01-01"), 2, "USAGE"),
        (("--batch", "-1"), 2, "USAGE"),
        (("--limit", "0"), 2, "USAGE"),
        (("--batch", "1", "--state"), 2, "USAGE"),
        (("--batch", "0", "--time", "5"), 2, "USAGE"),
    ],
)
def test_a_refusal_is_one_answer_with_its_exit_code(
    arguments: tuple[str, ...], code: int, condition: str, checkpoint: Path
) -> None:
    text = run(checkpoint, *arguments)
    assert (text.returncode, text.stdout) == (code, "")
    assert text.stderr.startswith(f"error [{condition}] ")
    refused = run(checkpoint, *arguments, "--format", "json")
    assert (refused.returncode, refused.stderr, refused.stdout.count("\n")) == (code, "", 1)
    assert json.loads(refused.stdout)["error"]["condition"] == condition


def test_no_checkpoint_is_told(tmp_path: Path) -> None:
    done = run(tmp_path / "none", "--format=json")
    assert (done.returncode, done.stderr) == (20, "")
    error = json.loads(done.stdout)["error"]
    assert (error["condition"], error["found"]) == ("CHECKPOINT_MISSING", "no such folder")
    assert run("s3://").returncode == 13


def test_a_pipelines_name_is_a_target(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "lastgood.toml").write_text(f'[pipeline.orders]\ncommand = ["x"]\ncheckpoint = "{checkpoint}"\n')
    assert run("orders", cwd=tmp_path).stdout.startswith(f"{checkpoint}  query")


# --- sinks and Kafka ----------------------------------------------------------------------------------------------


@pytest.fixture
def sink(tmp_path: Path) -> Path:
    """Holds all batches of the query but 28, and one that it does not know."""
    log = tmp_path / "table" / "_spark_metadata"
    log.mkdir(parents=True)
    for batch_id in (*range(28), 29, 30, 31):
        (log / str(batch_id)).write_text("v1")
    return tmp_path / "table"


@pytest.mark.parametrize("arguments", [("--limit", "4"), ("--all",)])
def test_a_column_tells_what_the_sink_shows(arguments: tuple[str, ...], checkpoint: Path, sink: Path) -> None:
    done = run(checkpoint, *arguments, "--sink", sink)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()[3:8]]
    assert lines[:4] == [
        "batch  planned at           committed  sink  watermark        read",
        "   31  -                    no         yes   -                   -  in the sink only",
        "   30  2026-11-21 00:22:26  no         yes   -          10 offsets  planned, not committed: runs again",
        "   29  2026-11-21 00:22:25  yes        yes   -          10 offsets",
    ]


def test_the_json_tells_it_too(checkpoint: Path, sink: Path) -> None:
    told = as_json(checkpoint, "--limit", "2", "--sink", sink)
    assert told["sinks"][0]["last_batch"] == 31
    assert [batch["sinks"][0]["difference"] for batch in told["batches"]] == ["in the sink only", None]
    assert as_json(checkpoint, "--all", "--sink", sink)["batches"][:2] == told["batches"]
    assert as_json(checkpoint, "--batch", "7", "--sink", sink)["batch"]["sinks"][0]["shown"] == "live"


def test_one_batch_tells_what_the_sink_and_kafka_have_of_it(checkpoint: Path, sink: Path, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    parts = {"0": {"earliest": 37, "latest": 200}, "1": {"earliest": 0, "latest": 200}}
    facts.write_text(json.dumps({"bootstrap": "b:9092", "topics": {"orders": {"partitions": parts}}}))
    shown = run(checkpoint, "--offset", "orders/0/36", "--sink", sink, "--kafka", facts).stdout
    assert f"  sink       {sink}  holds it\n" in shown
    assert "  gone       orders/0  Kafka no longer has offsets 35 to 36\n" in shown
    assert '.option("kafka.bootstrap.servers", "b:9092")' in shown


def test_a_sink_that_tells_nothing_says_why(checkpoint: Path, tmp_path: Path) -> None:
    shown = run(checkpoint, "--limit", "1", "--sink", tmp_path / "none").stdout
    assert "  yes  " not in shown
    assert f"sink {tmp_path}/none: no batch of this query: there is nothing\n" in shown


def test_several_sinks_have_a_column_each(checkpoint: Path, sink: Path, tmp_path: Path) -> None:
    def head(*sinks: Path) -> list[str]:
        return run(checkpoint, *(word for each in sinks for word in ("--sink", each))).stdout.splitlines()[3].split()

    assert head(sink, tmp_path / "none")[4:6] == ["table", "none"]
    assert head(sink, tmp_path / "other" / "table")[4:8] == ["sink", "1", "sink", "2"]
