from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.state_size import measure_partitions
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Batches 0 to 4 are committed: a restart loads version 5."""
    CheckpointBuilder(tmp_path).run(5)
    return tmp_path


def put(checkpoint: Path, path: str, size: int) -> None:
    file = checkpoint / "state" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(size))


def sizes(checkpoint: Path) -> dict[int, dict[int, int]]:
    read = read_checkpoint(LocalStorage(), parse_location(str(checkpoint)))
    return {operator: dict(found) for operator, found in measure_partitions(read).items()}


def test_a_stateless_query_has_no_sizes(checkpoint: Path) -> None:
    assert sizes(checkpoint) == {}


def test_only_what_a_load_reads_counts(checkpoint: Path) -> None:
    for version in range(1, 7):
        put(checkpoint, f"0/0/{version}.delta", 10**version % 99_999)
    put(checkpoint, "0/0/3.snapshot", 7)
    put(checkpoint, "0/1/5.snapshot", 20)
    put(checkpoint, "0/1/left/5.snapshot", 3)
    assert sizes(checkpoint) == {0: {0: 7 + 10_000 + 10**5 % 99_999, 1: 23}}


def test_sst_files_count_with_the_snapshot_that_names_them() -> None:
    """As a real RocksDB leaves them."""
    case = Path(__file__).parents[2] / "corpus/cases/4.3-named-source-and-sink/checkpoint"
    found = sizes(case)[0]
    sst = case / "state/0/0/SSTs"
    assert found[0] > sum(path.stat().st_size for path in sst.glob("*.sst"))
    assert 0 < found[1] < found[0]


def test_an_operator_with_a_partition_of_unknown_size_is_left_out(checkpoint: Path) -> None:
    put(checkpoint, "0/0/5.snapshot", 20)
    put(checkpoint, "0/1/9.delta", 20)
    put(checkpoint, "1/0/5.snapshot", 30)
    put(checkpoint, "2/0/5.zip", 30)
    assert sizes(checkpoint) == {1: {0: 30}}
