"""How much a chunk of a load reads, and how the JVM compiles for it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from lastgood.lab.spark import QUICK_COMPILER
from lastgood.load.begun import Begun
from lastgood.load.kept import ChunkCount, keep_count
from lastgood.load.position import LoadPosition
from lastgood.load.specification import InputFile, LoadFormat, LoadSpec, ParseMode
from lastgood.observe.load_options import LoadOptions
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise.held_load import HeldLoad, choose_chunk
from lastgood.supervise.load_driver import choose_java_options

MIB, GIB = 2**20, 2**30


def make_spec(size: int, table: str = "delta:/t", quarantine: str | None = None) -> LoadSpec:
    file = InputFile("/in.csv", size, 0, "", "", 0, is_ended=True)
    return LoadSpec(
        table=table,
        form=LoadFormat.CSV,
        schema=None,
        infers=False,
        options={},
        mode=ParseMode.PERMISSIVE,
        files=(file,),
        quarantine=quarantine,
    )


@pytest.mark.parametrize(
    ("spec", "cores", "chunk"),
    [
        (make_spec(100), 4, 128 * MIB),
        (make_spec(10 * GIB), 4, 512 * MIB),
        (make_spec(100 * GIB), 4, GIB),
        (make_spec(100 * GIB), 100, 5 * GIB),
        (make_spec(100 * GIB, quarantine="delta:/q"), 4, 512 * MIB),
        (make_spec(100 * GIB, table="program:job"), 4, 512 * MIB),
    ],
)
def test_chunk_is_a_twentieth_but_neither_small_nor_more_than_cores_read(
    spec: LoadSpec, cores: int, chunk: int
) -> None:
    assert choose_chunk(spec, LoadOptions(cores=cores)) == chunk
    assert choose_chunk(spec, LoadOptions(cores=cores, chunk=7)) == 7


@pytest.mark.parametrize(
    ("counts", "parsed", "is_quick"),
    [
        ([], 2 * GIB, False),
        ([ChunkCount(64, 0, 1), ChunkCount(64, 0, 0)], 8 * MIB, True),
        ([ChunkCount(100, 0, 0), ChunkCount(100, 0)], 512 * MIB, False),
        ([ChunkCount(0, 0, 0)], GIB, False),
    ],
)
def test_what_spark_makes_rows_of_is_estimated_by_the_chunks_before(
    counts: Sequence[ChunkCount], parsed: int, tmp_path: Path, *, is_quick: bool
) -> None:
    checkpoint, spec = parse_location(f"{tmp_path}/chk"), make_spec(2 * GIB)
    storage = open_writable(checkpoint)
    for batch, count in enumerate(counts):
        keep_count(storage, checkpoint, batch, count)
    position = LoadPosition(0, GIB) if counts else None
    begun = Begun(position, tuple(range(len(counts))), is_settled=True)
    held = HeldLoad(name="load", place=None, checkpoint=checkpoint, storage=storage, spec=spec, begun=begun)
    assert held.ask(spec, LoadOptions()).parsed == parsed
    assert (QUICK_COMPILER in choose_java_options(parsed)) == is_quick
