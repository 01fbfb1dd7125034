from __future__ import annotations

import struct

import pytest

from lastgood.checkpoint import operators
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.operators import (
    ColumnFamilySchema,
    OperatorMetadata,
    StateSchema,
    StoreInfo,
    parse_operator_metadata,
    parse_state_schema,
)

V1 = (
    b'v1\n{"operatorInfo":{"operatorId":1,"operatorName":"dedupe"},'
    b'"stateStoreInfo":[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2}]}'
)
V2 = (
    b'v2\n{"operatorInfo":{"operatorId":0,"operatorName":"transformWithStateInPandasExec"},"stateStoreInfo":'
    b'[{"storeName":"default","numColsPrefixKey":0,"numPartitions":2,"stateSchemaFilePaths":["file:/data/0_a"]}],'
    b'"operatorPropertiesJson":"{\\"timeMode\\":\\"NoTime\\"}"}'
)
KEY = '{"type":"struct","fields":[]}'
VALUE = '{"type":"struct","fields":[{"name":"n"}]}'


def utf(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(raw)) + raw


def chunks(*pieces: str) -> bytes:
    return struct.pack(">I", len(pieces)) + b"".join(map(utf, pieces))


def kind(result: object) -> DamageKind | None:
    return result.kind if isinstance(result, Damage) else None


def test_version_1_names_the_operator_and_its_stores() -> None:
    metadata = parse_operator_metadata(V1)
    assert isinstance(metadata, OperatorMetadata)
    assert (metadata.version, metadata.operator_id, metadata.operator_name) == (1, 1, "dedupe")
    assert metadata.stores == (StoreInfo("default", 0, 2),)
    assert (metadata.properties, metadata.to_bytes()) == ({}, V1)


def test_version_2_adds_properties_and_schema_files() -> None:
    metadata = parse_operator_metadata(V2)
    assert isinstance(metadata, OperatorMetadata)
    assert metadata.stores == (StoreInfo("default", 0, 2, ("file:/data/0_a",)),)
    assert (metadata.version, metadata.properties) == (2, {"timeMode": "NoTime"})
    assert metadata.to_bytes() == V2


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b"v3\n{}", DamageKind.VERSION_TOO_NEW),
        (b"v1", DamageKind.TRUNCATED),
        (V1[:-3], DamageKind.TRUNCATED),
        (b"v1\n{}", DamageKind.UNEXPECTED_JSON),
        (V1.replace(b'"operatorId":1', b'"operatorId":"1"'), DamageKind.UNEXPECTED_JSON),
        (V1.replace(b'"numPartitions":2', b'"numPartitions":null'), DamageKind.UNEXPECTED_JSON),
        (V1.replace(b'[{"storeName"', b'[5,{"storeName"'), DamageKind.UNEXPECTED_JSON),
        (V2.replace(b'"{\\"timeMode\\":\\"NoTime\\"}"', b"5"), DamageKind.UNEXPECTED_JSON),
        (V2.replace(b'NoTime\\"}', b"NoTime"), DamageKind.UNEXPECTED_JSON),
    ],
)
def test_damaged_metadata_is_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(parse_operator_metadata(raw)) is expected


def test_empty_properties_are_none() -> None:
    metadata = parse_operator_metadata(V2.replace(b'"{\\"timeMode\\":\\"NoTime\\"}"', b'""'))
    assert isinstance(metadata, OperatorMetadata)
    assert metadata.properties == {}


@pytest.mark.parametrize(
    ("raw", "version"),
    [
        (utf("v1") + utf(KEY) + utf(VALUE), 1),
        (utf("v2") + chunks(KEY) + chunks(VALUE), 2),
        (utf("v2") + chunks(KEY[:9], KEY[9:]) + chunks(VALUE), 2),
    ],
)
def test_a_schema_holds_key_and_value(raw: bytes, version: int) -> None:
    schema = parse_state_schema(raw)
    assert isinstance(schema, StateSchema)
    assert (schema.version, schema.families) == (version, (ColumnFamilySchema("default", KEY, VALUE),))
    assert schema.to_bytes() == raw


def test_version_3_has_a_schema_for_each_column_family() -> None:
    def family(name: str, number: int) -> bytes:
        schema_id = struct.pack(">h", number)
        return utf(name) + schema_id + chunks(KEY) + schema_id + chunks(VALUE) + chunks('{"x":1}') + chunks("{    }")

    schema = parse_state_schema(utf("v3") + struct.pack(">I", 2) + family("m", 0) + family("n", 1))
    assert isinstance(schema, StateSchema)
    assert schema.families == (
        ColumnFamilySchema("m", KEY, VALUE, 0, 0, '{"x":1}', "{    }"),
        ColumnFamilySchema("n", KEY, VALUE, 1, 1, '{"x":1}', "{    }"),
    )


def test_names_beyond_the_basic_plane_are_read_as_java_writes_them() -> None:
    face = "\U0001f600".encode("utf-16-be")  # Java encodes each half of the pair on its own
    halves = [int.from_bytes(face[at : at + 2]) for at in (0, 2)]
    java = b"".join(chr(half).encode(errors="surrogatepass") for half in halves)
    schema = parse_state_schema(utf("v1") + utf(b'{"n":"' + java + b'"}') + utf(b'"\xc4\x80"'))
    assert isinstance(schema, StateSchema)
    assert schema.families == (ColumnFamilySchema("default", '{"n":"\U0001f600"}', '"Ā"'),)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b"\0", DamageKind.TRUNCATED),
        (utf("v4"), DamageKind.VERSION_TOO_NEW),
        (utf("x"), DamageKind.BAD_VERSION_LINE),
        (utf(b"\xff"), DamageKind.BAD_HEADER),
        (utf("v2") + chunks(KEY), DamageKind.TRUNCATED),
        (utf("v2") + struct.pack(">i", -1), DamageKind.TRUNCATED),
        (utf("v2") + struct.pack(">i", 2**31 - 1), DamageKind.TRUNCATED),
        (utf("v3") + struct.pack(">i", 2**31 - 1), DamageKind.TRUNCATED),
        (utf("v1") + utf("{") + utf(VALUE), DamageKind.TRUNCATED),
        (utf("v1") + utf(KEY) + utf("x"), DamageKind.NOT_JSON),
    ],
)
def test_damaged_schemas_are_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(parse_state_schema(raw)) is expected


def test_a_huge_schema_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "ENTRY_BYTES_MAX", 4)
    assert kind(parse_state_schema(b"12345")) is DamageKind.TOO_LARGE
