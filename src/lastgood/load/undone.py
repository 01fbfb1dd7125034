"""That a load is being taken back, and where what was noted of it goes: from then on it has never begun."""

from __future__ import annotations

import json
from collections.abc import Callable

from lastgood.frozen import dataclass
from lastgood.ids import is_id
from lastgood.load.kept import COUNTS, SPEC, locate_kept, read_note
from lastgood.load.specification import LoadDiffersError
from lastgood.storage.reading import Location, Storage
from lastgood.storage.writing import WritableStorage, move_on
from lastgood.values import JsonValue, make_form

_UNDOING = "undo.json"
_BYTES_MAX = 65_536


@dataclass(frozen=True, slots=True)
class Undoing(JsonValue):
    """A load that is being taken back."""

    json = make_form("id at_ms query_id table may_write", check=lambda undoing: undoing.require_sound())

    id: str
    at_ms: int
    query_id: str | None
    """None if no chunk was ever begun."""
    table: str | None = None
    """As `KIND:LOCATION`; None: nobody has noted it down."""
    may_write: int | None = None
    """The newest chunk that a driver on another machine may still write; None: no other reaches it."""

    def require_sound(self) -> None:
        """See that its id is one, since it becomes the name of a folder.

        Raises:
            ValueError: it is none.
        """
        if not is_id(self.id):
            raise ValueError(f"{self.id!r} is no id")


def keep_undoing(storage: WritableStorage, checkpoint: Location, undoing: Undoing) -> None:
    """Note down that it is being taken back, before anything of it is.

    Raises:
        StorageError: it cannot be written (subclasses).
    """
    # Safe: whoever holds the checkpoint has seen that there is none.
    storage.write(locate_kept(checkpoint) / _UNDOING, json.dumps(undoing.to_json()).encode())


def read_undoing(storage: Storage, checkpoint: Location) -> Undoing | None:
    """Whether a load is being taken back; None if it is not.

    Raises:
        LoadDiffersError: what is noted down is not that.
        StorageError: it cannot be read (subclasses).
    """
    return read_note(
        storage,
        locate_kept(checkpoint) / _UNDOING,
        Undoing.from_json,
        limit=_BYTES_MAX,
        expected="what `load --undo` wrote when it began",
    )


def require_not_undone(storage: Storage, checkpoint: Location) -> None:
    """See that a load is not being taken back.

    Raises:
        LoadDiffersError: it is.
        StorageError: it cannot be read (subclasses).
    """
    if read_undoing(storage, checkpoint) is not None:
        raise LoadDiffersError(
            "the load is being taken back",
            subject=str(checkpoint),
            found="that it was begun, and not ended",
            expected="a load that goes on",
            effect="nothing was read or written",
            next="--undo added to the same command; then the same command without it loads anew",
        )


def put_aside(
    storage: WritableStorage, checkpoint: Location, undoing: Undoing, check: Callable[[], None] = lambda: None
) -> Location:
    """Move all that was noted of a load, and its checkpoint, to where it is kept; goes on where it was interrupted.

    Args:
        storage: That of the checkpoint.
        checkpoint: Of the load.
        undoing: On behalf of what.
        check: Raises an error if the load is not held any more.

    Raises:
        StorageError: it cannot be moved (subclasses).
    """
    work = locate_kept(checkpoint)
    kept = work / "undone" / undoing.id
    for folder, name in ((checkpoint, "checkpoint"), (work / COUNTS, COUNTS)):
        check()
        if storage.stat(folder) is not None:
            # Safe: its rows are out of the table, and until the last of these is moved no load begins here.
            storage.move_folder(folder, kept / name)
    for name in (SPEC, _UNDOING):
        check()
        if storage.stat(work / name) is not None:
            # Safe: as above; the note that it is being taken back goes last.
            move_on(storage, work / name, kept / name)
    return kept
