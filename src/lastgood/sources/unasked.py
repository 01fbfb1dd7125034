"""Sources that lastgood cannot ask what they still serve: what they are called, and what is assumed of them. Pure.

Kafka, files and Delta tables tell what they still have, and Spark stops where it is gone. Of every other source only
its offsets are known, and whether it brings the same rows again for the same offsets is its own affair.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.source_offsets import (
    ContinuousRateOffset,
    DeltaOffset,
    FileOffset,
    IcebergOffset,
    JsonOffset,
    KafkaOffset,
    NumberOffset,
    RateMicroBatchOffset,
    SourceOffset,
    VoidOffset,
)

REPLAYS: Final = "--source-replays"
"""The option by which a person says that such a source serves its ranges again."""

_PULSAR = ("persistent://", "non-persistent://")
_COSMOS = "com.azure.cosmos.spark.changeFeed.offset"
_NOT_KNOWN = "a source that lastgood does not know"


@dataclass(frozen=True, slots=True)
class Unasked:
    """A source that nobody can ask."""

    source_id: str
    name: str
    """What it is, or may be, by the shape of its offsets."""
    is_lost_with_driver: bool = False
    """Whether its driver alone held what was not committed yet: it is gone with it."""
    is_vouched_for: bool = False
    """Whether a person says that it serves its ranges again."""

    @property
    def title(self) -> str:
        """What to call it."""
        return f"source {self.source_id} ({self.name})"

    @property
    def ground(self) -> str:
        """What a promise rests on, or what speaks against it; one line."""
        if self.is_lost_with_driver:
            return f"{self.title} cannot serve again what its driver held: what was not committed is gone"
        if self.is_vouched_for:
            return f"{self.title} serves its ranges again, as {REPLAYS} says"
        return f"the assumption that {self.title} serves again all that is not committed: {REPLAYS} says so"

    @property
    def unknown(self) -> str | None:
        """What nobody can tell before a start, one line; None where somebody has told."""
        if self.is_lost_with_driver:
            return f"{self.title}: how much it had brought that was not committed; it is gone"
        if self.is_vouched_for:
            return None
        return f"{self.title}: whether it still serves what is to be read cannot be asked ({REPLAYS})"


def name_of(offset: SourceOffset, initial: SourceOffset | None) -> str:
    """What a source is, or may be, by its offsets.

    Args:
        offset: Where a plan ends.
        initial: What the source wrote down when it began (`sources/<i>/0`); None if it wrote nothing.
    """
    match offset:
        case NumberOffset() if counts_rows(offset, initial):
            return "a socket, memory, or another that counts its rows"
        case NumberOffset() | ContinuousRateOffset():
            return "rate"
        case KafkaOffset() | FileOffset() | DeltaOffset() | RateMicroBatchOffset() | VoidOffset() | IcebergOffset():
            return _KNOWN.get(offset.kind, offset.kind)
        case JsonOffset(dict() as value):
            return next((name for name, is_one in _NAMES.items() if is_one(value)), _NOT_KNOWN)
    return _NOT_KNOWN


def counts_rows(offset: SourceOffset, initial: SourceOffset | None) -> bool:
    """Whether a source keeps a bare count and wrote down no beginning, as a socket and memory do, and rate does not."""
    return isinstance(offset, NumberOffset) and not isinstance(initial, NumberOffset)


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


def _has(*keys: str) -> Callable[[Mapping[str, Json]], bool]:
    return lambda value: value.keys() >= set(keys)


_KNOWN: Mapping[str, str] = {
    KafkaOffset.kind: "Kafka",
    DeltaOffset.kind: "a Delta table",
    IcebergOffset.kind: "Iceberg",
}
_NAMES: Mapping[str, Callable[[Mapping[str, Json]], bool]] = {
    "Kinesis": _is_kinesis,
    "Auto Loader": _has("seqNum", "sourceVersion"),
    "Pulsar": _is_pulsar,
    "Pub/Sub Lite": _is_pubsub_lite,
    "Delta Sharing": _has("tableId", "tableVersion", "index"),
    "Azure Cosmos DB": _is_cosmos,
    "Solace": _has("offset", "checkpoints"),
    "Hudi": _has("commitTime"),
    "Paimon": _has("snapshotId", "index", "scanSnapshot"),
}
