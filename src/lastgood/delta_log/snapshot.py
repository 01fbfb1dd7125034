"""What a checkpoint or a `.crc` file says of a table: transactions, metadata, protocol. Bytes to values, pure."""

from __future__ import annotations

import dataclasses
import importlib
import io
from collections.abc import Iterable, Mapping
from dataclasses import field
from types import ModuleType
from typing import Any
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import is_long, read_object, split_byte_lines
from lastgood.delta_log.actions import (
    Protocol,
    TableMetadata,
    Transaction,
    make_malformed,
    parse_metadata,
    parse_protocol,
    parse_transaction,
    read_action,
)
from lastgood.delta_log.parquet_bounds import VALUES_FREE, Bounds, PageError, measure_bounds
from lastgood.errors import ExtraMissingError
from lastgood.frozen import dataclass

_ROWS_AT_ONCE = 65_536
_KINDS = ("txn", "metaData", "protocol", "checkpointMetadata", "sidecar")


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """The state of a table at one version, as far as we need it."""

    version: int
    transactions: Mapping[str, Transaction] = field(default_factory=dict)
    """The last of each application."""
    metadata: TableMetadata | None = None
    protocol: Protocol | None = None
    sidecars: frozenset[str] = frozenset()
    """Names of the files that hold the rest of the checkpoint."""
    is_v2: bool = False
    """Whether it says that it is of version 2 of checkpoints, in which a file may have a name of its own."""

    def merge(self, other: TableSnapshot) -> TableSnapshot | Damage:
        """Two parts of one checkpoint as one; each thing stands in one of them."""
        twice = self.transactions.keys() & other.transactions.keys()
        if twice or (self.metadata and other.metadata) or (self.protocol and other.protocol):
            return make_damage(
                DamageKind.UNEXPECTED_JSON, f"two parts hold {next(iter(twice), 'protocol or metaData')}"
            )
        return dataclasses.replace(
            self,
            transactions={**self.transactions, **other.transactions},
            metadata=other.metadata or self.metadata,
            protocol=other.protocol or self.protocol,
            sidecars=self.sidecars | other.sidecars,
            is_v2=self.is_v2 or other.is_v2,
        )


def parse_checksum(version: int, raw: bytes, txn_id: str | None) -> TableSnapshot | None:
    """Read Delta's own `.crc` file; None if it is none of this commit, or does not say all.

    Args:
        version: Of the table.
        raw: The file.
        txn_id: What the commit of this version says of itself. A version that was taken away by hand leaves its file
            behind, and a writer that knows no such files then makes the version anew.
    """
    fields = read_object(raw.decode(errors="replace"))
    if isinstance(fields, Damage) or txn_id is None or fields.get("txnId") != txn_id:
        return None
    transactions = fields.get("setTransactions")
    if not isinstance(transactions, list):
        return None
    table = {"metaData": fields.get("metadata"), "protocol": fields.get("protocol")}
    found = _make_snapshot(version, [*({"txn": txn} for txn in transactions), table])
    if isinstance(found, Damage) or found.metadata is None or found.protocol is None:
        return None
    return found


def parse_checkpoint(version: int, name: str, raw: bytes) -> TableSnapshot | Damage:
    """Read one file of a checkpoint: Parquet, or, in version 2, perhaps JSON.

    Raises:
        ExtraMissingError: it is Parquet, and pyarrow is not installed.
    """
    if name.endswith(".json"):
        actions = _parse_json_actions(raw)
    else:
        actions = _read_parquet_actions(name, raw)
    if isinstance(actions, Damage):
        return actions
    return _make_snapshot(version, actions)


def parse_json_size(raw: bytes, name: str) -> int | None:
    """The size that `_last_checkpoint` tells of a checkpoint file in version 2; None if it is about another one.

    In JSON a file that was cut off at the end of a line looks whole, and the transactions stand last.
    """
    fields = read_object(raw.decode(errors="replace"))
    told = None
    if not isinstance(fields, Damage):
        told = fields.get("v2Checkpoint")
    if not isinstance(told, dict) or told.get("path") != name:
        return None
    size = told.get("sizeInBytes")
    return size if is_long(size) else None


def _parse_json_actions(raw: bytes) -> list[Mapping[str, Any]] | Damage:
    actions: list[Mapping[str, Any]] = []
    for number, line in enumerate(split_byte_lines(raw), start=1):
        if not line.strip():
            continue
        action = read_action(line, number)
        if isinstance(action, Damage):
            return action
        actions.append({kind: action[kind] for kind in _KINDS if kind in action})
    return actions


def _read_parquet_actions(name: str, raw: bytes) -> list[Mapping[str, Any]] | Damage:
    parquet, arrow = import_pyarrow("pyarrow.parquet"), import_pyarrow("pyarrow")
    try:
        file = parquet.ParquetFile(io.BytesIO(raw))
        if file.metadata.num_rows > max(VALUES_FREE, len(raw)):  # a row of a file takes more than a byte, packed or not
            return make_damage(DamageKind.TOO_LARGE, f"{name}: {file.metadata.num_rows} rows in {len(raw)} bytes")
        columns = [column for column in _KINDS if column in file.schema_arrow.names]
        bounds = measure_bounds(raw, file.metadata, set(columns))
        if bounds.excess is not None:
            return make_damage(DamageKind.TOO_LARGE, f"{name}: {bounds.excess}")
        return _read_rows(name, file, arrow.schema(map(_make_plain, map(file.schema_arrow.field, columns))), bounds)
    except (arrow.ArrowException, OSError, UnicodeDecodeError, PageError) as error:
        return make_damage(DamageKind.BAD_HEADER, f"{name}: {error}")


def _make_plain(field: Any) -> Any:
    """The same column with each text in full: the file may say that it is to be read as references to a few."""
    kind = field.type
    if isinstance(kind, import_pyarrow("pyarrow").DictionaryType):
        return field.with_type(kind.value_type)
    if isinstance(kind, import_pyarrow("pyarrow").StructType):
        return field.with_type(import_pyarrow("pyarrow").struct([_make_plain(each) for each in kind]))
    return field


def _read_rows(name: str, file: Any, schema: Any, bounds: Bounds) -> list[Mapping[str, Any]] | Damage:
    """The actions of a file, as far as they take no more room than its bounds: a text may stand for a million."""
    actions: list[Mapping[str, Any]] = []
    left = bounds.bytes_max
    for found in file.iter_batches(batch_size=min(bounds.rows_at_once, _ROWS_AT_ONCE), columns=schema.names):
        rows = found.select(schema.names).cast(schema)
        left -= rows.nbytes
        if left < 0:
            return make_damage(
                DamageKind.TOO_LARGE, f"{name}: more than {bounds.bytes_max} bytes in {len(actions)} rows"
            )
        for column in schema.names:
            actions += [{column: value} for value in rows.column(column).drop_null().to_pylist()]
    return actions


def _make_snapshot(version: int, actions: Iterable[Mapping[str, Any]]) -> TableSnapshot | Damage:
    """The state that actions of one file tell; each thing is told once."""
    reading = _Reading(version)
    for action in actions:
        for kind, body in action.items():
            if kind in _KINDS and body is not None and not (isinstance(body, dict) and reading.take(kind, body)):
                return make_malformed(kind, body)
    return TableSnapshot(
        version, reading.transactions, reading.metadata, reading.protocol, frozenset(reading.sidecars), reading.is_v2
    )


class _Reading:
    """What was read of one file."""

    def __init__(self, version: int) -> None:
        self._version = version
        self.transactions: dict[str, Transaction] = {}
        self.metadata: TableMetadata | None = None
        self.protocol: Protocol | None = None
        self.sidecars: set[str] = set()
        self.is_v2 = False

    def take(self, kind: str, body: Mapping[str, Any]) -> bool:
        """Take over an action; False if it is not as the protocol has it, or contradicts what was read."""
        if kind == "txn":
            return self._take_transaction(body)
        if kind == "metaData":
            is_first, self.metadata = self.metadata is None, parse_metadata(body)
            return is_first and self.metadata is not None
        if kind == "protocol":
            is_first, self.protocol = self.protocol is None, parse_protocol(body)
            return is_first and self.protocol is not None
        if kind == "sidecar":
            path = body.get("path")
            if isinstance(path, str):
                self.sidecars.add(unquote(path).rpartition("/")[2])
            return isinstance(path, str)
        self.is_v2 = True
        return bool(body.get("version") == self._version)

    def _take_transaction(self, body: Mapping[str, Any]) -> bool:
        transaction = parse_transaction(body)
        if transaction is None or transaction.app_id in self.transactions:
            return False
        self.transactions[transaction.app_id] = transaction
        return True


def import_pyarrow(module: str) -> ModuleType:
    """A module of pyarrow.

    Raises:
        ExtraMissingError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ExtraMissingError(
            extra="delta", module="pyarrow", needed_for="a Delta table whose old log is cleaned up"
        ) from error
