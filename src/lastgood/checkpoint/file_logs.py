"""Logs of files that are compacted: `sources/<i>/` of a file source, `_spark_metadata/` of a file sink.

`N.compact` holds the entries of all batches up to N. Pure; a log may be large, so its files are read one line at a
time and only when asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, Generic, TypeAlias, TypeVar

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import (
    ENTRY_BYTES_MAX,
    Json,
    encode,
    is_long,
    read_object,
    read_version,
    split_byte_lines,
    to_json,
)
from lastgood.frozen import dataclass

VERSION_NEWEST = 1
COMPACT_SUFFIX = ".compact"
_INT_MAX: Final = 2**31 - 1
COMPACT_INTERVAL_DEFAULT = 10


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One input file that a file source has planned."""

    path: str
    """URI, with its special characters encoded."""
    timestamp_ms: int
    """Time of its last change."""
    log_id: int
    """Entry of the source's own log that added it: not the id of the batch."""

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return to_json({"path": self.path, "timestamp": self.timestamp_ms, "batchId": self.log_id})


@dataclass(frozen=True, slots=True)
class SinkFile:
    """One data file that a file sink has written."""

    path: str
    """Absolute URI, with its special characters encoded."""
    size: int
    modification_time_ms: int
    is_dir: bool = False
    block_replication: int = 1
    block_size: int = 0
    action: str = "add"
    """`add`, or `delete` for a file that no longer counts."""

    def to_text(self) -> str:
        """The line as Spark writes it."""
        return to_json(
            {
                "path": self.path,
                "size": self.size,
                "isDir": self.is_dir,
                "modificationTime": self.modification_time_ms,
                "blockReplication": self.block_replication,
                "blockSize": self.block_size,
                "action": self.action,
            }
        )


FileT = TypeVar("FileT", SourceFile, SinkFile)


@dataclass(frozen=True, slots=True)
class FileLogEntry(Generic[FileT]):
    """One file of such a log. Iterating over it gives its files, read from the bytes each time."""

    raw: bytes = field(repr=False)
    _read_line: Callable[[dict[str, Json]], FileT | None] = field(repr=False)

    def __iter__(self) -> Iterator[FileT]:
        """The files, oldest first."""
        lines = split_byte_lines(self.raw)
        next(lines)  # the version
        read = (_read_file(line, 0, self._read_line) for line in lines)
        return (file for file in read if not isinstance(file, Damage))

    def to_bytes(self) -> bytes:
        """The file as it was read or made."""
        return self.raw


SourceLogEntry: TypeAlias = FileLogEntry[SourceFile]
SinkLogEntry: TypeAlias = FileLogEntry[SinkFile]


def parse_source_log_entry(raw: bytes) -> SourceLogEntry | Damage:
    """Read one file of a file source's log, compact or not."""
    return _parse(raw, _parse_source_file)


def parse_sink_log_entry(raw: bytes) -> SinkLogEntry | Damage:
    """Read one file of a file sink's log, compact or not."""
    return _parse(raw, _parse_sink_file)


def make_source_log_entry(files: Iterable[SourceFile]) -> SourceLogEntry:
    """Make an entry of a file source's log, as Spark writes it."""
    return FileLogEntry(_write(files), _parse_source_file)


def make_sink_log_entry(files: Iterable[SinkFile]) -> SinkLogEntry:
    """Make an entry of a file sink's log, as Spark writes it; without files it is what an empty batch leaves."""
    return FileLogEntry(_write(files), _parse_sink_file)


def is_compaction(log_id: int, interval: int) -> bool:
    """Whether the entry `log_id` is to be a compact file."""
    return (log_id + 1) % interval == 0


def name_entry(log_id: int, interval: int) -> str:
    """Name of the file that holds an entry which is written with this interval."""
    if is_compaction(log_id, interval):
        return f"{log_id}{COMPACT_SUFFIX}"
    return str(log_id)


def derive_compact_interval(compact_ids: Collection[int], default: int = COMPACT_INTERVAL_DEFAULT) -> int:
    """The interval that Spark goes on with: derived from the compact files that are there, else `default`.

    The same rule as `CompactibleFileStreamLog.compactInterval`; `default` is today's setting.
    """
    newest = sorted(compact_ids)[-2:]
    if not newest:
        return default
    if len(newest) == 2:
        return newest[1] - newest[0]
    entries = newest[0] + 1
    if entries <= default or default >= entries // 2:
        return entries
    if entries > _INT_MAX:  # Spark counts entries by a 32-bit number
        return entries
    small = range(1, math.isqrt(entries) + 1)  # each divisor beyond has its counterpart among these
    divisors = {each for divisor in small if entries % divisor == 0 for each in (divisor, entries // divisor)}
    return min(divisor for divisor in divisors if divisor >= default)


def list_ids_read_at_start(newest: int, interval: int) -> range:
    """The entries that Spark reads when it opens the log: the newest compaction and all after it."""
    return range(max(0, (newest + 1) // interval * interval - 1), newest + 1)


def _parse(raw: bytes, read_line: Callable[[dict[str, Json]], FileT | None]) -> FileLogEntry[FileT] | Damage:
    lines = split_byte_lines(raw)
    first = next(lines, None)
    if first is None:
        return Damage(DamageKind.EMPTY)
    text = _decode_line(first, 1)
    version = text if isinstance(text, Damage) else read_version(text, newest=VERSION_NEWEST)
    if isinstance(version, Damage):
        return version
    for number, line in enumerate(lines, start=2):
        file = _read_file(line, number, read_line)
        if isinstance(file, Damage):
            return file
    return FileLogEntry(raw, read_line)


def _read_file(line: bytes, number: int, read_line: Callable[[dict[str, Json]], FileT | None]) -> FileT | Damage:
    text = _decode_line(line, number)
    fields = text if isinstance(text, Damage) else read_object(text, number)
    if isinstance(fields, Damage):
        return fields
    return read_line(fields) or make_damage(DamageKind.UNEXPECTED_JSON, line, number)


def _decode_line(line: bytes, number: int) -> str | Damage:
    if len(line) > ENTRY_BYTES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{len(line)} bytes", number)
    try:
        return line.decode()
    except UnicodeDecodeError:
        return make_damage(DamageKind.NOT_UTF8, line, number)


def _write(files: Iterable[SourceFile] | Iterable[SinkFile]) -> bytes:
    return encode("\n".join([f"v{VERSION_NEWEST}", *(file.to_text() for file in files)]))


def _parse_source_file(fields: Mapping[str, Json]) -> SourceFile | None:
    path, timestamp, log_id = fields.get("path"), fields.get("timestamp"), fields.get("batchId", -1)
    if not isinstance(path, str) or not is_long(timestamp) or not is_long(log_id):
        return None
    return SourceFile(path, timestamp, log_id)


def _parse_sink_file(fields: Mapping[str, Json]) -> SinkFile | None:
    path, action, is_dir = fields.get("path"), fields.get("action"), fields.get("isDir")
    size, time = fields.get("size"), fields.get("modificationTime")
    replication, block = fields.get("blockReplication"), fields.get("blockSize")
    if not isinstance(path, str) or not isinstance(action, str) or not isinstance(is_dir, bool):
        return None
    if not is_long(size) or not is_long(time) or not is_long(replication) or not is_long(block):
        return None
    return SinkFile(path, size, time, is_dir, replication, block, action)
