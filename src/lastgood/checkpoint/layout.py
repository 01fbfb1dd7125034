"""What a file of a checkpoint is, told from its path alone. Pure: no file is looked into."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.lines import LONG_MAX, LONG_MIN
from lastgood.checkpoint.operators import STORE_DEFAULT
from lastgood.checkpoint.state_files import StateFile, parse_state_file_name
from lastgood.frozen import dataclass

METADATA = "metadata"
OFFSETS = "offsets"
COMMITS = "commits"
SOURCES = "sources"
STATE = "state"
SINK_LOG = "_spark_metadata"
OPERATOR_METADATA = "_metadata"
OPERATOR_METADATA_V2 = "v2"
STATE_SCHEMA = "_stateSchema"
IMMUTABLE_FOLDERS = ("SSTs", "logs")

_NAME_LENGTH_MAX = 255
_PLAIN_NUMBER = re.compile(r"0|[1-9]\d{0,17}", re.ASCII)
"""As nearly all entries are named, of which there may be hundreds of thousands."""
_BATCH_ID = re.compile(r"[+-]?\d{1,30}")
_TEMPORARY = re.compile(
    r"\.(?:lastgood-draft\.)?(.+)\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.TID-?\d+)?\.tmp",
    re.ASCII | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LogName:
    """Name of an entry of a log."""

    batch_id: int
    is_compact: bool
    is_canonical: bool
    """Whether Spark can open it: it lists `006` as batch 6, and then looks for a file `6`."""


def parse_log_name(name: str, *, compactible: bool = False) -> LogName | None:
    """What Spark takes a file name in a log for; None if it does not see it as an entry."""
    if compactible:
        number = name.removesuffix(COMPACT_SUFFIX)
    else:
        number = name
    if not _BATCH_ID.fullmatch(number) or not LONG_MIN <= int(number) <= LONG_MAX:
        return None
    batch_id = int(number)
    return LogName(batch_id, number != name, number == str(batch_id) and batch_id >= 0)


@dataclass(frozen=True, slots=True)
class QueryMetadataFile:
    """`metadata`."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """An entry of a log."""

    log: str
    """Its folder: `offsets`, `commits`, `sources/0`, `_spark_metadata`."""
    name: LogName


@dataclass(frozen=True, slots=True)
class StateStoreFile:
    """A version of a state store, or its changes."""

    operator: int
    partition: int
    store: str
    file: StateFile


@dataclass(frozen=True, slots=True)
class ImmutableFile:
    """An SST or log file of RocksDB, which several snapshots may share."""

    operator: int
    partition: int
    store: str
    name: str


@dataclass(frozen=True, slots=True)
class OperatorMetadataFile:
    """What a stateful operator says of itself."""

    operator: int
    batch_id: int | None
    """None in version 1, which is written once."""


@dataclass(frozen=True, slots=True)
class StateSchemaFile:
    """Schema of a state store."""

    operator: int
    store: str
    batch_id: int | None = None
    """From which batch on it applies; None for a schema in partition 0, version 1 and 2."""
    unique_id: str | None = None


@dataclass(frozen=True, slots=True)
class TemporaryFile:
    """A write that was never finished; Spark does not look at it."""

    of: CheckpointFile


@dataclass(frozen=True, slots=True)
class HadoopChecksumFile:
    """`.NAME.crc`, made by Hadoop on local disks."""

    of: CheckpointFile


@dataclass(frozen=True, slots=True)
class SparkChecksumFile:
    """`NAME.crc`, made by Spark 4.1 and later."""

    of: CheckpointFile


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """Nothing that Spark is known to write at this place; a source may keep what it likes under `sources/<i>`."""

    path: str


CheckpointFile: TypeAlias = (
    QueryMetadataFile
    | LogFile
    | StateStoreFile
    | ImmutableFile
    | OperatorMetadataFile
    | StateSchemaFile
    | TemporaryFile
    | HadoopChecksumFile
    | SparkChecksumFile
    | ForeignFile
)


def classify(path: str) -> CheckpointFile:
    """What the file at `path` is, a path below the checkpoint (or `_spark_metadata/…` below a sink's folder)."""
    folder, _, name = path.rpartition("/")
    if len(name) > _NAME_LENGTH_MAX:
        return ForeignFile(path)
    if folder:
        prefix = f"{folder}/"
    else:
        prefix = ""
    if name.startswith(".") and name.endswith(".crc") and len(name) > len("..crc"):
        return HadoopChecksumFile(classify(prefix + name[1 : -len(".crc")]))
    temporary = _TEMPORARY.fullmatch(name)
    if temporary:
        return TemporaryFile(classify(prefix + temporary[1]))
    if name.endswith(".crc") and not name.startswith("."):
        return SparkChecksumFile(classify(prefix + name.removesuffix(".crc")))
    return _classify_main(folder.split("/") if folder else [], name) or ForeignFile(path)


def _classify_main(folders: list[str], name: str) -> CheckpointFile | None:
    match folders:
        case []:
            return QueryMetadataFile() if name == METADATA else None
        case ["offsets" | "commits" as log]:
            return _parse_log_file(log, name, compactible=False)
        case ["_spark_metadata" as log]:
            return _parse_log_file(log, name, compactible=True)
        case ["sources", source] if source not in ("", ".", ".."):
            return _parse_log_file(f"{SOURCES}/{source}", name, compactible=True)
        case ["state", operator, *below]:
            number = parse_folder_number(operator)
            return None if number is None else _classify_state(number, below, name)
    return None


def _parse_log_file(log: str, name: str, *, compactible: bool) -> LogFile | None:
    parsed = parse_log_name(name, compactible=compactible)
    if not parsed:
        return None
    return LogFile(log, parsed)


def _classify_state(operator: int, folders: list[str], name: str) -> CheckpointFile | None:
    match folders:
        case ["_metadata"]:
            return OperatorMetadataFile(operator, None) if name == METADATA else None
        case ["_metadata", "v2"]:
            batch_id = parse_folder_number(name)
            return None if batch_id is None else OperatorMetadataFile(operator, batch_id)
        case ["_stateSchema", store]:
            first, _, unique_id = name.partition("_")
            batch_id = parse_folder_number(first)
            return None if batch_id is None else StateSchemaFile(operator, store, batch_id, unique_id or None)
        case [partition, *below]:
            number = parse_folder_number(partition)
            return None if number is None else _classify_partition(operator, number, below, name)
    return None


def _classify_partition(operator: int, partition: int, folders: list[str], name: str) -> CheckpointFile | None:
    store = STORE_DEFAULT
    if folders and folders[0] not in (OPERATOR_METADATA, *IMMUTABLE_FOLDERS):
        store, *folders = folders
    match folders:
        case []:
            file = parse_state_file_name(name)
            if not file:
                return None
            return StateStoreFile(operator, partition, store, file)
        case ["SSTs" | "logs"]:
            return ImmutableFile(operator, partition, store, name)
        case ["_metadata"]:
            if name == "schema":
                return StateSchemaFile(operator, store)
            return None
    return None


def parse_folder_number(name: str) -> int | None:
    """The number that a folder of the state is named by; None for any other name."""
    if _PLAIN_NUMBER.fullmatch(name):
        return int(name)
    parsed = parse_log_name(name)
    if parsed and parsed.is_canonical:
        return parsed.batch_id
    return None


def parse_batch(path: str, log: str) -> int | None:
    """The batch whose entry in `log` this is; None for any other file, and for `007`, which Spark cannot open."""
    folder, _, name = path.rpartition("/")
    if folder != log:
        return None
    return parse_folder_number(name)


def find_newest_batch(names: Iterable[str]) -> int | None:
    """The newest batch that Spark sees in a log in which files of these names lie; None if it sees none.

    It sees a batch in `007` as well, and none in a number that is no long.
    """
    newest = max(map(_parse_seen_batch, names), default=-1)
    if newest < 0:
        return None
    return newest


def find_followed_batch(names: Iterable[str]) -> int | None:
    """The newest batch of a log of which each follows the one before it; None where there are none, or gaps.

    Progress that is tracked asynchronously leaves gaps: behind the newest batch that was seen not the next one comes.
    """
    batches = {batch for batch in map(parse_folder_number, names) if batch is not None}
    if not batches or max(batches) - min(batches) + 1 != len(batches):
        return None
    return max(batches)


def _parse_seen_batch(name: str) -> int:
    """The batch that Spark takes a file of a log for; a negative number for one that it does not see."""
    if _PLAIN_NUMBER.fullmatch(name):
        return int(name)
    if name.startswith("."):  # half of a log are checksums
        return -1
    log = parse_log_name(name)
    if log is None:
        return -1
    return log.batch_id


def parse_state_version(path: str) -> int | None:
    """The version of a state store that a file holds, or that it is the checksum of; None for any other file."""
    file = classify(path)
    if isinstance(file, HadoopChecksumFile | SparkChecksumFile):
        file = file.of
    return file.file.version if isinstance(file, StateStoreFile) else None
