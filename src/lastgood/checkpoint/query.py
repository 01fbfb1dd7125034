"""`metadata`: the id of the query, by which sinks recognise it after a restart. Pure."""

from __future__ import annotations

import re
from dataclasses import field
from typing import Self

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import ENTRY_BYTES_MAX, encode, read_object, to_json
from lastgood.frozen import dataclass

_JAVA_UUID = re.compile(r"[0-9a-fA-F]{1,16}(-[0-9a-fA-F]{1,16}){4}")


@dataclass(frozen=True, slots=True)
class QueryMetadata:
    """The file `metadata`. `QueryMetadata(id)` makes a new one."""

    query_id: str
    raw: bytes | None = field(default=None, compare=False, repr=False)
    """The bytes it was read from, None if it was made or changed."""

    def to_bytes(self) -> bytes:
        """The file as it was read, or as Spark writes it."""
        if self.raw is not None:
            return self.raw
        return encode(to_json({"id": self.query_id}))

    def with_query_id(self, query_id: str) -> Self:
        """The same with another id."""
        return type(self)(query_id)


def parse_query_metadata(raw: bytes) -> QueryMetadata | Damage:
    """Read the file `metadata`.

    Spark reads it leniently (bytes that are no UTF-8 become `�`) but refuses an id that is no UUID.
    """
    if len(raw) > ENTRY_BYTES_MAX:
        return make_damage(DamageKind.TOO_LARGE, f"{len(raw)} bytes")
    text = raw.decode(errors="replace")
    if not text.strip():
        return Damage(DamageKind.EMPTY)
    fields = read_object(text)
    if isinstance(fields, Damage):
        return fields
    query_id = fields.get("id")
    if not isinstance(query_id, str) or len(query_id) > 36 or not _JAVA_UUID.fullmatch(query_id):
        return make_damage(DamageKind.UNEXPECTED_JSON, text)
    return QueryMetadata(query_id, raw)
