"""The table of all kinds of sources; a new kind is a line here, and a folder beside this file where it needs one. Pure.

Of most of them nobody can ask what they still serve: all that is known is the shape of their offsets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.source_offsets import (
    ContinuousRateOffset,
    IcebergOffset,
    JsonOffset,
    NumberOffset,
    RateMicroBatchOffset,
    SourceOffset,
    VoidOffset,
)
from lastgood.load.position import OFFSET_SIGN, LoadPosition
from lastgood.sources.delta.kind import DELTA_SOURCE
from lastgood.sources.files.kind import FILES_SOURCE
from lastgood.sources.kafka.kind import KAFKA_SOURCE
from lastgood.sources.kind import Shape, SourceKind

NOT_KNOWN: Final = SourceKind(name="a source that lastgood does not know")
_PULSAR = ("persistent://", "non-persistent://")
_COSMOS = "com.azure.cosmos.spark.changeFeed.offset"


def _is_kinesis(value: Mapping[str, Json]) -> bool:
    """Of the open connectors a key for each shard, of Databricks' a list of them."""
    shards = value.get("shards")
    if isinstance(shards, list):
        return all(isinstance(each, dict) and "shard" in each for each in shards)
    return any(isinstance(each, dict) and "iteratorType" in each for each in value.values())


def _is_pulsar(value: Mapping[str, Json]) -> bool:
    return bool(value) and all(topic.startswith(_PULSAR) for topic in value)


def _is_pubsub_lite(value: Mapping[str, Json]) -> bool:
    return bool(value) and all(part.isdecimal() and isinstance(at, int) for part, at in value.items())


def _is_cosmos(value: Mapping[str, Json]) -> bool:
    return str(value.get("id", "")).startswith(_COSMOS)


def _is_load(value: Mapping[str, Json]) -> bool:
    """Of `lastgood load`, by a key that stands in the offsets of no other source."""
    numbers = {name: each for name, each in value.items() if name != "upto"}
    if numbers.keys() != {OFFSET_SIGN, "file", "position"} or not isinstance(value.get("upto", ""), str):
        return False
    return all(type(each) is int for each in numbers.values())


def _find_place_of_load(value: Mapping[str, Json]) -> int:
    return LoadPosition.from_json(value).place


def _has(*keys: str) -> Shape:
    return lambda value: value.keys() >= set(keys)


LOAD_SOURCE: Final = SourceKind(
    name="load", title="files of a load", is_one=_is_load, place=_find_place_of_load, stops_where_gone=True
)
SOURCE_KINDS: Final[dict[str, SourceKind]] = {
    kind.name: kind
    for kind in (
        KAFKA_SOURCE,
        FILES_SOURCE,
        DELTA_SOURCE,
        SourceKind(name=IcebergOffset.kind, title="Iceberg", may_be_read_again=True),
        SourceKind(name=RateMicroBatchOffset.kind, makes_its_rows=True, may_be_read_again=True, is_read_again=True),
        SourceKind(name=VoidOffset.kind, makes_its_rows=True, may_be_read_again=True, is_read_again=True),
        SourceKind(name=NumberOffset.kind, title="rate", line_error="For input string"),
        SourceKind(name=ContinuousRateOffset.kind, title="rate"),
        LOAD_SOURCE,
        SourceKind(name="Kinesis", is_one=_is_kinesis),
        SourceKind(name="Auto Loader", is_one=_has("seqNum", "sourceVersion")),
        SourceKind(name="Pulsar", is_one=_is_pulsar),
        SourceKind(name="Pub/Sub Lite", is_one=_is_pubsub_lite),
        SourceKind(name="Delta Sharing", is_one=_has("tableId", "tableVersion", "index")),
        SourceKind(name="Azure Cosmos DB", is_one=_is_cosmos),
        SourceKind(name="Solace", is_one=_has("offset", "checkpoints")),
        SourceKind(name="Hudi", is_one=_has("commitTime")),
        SourceKind(name="Paimon", is_one=_has("snapshotId", "index", "scanSnapshot")),
    )
}
"""By name, in the order in which the shape of an offset is looked at."""


def recognise_source(offset: SourceOffset) -> SourceKind:
    """What a source is, or may be, by the shape of one of its offsets."""
    if not isinstance(offset, JsonOffset):
        return SOURCE_KINDS.get(offset.kind, NOT_KNOWN)
    value = offset.value
    if not isinstance(value, dict):
        return NOT_KNOWN
    return next((kind for kind in SOURCE_KINDS.values() if kind.is_one(value)), NOT_KNOWN)


def find_place(offset: SourceOffset) -> int | None:
    """How far on an offset is that has no type of its own; None where its kind does not tell."""
    place = recognise_source(offset).place
    value = offset.value if isinstance(offset, JsonOffset) else None
    if place is not None and isinstance(value, dict):
        return place(value)
    return None


def find_source_kind(name: str | None) -> SourceKind:
    """The kind of a name, as `SourceOffset.kind` has it; of one that nobody knows as little as can be."""
    if name is None:
        return NOT_KNOWN
    return SOURCE_KINDS.get(name, NOT_KNOWN)


def is_told_as_table(name: str) -> bool:
    """Whether a driver's log that calls a source so tells of a table whose log can be asked."""
    return any(kind.is_table and kind.told_as == name for kind in SOURCE_KINDS.values())
