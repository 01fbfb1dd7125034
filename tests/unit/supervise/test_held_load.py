"""How much a chunk of a load reads."""

from __future__ import annotations

import pytest

from lastgood.load.specification import InputFile, LoadFormat, LoadSpec, ParseMode
from lastgood.observe.load_options import LoadOptions
from lastgood.supervise.held_load import choose_chunk

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
