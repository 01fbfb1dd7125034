"""What a stateful operator says of itself: `_metadata/metadata`, `_metadata/v2/<batch>` and its schema files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX, Json, is_long, read_json, read_object, read_version, split_log
from lastgood.frozen import dataclass

METADATA_VERSION_NEWEST = 2
SCHEMA_VERSION_NEWEST = 3
STORE_DEFAULT = "default"
"""The store of an operator that has only one; its files lie in the partition's own folder."""


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """One state store of an operator, the same in every partition."""

    name: str
    columns_prefix_key: int
    partitions: int
    """How many partition folders there are to be."""
    schema_paths: tuple[str, ...] = ()
    """Absolute, as they were when it was written; version 2 only."""


@dataclass(frozen=True, slots=True)
class OperatorMetadata:
    """One file of operator metadata (Spark 4.0 and later)."""

    version: int
    operator_id: int
    operator_name: str
    """Such as `stateStoreSave`, `dedupe`, `symmetricHashJoin`."""
    stores: tuple[StoreInfo, ...]
    properties: Mapping[str, Json]
    """What `transformWithState` says of itself; version 2 only."""
    raw: bytes = field(compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """The file as it was read."""
        return self.raw


def parse_operator_metadata(raw: bytes) -> OperatorMetadata | Damage:
    """Read operator metadata of either version."""
    log = split_log(raw, newest=METADATA_VERSION_NEWEST)
    if isinstance(log, Damage):
        return log
    text = "\n".join(log.body)
    fields = read_object(text, 2)
    if isinstance(fields, Damage):
        return fields
    info, listed = fields.get("operatorInfo"), fields.get("stateStoreInfo")
    if not isinstance(info, dict) or not isinstance(listed, list):
        return make_damage(DamageKind.UNEXPECTED_JSON, text, 2)
    operator_id, name = info.get("operatorId"), info.get("operatorName")
    stores = [store for store in map(_parse_store, listed) if store is not None]
    properties = _parse_properties(fields.get("operatorPropertiesJson"))
    if not is_long(operator_id) or not isinstance(name, str) or len(stores) != len(listed) or properties is None:
        return make_damage(DamageKind.UNEXPECTED_JSON, text, 2)
    return OperatorMetadata(log.version, operator_id, name, tuple(stores), properties, raw)


def _parse_store(value: Json) -> StoreInfo | None:
    if not isinstance(value, dict):
        return None
    name, prefix, partitions = (value.get(key) for key in ("storeName", "numColsPrefixKey", "numPartitions"))
    paths = value.get("stateSchemaFilePaths", [])
    if not isinstance(name, str) or not is_long(prefix) or not is_long(partitions) or not isinstance(paths, list):
        return None
    return StoreInfo(name, prefix, partitions, tuple(path for path in paths if isinstance(path, str)))


def _parse_properties(value: Json) -> Mapping[str, Json] | None:
    if value is None:
        return {}
    if not isinstance(value, str):
        return None
    if value:
        properties = read_object(value)
    else:
        properties = {}
    if isinstance(properties, Damage):
        return None
    return MappingProxyType(properties)


@dataclass(frozen=True, slots=True)
class ColumnFamilySchema:
    """Schema of one column family; most stores have only `default`. Schemas are Spark's JSON, as text."""

    name: str
    key: str
    value: str
    key_schema_id: int = 0
    value_schema_id: int = 0
    key_encoder: str = ""
    """How keys are encoded; version 3 only."""
    user_key: str = ""
    """Schema of the key of a map state; version 3 only."""


@dataclass(frozen=True, slots=True)
class StateSchema:
    """A state schema file: `_metadata/schema` (version 1, 2), `_stateSchema/<store>/<batch>_<uuid>` (version 3)."""

    version: int
    families: tuple[ColumnFamilySchema, ...]
    raw: bytes = field(compare=False, repr=False)

    def to_bytes(self) -> bytes:
        """The file as it was read."""
        return self.raw


def list_fields(schema: str) -> list[dict[str, Json]] | None:
    """The fields of a struct, as Spark writes its type in JSON; None if it is none."""
    parsed = read_json(schema)
    fields = None
    if isinstance(parsed, dict):
        fields = parsed.get("fields")
    if not isinstance(fields, list):
        return None
    return [field for field in fields if isinstance(field, dict)]


def parse_state_schema(raw: bytes) -> StateSchema | Damage:
    """Read a state schema file."""
    if not raw:
        return Damage(DamageKind.EMPTY)
    if len(raw) > ENTRY_BYTES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{len(raw)} bytes")
    data = JavaData(raw)
    try:
        version = read_version(data.utf(), newest=SCHEMA_VERSION_NEWEST)
        if isinstance(version, Damage):
            return Damage(version.kind, version.found)
        if version < 3:
            read = data.utf if version == 1 else data.chunks
            families: tuple[ColumnFamilySchema, ...] = (ColumnFamilySchema(STORE_DEFAULT, read(), read()),)
        else:
            families = tuple(_parse_family(data) for _ in range(data.count()))
    except EOFError:
        return make_damage(DamageKind.TRUNCATED, f"{len(raw)} bytes")
    except UnicodeDecodeError:
        return make_damage(DamageKind.BAD_HEADER, raw[:16])
    values = (read_json(schema) for family in families for schema in (family.key, family.value))
    broken = next((value for value in values if isinstance(value, Damage)), None)
    return broken or StateSchema(version, families, raw)


def _parse_family(data: JavaData) -> ColumnFamilySchema:
    name, key_id, key = data.utf(), data.number(2), data.chunks()
    value_id, value = data.number(2), data.chunks()
    return ColumnFamilySchema(name, key, value, key_id, value_id, data.chunks(), data.chunks())


class JavaData:
    """Reads what Java's `DataOutputStream` wrote; every method raises EOFError where the data ends too early."""

    def __init__(self, raw: bytes) -> None:
        """Read from the beginning of `raw`."""
        self._raw = raw
        self._at = 0

    def _take(self, length: int) -> bytes:
        piece = self._raw[self._at : self._at + length]
        if len(piece) < length:
            raise EOFError
        self._at += length
        return piece

    def number(self, length: int) -> int:
        """A signed number of so many bytes."""
        return int.from_bytes(self._take(length), signed=True)

    def count(self) -> int:
        """A number of things that follow, at least a byte each."""
        count = self.number(4)
        if not 0 <= count <= len(self._raw) - self._at:
            raise EOFError
        return count

    def utf(self) -> str:
        """A text written by `writeUTF`, which encodes each half of a surrogate pair on its own.

        Raises:
            UnicodeDecodeError: these bytes are no text.
        """
        piece = self._take(int.from_bytes(self._take(2))).replace(b"\xc0\x80", b"\0")
        return piece.decode(errors="surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16")

    def chunks(self) -> str:
        """A text that was cut into pieces because `writeUTF` takes no more than 64 KB."""
        return "".join(self.utf() for _ in range(self.count()))
