"""`commits/N`: batch N is finished. Pure: bytes to values and back to the same bytes."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Self, TypeAlias

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import Json, encode, extract_long, read_object, split_log, to_json
from lastgood.frozen import dataclass

VERSION_NEWEST = 3
_SHORT_BYTES_MAX = 64
_OPERATOR = re.compile(r"\d{1,18}", re.ASCII)

StateUniqueIds: TypeAlias = Mapping[int, tuple[tuple[str, ...], ...]]
"""Per operator, per partition: one id for each of its state stores."""


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """One file of the commit log. `CommitEntry.of` makes a new one."""

    version: int
    fields: Mapping[str, Json]
    """All of its JSON, in its order, also what lastgood does not know."""
    raw: bytes | None = field(default=None, compare=False, repr=False)
    """The bytes it was read from, None if it was made or changed."""

    @classmethod
    def of(cls, version: int, *, next_batch_watermark_ms: int, state_unique_ids: StateUniqueIds | None = None) -> Self:
        """An entry as Spark writes it; `state_unique_ids` needs version 2 or 3."""
        fields: dict[str, Json] = {"nextBatchWatermarkMs": next_batch_watermark_ms}
        if state_unique_ids is not None:
            fields["stateUniqueIds"] = _encode_ids(state_unique_ids)
        return cls(version, MappingProxyType(fields))

    @property
    def next_batch_watermark_ms(self) -> int:
        """Watermark for the next batch; 0 if there is none."""
        return extract_long(self.fields, "nextBatchWatermarkMs") or 0

    @property
    def state_unique_ids(self) -> StateUniqueIds | None:
        """Names of the state files of version N+1 (state checkpoint format v2); None in the other formats."""
        if self.version < 2:
            return None
        return _read_ids(self.fields.get("stateUniqueIds"))

    @property
    def sinks(self) -> Mapping[str, Json]:
        """What version 3 records of each sink by its name; empty in the other versions."""
        sinks = self.fields.get("sinkMetadataMap")
        if self.version > 2 and isinstance(sinks, dict):
            return MappingProxyType(sinks)
        return {}

    def to_bytes(self) -> bytes:
        """The file as it was read, or as Spark writes it."""
        if self.raw is not None:
            return self.raw
        return encode(f"v{self.version}\n{to_json(self.fields)}")

    def with_watermark(self, next_batch_watermark_ms: int) -> Self:
        """The same with another watermark for the next batch."""
        return self._with_fields(nextBatchWatermarkMs=next_batch_watermark_ms)

    def with_state_unique_ids(self, ids: StateUniqueIds) -> Self:
        """The same with other names of state files; version 2 or 3 only."""
        return self._with_fields(stateUniqueIds=_encode_ids(ids))

    def _with_fields(self, **changed: Json) -> Self:
        return type(self)(self.version, MappingProxyType({**self.fields, **changed}))


def parse_commit_entry(raw: bytes) -> CommitEntry | Damage:
    """Read one file of the commit log; a version line alone means watermark 0."""
    if len(raw) <= _SHORT_BYTES_MAX:
        return _parse_short(raw)
    return _parse(raw)


@functools.lru_cache(maxsize=16)
def _parse_short(raw: bytes) -> CommitEntry | Damage:
    """Those of a stateless query without watermark are all the same: so they are read once."""
    return _parse(raw)


def _parse(raw: bytes) -> CommitEntry | Damage:
    log = split_log(raw, newest=VERSION_NEWEST, trim=True)
    if isinstance(log, Damage):
        return log
    fields: dict[str, Json] | Damage = {}
    if log.body:
        if not log.body[0].strip():
            return Damage(DamageKind.BLANK_METADATA_LINE, line=2)
        fields = read_object(log.body[0], 2)
    if isinstance(fields, Damage):
        return fields
    ids = None
    if log.version > 1:
        ids = fields.get("stateUniqueIds")
    if extract_long(fields, "nextBatchWatermarkMs") is None or (ids is not None and _read_ids(ids) is None):
        return make_damage(DamageKind.UNEXPECTED_JSON, log.body[0], 2)
    return CommitEntry(log.version, MappingProxyType(fields), raw)


def _read_ids(value: Json) -> StateUniqueIds | None:
    if not isinstance(value, dict):
        return None
    ids: dict[int, tuple[tuple[str, ...], ...]] = {}
    for operator, partitions in value.items():
        lists = _read_partitions(partitions)
        if lists is None or not _OPERATOR.fullmatch(operator):
            return None
        ids[int(operator)] = lists
    return MappingProxyType(ids)


def _read_partitions(value: Json) -> tuple[tuple[str, ...], ...] | None:
    if not isinstance(value, list):
        return None
    partitions = []
    for stores in value:
        if not isinstance(stores, list):
            return None
        names = tuple(name for name in stores if isinstance(name, str))
        if len(names) != len(stores):
            return None
        partitions.append(names)
    return tuple(partitions)


def _encode_ids(ids: StateUniqueIds) -> Json:
    return {str(operator): [list(stores) for stores in partitions] for operator, partitions in ids.items()}
