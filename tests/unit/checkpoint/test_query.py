from __future__ import annotations

import pytest

from lastgood.checkpoint import query
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata

ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


def kind(raw: bytes) -> DamageKind | None:
    result = parse_query_metadata(raw)
    return result.kind if isinstance(result, Damage) else None


def test_the_query_id_is_read_and_written_back() -> None:
    raw = b'{"id":"9818c18b-9839-4690-99f7-f5f3cde02c1d"}'
    metadata = parse_query_metadata(raw)
    assert metadata == QueryMetadata(ID)
    assert metadata.to_bytes() == QueryMetadata(ID).to_bytes() == raw


def test_spaces_and_unknown_keys_come_back_as_they_were() -> None:
    raw = b'\n{ "more": 1, "id" : "9818c18b-9839-4690-99f7-f5f3cde02c1d" }\n'
    metadata = parse_query_metadata(raw)
    assert isinstance(metadata, QueryMetadata)
    assert (metadata.query_id, metadata.to_bytes()) == (ID, raw)
    assert metadata.with_query_id("1-1-1-1-1").to_bytes() == b'{"id":"1-1-1-1-1"}'


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", DamageKind.EMPTY),
        (b" \n", DamageKind.EMPTY),
        (b"not json", DamageKind.NOT_JSON),
        (b"\xff\xfe", DamageKind.NOT_JSON),
        (b'{"id":"9818c18b', DamageKind.TRUNCATED),
        (b'{"id":1}', DamageKind.UNEXPECTED_JSON),
        (b'{"id":"no uuid"}', DamageKind.UNEXPECTED_JSON),
        (b'{"id":"9818c18b-9839-4690-99f7-f5f3cde02c1d0"}', DamageKind.UNEXPECTED_JSON),
        (b"{}", DamageKind.UNEXPECTED_JSON),
        (b"[]", DamageKind.UNEXPECTED_JSON),
    ],
)
def test_damage_is_told_apart(raw: bytes, expected: DamageKind) -> None:
    assert kind(raw) is expected


def test_bytes_that_are_no_text_do_no_harm_where_spark_does_not_mind() -> None:
    assert parse_query_metadata(b'{"x":"\xff","id":"9818c18b-9839-4690-99f7-f5f3cde02c1d"}') == QueryMetadata(ID)


def test_a_huge_file_is_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "ENTRY_BYTES_MAX", 4)
    assert kind(b"12345") is DamageKind.TOO_LARGE
