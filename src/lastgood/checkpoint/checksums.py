"""The two kinds of checksum files: Hadoop's `.NAME.crc` on local disks, Spark's own `NAME.crc` since 4.1. Pure."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Self

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import Json, decode, encode, is_long, read_object, to_json
from lastgood.frozen import dataclass

HADOOP_CHUNK_BYTES = 512
_HADOOP_HEADER = struct.Struct(">4sI")
_HADOOP_MAGIC = b"crc\0"
_CRC32C_POLYNOMIAL = 0x82F63B78


@dataclass(frozen=True, slots=True)
class HadoopChecksum:
    """A `.NAME.crc`: one CRC-32 per chunk of the file NAME beside it."""

    chunk_bytes: int
    sums: tuple[int, ...]

    @classmethod
    def of(cls, data: bytes, chunk_bytes: int = HADOOP_CHUNK_BYTES) -> Self:
        """The checksum of a file's content."""
        chunks = range(0, len(data), chunk_bytes)
        return cls(chunk_bytes, tuple(zlib.crc32(data[at : at + chunk_bytes]) for at in chunks))

    def to_bytes(self) -> bytes:
        """The file as Hadoop writes it."""
        return _HADOOP_HEADER.pack(_HADOOP_MAGIC, self.chunk_bytes) + struct.pack(f">{len(self.sums)}I", *self.sums)

    def check(self, data: bytes) -> Damage | None:
        """What Hadoop would say of `data`, the content of the main file; None if they agree."""
        found = type(self).of(data, self.chunk_bytes)
        if found == self:
            return None
        differing = [at for at, (one, other) in enumerate(zip(self.sums, found.sums, strict=False)) if one != other]
        at = (differing or [min(len(self.sums), len(found.sums))])[0] * self.chunk_bytes
        return make_damage(DamageKind.CHECKSUM_MISMATCH, f"from byte {at} of {len(data)}")


def parse_hadoop_checksum(raw: bytes) -> HadoopChecksum | Damage:
    """Read a `.NAME.crc`."""
    if not raw:
        return Damage(DamageKind.EMPTY)
    if not raw.startswith(_HADOOP_MAGIC):
        return make_damage(DamageKind.BAD_HEADER, raw[:16])
    if len(raw) < _HADOOP_HEADER.size or len(raw) % 4:
        return make_damage(DamageKind.TRUNCATED, f"{len(raw)} bytes")
    chunk_bytes = _HADOOP_HEADER.unpack_from(raw)[1]
    if not 0 < chunk_bytes < 2**31:
        return make_damage(DamageKind.BAD_HEADER, raw[:16])
    sums = struct.unpack_from(f">{len(raw) // 4 - 2}I", raw, _HADOOP_HEADER.size)
    return HadoopChecksum(chunk_bytes, sums)


@dataclass(frozen=True, slots=True)
class SparkChecksum:
    """A `NAME.crc` of Spark: CRC-32C and size of the file NAME beside it."""

    value: int
    """Signed, as in Java."""
    main_file_size: int
    fields: Mapping[str, Json]
    """All of it, in its order: also who wrote it and when."""
    raw: bytes | None = field(default=None, compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """The file as it was read, or as Spark writes it."""
        if self.raw is not None:
            return self.raw
        return encode(to_json(self.fields))

    def for_content(self, data: bytes) -> Self:
        """The same for another content of the main file."""
        value = _make_signed(compute_crc32c(data))
        fields = {**self.fields, "value": value, "mainFileSize": len(data)}
        return type(self)(value, len(data), MappingProxyType(fields))

    def check(self, data: bytes) -> Damage | None:
        """What Spark would say of `data`, the content of the main file; None if they agree."""
        if len(data) != self.main_file_size:
            return make_damage(DamageKind.CHECKSUM_MISMATCH, f"{len(data)} bytes, not {self.main_file_size}")
        value = _make_signed(compute_crc32c(data))
        if value == self.value:
            return None
        return make_damage(DamageKind.CHECKSUM_MISMATCH, f"{value}, not {self.value}")


def parse_spark_checksum(raw: bytes) -> SparkChecksum | Damage:
    """Read a `NAME.crc` of Spark."""
    text = decode(raw)
    fields = text if isinstance(text, Damage) else read_object(text)
    if isinstance(fields, Damage):
        return fields
    value, size = fields.get("value"), fields.get("mainFileSize")
    if fields.get("algorithm") != "CRC32C" or not is_long(value) or not is_long(size):
        return make_damage(DamageKind.UNEXPECTED_JSON, to_json(fields))
    return SparkChecksum(value, size, MappingProxyType(fields), raw)


def _make_crc32c_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (_CRC32C_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return tuple(table)


_CRC32C = _make_crc32c_table()


def compute_crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), unsigned; some 10 MB a second, enough for the files of a checkpoint."""
    value = 0xFFFFFFFF
    table = _CRC32C
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    return value ^ 0xFFFFFFFF


def _make_signed(value: int) -> int:
    if value >= 2**31:
        return value - 2**32
    return value
