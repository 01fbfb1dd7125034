"""Folders of Spark's file sink: what is so of each, and how one is opened and changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lastgood.checkpoint.layout import SINK_LOG
from lastgood.sinks.kind import Opening, OwnRows, SinkKind, SinkReader, SinkTraits, TakenOut, Taking

if TYPE_CHECKING:
    from lastgood.sinks.changes import SinkChanges
    from lastgood.sinks.files.sink import FileSink
    from lastgood.storage.reading import Location, Storage
    from lastgood.storage.writing import WritableStorage


NOTE: Final = "_lastgood_load.json"
"""Says in a folder whose it is, and goes wherever that goes; readers pass over names with an underscore."""


def _is_at(storage: Storage, location: Location) -> bool:
    found = storage.stat(location / SINK_LOG)
    return found is not None and found.is_folder


def _open(storage: Storage, location: Location, opening: Opening) -> FileSink:
    from lastgood.sinks.files.sink import FileSink

    return FileSink(storage, location, timeout_seconds=opening.timeout_seconds)


def _find_own_rows(storage: Storage, location: Location, query_id: str, batches: int) -> OwnRows | str:
    """All: one query after another would go on with the numbers of the log, and pass over what it has already."""
    del storage, location, query_id, batches
    return OwnRows(None, None)


def _take_out(storage: WritableStorage, location: Location, taking: Taking) -> TakenOut | str:
    from lastgood.sinks.files.owning import put_aside

    return TakenOut(None, put_aside(storage, location, taking.checkpoint, taking.recovery))  # it is that of one query


def _reserve(storage: WritableStorage, location: Location, checkpoint: Location, planned: int | None) -> str | None:
    from lastgood.sinks.files.owning import reserve

    return reserve(storage, location, checkpoint, planned)


def _make_changes() -> SinkChanges:
    from lastgood.sinks.changes import SinkChanges
    from lastgood.sinks.files.changing import carry_entry, make_file_sink_steps
    from lastgood.sinks.files.step import FileSinkStep

    return SinkChanges(FileSinkStep, carry_entry, make_file_sink_steps)


FILE_SINK = SinkKind(
    name="file",
    traits=SinkTraits(
        skips_unrun=True,
        shows_all_or_none=True,
        keeps_log=True,
        appends_only=True,
        is_swept=False,
        reader=SinkReader(format="parquet"),
    ),
    sign=SINK_LOG,
    is_at=_is_at,
    open_at=_open,
    find_own_rows=_find_own_rows,
    reserve=_reserve,
    take_out=_take_out,
    changes=_make_changes,
)
