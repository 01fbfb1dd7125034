"""What a small file of a table says it unpacks to is not unpacked."""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile.bounded import RESIDENT_KIB

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log import parquet_bounds
from lastgood.delta_log.snapshot import _read_parquet_actions
from lastgood.sinks.iceberg.sink import parse_iceberg_metadata


def test_packed_metadata_of_a_table_that_grows_out_of_bounds_is_damage() -> None:
    found = parse_iceberg_metadata(gzip.compress(b" " * (65 * 1024 * 1024)))
    assert isinstance(found, Damage)
    assert found.kind is DamageKind.TOO_LARGE


def test_a_checkpoint_of_more_rows_than_bytes_is_damage() -> None:
    kind = pa.struct([("appId", pa.string()), ("version", pa.int64())])
    stream = io.BytesIO()
    pq.write_table(pa.table({"txn": pa.nulls(3_000_000, kind)}), stream)
    raw = stream.getvalue()
    assert len(raw) < 100_000
    found = _read_parquet_actions("checkpoint", raw)
    assert isinstance(found, Damage)
    assert found.kind is DamageKind.TOO_LARGE


MAKE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from hostile.test_bounds_tables import BOMBS
Path(sys.argv[1]).write_bytes(BOMBS[sys.argv[2]]())
"""
READ = """
import re, sys
from pathlib import Path
from lastgood.delta_log.snapshot import parse_checkpoint
print(parse_checkpoint(1, "c.parquet", Path(sys.argv[1]).read_bytes()))
print(re.search(r"VmHWM:\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""
"""In a process of its own, and not begun by one that has made the bomb: what it took at most is that of nobody else."""


def transactions(ids: Any, **how: Any) -> bytes:
    """A checkpoint with these transactions."""
    stream = io.BytesIO()
    versions = pa.array(range(len(ids)), pa.int64())
    column = pa.StructArray.from_arrays([ids, versions], names=["appId", "version"])
    pq.write_table(pa.table({"txn": column}), stream, compression="zstd", write_statistics=False, **how)
    return stream.getvalue()


def one_text_again_and_again(**how: Any) -> bytes:
    ids = pa.DictionaryArray.from_arrays(pa.array([0] * 900_000, pa.int32()), pa.array(["x" * 20_000]))
    return transactions(ids, dictionary_pagesize_limit=1 << 30, **how)


def one_long_page() -> bytes:
    return transactions(pa.array(["a" * (512 * 1024 * 1024)]), use_dictionary=False)


def a_list_without_end() -> bytes:
    stream = io.BytesIO()
    lists = pa.ListArray.from_arrays(pa.array([0, 100_000_000], pa.int32()), pa.nulls(100_000_000, pa.string()))
    column = pa.StructArray.from_arrays([pa.array(["x"]), lists], names=["id", "partitionColumns"])
    pq.write_table(pa.table({"metaData": column}), stream, compression="zstd")
    return stream.getvalue()


def a_list_of_one_long_text() -> bytes:
    stream = io.BytesIO()
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 900_000, pa.int32()), pa.array(["x" * 20_000]))
    lists = pa.ListArray.from_arrays(pa.array([0, 900_000], pa.int32()), text)
    column = pa.StructArray.from_arrays([pa.array(["x"]), lists], names=["id", "partitionColumns"])
    pq.write_table(pa.table({"metaData": column}), stream, compression="zstd", dictionary_pagesize_limit=1 << 30)
    return stream.getvalue()


BOMBS = {
    "one text again and again": one_text_again_and_again,
    "one text again and again, as Arrow does not have it": lambda: one_text_again_and_again(store_schema=False),
    "one long page": one_long_page,
    "a list without end": a_list_without_end,
    "a list of one long text": a_list_of_one_long_text,
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_parquet_file_that_unpacks_to_very_much_is_damage(tmp_path: Path, bomb: str) -> None:
    file = tmp_path / "c.parquet"
    subprocess.run([sys.executable, "-c", MAKE, file, bomb, Path(__file__).parents[1]], check=True)
    assert file.stat().st_size < 4_000_000
    done = subprocess.run([sys.executable, "-c", READ, file], capture_output=True, text=True)
    told, used = done.stdout.splitlines()
    assert told.startswith("too large: c.parquet: "), (told, done.stderr)
    assert int(used) < RESIDENT_KIB, used


def test_what_the_header_of_a_page_tells_counts_not_the_footer(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = transactions(pa.array(["a" * 4_000_000]), use_dictionary=False)
    size = pq.ParquetFile(io.BytesIO(raw)).metadata.row_group(0).column(0).total_uncompressed_size
    lying = raw.replace(zigzag(size, 4), zigzag(57, 4))
    footer = pq.ParquetFile(io.BytesIO(lying)).metadata.row_group(0).column(0)
    assert footer.total_uncompressed_size == 57
    monkeypatch.setattr(parquet_bounds, "BYTES_FREE", 1_000_000)
    found = _read_parquet_actions("checkpoint", lying)
    assert isinstance(found, Damage)
    assert (found.kind, "4000" in str(found)) == (DamageKind.TOO_LARGE, True)


def zigzag(number: int, length: int) -> bytes:
    """A number as Thrift writes it, in so many bytes."""
    told = number << 1
    return bytes([(told >> 7 * each) & 0x7F | (0x80 if each < length - 1 else 0) for each in range(length)])


def test_what_is_within_the_bounds_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that begin alike, and again and again: with little room they are read in small pieces."""
    ids = pa.array([f"{'application' * 20}-{number}" for number in range(2_000)])
    plain = transactions(ids, use_dictionary=False)
    expected = _read_parquet_actions("checkpoint", plain)
    assert isinstance(expected, list)
    assert len(expected) == 2_000
    monkeypatch.setattr(parquet_bounds, "BYTES_FREE", 900_000)
    alike = {"txn.appId": "DELTA_BYTE_ARRAY", "txn.version": "PLAIN"}
    for raw in (
        transactions(ids, use_dictionary=False, column_encoding=alike),
        transactions(ids, data_page_size=10_000),
        transactions(ids.dictionary_encode()),
        transactions(ids, use_dictionary=False, data_page_version="2.0"),
        transactions(ids, row_group_size=100),
    ):
        assert _read_parquet_actions("checkpoint", raw) == expected


def test_pages_that_are_not_as_the_format_has_them_are_damage() -> None:
    raw = transactions(pa.array([f"a-{number}" for number in range(100)]))
    for at in range(4, 60):
        for byte in (0, 0xFF, raw[at] ^ 0x10):
            found = _read_parquet_actions("checkpoint", raw[:at] + bytes([byte]) + raw[at + 1 :])
            assert isinstance(found, Damage | list)
