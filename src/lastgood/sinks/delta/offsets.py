"""Asks a Delta table which offsets its rows carry: by the statistics in its log where they suffice, else by the rows.

No JVM is needed. Only the named columns are read, a few thousand rows at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

from lastgood.delta_log.own_files import require_own_files
from lastgood.errors import ExtraMissingError, LastgoodError, StorageError
from lastgood.frozen import dataclass
from lastgood.redaction import redact_error
from lastgood.sinks.offset_columns import (
    OffsetColumns,
    OffsetColumnsError,
    OffsetsSeen,
    TableOffsets,
)
from lastgood.storage.parallel import Deadline, ask_while_it_goes_on
from lastgood.storage.reading import Location, open_storage

ROWS_READ = 20_000_000
FILES_READ = 64
"""Statistics cannot tell a repeat beside a hole from neither of them: up to so many files and rows are read even
where statistics would do, the newest first."""

_LOG_SECONDS = 300.0
_SILENCE_SECONDS = 300.0
"""How long delta-rs may take to open a table, or for the next rows."""
_STATISTICS_CHARACTERS = 32
"""So much of a text Delta keeps in its statistics."""
_INTEGERS = ("byte", "short", "integer", "long")
_DATASET_READER_VERSION = 1
"""Tables that need more of a reader are read by delta-rs itself, which does not tell its files apart."""
_SECURE_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")


def read_offsets(
    table: Location,
    columns: OffsetColumns,
    *,
    topic: str | None = None,
    rows_read: int = ROWS_READ,
    files_read: int = FILES_READ,
    since: Mapping[str, Mapping[int, int]] | None = None,
) -> TableOffsets:
    """What the rows of a Delta table were made of.

    Args:
        table: The folder that holds `_delta_log`.
        columns: The columns that tell it.
        topic: Of which topic all rows are, where no column says so.
        rows_read: How many rows to read at most where statistics would do.
        files_read: How many files to read at most where statistics would do.
        since: Per topic and partition an offset: when was the oldest file written that has it or a higher one?

    Raises:
        OffsetColumnsError: the table has no such columns, or they are of another type.
        TableLeadsElsewhereError: its log names a file that is not of the table.
        StorageError: there is no such table, or it cannot be read, or not in time (subclasses).
        ExtraMissingError: deltalake or pyarrow is not installed.
    """

    def read(tell: Callable[[], None]) -> TableOffsets:
        opened = _open_table(table)
        tell()
        _require_columns(table, columns, {each.name: str(each.type.type) for each in _list_primitive(opened)})
        reading = _Reading(opened, table, columns, topic or "", OffsetsSeen(since=since), tell)
        return reading.offsets(rows_read, files_read)

    with _explain_errors(table):
        # delta-rs opens whatever the log names, wherever it is, and waits for a pipe for ever.
        require_own_files(open_storage(table), table, deadline=Deadline.after(_LOG_SECONDS))
        return ask_while_it_goes_on(read, silence_seconds=_SILENCE_SECONDS, subject=str(table))


@dataclass(frozen=True, slots=True)
class _File:
    """What the log tells of one file; None where it does not."""

    path: str
    written_ms: int | None
    rows: int | None
    topic: str | None
    partition: int | None
    first: int | None
    last: int | None

    @property
    def suffices(self) -> bool:
        """Whether all rows are of one partition and there are as many as offsets."""
        known = None not in (self.rows, self.topic, self.partition)
        if not known or self.first is None or self.last is None:
            return False
        return self.rows == self.last - self.first + 1


class _Reading:
    """One table at one version."""

    def __init__(
        self,
        opened: Any,
        table: Location,
        columns: OffsetColumns,
        topic: str,
        seen: OffsetsSeen,
        tell: Callable[[], None],
    ) -> None:
        self._opened = opened
        self._tell = tell
        self._table = table
        self._columns = columns
        self._topic = topic
        self._seen = seen
        self._arrow = importlib.import_module("pyarrow")
        self._compute = importlib.import_module("pyarrow.compute")

    def offsets(self, rows_read: int, files_read: int) -> TableOffsets:
        """All of it."""
        files = list(self._files())
        doubtful = {file.path for file in files if not file.suffices}
        sampled = doubtful | set(_choose_newest(files, doubtful, rows_read, files_read))
        count = len(files)
        protocol = self._opened.protocol()
        if protocol.min_reader_version > _DATASET_READER_VERSION:
            is_whole = bool(doubtful) or len(sampled) == count or self._has_deleted_rows()
            if is_whole:
                sampled = {file.path for file in files}
            else:
                sampled = set()
            for batch in self._opened.scan(columns=list(self._columns.names)) if is_whole else ():
                self._add(batch, None)
        else:
            times = {_unescape_path(file.path): file.written_ms for file in files}
            for path, batch in self._batches(sampled) if sampled else ():
                self._add(batch, times[path])
        for file in files:
            if file.path not in sampled:
                topic, partition, end = file.topic or "", file.partition or 0, (file.last or 0) + 1
                self._seen.add(topic, partition, file.first or 0, end, written_ms=file.written_ms)
        return self._seen.table(str(self._table), self._opened.version(), file_count=count, files_read=len(sampled))

    def _files(self) -> Iterator[_File]:
        """The files of the table, the newest first."""
        found = self._arrow.table(self._opened.get_add_actions())
        told = found.select(
            [name for name in ("path", "num_records", "modification_time") if name in found.schema.names]
        )
        for kind in ("partition", "min", "max", "null_count"):
            for name in self._columns.names:
                if kind in found.schema.names and found.schema.field(kind).type.get_field_index(name) >= 0:
                    told = told.append_column(f"{kind}.{name}", self._compute.struct_field(found.column(kind), name))
        for row in told.sort_by([("modification_time", "descending")]).to_pylist():
            yield self._file(row)

    def _file(self, row: Mapping[str, Any]) -> _File:
        rows, columns = row.get("num_records"), self._columns
        topic = self._topic if columns.topic is None else _find_only(row, columns.topic, rows)
        if isinstance(topic, str) and len(topic) >= _STATISTICS_CHARACTERS and columns.topic is not None:
            topic = row.get(f"partition.{columns.topic}")
        partition, first, last = _find_only(row, columns.partition, rows), None, None
        if row.get(f"null_count.{columns.offset}") == 0:
            first, last = row.get(f"min.{columns.offset}"), row.get(f"max.{columns.offset}")
        number = None
        if partition is not None:
            number = int(partition)
        return _File(row["path"], row.get("modification_time"), rows, topic, number, first, last)

    def _has_deleted_rows(self) -> bool:
        """Whether rows of any file are marked as deleted: the statistics of such a file still count them."""
        return any(batch.num_rows for batch in self._opened.deletion_vectors())

    def _batches(self, paths: set[str]) -> Iterator[tuple[str, Any]]:
        """The rows of these files, each with its plain path."""
        dataset = self._opened.to_pyarrow_dataset()
        left = Counter(_unescape_path(path) for path in paths)
        for fragment in dataset.get_fragments():
            path = _unescape_path(fragment.path)
            if left[path] > 0:
                left[path] -= 1
                for batch in fragment.to_batches(schema=dataset.schema, columns=list(self._columns.names)):
                    yield path, batch
        missed = [path for path, count in left.items() if count > 0]
        if missed:
            raise OSError(f"{len(missed)} files of the log cannot be found, such as {missed[0]}")

    def _add(self, batch: Any, written_ms: int | None) -> None:
        """The rows of one batch, of a file that was written then."""
        self._tell()
        columns = self._columns
        text, number = self._arrow.string(), self._arrow.int64()
        types = {columns.partition: number, columns.offset: number, columns.topic or "": text}
        found = self._arrow.record_batch(batch)
        rows = self._arrow.table({name: found.column(name).cast(types[name]) for name in columns.names})
        whole = rows.drop_null()
        self._seen.unplaced += rows.num_rows - whole.num_rows
        keys = [name for name in (columns.topic, columns.partition) if name is not None]
        for key in whole.select(keys).group_by(keys).aggregate([]).to_pylist():
            chosen = self._compute.equal(whole.column(columns.partition), key[columns.partition])
            if columns.topic is not None:
                chosen = self._compute.and_(
                    chosen, self._compute.equal(whole.column(columns.topic), key[columns.topic])
                )
            if columns.topic is None:
                topic = self._topic
            else:
                topic = str(key[columns.topic])
            offsets = whole.column(columns.offset).filter(chosen)
            self._add_offsets(topic, int(key[columns.partition]), offsets, written_ms)

    def _add_offsets(self, topic: str, partition: int, offsets: Any, written_ms: int | None) -> None:
        distinct = self._compute.unique(offsets)
        self._seen.repeat(topic, partition, len(offsets) - len(distinct))
        found = self._compute.take(distinct, self._compute.sort_indices(distinct))
        after = self._compute.not_equal(self._compute.subtract(found.slice(1), found.slice(0, len(found) - 1)), 1)
        begins = [0, *(each + 1 for each in self._compute.indices_nonzero(after).to_pylist()), len(found)]
        for begin, end in pairwise(begins):
            first, last = found[begin].as_py(), found[end - 1].as_py()
            self._seen.add(topic, partition, first, last + 1, written_ms=written_ms)


def _unescape_path(path: str) -> str:
    """A path as both ways to name a file of a table agree on it: partition values are escaped, sometimes twice."""
    while (found := unquote(path)) != path:
        path = found
    return path.lstrip("/")


def _choose_newest(files: Iterable[_File], but: set[str], rows_read: int, files_read: int) -> Iterator[str]:
    """Files of which the statistics would do, as many as may be read all the same."""
    for file in files:
        if file.path in but:
            continue
        rows_read, files_read = rows_read - (file.rows or 0), files_read - 1
        if rows_read < 0 or files_read < 0:
            return
        yield file.path


def _find_only(row: Mapping[str, Any], column: str, rows: int | None) -> Any:
    """The one value that a column has in a file; None if there are several, or nobody tells."""
    given = row.get(f"partition.{column}")
    if given is not None:
        return given
    low, high = row.get(f"min.{column}"), row.get(f"max.{column}")
    if rows and low == high and row.get(f"null_count.{column}") == 0:
        return low
    return None


def _require_columns(table: Location, columns: OffsetColumns, types: Mapping[str, str]) -> None:
    wanted: dict[str, tuple[str, ...]] = {columns.partition: _INTEGERS, columns.offset: _INTEGERS}
    if columns.topic is not None:
        wanted[columns.topic] = ("string",)
    wrong = [name for name in columns.names if types.get(name) not in wanted[name]]
    if wrong:
        if wrong[0] not in types:
            sentence = f"the table has no column {wrong[0]}"
        elif wrong[0] == columns.topic:
            sentence = f"the column {wrong[0]} holds no topic"
        else:
            sentence = f"the column {wrong[0]} holds no number"
        raise OffsetColumnsError(
            sentence,
            subject=f"--offset-columns {columns}, {table}",
            found=", ".join(f"{name} {kind}" for name, kind in types.items())[:300],
            expected=f"{wrong[0]} of the type {' or '.join(wanted[wrong[0]])}",
        )


def _list_primitive(opened: Any) -> list[Any]:
    return [each for each in opened.schema().fields if isinstance(getattr(each.type, "type", None), str)]


def _open_table(table: Location) -> Any:
    try:
        deltalake = importlib.import_module("deltalake")
        importlib.import_module("pyarrow.dataset")
    except ImportError as error:
        missing = (error.name or "deltalake").partition(".")[0]
        raise ExtraMissingError(
            extra="delta", module=missing, needed_for="reading the offsets in a Delta table"
        ) from error
    return deltalake.DeltaTable(str(table), storage_options=_make_storage_options(table))


def _make_storage_options(table: Location) -> dict[str, str] | None:
    """delta-rs reads AWS's variables itself, and refuses an endpoint without TLS unless it is told."""
    endpoint = next((os.environ[name] for name in _SECURE_VARIABLES if os.environ.get(name)), "")
    if not table.scheme.startswith("s3") or not endpoint.startswith("http://"):
        return None
    return {"AWS_ALLOW_HTTP": "true"}


@contextlib.contextmanager
def _explain_errors(table: Location) -> Iterator[None]:
    """Turn what deltalake and pyarrow raise into our errors."""
    try:
        yield
    except (LastgoodError, MemoryError):
        raise
    except Exception as error:  # delta-rs and Arrow have their own trees of exceptions
        raise StorageError(
            "the table cannot be asked for its offsets",
            subject=str(table),
            found=f"{type(error).__name__}: {redact_error(error)}",
            expected="a Delta table that delta-rs can read",
        ) from error
