"""A stream that a query reads twice has a line of each plan each time, and one log: it looks as if one were lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from reading import ID, read

from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_VERSIONS

BATCHES = 3
A, B = '{{"logOffset":{n}}}', '{{"logOffset":{twice}}}'


def checkpoint(folder: Path, *streams: str, logs: int, planned: int = BATCHES) -> Path:
    """A query whose plans hold a line for each of these streams, with so many logs of sources."""
    for name in ("offsets", "commits", *(f"sources/{number}" for number in range(logs))):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": ID}))
    for n in range(planned):
        lines = "\n".join(stream.format(n=n, twice=2 * n) for stream in streams)
        told = {"batchWatermarkMs": 0, "batchTimestampMs": n, "conf": {"spark.sql.shuffle.partitions": "2"}}
        (folder / f"offsets/{n}").write_text(f"v1\n{json.dumps(told)}\n{lines}")
        if n < BATCHES:
            (folder / f"commits/{n}").write_text('v1\n{"nextBatchWatermarkMs":0}')
    for number in range(logs):
        for n in range(2 * planned - 1):
            entry = {"path": f"file:///in/{number}-{n}", "timestamp": n, "batchId": n}
            (folder / f"sources/{number}/{n}").write_text(f"v1\n{json.dumps(entry)}")
    return folder


@pytest.mark.parametrize("planned", [BATCHES, BATCHES + 1])
@pytest.mark.parametrize(("streams", "logs", "shared"), [((A, A), 1, {"1": "0"}), ((A, A, B), 2, {"1": "0", "2": "1"})])
def test_stream_that_may_be_read_twice_is_told_and_a_lost_log_is_reckoned_with(
    tmp_path: Path, streams: tuple[str, ...], logs: int, shared: dict[str, str], planned: int
) -> None:
    found = read(checkpoint(tmp_path / "chk", *streams, logs=logs, planned=planned))
    assert found.shared_logs == shared
    for spark in SPARK_VERSIONS:
        restart = predict(Observation(found), spark)
        assert restart.outcome is Outcome.FAILS
        assert [
            each for each in restart.unknowns if "source 1: whether its log is lost, or it is the stream of" in each
        ]


@pytest.mark.parametrize(("streams", "logs"), [((A,), 1), ((A, B), 2), ((A, A), 2)])
def test_streams_with_logs_of_their_own_share_none(tmp_path: Path, streams: tuple[str, ...], logs: int) -> None:
    found = read(checkpoint(tmp_path / "chk", *streams, logs=logs))
    assert (found.shared_logs, found.absent) == ({}, ())
    assert predict(Observation(found), SPARK_VERSIONS[-1]).unknowns == ()


@pytest.mark.parametrize(("streams", "logs"), [((A, B), 1), ((A, A, B), 1)])
def test_log_of_another_stream_that_is_gone_is_missed(tmp_path: Path, streams: tuple[str, ...], logs: int) -> None:
    found = read(checkpoint(tmp_path / "chk", *streams, logs=logs))
    assert found.shared_logs == {}
    assert found.absent
    assert predict(Observation(found), SPARK_VERSIONS[-1]).outcome is Outcome.FAILS


def test_log_that_is_left_in_part_is_no_shared_one(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "chk", A, A, logs=2)
    for entry in (folder / "sources/1").iterdir():
        entry.unlink()
    (folder / "sources/1/0").write_text('v1\n{"path":"file:///in/0","timestamp":0,"batchId":0}')
    assert read(folder).shared_logs == {}
    assert predict(Observation(read(folder)), SPARK_VERSIONS[-1]).outcome is Outcome.FAILS
    shutil.rmtree(folder / "sources/0")
    assert read(folder).shared_logs == {}
