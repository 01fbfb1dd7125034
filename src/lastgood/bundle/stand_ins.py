"""What stands in a bundle for a file of a checkpoint: what a diagnosis reads of it, and nothing of the data. Pure.

Logs keep their text without secrets. Of the state nothing is kept but what its reader looks for: the list of files of a
RocksDB snapshot, the lineage of a changelog, whether a file has its end; a damaged file is replaced by one that is
damaged in the same way.
"""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Callable, Iterable
from typing import Any

from lastgood.checkpoint.checksums import HadoopChecksum, parse_hadoop_checksum
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.layout import (
    CheckpointFile,
    LogFile,
    OperatorMetadataFile,
    QueryMetadataFile,
    StateSchemaFile,
    StateStoreFile,
)
from lastgood.checkpoint.lines import to_json
from lastgood.checkpoint.operators import parse_state_schema
from lastgood.checkpoint.state_files import (
    CHANGELOG_HEAD_BYTES,
    ZIP_BYTES_MAX,
    LineageItem,
    SnapshotMetadata,
    StateFile,
    StateFileKind,
    find_early_end,
    parse_lineage,
    parse_snapshot,
)
from lastgood.redaction import redact

_USER_METADATA = "userMetadata"
_SNAPSHOT_FIELDS = (
    "sstFiles",
    "logFiles",
    "numKeys",
    "numInternalKeys",
    "columnFamilyMapping",
    "columnFamilyTypeMap",
    "maxColumnFamilyId",
)
_LOCAL_HEADER_BYTES = 30 + len("metadata")
"""What stands in an archive before the content of its entry `metadata`."""
_BLOCK_HEADER = struct.Struct("<8sBiii")
_BLOCK_MAGIC = b"LZ4Block"
_NOT_COMPRESSED = 0x10
_END = _BLOCK_HEADER.pack(_BLOCK_MAGIC, _NOT_COMPRESSED, 0, 0, 0)
_BINARY = b"\xff\xff"
"""No UTF-8, as binary data is none."""


def make_stand_in(kind: CheckpointFile, raw: bytes) -> bytes | None:
    """What to keep of a file's content; None: nothing.

    Args:
        kind: What the file is, by its path.
        raw: Its content, as much of it as the reader of a checkpoint reads.
    """
    match kind:
        case LogFile(log="commits"):
            return _rewrite_text(raw, _drop_user_metadata)
        case LogFile() | QueryMetadataFile() | OperatorMetadataFile():
            return _rewrite_text(raw)
        case StateSchemaFile():
            return None if isinstance(parse_state_schema(raw), Damage) else raw
        case StateStoreFile(file=file):
            return _make_state_stand_in(file, raw)
    return None


def _make_state_stand_in(file: StateFile, raw: bytes) -> bytes:
    if file.kind is StateFileKind.ZIP:
        return _choose_like(raw, _look_at_snapshot, _make_snapshots(raw))
    if file.kind is StateFileKind.CHANGELOG and file.unique_id:
        return _choose_like(raw, _look_at_changelog, _make_changelogs(raw))
    return _choose_like(raw, _look_at_changes, _make_changes(raw))


def make_checksum_stand_in(checksum: bytes, raw: bytes, kept: bytes) -> bytes:
    """What to keep of a `.NAME.crc`: it fits what is kept of NAME if it fitted NAME."""
    parsed = parse_hadoop_checksum(checksum)
    if isinstance(parsed, Damage):
        return _choose_like(checksum, lambda content: (parse_hadoop_checksum(content),), (b"", _BINARY * 8, b"crc\0"))
    if kept == raw or parsed.check(raw):
        return checksum
    return HadoopChecksum.of(kept, parsed.chunk_bytes).to_bytes()


def _rewrite_text(raw: bytes, change: Callable[[str], str] = str) -> bytes:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return _BINARY
    return redact(change(text)).encode()


def _drop_user_metadata(text: str) -> str:
    """What a writer noted down with its commit is its own affair."""
    if _USER_METADATA in text:
        return "\n".join(_clean_line(line) for line in text.split("\n"))
    return text


def _clean_line(line: str) -> str:
    try:
        return to_json(_clean(json.loads(line)))
    except (ValueError, RecursionError):
        return line.partition(_USER_METADATA)[0]


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(each) for key, each in value.items() if key != _USER_METADATA}
    if not isinstance(value, list):
        return value
    return [_clean(each) for each in value]


def _choose_like(raw: bytes, see: Callable[[bytes], tuple[object, ...]], candidates: Iterable[bytes]) -> bytes:
    """The first candidate in which the same is seen as in `raw`, or at least the same kinds of damage."""
    wanted = see(raw)
    found = [(candidate, see(candidate)) for candidate in candidates]
    same = [candidate for candidate, seen in found if seen == wanted]
    kinds = _list_kinds(wanted)
    similar = [candidate for candidate, seen in found if _list_kinds(seen) == kinds]
    return next(iter((*same, *similar)), _BINARY)


def _list_kinds(seen: Iterable[object]) -> list[object]:
    return [_name_kind(each) for each in seen]


def _name_kind(seen: object) -> object:
    return seen.kind if isinstance(seen, Damage) else seen


def _look_at_snapshot(raw: bytes) -> tuple[object, ...]:
    found = parse_snapshot(raw)
    if isinstance(found, Damage):
        return (found,)
    return (found.version, dict(found.files), found.keys)


def _look_at_changelog(raw: bytes) -> tuple[object, ...]:
    return parse_lineage(raw[:CHANGELOG_HEAD_BYTES]), find_early_end(raw)


def _look_at_changes(raw: bytes) -> tuple[object, ...]:
    return (find_early_end(raw),)


def _make_snapshots(raw: bytes) -> list[bytes]:
    """RocksDB archives: one with the same list of files, then damaged ones."""
    found = []
    metadata = parse_snapshot(raw)
    if isinstance(metadata, SnapshotMetadata):
        fields = {name: metadata.fields[name] for name in _SNAPSHOT_FIELDS if name in metadata.fields}
        found = [_make_archive("metadata", f"v{metadata.version}\n{to_json(fields)}".encode())]
    garbled = bytearray(_make_archive("metadata", b"v1\n{}" * 40))
    garbled[_LOCAL_HEADER_BYTES : _LOCAL_HEADER_BYTES + 8] = b"\xff" * 8
    texts = (b"", b"v1\n{", b"v1\n[]", b"v1\nx", b"v9\n{}", b"x\n{}", _BINARY)
    damaged = [_make_archive("metadata", text) for text in texts]
    if len(raw) > ZIP_BYTES_MAX:
        large = [bytes(ZIP_BYTES_MAX + 1)]
    else:
        large = []
    return [*found, *large, b"", bytes(16), b"PK\3\4", _make_archive("nothing", b""), *damaged, bytes(garbled)]


def _make_archive(name: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo(name), content)
    return made.getvalue()


def _make_changes(raw: bytes) -> list[bytes]:
    """Files of changes: one that is whole, then damaged ones."""
    return [_END, _cut(len(raw)), b"", _make_block(b"") + bytes(len(_END))]


def _make_changelogs(raw: bytes) -> list[bytes]:
    """Changelogs of format v2: with the same lineage and no change, then damaged ones; each whole, and cut."""
    lineage = parse_lineage(raw[:CHANGELOG_HEAD_BYTES])
    if isinstance(lineage, Damage):
        heads = []
    else:
        heads = [_make_changelog("v3", lineage)]
    heads += [
        _make_block(b"\0\2v3"),
        _make_changelog("v1", ()),
        _make_block(b"\0\2\xff\xff"),
        _make_block(_encode_utf("v3") + _encode_utf("x")),
        _make_block(_encode_utf("v3"), checksum=1),
    ]
    ended = [head + _END for head in heads]
    cut = [head + _cut(_BLOCK_HEADER.size) for head in heads]
    followed = [head + bytes(len(_END)) for head in heads]
    return [*ended, *cut, *followed, b"LZ4", _cut(len(raw)), bytes(32), _make_block(b"") + bytes(len(_END)), b""]


def _make_changelog(version: str, lineage: Iterable[LineageItem]) -> bytes:
    items: list[Any] = [{"version": item.version, "checkpointUniqueId": item.unique_id} for item in lineage]
    return _make_block(_encode_utf(version) + _encode_utf(to_json(items)))


def _encode_utf(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2) + raw


def _make_block(content: bytes, *, checksum: int = 0) -> bytes:
    """One block of an LZ4 block stream that is not compressed; nobody looks at a checksum of 0."""
    size = len(content)
    return _BLOCK_HEADER.pack(_BLOCK_MAGIC, _NOT_COMPRESSED, size, max(1, size), checksum) + content


def _cut(size: int) -> bytes:
    """A file of this size whose only block ends later."""
    return _BLOCK_HEADER.pack(_BLOCK_MAGIC, _NOT_COMPRESSED, 2**30, 1, 0).ljust(size, b"\0")[:size]
