"""Keeps a folder of Spark's file sink for one query, and puts it aside with all that this has written.

Its log goes by numbers of batches alone: a second query that begins in the same folder begins with batch 0 again, and
Spark passes over each batch whose number is there, without a word. Of a folder that has files and no log, readers no
longer see these files once there is one.
"""

from __future__ import annotations

import json

from lastgood.checkpoint.layout import SINK_LOG
from lastgood.checkpoint.logs import list_log
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.sinks.files.kind import NOTE
from lastgood.storage.reading import Location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.values import JsonValue, ShapeError

_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class _Owner(JsonValue):
    """Whose folder it is."""

    checkpoint: str


def reserve(storage: WritableStorage, folder: Location, checkpoint: Location, planned: int | None) -> str | None:
    """Keep a folder for the query of a checkpoint, if it is not that of another one.

    Args:
        storage: From `open_writable(folder)`.
        folder: Of the sink.
        checkpoint: Of the query.
        planned: Its newest planned batch; None if it has none.

    Returns:
        None, or in one line for a person why it cannot be its own.

    Raises:
        StorageError: the storage does not answer, or cannot be written to (subclasses).
    """
    owner = _Owner(str(checkpoint))
    found = _read_owner(storage, folder)
    if found is None:
        why = _find_other(storage, folder, planned)
        if why is not None:
            return why
        # Only one of several that come at once makes it.
        if storage.create(folder / NOTE, json.dumps(owner.to_json()).encode()):
            return None
        found = _read_owner(storage, folder)
    if found == owner:
        return None
    return f"{NOTE}: it is the table of the load on {found.checkpoint}" if found else f"{NOTE}, gone as it was read"


def put_aside(storage: WritableStorage, folder: Location, recovery: str) -> str | None:
    """Move a folder to another place, with all that lies in it, if that is not done; where it lies then.

    Args:
        storage: From `open_writable(folder)`.
        folder: Of the sink.
        recovery: On behalf of what; its own place.

    Returns:
        The place; None if there was no such folder.

    Raises:
        StorageError: it cannot be moved (subclasses).
    """
    kept = folder.sibling(WORK_SUFFIX) / "undone" / recovery / "table"
    if storage.stat(folder) is not None:
        # Safe: it can be moved back; at any instant all of it is here, or there. If it is there, nothing is done.
        storage.move_folder(folder, kept)
    return None if storage.stat(kept) is None else str(kept)


def _read_owner(storage: WritableStorage, folder: Location) -> _Owner | None:
    raw = storage.read(folder / NOTE, limit=_BYTES_MAX)
    if raw is None:
        return None
    try:
        return _Owner.from_json(read_json(raw))
    except (ShapeError, ValueError):
        return _Owner("?")  # nobody's, so nobody else's either


def _find_other(storage: WritableStorage, folder: Location, planned: int | None) -> str | None:
    """What in a folder without a note is not of this query: a batch that it has not planned, or files without a log."""
    ids = list_log(storage.names(folder / SINK_LOG), compactible=True).ids
    if ids and (planned is None or max(ids) > planned):
        return f"{SINK_LOG} with batch {max(ids)}: another query writes there, and Spark would pass over batches"
    if ids or planned is not None:
        return None
    there = storage.names(folder) or ()
    names = [name for name in there if not name.startswith((".", "_"))]
    return f"{min(names)}, which its readers would no longer see" if names else None
