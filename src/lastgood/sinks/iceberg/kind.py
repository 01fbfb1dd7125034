"""Iceberg tables: what is so of each, and how one is opened. Evidence only: none is ever changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.sinks.kind import Opening, SinkKind, SinkTraits

if TYPE_CHECKING:
    from lastgood.sinks.iceberg.sink import IcebergSink
    from lastgood.storage.reading import Location, Storage

METADATA_FOLDER = "metadata"
_METADATA_FILES = (".metadata.json", ".metadata.json.gz")


def _is_at(storage: Storage, location: Location) -> bool:
    from lastgood.sinks.iceberg.sink import select_newest_metadata

    return bool(select_newest_metadata(list(storage.names(location / METADATA_FOLDER) or ())))


def _is_named(location: Location) -> bool:
    return location.name.endswith(_METADATA_FILES)


def _open(storage: Storage, location: Location, opening: Opening) -> IcebergSink:
    from lastgood.sinks.iceberg.sink import MAIN, IcebergSink

    return IcebergSink(storage, location, ref=opening.ref or MAIN, timeout_seconds=opening.timeout_seconds)


ICEBERG_SINK = SinkKind(
    name="iceberg",
    traits=SinkTraits(),
    sign=METADATA_FOLDER,
    is_at=_is_at,
    is_named=_is_named,
    open_at=_open,
)
