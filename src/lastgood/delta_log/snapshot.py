"""What a checkpoint or a `.crc` file says of a table: transactions, metadata, protocol. Bytes to values, pure."""

from __future__ import annotations

import dataclasses
import importlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from lastgood.checkpoint.damage import Damage, DamageKind, damaged
from lastgood.checkpoint.lines import byte_lines, read_object
from lastgood.delta_log.actions import (
    Protocol,
    TableMetadata,
    Transaction,
    parse_metadata,
    parse_protocol,
    parse_transaction,
)
from lastgood.errors import ExtraMissingError

_COLUMNS = ("txn", "metaData", "protocol")


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The state of a table at one version, as far as we need it."""

    version: int
    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    """The last of each application."""
    metadata: TableMetadata | None = None
    protocol: Protocol | None = None

    def merged(self, other: TableSnapshot) -> TableSnapshot:
        """Two parts of one checkpoint as one."""
        return dataclasses.replace(
            self,
            transactions={**self.transactions, **other.transactions},
            metadata=other.metadata or self.metadata,
            protocol=other.protocol or self.protocol,
        )


def parse_checksum(version: int, raw: bytes) -> TableSnapshot | None:
    """Read Delta's own `.crc` file; None if it is none, or does not list the transactions."""
    fields = read_object(raw.decode(errors="replace"))
    transactions = None if isinstance(fields, Damage) else fields.get("setTransactions")
    if isinstance(fields, Damage) or not isinstance(transactions, list):
        return None
    table = {"metaData": fields.get("metadata"), "protocol": fields.get("protocol")}
    return _snapshot(version, [*({"txn": txn} for txn in transactions), table])


def parse_checkpoint(version: int, name: str, raw: bytes) -> TableSnapshot | Damage:
    """Read one file of a checkpoint: Parquet, or, in version 2, perhaps JSON.

    Raises:
        ExtraMissingError: it is Parquet, and pyarrow is not installed.
    """
    if name.endswith(".json"):
        actions = [read_object(line.decode(errors="replace")) for line in byte_lines(raw) if line.strip()]
        wrong = next((action for action in actions if isinstance(action, Damage)), None)
        return wrong or _snapshot(version, [action for action in actions if not isinstance(action, Damage)])
    parquet, arrow = _pyarrow("pyarrow.parquet"), _pyarrow("pyarrow")
    try:
        file = parquet.ParquetFile(io.BytesIO(raw))
        columns = [column for column in _COLUMNS if column in file.schema_arrow.names]
        rows = file.read(columns=columns)
    except (arrow.ArrowException, OSError) as error:
        return damaged(DamageKind.BAD_HEADER, f"{name}: {error}")
    return _snapshot(version, [{column: value} for column in columns for value in rows.column(column).to_pylist()])


def _snapshot(version: int, actions: Iterable[Mapping[str, Any]]) -> TableSnapshot:
    transactions: dict[str, Transaction] = {}
    metadata = protocol = None
    for action in actions:
        for kind, body in action.items():
            if not isinstance(body, dict):
                continue
            if kind == "txn" and (transaction := parse_transaction(body)):
                transactions[transaction.app_id] = transaction
            elif kind == "metaData":
                metadata = parse_metadata(body) or metadata
            elif kind == "protocol":
                protocol = parse_protocol(body) or protocol
    return TableSnapshot(version, transactions, metadata, protocol)


def _pyarrow(module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissingError(
            extra="delta", module="pyarrow", needed_for="a Delta table whose old log is cleaned up"
        ) from error
