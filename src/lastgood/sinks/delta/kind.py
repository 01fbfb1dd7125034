"""Delta tables: what is so of each, and how one is opened and changed."""

from __future__ import annotations

from collections.abc import Collection
from types import MappingProxyType
from typing import TYPE_CHECKING

from lastgood.delta_log.listing import DELTA_LOG
from lastgood.sinks.kind import Opening, OwnRows, SinkKind, SinkReader, SinkTraits, TakenOut, Taking

if TYPE_CHECKING:
    from lastgood.sinks.changes import SinkChanges
    from lastgood.sinks.delta.sink import DeltaSink
    from lastgood.storage.reading import Location, Storage
    from lastgood.storage.writing import WritableStorage


def _is_at(storage: Storage, location: Location) -> bool:
    found = storage.stat(location / DELTA_LOG)
    return found is not None and found.is_folder


def _open(storage: Storage, location: Location, opening: Opening) -> DeltaSink:
    from lastgood.sinks.delta.sink import DeltaSink

    return DeltaSink(storage, location, app_id=opening.app_id, timeout_seconds=opening.timeout_seconds)


def _find_own_rows(storage: Storage, location: Location, query_id: str, batches: int) -> OwnRows | str:
    from lastgood.sinks.delta.own_rows import find_own_rows

    return find_own_rows(storage, location, query_id, batches)


def _find_broken_batch(storage: Storage, location: Location, query_id: str, batches: Collection[int]) -> str | None:
    from lastgood.sinks.delta.own_rows import find_broken_batch

    return find_broken_batch(storage, location, query_id, batches)


def _count_rows(storage: Storage, location: Location, query_id: str, batch: int) -> int | None:
    from lastgood.sinks.delta.own_rows import count_rows

    return count_rows(storage, location, query_id, batch)


def _take_out(storage: WritableStorage, location: Location, taking: Taking) -> TakenOut | str:
    from lastgood.sinks.delta.taking_out import take_out

    return take_out(storage, location, taking)


def _make_changes() -> SinkChanges:
    from lastgood.sinks.changes import Fencing, SinkChanges
    from lastgood.sinks.delta.carrying import CarriedDeltaStep, fence_off, require_means
    from lastgood.sinks.delta.changing import find_fenceable_name, make_delta_steps
    from lastgood.sinks.delta.step import DeltaStep

    return SinkChanges(
        DeltaStep, CarriedDeltaStep, make_delta_steps, Fencing(find_fenceable_name, fence_off, require_means)
    )


DELTA_SINK = SinkKind(
    name="delta",
    traits=SinkTraits(
        skips_unrun=True,
        can_be_marked=True,
        tells_query_ids=True,
        tells_offsets=True,
        mark="delta txn",
        version_sign="v",
        reader=SinkReader(
            format="delta",
            has_versions=True,
            extension="io.delta.sql.DeltaSparkSessionExtension",
            catalog="org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ),
        widening=MappingProxyType({"mergeSchema": "true"}),
        marking=("txnAppId", "txnVersion"),
    ),
    sign=DELTA_LOG,
    is_at=_is_at,
    open_at=_open,
    find_own_rows=_find_own_rows,
    find_broken_batch=_find_broken_batch,
    count_rows=_count_rows,
    take_out=_take_out,
    changes=_make_changes,
)
