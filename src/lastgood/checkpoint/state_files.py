"""Files of a state store: their names, and the little of their content that tells what else a load needs. Pure."""

from __future__ import annotations

import enum
import io
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import NamedTuple

from lastgood.checkpoint import lz4
from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import LONG_MAX, Json, encode, is_long, read_json, read_object, split_log, to_json
from lastgood.checkpoint.operators import JavaData
from lastgood.frozen import dataclass

ZIP_BYTES_MAX = 16 * 1024 * 1024
"""Largest snapshot archive that is looked into; its SST files lie beside it, not in it."""
CHANGELOG_HEAD_BYTES = 128 * 1024
"""So much of a changelog holds its lineage."""

_METADATA_BYTES_MAX = 4 * 1024 * 1024
_METADATA_VERSION_NEWEST = 2
_LINEAGE_VERSIONS = ("v3", "v4")
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_NAME = re.compile(rf"(\d+)(?:_({_UUID}))?\.(delta|snapshot|changelog|zip)", re.ASCII)
_ZIP_MAGIC = b"PK\3\4"


class StateFileKind(enum.Enum):
    """The value is the suffix of the file's name."""

    DELTA = "delta"
    """HDFS-backed: the changes of one version."""
    SNAPSHOT = "snapshot"
    """HDFS-backed: everything at one version."""
    CHANGELOG = "changelog"
    """RocksDB: the changes of one version."""
    ZIP = "zip"
    """RocksDB: a snapshot, with SST files beside it."""

    @property
    def is_snapshot(self) -> bool:
        """Whether a load can begin with it."""
        return self in (StateFileKind.SNAPSHOT, StateFileKind.ZIP)


_KINDS = {kind.value: kind for kind in StateFileKind}


class StateFile(NamedTuple):
    """A file that holds a version of a state store, or its changes."""

    version: int
    """Batch N makes version N+1."""
    kind: StateFileKind
    unique_id: str | None = None
    """State checkpoint format v2: the id that a commit names."""
    size: int | None = None

    @property
    def is_snapshot_that_stays(self) -> bool:
        """Whether a load can begin with it, and nobody writes over it when its version is made again: it has no id."""
        return self.kind.is_snapshot and self.unique_id is None

    @property
    def name(self) -> str:
        """Name of the file."""
        if self.unique_id:
            unique = f"_{self.unique_id}"
        else:
            unique = ""
        return f"{self.version}{unique}.{self.kind.value}"


def parse_state_file_name(name: str, size: int | None = None) -> StateFile | None:
    """The state file that a name stands for; None for any other, also for a number with leading zeros."""
    found = _NAME.fullmatch(name)
    if found is None or len(found[1]) > 19 or str(int(found[1])) != found[1] or int(found[1]) > LONG_MAX:
        return None
    kind = _KINDS[found[3]]
    hdfs_backed = kind in (StateFileKind.DELTA, StateFileKind.SNAPSHOT)
    if found[2] and hdfs_backed:
        return None
    return StateFile(int(found[1]), kind, found[2], size)


@dataclass(frozen=True, slots=True)
class SnapshotMetadata:
    """The entry `metadata` of a RocksDB snapshot archive."""

    version: int
    """A JVM of Spark 4.0 writes and reads the checkpoint format of its first store, 1 or 2; later ones only 1."""
    files: Mapping[str, int]
    """Names in `SSTs/` and `logs/` of the immutable files that belong to it, and their sizes in bytes."""
    keys: int
    """How many keys it holds; -1 if nobody counted."""
    fields: Mapping[str, Json]
    """All of it, also what lastgood does not know."""
    raw: bytes | None = field(default=None, compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """The entry as it was read, or as Spark writes it."""
        if self.raw is not None:
            return self.raw
        return encode(f"v{self.version}\n{to_json(self.fields)}")


def parse_snapshot(raw: bytes) -> SnapshotMetadata | Damage:
    """Read the metadata of a RocksDB snapshot from the whole archive."""
    if not raw:
        return Damage(DamageKind.EMPTY)
    if len(raw) > ZIP_BYTES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{len(raw)} bytes")
    if not raw.startswith(_ZIP_MAGIC):  # Python would find its way from the end, Java does not
        return make_damage(DamageKind.BAD_ARCHIVE, raw[:16])
    content = _unpack_metadata(raw)
    if isinstance(content, Damage):
        return content
    return parse_snapshot_metadata(content)


def _unpack_metadata(raw: bytes) -> bytes | Damage:
    import zipfile  # noqa: PLC0415 - only a state in RocksDB has such archives

    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive, archive.open("metadata") as entry:
            content = entry.read(_METADATA_BYTES_MAX + 1)
    except KeyError:
        return make_damage(DamageKind.BAD_ARCHIVE, "no entry 'metadata'")
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, RuntimeError) as error:
        return make_damage(DamageKind.BAD_ARCHIVE, type(error).__name__)
    if len(content) > _METADATA_BYTES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"more than {_METADATA_BYTES_MAX} bytes of metadata")
    return content


def parse_snapshot_metadata(raw: bytes) -> SnapshotMetadata | Damage:
    """Read the entry `metadata` of a RocksDB snapshot archive."""
    log = split_log(raw, newest=_METADATA_VERSION_NEWEST)
    if isinstance(log, Damage):
        return log
    text = "\n".join(log.body)
    fields = read_object(text, 2)
    if isinstance(fields, Damage):
        return fields
    files: dict[str, int] = {}
    for key, name_key in (("sstFiles", "dfsSstFileName"), ("logFiles", "dfsLogFileName")):
        listed = fields.get(key)
        for file in listed if isinstance(listed, list) else []:
            if isinstance(file, dict):
                name, size = (file.get(name_key), file.get("sizeBytes"))
            else:
                name, size = (None, None)
            if not isinstance(name, str) or not is_long(size):
                return make_damage(DamageKind.UNEXPECTED_JSON, text, 2)
            files[name] = size
    keys = fields.get("numKeys")
    return SnapshotMetadata(
        log.version, MappingProxyType(files), keys if is_long(keys) else -1, MappingProxyType(fields), raw
    )


class LineageItem(NamedTuple):
    """A version that a changelog builds on, and the id of its file."""

    version: int
    unique_id: str


def parse_lineage(head: bytes) -> tuple[LineageItem, ...] | Damage:
    """The versions since the last snapshot that a changelog of format v2 builds on, oldest first.

    Args:
        head: The first `CHANGELOG_HEAD_BYTES` of the file, or all of it.
    """
    if not head:
        return Damage(DamageKind.EMPTY)
    text = _unpack_lz4_head(head)
    if isinstance(text, Damage):
        return text
    data = JavaData(text)
    try:
        version = data.utf()
        if version in _LINEAGE_VERSIONS:
            lineage = read_json(data.utf())
        else:
            lineage = None
    except EOFError:
        return make_damage(DamageKind.TRUNCATED, f"{len(head)} bytes")
    except UnicodeDecodeError:
        return make_damage(DamageKind.BAD_HEADER, text[:16])
    if isinstance(lineage, Damage):
        return lineage
    if isinstance(lineage, list):
        items = [_parse_lineage_item(item) for item in lineage]
    else:
        items = [None]
    known = [item for item in items if item is not None]
    return tuple(sorted(known)) if known == items else make_damage(DamageKind.BAD_HEADER, text)


def _parse_lineage_item(value: Json) -> LineageItem | None:
    if not isinstance(value, dict):
        return None
    version, unique_id = value.get("version"), value.get("checkpointUniqueId")
    if is_long(version) and isinstance(unique_id, str):
        return LineageItem(version, unique_id)
    return None


def _unpack_lz4_head(raw: bytes) -> bytes | Damage:
    """So many of the first blocks that an `LZ4BlockOutputStream` packed that the lineage is in them."""
    if len(raw) < lz4.HEADER.size:
        short = lz4.MAGIC.startswith(raw[: len(lz4.MAGIC)])
        return make_damage(DamageKind.TRUNCATED if short else DamageKind.UNKNOWN_CODEC, raw[:16])
    unpacked = bytearray()
    at = 0
    while len(unpacked) < _measure_lineage(unpacked) and at + lz4.HEADER.size <= len(raw):
        magic, token, packed, size, checksum = lz4.HEADER.unpack_from(raw, at)
        if magic != lz4.MAGIC:
            return make_damage(DamageKind.UNKNOWN_CODEC if not at else DamageKind.BAD_HEADER, raw[at : at + 16])
        at += lz4.HEADER.size
        if not size:  # the mark of the end
            break
        method = token & 0xF0
        if packed < 0 or not 0 < size <= lz4.BLOCK_BYTES_MAX or method not in (lz4.RAW, lz4.PACKED):
            return make_damage(DamageKind.BAD_HEADER, raw[:16])
        block = raw[at : at + packed]
        if len(block) < packed:
            return make_damage(DamageKind.TRUNCATED, f"{len(raw)} bytes")
        piece = _unpack_lz4_block(block, method, size, checksum)
        if isinstance(piece, Damage):
            return piece
        unpacked += piece
        at += packed
    return bytes(unpacked)


def _unpack_lz4_block(block: bytes, method: int, size: int, checksum: int) -> bytes | Damage:
    piece = block if method == lz4.RAW else lz4.unpack_block(block, min(size, 0x20000))
    if piece is None:
        return make_damage(DamageKind.BAD_HEADER, block[:16])
    if checksum and len(piece) == size and lz4.compute_checksum(piece) != checksum:  # a bundle keeps none
        return make_damage(DamageKind.CHECKSUM_MISMATCH, f"{size} bytes unpacked")
    return piece


def _measure_lineage(head: bytes | bytearray) -> int:
    """How many bytes the two texts take that a changelog begins with, as far as it can be told."""
    length = 0
    for _ in range(2):
        told = head[length : length + 2]
        length += 2 + int.from_bytes(told)
    return length


def find_early_end(raw: bytes) -> Damage | None:
    """Whether a file that Spark packed ends before it is complete; None also if it is packed in another way than lz4.

    Nothing is unpacked: each block tells its length, and an empty one marks the end.
    """
    if not raw:
        return Damage(DamageKind.EMPTY)
    if not lz4.MAGIC.startswith(raw[: len(lz4.MAGIC)]):
        return None
    at = 0
    while at + lz4.HEADER.size <= len(raw):
        magic, _, packed, size, _ = lz4.HEADER.unpack_from(raw, at)
        if magic != lz4.MAGIC or packed < 0:
            return make_damage(DamageKind.BAD_HEADER, raw[at : at + 16])
        if not size:
            return None
        at += lz4.HEADER.size + packed
    return make_damage(DamageKind.TRUNCATED, f"{len(raw)} bytes")
