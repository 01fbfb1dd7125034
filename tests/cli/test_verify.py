from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path

import forked
import pytest
from foreign import KINESIS, Lines
from rich.console import Console

from lastgood.cli.verify import print_audit
from lastgood.sources.kafka.reader import OffsetRange
from lastgood.spark.audit import Audit, Difference, PartitionDifference
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
EXACT = Audit(
    checkpoint="/chk",
    last_committed=41,
    kafka="broker:9092",
    sink="delta:/lake/orders",
    sink_version=7,
    sink_rows=1100,
    keys=("id", "day"),
    isolation_level="read_uncommitted",
    ranges=(OffsetRange("0", "orders", 0, 0, 0, 1000), OffsetRange("0", "orders", 1, 0, 0, 100)),
    source_records=1100,
    lost=Difference(0),
    duplicated=Difference(0),
    changed=Difference(0),
    unknown=Difference(0),
    aborted_records=0,
    aborted_rows=0,
    rows_before=0,
    rows_after=0,
    rows_not_verifiable=0,
    seconds=12.0,
)


def shown(**changed: object) -> list[str]:
    """The lines of the text for `EXACT` with changes."""
    values = {name: getattr(EXACT, name) for name in EXACT.__dataclass_fields__}
    out = io.StringIO()
    print_audit(Audit(**{**values, **changed}), Console(file=out, width=120, highlight=False))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_exact_table_is_four_zeros() -> None:
    assert shown() == [
        "checkpoint  /chk, committed up to batch 41",
        "source      orders (2 partitions): 1,100 offsets, 1,100 records",
        "sink        delta:/lake/orders at version 7: 1,100 rows",
        "compared by id, day",
        "",
        "            total  partition  offsets",
        "lost            0",
        "duplicated      0",
        "changed         0",
        "unknown         0",
        "",
        "Nothing has been changed.",
    ]


def test_differences_are_shown_by_partition_as_first_to_last_offset() -> None:
    lost = Difference(
        1234,
        (
            PartitionDifference("orders", 0, 4, ((10, 13), (20, 21)), 0),
            PartitionDifference("orders", 1, 1230, tuple((each, each + 1) for each in range(0, 24, 2)), 5),
        ),
        tuple({"key": {"id": number, "day": None}} for number in range(4)),
    )
    table = shown(lost=lost)[5:9]
    assert table == [
        "            total  partition  offsets",
        "lost        1,234  orders-0   10-12, 20",
        "                   orders-1   0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 7 more ranges",
        "                   such as    id=0, day=null; id=1, day=null; id=2, day=null",
    ]


def test_what_was_not_compared_is_said() -> None:
    remarks = shown(
        ranges=(OffsetRange("0", "orders", 0, 0, 20, 1000),),
        aborted_records=8,
        aborted_rows=1,
        rows_before=20,
        rows_after=3,
        rows_not_verifiable=5,
    )[-6:]
    assert remarks == [
        "Not compared: orders-0, offsets 0-19, which Kafka no longer has.",
        "8 records of aborted transactions are neither lost nor duplicated; the sink holds 1 row of them.",
        "5 rows cannot be verified: their records may be among those that Kafka has deleted or compacted away.",
        "20 rows not compared: their offsets are before the compared ones.",
        "3 rows not compared: their offsets are after the newest committed batch.",
        "Nothing has been changed.",
    ]


@pytest.mark.parametrize(
    ("arguments", "missing", "whole"),
    [
        (["--data"], "--kafka and --sink", "--kafka SERVERS --sink TABLE"),
        (["--data", "--sink=table:t"], "--kafka", "--sink table:t --kafka SERVERS"),
        (["--data", "--kafka=broker:9092"], "--sink", "--kafka broker:9092 --sink TABLE"),
    ],
)
def test_missing_option_is_a_usage_error_that_shows_the_whole_command(
    arguments: list[str], missing: str, whole: str
) -> None:
    command = ["verify", "/my chk", "--format", "json", *arguments]
    ended = forked.run(*command)
    error = json.loads(ended.stdout)["error"]
    assert (ended.returncode, ended.stderr, error["condition"]) == (2, "", "USAGE")
    assert error["sentence"] == f"verify --data needs {missing}"
    assert error["next"] == f"lastgood verify '/my chk' --data {whole} --key COLUMN"


@pytest.mark.parametrize("option", ["--key=id", "--sink=/lake/orders", "--kafka=broker:9092"])
def test_option_of_the_comparison_alone_is_a_usage_error(option: str) -> None:
    ended = forked.run("verify", "/chk", option)
    assert ended.returncode == 2
    assert f"{option.partition('=')[0]} goes with --data" in ended.stderr


def test_variable_of_the_comparison_is_meant_for_another_call() -> None:
    command = ["verify", CASES / "4.2-kafka-multi-topic" / "checkpoint"]
    told = {**os.environ, "LASTGOOD_VERIFY_SINK": "/lake/orders"}
    assert forked.run(*command, env=told).returncode == 0


CASES = Path(__file__).parents[1] / "corpus" / "cases"


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_logs_alone_tell_that_committed_batches_are_contiguous(output_format: str) -> None:
    command = ["verify", CASES / "4.2-kafka-multi-topic" / "checkpoint", "--format", output_format]
    ended = forked.run(*command)
    assert (ended.returncode, ended.stderr) == (0, "")
    if output_format == "json":
        assert json.loads(ended.stdout)["contiguous"] is True
    else:
        assert "As planned, not as read" in ended.stdout
        assert ended.stdout.endswith("Nothing has been changed.\n")


def test_kafka_that_does_not_answer_is_one_clear_error(tmp_path: Path) -> None:
    for name, text in {
        "metadata": '{"id":"9818c18b-9839-4690-99f7-f5f3cde02c1d"}',
        "offsets/0": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"t":{"0":4}}',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    command = ["verify", tmp_path, "--data", "--kafka=127.0.0.1:9", "--sink=table:t", "--format=json"]
    ended = forked.run(*command)
    error = json.loads(ended.stdout)["error"]
    assert (ended.returncode, ended.stderr) == (60, "")
    assert (error["condition"], error["subject"]) == ("KAFKA_UNREACHABLE", "127.0.0.1:9")
    assert error["expected"] == "an answer within 10 s"


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_source_without_an_order_is_not_known_and_said_so(tmp_path: Path, output_format: str) -> None:
    CheckpointBuilder(tmp_path, Lines(KINESIS)).run(3)
    command = ["verify", tmp_path, "--format", output_format]
    ended = forked.run(*command)
    assert (ended.returncode, ended.stderr) == (1, "")
    if output_format == "json":
        assert json.loads(ended.stdout)["contiguous"] is None
    else:
        assert "not known: source 0 (Kinesis)" in ended.stdout
        assert "contiguous" not in ended.stdout


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_committed_batches_whose_plans_are_damaged_are_not_known_and_said_so(
    tmp_path: Path, output_format: str
) -> None:
    CheckpointBuilder(tmp_path).run(12)
    for batch in range(12):
        (tmp_path / f"offsets/{batch}").write_bytes(b"v1\n")
    command = ["verify", tmp_path, "--format", output_format]
    ended = forked.run(*command)
    assert (ended.returncode, ended.stderr) == (1, "")
    if output_format == "json":
        assert json.loads(ended.stdout)["contiguous"] is None
    else:
        assert "0 committed batches compared\n" in ended.stdout
        assert "not known: batch 9 is committed, and its plan cannot be read\nand 2 more such batches" in ended.stdout
        assert "contiguous" not in ended.stdout
