"""What a query reads: files, or versions of a Delta table."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
from conformance.flavours import Flavour, add_files, records
from deltalake import DeltaTable, write_deltalake

from lastgood.delta_log.listing import name_commit

TABLE = "table"
_QUERY = "[id = {0}, runId = {0}]"


def add_input(flavour: Flavour, folder: Path, first: int, last: int) -> None:
    """Write the pieces `first`..`last - 1` of the input of a case."""
    if flavour.kind != "delta":
        add_files(flavour, folder, first, last)
        return
    for number in range(first, last):
        rows = pa.Table.from_pylist([{"id": each["id"], "k": each["k"]} for each in records(flavour, number)])
        write_deltalake(folder / TABLE, rows, mode="append")


def recreate(folder: Path) -> None:
    """Another table at the same place, with a single version."""
    write_deltalake(folder, pa.table({"id": [1], "k": [1]}))


def commit_file(folder: Path, version: int) -> Path:
    """Where a version of a table is written down."""
    return folder / "_delta_log" / name_commit(version)


def log_of_death(query_id: str, table: Path) -> str:
    """What a driver logs of a query that reads a table: it tells where that is, and nobody else does."""
    query = _QUERY.format(query_id)
    offsets = f"{{DeltaSource[{table.absolute().as_uri()}]: null}}"
    return (
        f"26/11/21 10:00:00 ERROR MicroBatchExecution: Query {query} terminated with error\n"
        "org.apache.spark.sql.streaming.StreamingQueryException: [STREAM_FAILED] it died\n"
        f"=== Streaming Query ===\nIdentifier: {query}\n"
        f"Current Committed Offsets: {offsets}\nCurrent Available Offsets: {offsets}\n"
    )


def newest_version(folder: Path) -> int:
    """The newest version of a table."""
    return DeltaTable(folder).version()


def query_id_of(checkpoint: Path) -> str | None:
    """The id in `metadata`; None if that tells none."""
    try:
        told = json.loads((checkpoint / "metadata").read_text())
        return str(told["id"])
    except (OSError, ValueError, TypeError, KeyError):
        return None
