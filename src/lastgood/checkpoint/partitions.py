"""How many partitions the state of an operator is to have, and which: the one place that tells. Pure.

Spark asks for one of two distributions before a stateful operator: rows spread by a key over as many partitions as
the plan pins, or all rows in one (`AllTuples`). The operator's metadata tells the pinned number either way.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.lines import Json
from lastgood.checkpoint.offsets import SHUFFLE_PARTITIONS, STATE_STORE_PROVIDER, OffsetEntry
from lastgood.checkpoint.operators import STORE_DEFAULT, OperatorMetadata, StateSchema, list_fields
from lastgood.frozen import dataclass

PARTITIONS_MAX = 10_000
"""More are not reckoned with: each is a folder, with files for every batch."""
_HDFS_BACKED = "HDFSBackedStateStoreProvider"
_GLOBAL_LIMIT = "globalLimit"
_AGGREGATIONS = frozenset({"stateStoreSave", "StatefulStreamlineAggregate"})
_KEYED = frozenset(
    {
        "applyInPandasWithState",
        "dedupe",
        "dedupeWithinWatermark",
        "flatMapGroupsWithState",
        "sessionWindowStateStoreSaveExec",
        "symmetricHashJoin",
        "transformWithStateExec",
        "transformWithStateInPandasExec",
        "transformWithStateInPySparkExec",
    }
)
"""Spark refuses to run these without a key."""
_LIMIT_KEY = [("key", frozenset({"void", "null"}))]
_LIMIT_VALUE = [("value", frozenset({"long"}))]
_JOIN_STORES = frozenset(
    {"left-keyToNumValues", "left-keyWithIndexToValue", "right-keyToNumValues", "right-keyWithIndexToValue"}
)


class Spread(enum.Enum):
    """Which distribution an operator asks for."""

    BY_KEY = "by_key"
    """Each of the pinned number of partitions writes every version, also one that never got a row."""
    SINGLE = "single"
    """All rows in partition 0, whatever plan and metadata say."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions that the state of an operator is to have: from 0 on, without a hole."""

    count: int
    """The least that there must be."""
    is_known: bool
    """Whether there are no more; if False, nothing in the checkpoint tells."""


def find_spread_by_name(name: str | None) -> Spread:
    """What the name alone tells, as operator metadata has it (None: there is no metadata)."""
    if name == _GLOBAL_LIMIT:
        return Spread.SINGLE
    return Spread.BY_KEY if name in _KEYED else Spread.UNKNOWN


def find_spread(name: str | None, schema: StateSchema | None, seen: Collection[int], ids: int | None) -> Spread:
    """Which distribution an operator asks for, as far as the checkpoint tells.

    Args:
        name: Of the operator; None if there is no metadata, as before Spark 4.0.
        schema: Of its state, where that was read.
        seen: The partitions that have a folder.
        ids: How many partitions the newest commit names; None unless in state checkpoint format v2.
    """
    by_name = find_spread_by_name(name)
    if by_name is not Spread.UNKNOWN:
        return by_name
    if schema is not None:
        by_schema = _find_spread_by_schema(schema, name)
        if by_schema is not Spread.UNKNOWN:
            return by_schema
    if any(partition > 0 for partition in seen):
        return Spread.BY_KEY
    if ids is not None:
        return Spread.SINGLE if ids == 1 else Spread.BY_KEY
    return Spread.UNKNOWN


def _find_spread_by_schema(schema: StateSchema, name: str | None) -> Spread:
    first = None
    if schema.families:
        first = schema.families[0]
    key = None
    if first is not None:
        key = _list_types(first.key)
    if first is None or key is None:
        return Spread.UNKNOWN
    if not key:
        return Spread.SINGLE
    if name in _AGGREGATIONS:
        return Spread.BY_KEY
    if name is not None:  # of a later Spark: what it keeps under a key need not be what spreads its rows
        return Spread.UNKNOWN
    is_limit = _are(key, _LIMIT_KEY) and _are(_list_types(first.value) or [], _LIMIT_VALUE)
    return Spread.SINGLE if is_limit else Spread.BY_KEY


def _list_types(schema: str) -> list[tuple[Json, Json]] | None:
    """Names and types of a struct; None if it is none."""
    fields = list_fields(schema)
    if fields is None:
        return None
    return [(field.get("name"), field.get("type")) for field in fields]


def _are(fields: list[tuple[Json, Json]], wanted: list[tuple[str, frozenset[str]]]) -> bool:
    if len(fields) != len(wanted):
        return False
    pairs = zip(fields, wanted, strict=True)
    return all(
        name == its_name and isinstance(kind, str) and kind in kinds for (name, kind), (its_name, kinds) in pairs
    )


@dataclass(frozen=True, slots=True)
class Pins:
    """What the offset log says of the state: `spark.sql.shuffle.partitions`, and the provider of its stores."""

    newest: int | None = None
    """In the newest plan: Spark goes by that, whatever metadata says; None if it pins none."""
    changed_from: int | None = None
    """In the plan before the one that changed it; None if no plan that was read pins another number."""
    is_repartitioned: bool = False
    """Whether Spark itself changed it, with a repartition of the state (4.2 and later)."""
    is_unfinished: bool = False
    """Whether that repartition is not committed: then the state is still spread as before."""
    is_hdfs_backed: bool | None = None
    """Whether the newest plan names the HDFS-backed provider; None if it names none."""


def collect_pins(plans: Mapping[int, OffsetEntry | Damage], committed: int | None) -> Pins:
    """What the plans that were read say.

    Args:
        plans: By batch.
        committed: The newest commit.
    """
    entries = {number: plan for number, plan in sorted(plans.items()) if isinstance(plan, OffsetEntry)}
    pinned = {}
    for number, plan in entries.items():
        count = find_pinned_partitions(plan)
        if count is not None:
            pinned[number] = count
    if not entries:
        return Pins()
    newest, provider = pinned.get(max(entries)), entries[max(entries)].conf.get(STATE_STORE_PROVIDER)
    is_hdfs_backed = None
    if provider is not None:
        is_hdfs_backed = provider.endswith(_HDFS_BACKED)
    changed = next((number for number in reversed(pinned) if pinned[number] != newest), None)
    if changed is None:
        return Pins(newest, is_hdfs_backed=is_hdfs_backed)
    after = entries.get(changed + 1)
    is_repartitioned = after is not None and _is_repartition(entries[changed], after)
    is_unfinished = is_repartitioned and (committed is None or committed <= changed)
    return Pins(newest, pinned[changed], is_repartitioned, is_unfinished, is_hdfs_backed)


def find_pinned_partitions(entry: OffsetEntry | None) -> int | None:
    """`spark.sql.shuffle.partitions` of an entry; None if it has none that is a number."""
    if entry:
        text = entry.conf.get(SHUFFLE_PARTITIONS, "")
    else:
        text = ""
    if text.isdecimal() and len(text) < 10:
        return int(text)
    return None


def _is_repartition(before: OffsetEntry, entry: OffsetEntry) -> bool:
    """Whether a plan is of the batch with which Spark repartitions state: it reads nothing, at the time before."""
    if entry.metadata is None or before.metadata is None:
        return False
    is_same_time = entry.metadata.batch_timestamp_ms == before.metadata.batch_timestamp_ms
    reads_nothing = [line.text for line in entry.sources] == [line.text for line in before.sources]
    return entry.metadata.control is not None or (is_same_time and reads_nothing)


def derive_partitions(
    spread: Spread, metadata: OperatorMetadata | Damage | None, seen: Mapping[int, int], pins: Pins
) -> Partitions:
    """How many partitions there are to be.

    Args:
        spread: See `find_spread`.
        metadata: Of the operator; tells what its state was spread over when the query was first started.
        seen: The partitions that have a folder, with the newest version of which all their stores have a file (0:
            none).
        pins: Of the offset log.
    """
    if spread is Spread.SINGLE:
        return Partitions(1, is_known=True)
    least = max(seen, default=0) + 1
    stores = metadata.stores if isinstance(metadata, OperatorMetadata) else ()
    told = max((info.partitions for info in stores), default=None)
    if spread is Spread.UNKNOWN:
        has_room = told != 1 and pins.newest != 1  # for more than one, whichever the distribution
        return Partitions(_limit(least, seen), is_known=not has_room)
    count = _spread_over(told, seen, pins)
    return Partitions(_limit(max(count or least, 1), seen), is_known=count is not None)


def _spread_over(told: int | None, seen: Mapping[int, int], pins: Pins) -> int | None:
    """Over how many partitions a key spreads its rows; None if nothing tells.

    It is what the newest plan pins: a repartition leaves the metadata as it was, and partitions of before. Only where
    somebody has changed that plan by hand it is what the state has, and Spark will look for another number.
    """
    pinned = pins.newest
    if pinned is None:
        return pins.changed_from if told is None else told
    if pins.is_repartitioned:
        return pins.changed_from if pins.is_unfinished else pinned
    within = min((version for partition, version in seen.items() if partition < pinned and version), default=1)
    beyond = [partition for partition, version in seen.items() if partition >= pinned and version >= within]
    if beyond:  # what was written last is spread over more
        return max(beyond) + 1
    before = pins.changed_from
    if before is not None and told != pinned and max(seen, default=0) < before < pinned:
        return before
    return pinned


def _limit(count: int, seen: Mapping[int, int]) -> int:
    """A damaged number must not cost memory."""
    return min(count, max(len(seen), PARTITIONS_MAX))


def derive_stores(metadata: OperatorMetadata | Damage | None, seen: Collection[str]) -> frozenset[str]:
    """The names of the stores that each partition is to have.

    Args:
        metadata: Of the operator.
        seen: The names of those that hold any file.
    """
    if isinstance(metadata, OperatorMetadata):
        told = {info.name for info in metadata.stores}
    else:
        told = set()
    if told:
        return frozenset(told)
    if not _JOIN_STORES.isdisjoint(seen):
        return _JOIN_STORES
    return frozenset(seen) or frozenset({STORE_DEFAULT})
