"""One version of a Delta table: the bytes of its commit file to values. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from functools import partial
from typing import Any

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import Json, is_long, read_object, split_byte_lines
from lastgood.frozen import dataclass
from lastgood.notes import VALUES_MAX, count_values, read_json

FEATURES_READER_VERSION, FEATURES_WRITER_VERSION = 3, 7
"""The versions of a protocol that list the features of a table by name."""

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
"""The table property that lets marks expire: a checkpoint leaves out those that have."""

RESTORE = "RESTORE"
DELETE = "DELETE"
UPDATE = "UPDATE"
CLONE = "CLONE"
CONVERT = "CONVERT"
AS_SELECT = " AS SELECT"
"""How the operations end that make a table of what a query brings."""
WRITE, REPLACE = "WRITE", "REPLACE TABLE"
"""A batch of somebody; what the operations are called that put one table in the place of another."""
FENCE, TAKE_BACK, USE_UP = "LASTGOOD FENCE", "LASTGOOD TAKE BACK", "LASTGOOD USE UP"
RENEW, PUT_BACK = "LASTGOOD RENEW", "LASTGOOD PUT BACK"
"""What a recovery commits: a mark as it is, rows and mark taken back, a mark without rows, a mark that had expired made
again, and all as it was before."""

_OF_RECOVERIES = (FENCE, TAKE_BACK, USE_UP, RENEW, PUT_BACK)
_INTERVAL = re.compile(r"(\d{1,9}) (millisecond|second|minute|hour|day|week)s?", re.IGNORECASE)
_UNIT_MS = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_ROW_METRICS = ("numOutputRows", "num_added_rows")


@dataclass(frozen=True, slots=True)
class Transaction:
    """How far an application says that it has written."""

    app_id: str
    """Query id of a stream, or what the user chose as `txnAppId`."""
    version: int
    """Batch id of a stream. It may go down."""
    last_updated_ms: int | None = None
    """By the clock of whoever wrote it; delta-rs leaves it out unless it is told."""


@dataclass(frozen=True, slots=True)
class TableMetadata:
    """What the table says of itself."""

    table_id: str
    configuration: Mapping[str, str] = field(default_factory=dict)
    """Table properties, such as `delta.appendOnly`."""
    created_at_ms: int | None = None
    """When the table was made, by the clock of whoever made it; None if it does not say."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a program has to be able to do to read and write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCommit:
    """One version of a table."""

    version: int
    timestamp_ms: int | None = None
    operation: str | None = None
    """Such as `STREAMING UPDATE`, `WRITE`, `MERGE`, `RESTORE`; None if the writer does not say."""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    metrics: Mapping[str, Json] = field(default_factory=dict)
    user_metadata: str | None = None
    txn_id: str | None = None
    """What tells this commit from every other; None if the writer does not say."""
    transactions: tuple[Transaction, ...] = ()
    metadata: TableMetadata | None = None
    """Set if this version changed it."""
    protocol: Protocol | None = None
    """Set if this version changed it."""
    added: frozenset[str] = frozenset()
    """Data files that it added, as the log names them."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How long these are, in bytes, as far as the log says."""
    removed: frozenset[str] = frozenset()
    changes_data: bool = False
    """False for a version that only rewrote files, such as OPTIMIZE, or none."""

    @property
    def query_id(self) -> str | None:
        """The stream that wrote it, if it was written by `writeStream`."""
        found = self.parameters.get("queryId")
        return found if isinstance(found, str) else None

    @property
    def output_mode(self) -> str | None:
        """In which that stream writes; None if no stream wrote it."""
        found = self.parameters.get("outputMode")
        return found if isinstance(found, str) else None

    @property
    def row_count(self) -> int | None:
        """Rows that it wrote; None if the writer does not say. Where a recovery uses up a number there are none."""
        if self.operation == USE_UP and not self.added:
            return 0
        return next(
            (rows for name in _ROW_METRICS if (rows := _parse_number(self.metrics.get(name))) is not None), None
        )

    @property
    def brings_rows(self) -> bool:
        """Whether it made a table of rows that were elsewhere: a clone, a folder of Parquet, what a query brings."""
        operation = self.operation or ""
        return operation in (CLONE, CONVERT) or operation.endswith(AS_SELECT)

    @property
    def adds_unmarked_rows(self) -> bool:
        """Whether it brought rows under the name of no application: so a function writes that leaves no mark."""
        if self.transactions or self.recovery is not None or self.brings_rows:
            return False
        is_only_changing = self.operation in (DELETE, UPDATE, RESTORE)
        return self.changes_data and bool(self.added) and not is_only_changing and self.row_count != 0

    @property
    def is_replacing(self) -> bool:
        """Whether it put other rows in the place of those that it removed, whatever these were."""
        operation = self.operation or ""
        is_overwriting = operation == WRITE and str(self.parameters.get("mode")).lower() == "overwrite"
        return is_overwriting or operation == CLONE or REPLACE in operation

    @property
    def restored_version(self) -> int | None:
        """The version that a RESTORE brought back; None if it went by time, or for any other operation."""
        if self.operation == RESTORE:
            return _parse_number(self.parameters.get("version"))
        return None

    @property
    def recovery(self) -> str | None:
        """The recovery that committed it; None for everybody else."""
        found = None
        if self.operation in _OF_RECOVERIES:
            found = self.parameters.get("recovery")
        return found if isinstance(found, str) else None

    @property
    def shown_again(self) -> int | None:
        """The version whose rows and mark are shown again, if this took a taking back back."""
        if self.operation == PUT_BACK:
            return _parse_number(self.parameters.get("version"))
        return None

    @property
    def by_app(self) -> Mapping[str, Transaction]:
        """Transactions by application."""
        return {txn.app_id: txn for txn in self.transactions}


def parse_commit(version: int, raw: bytes) -> TableCommit | Damage:
    """Read the commit file of a version: one action a line, unknown ones left out.

    A file without an action is damaged, and so is one with an action that says something we cannot be sure of: left
    out, it would look as if the version had not done it.
    """
    commit: dict[str, Any] = {"transactions": {}, "added": set(), "sizes": {}, "removed": set()}
    has_action = False
    for number, line in enumerate(split_byte_lines(raw), start=1):
        if not line.strip():
            continue
        action = read_action(line, number)
        if isinstance(action, Damage):
            return action
        has_action = True
        for kind, body in action.items():
            if body is not None and kind in _READERS and not (isinstance(body, dict) and _READERS[kind](commit, body)):
                return make_malformed(kind, body, number)
    if not has_action:
        return Damage(DamageKind.EMPTY)
    return TableCommit(
        version,
        **{
            **commit,
            "transactions": tuple(commit["transactions"].values()),
            "added": frozenset(commit["added"]),
            "removed": frozenset(commit["removed"]),
        },
    )


def read_action(line: bytes, number: int) -> dict[str, Any] | Damage:
    """The JSON object of a line. Unlike Spark's reader, it minds what follows it: that may be an action, too."""
    if len(line) > VALUES_MAX and count_values(line) > VALUES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{count_values(line):,} values in a line", number)
    try:
        found = read_json(line.decode(), is_strict=True)
    except UnicodeDecodeError as error:
        return make_damage(DamageKind.NOT_UTF8, line[error.start : error.start + 16], number)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    text = line.decode()
    why = read_object(text, number)
    if isinstance(why, Damage):
        return why
    return make_damage(DamageKind.NOT_JSON, text, number)


def make_malformed(kind: str, body: object, line: int | None = None) -> Damage:
    """An action of a kind that we need, and that is not as the protocol has it."""
    return make_damage(DamageKind.UNEXPECTED_JSON, f"{kind}: {json.dumps(body, default=str)}", line)


def parse_transaction(body: Mapping[str, Any]) -> Transaction | None:
    """Read a `txn` action; None if it is none."""
    app_id, version, updated = body.get("appId"), body.get("version"), body.get("lastUpdated")
    if not isinstance(app_id, str) or not is_long(version):
        return None
    if updated is not None and not is_long(updated):
        return None
    return Transaction(app_id, version, updated)


def parse_metadata(body: Mapping[str, Any]) -> TableMetadata | None:
    """Read a `metaData` action; None if it is none."""
    table_id = body.get("id")
    try:
        pairs = dict(body.get("configuration") or {})  # a checkpoint in Parquet has pairs
    except (TypeError, ValueError):
        return None
    configuration = {name: value for name, value in pairs.items() if value is not None}
    if not isinstance(table_id, str) or not _are_texts([*configuration, *configuration.values()]):
        return None
    created_at_ms = body.get("createdTime")
    return TableMetadata(table_id, configuration, created_at_ms if is_long(created_at_ms) else None)


def parse_protocol(body: Mapping[str, Any]) -> Protocol | None:
    """Read a `protocol` action; None if it is none, or its versions and its lists of features do not go together."""
    reader, writer = body.get("minReaderVersion"), body.get("minWriterVersion")
    if not is_long(reader) or not is_long(writer):
        return None
    if reader == FEATURES_READER_VERSION and writer != FEATURES_WRITER_VERSION:
        return None
    reader_features = _parse_features(body.get("readerFeatures"), listed=reader == FEATURES_READER_VERSION)
    writer_features = _parse_features(body.get("writerFeatures"), listed=writer == FEATURES_WRITER_VERSION)
    if reader_features is None or writer_features is None:
        return None
    return Protocol(reader, writer, reader_features, writer_features)


def _parse_features(names: object, *, listed: bool) -> tuple[str, ...] | None:
    """The features that a protocol lists; None if they have to be `listed` and are not, or the other way round."""
    if names is None:
        return None if listed else ()
    if not isinstance(names, list) or not _are_texts(names) or (names and not listed):
        return None
    return tuple(sorted(names))  # a set: each file has its own order


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(each, str) for each in values)


def parse_interval_ms(text: str) -> int | None:
    """Length of a table property such as `interval 30 days`; None if it is not understood."""
    body = text.strip().lower().removeprefix("interval").strip()
    found = _INTERVAL.findall(body)
    if not found or _INTERVAL.sub("", body).strip():
        return None
    return sum(int(count) * _UNIT_MS[unit] for count, unit in found)


def _parse_number(value: Json | None) -> int | None:
    """A number, also as text: Delta's metrics and parameters are."""
    if is_long(value):
        return value
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        return int(value)
    return None


def _read_commit_info(commit: dict[str, Any], body: Mapping[str, Any]) -> bool:
    times = (body.get("inCommitTimestamp"), body.get("timestamp"))
    operation, user_metadata, txn_id = body.get("operation"), body.get("userMetadata"), body.get("txnId")
    parameters, metrics = body.get("operationParameters"), body.get("operationMetrics")
    commit |= {
        "timestamp_ms": next((time for time in times if is_long(time)), None),
        "operation": _parse_text(operation),
        "parameters": _parse_object(parameters),
        "metrics": _parse_object(metrics),
        "user_metadata": _parse_text(user_metadata),
        "txn_id": _parse_text(txn_id),
    }
    return True  # writers are free in it: what is of another shape, nobody has said


def _parse_text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def _parse_object(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _read_transaction(commit: dict[str, Any], body: Mapping[str, Any]) -> bool:
    """A second one of the same application is against the rules: Spark heeds the last, delta-rs the first."""
    transaction = parse_transaction(body)
    if transaction is None:
        return False
    before = commit["transactions"].setdefault(transaction.app_id, transaction)
    return bool(before == transaction)


def _read_file(kind: str, commit: dict[str, Any], body: Mapping[str, Any]) -> bool:
    path = body.get("path")
    if not isinstance(path, str):
        return False
    commit[kind].add(path)
    size = body.get("size")
    if kind == "added" and is_long(size):
        commit["sizes"][path] = size
    if body.get("dataChange"):
        commit["changes_data"] = True
    return True


def _read_metadata(commit: dict[str, Any], body: Mapping[str, Any]) -> bool:
    return _is_only(commit, "metadata", parse_metadata(body))


def _read_protocol(commit: dict[str, Any], body: Mapping[str, Any]) -> bool:
    return _is_only(commit, "protocol", parse_protocol(body))


def _is_only(commit: dict[str, Any], name: str, found: object) -> bool:
    """Take over what a version may say once."""
    is_only = found is not None and commit.setdefault(name, found) == found
    return bool(is_only)


_READERS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], bool]] = {
    "commitInfo": _read_commit_info,
    "txn": _read_transaction,
    "metaData": _read_metadata,
    "protocol": _read_protocol,
    "add": partial(_read_file, "added"),
    "remove": partial(_read_file, "removed"),
}
"""What an action adds to what is known of its version; False if it is not as the protocol has it."""
