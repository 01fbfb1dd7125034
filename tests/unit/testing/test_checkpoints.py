from __future__ import annotations

import json
from pathlib import Path

import pytest
from reading import read_files
from shared_corpus import SHARED

from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput, KafkaInput


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_kafka_checkpoint_is_byte_for_byte_what_spark_wrote(tmp_path: Path) -> None:
    real = SHARED / "corpus" / "4.2-kafka-healthy" / "checkpoint"
    if not real.is_dir():
        pytest.skip("the large corpus is not here")
    query = CheckpointBuilder(tmp_path / "made", KafkaInput(), checksums=True)
    for n in range(4):
        times = json.loads((real / f"offsets/{n}").read_text().splitlines()[1])
        assert query.plan(at_ms=times["batchTimestampMs"]) == n
        query.commit()
    assert read_files(tmp_path / "made") == read_files(real)


def test_a_file_checkpoint_is_what_spark_wrote(tmp_path: Path) -> None:
    """Everything but the confs that Spark 4.3 pins beyond those of 4.2."""
    real = SHARED / "corpus" / "4.3-stateless-file-healthy" / "checkpoint"
    if not real.is_dir():
        pytest.skip("the large corpus is not here")
    CheckpointBuilder(tmp_path, FileInput("file:///data/input/base"), checksums=True).run(6)
    made, wrote = read_files(tmp_path), read_files(real)
    assert made.keys() == wrote.keys()
    alike = [path for path in made if path.startswith(("commits", "sources"))]
    assert {path: made[path] for path in alike} == {path: wrote[path] for path in alike}
    assert [made[f"offsets/{n}"].splitlines()[2] for n in range(6)] == [b'{"logOffset":%d}' % n for n in range(6)]


def test_what_is_built_reads_as_a_healthy_checkpoint(tmp_path: Path) -> None:
    for source in (KafkaInput(partitions=3), FileInput(compact_interval=4)):
        folder = tmp_path / type(source).__name__
        query = CheckpointBuilder(folder, source)
        query.run(10)
        query.plan()
        found = read_checkpoint(LocalStorage(), parse_location(str(folder)))
        assert (found.mode, found.last_planned, found.last_committed) == (Mode.MICRO_BATCH, 10, 9)
        assert (found.damage, found.absent, found.foreign) == ({}, (), ())
        assert str(found.spark_versions) == "4.2 up to before 4.3"
    assert {"3.compact", "7.compact", "8"} <= names(tmp_path / "FileInput/sources/0")


def test_a_plan_that_was_taken_back_is_planned_anew_later(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path, FileInput())
    query.run(2)
    query.plan(3)
    old = read_files(tmp_path)
    query.drop_plan()
    assert names(tmp_path / "offsets") == names(tmp_path / "sources/0") == {"0", "1"}
    assert query.plan(1) == 2
    new = read_files(tmp_path)
    assert old["offsets/2"] != new["offsets/2"]
    assert (old["sources/0/2"].count(b"\n"), new["sources/0/2"].count(b"\n")) == (3, 1)


def test_purging_leaves_what_spark_leaves(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path, checksums=True)
    query.run(12)
    query.purge(retain=3)
    kept = {"8", "9", "10", "11"}
    assert names(tmp_path / "offsets") == names(tmp_path / "commits") == kept | {f".{n}.crc" for n in kept}
    entry = read_checkpoint(LocalStorage(), parse_location(str(tmp_path))).newest_offsets
    assert isinstance(entry, OffsetEntry)
    assert entry.sources[0].text == '{"orders":{"0":60,"1":60}}'
