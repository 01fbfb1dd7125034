"""What a small file of a table says it unpacks to is not unpacked."""

from __future__ import annotations

import gzip
import io

import pyarrow as pa
import pyarrow.parquet as pq

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log.snapshot import _parquet_actions
from lastgood.sinks.iceberg import parse_iceberg_metadata


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
    found = _parquet_actions("checkpoint", raw)
    assert isinstance(found, Damage)
    assert found.kind is DamageKind.TOO_LARGE
