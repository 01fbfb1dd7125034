"""State stores without a row: the one file from which Spark loads each, as bytes. Pure.

Seen on Spark 3.5.9 to 4.3.0: such a file at a version wins over everything older that lies beside it.
"""

from __future__ import annotations

import io
import zipfile
from types import MappingProxyType
from typing import Final

from lastgood.checkpoint import lz4

_END: Final = (-1).to_bytes(4, signed=True)
"""All that an HDFS-backed snapshot holds: the length of the next key, which tells that there is none."""
_ARCHIVE_METADATA: Final = b'v1\n{"sstFiles":[],"numKeys":0}'
_FIRST_DATE: Final = (1980, 1, 1, 0, 0, 0)
"""Of every archive, so that the same plan has the same bytes."""


def _pack_zstd(content: bytes) -> bytes:
    """One frame of a single segment: its size, and one block, the last, as it is."""
    last_and_raw = 1
    block = (len(content) << 3 | last_and_raw).to_bytes(3, "little")
    return bytes.fromhex("28b52ffd20") + bytes([len(content)]) + block + content


def _pack_snappy(content: bytes) -> bytes:
    """As Java's `SnappyOutputStream` does: its header, and one chunk that holds one literal."""
    literal = bytes([len(content), (len(content) - 1) << 2]) + content
    return bytes.fromhex("82534e41505059000000000100000001") + len(literal).to_bytes(4) + literal


def _pack_lzf(content: bytes) -> bytes:
    """One chunk as it is."""
    return b"ZV\x00" + len(content).to_bytes(2) + content


EMPTY_SNAPSHOTS: Final = MappingProxyType(
    {
        "lz4": lz4.pack_raw(_END),
        "zstd": _pack_zstd(_END),
        "snappy": _pack_snappy(_END),
        "lzf": _pack_lzf(_END),
    }
)
"""An HDFS-backed snapshot by `spark.sql.streaming.stateStore.compression.codec`."""


def make_empty_archive() -> bytes:
    """A snapshot of RocksDB, with or without changelog; the same for a version that has an id."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("metadata", _FIRST_DATE), _ARCHIVE_METADATA)
    return content.getvalue()
