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
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, move_on
from lastgood.values import JsonValue, ShapeError

_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class _Owner(JsonValue):
    """Whose folder it is."""

    checkpoint: str
    undone: str | None = None
    """On behalf of what it was taken back; None: it was not."""


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
    if found is not None and found.undone is not None:
        return f"{NOTE}: a load was taken back out of it, and a driver that sleeps may still write there"
    return f"{NOTE}: it is the table of the load on {found.checkpoint}" if found else f"{NOTE}, gone as it was read"


def put_aside(storage: WritableStorage, folder: Location, checkpoint: str, recovery: str) -> str | None:
    """Move a folder of a query to another place, with all that it has written, if that is not done; where it lies then.

    On a disk it goes at once. On an object store it goes file by file, and a driver that sleeps on another machine may
    put an entry into its log later, by whose number a query that begins anew would pass over a batch: so the note in it
    stays, which says that it was taken back, and nothing is loaded there again.

    Args:
        storage: From `open_writable(folder)`.
        folder: Of the sink.
        checkpoint: Of the query; a folder that is not kept for it stays as it is.
        recovery: On behalf of what; its own place.

    Returns:
        The place; None if there was no such folder.

    Raises:
        StorageError: it cannot be moved (subclasses).
    """
    kept = folder.sibling(WORK_SUFFIX) / "undone" / recovery / "table"
    owner = _read_owner(storage, folder)
    is_at_once = folder.scheme == "file"
    if is_at_once and owner == _Owner(checkpoint) and storage.stat(kept) is None:
        # Safe: it can be moved back; at any instant all of it is here, or there. If it is there, nothing is done.
        storage.move_folder(folder, kept)
    elif not is_at_once and owner in (_Owner(checkpoint), _Owner(checkpoint, recovery)):
        # Safe: it was ours, and from now on it is nobody's.
        storage.write(folder / NOTE, json.dumps(_Owner(checkpoint, recovery).to_json()).encode())
        _move_files(storage, folder, kept)
    return None if storage.stat(kept) is None else str(kept)


def _move_files(storage: WritableStorage, folder: Location, kept: Location) -> None:
    """Move all files but the note; the log, by which readers know the others, at last."""
    names = [each.name for each in storage.walk(folder) or () if each.name != NOTE]
    of_log = [name for name in names if name.startswith(f"{SINK_LOG}/")]
    with open_threads(storage) as pool:
        for group in (sorted(set(names) - set(of_log)), of_log):
            # Safe: nothing is loaded here any more, and killed in between each file is here, or there, or both.
            list(pool.map(lambda name: move_on(storage, folder / name, kept / name), group))


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
