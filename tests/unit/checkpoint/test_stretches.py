from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.reader import read_batches
from lastgood.checkpoint.stretches import find_plain_stretches, is_plain
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput, Input, KafkaInput

BATCHES = 8


def plain(folder: Path) -> bool:
    return is_plain(read_batches(LocalStorage(), parse_location(str(folder)), range(BATCHES)))


@pytest.mark.parametrize("source", [KafkaInput(), FileInput()])
def test_batches_that_go_on_from_each_other_are_plain(source: Input, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path, source).run(BATCHES)
    assert plain(tmp_path)


def last_line(text: str) -> Callable[[bytes], bytes]:
    return lambda raw: raw.rpartition(b"\n")[0] + b"\n" + text.encode()


@pytest.mark.parametrize("batch_id", [0, 4, BATCHES - 1])
@pytest.mark.parametrize(
    ("log", "change"),
    [
        ("offsets", lambda raw: raw[:-3]),
        ("offsets", lambda _: b""),
        ("offsets", lambda _: b'v1\n\n{"orders":{"0":20,"1":20}}'),
        ("offsets", last_line('{"orders":{"0":20}}')),
        ("offsets", last_line('{"orders":{"0":20,"1":20,"2":0}}')),
        ("offsets", last_line('{"clicks":{"0":20,"1":20}}')),
        ("offsets", last_line('{"logOffset":3}')),
        ("offsets", last_line('{"orders":{"0":20,"1":20}}\n-')),
        ("commits", lambda raw: raw[:-3]),
        ("commits", lambda _: b"v9"),
    ],
)
def test_a_batch_out_of_the_ordinary_makes_a_stretch_that_is_to_be_looked_at(
    log: str, change: Callable[[bytes], bytes], batch_id: int, tmp_path: Path
) -> None:
    CheckpointBuilder(tmp_path).run(BATCHES)
    file = tmp_path / log / str(batch_id)
    file.write_bytes(change(file.read_bytes()))
    assert not plain(tmp_path)


@pytest.mark.parametrize("log", ["offsets", "commits"])
def test_a_file_that_is_gone_makes_one_too(log: str, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(BATCHES)
    (tmp_path / log / "5").unlink()
    assert not plain(tmp_path)


def test_an_offset_that_went_back_makes_one_too(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path)
    query.run(BATCHES - 1)
    query.plan(-1)
    query.commit()
    assert not plain(tmp_path)


def test_for_few_batches_nobody_is_started(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path).run(BATCHES)
    assert list(find_plain_stretches(parse_location(str(tmp_path)), BatchIds.of(range(BATCHES)))) == []
