"""Where a recorder's records go: beside each checkpoint, to a folder here or in an object store, or to a ledger."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.errors import ExtraMissingError, StorageError
from lastgood.ledger.opening import open_ledger, require_libraries
from lastgood.ledger.url import LedgerPlace
from lastgood.records.record import TEMPORARY_CHECKPOINT, parse_record
from lastgood.records.told import redact_record
from lastgood.spark.agent.files import RecordFileWriter, encode_records, list_surplus, name_record_file
from lastgood.spark.agent.writer import RecordTaker
from lastgood.storage.local_tree import Tree
from lastgood.storage.reading import Location, LocationInvalidError, parse_location
from lastgood.storage.rights import FILE, is_private
from lastgood.storage.writing import WritableStorage, open_writable

if TYPE_CHECKING:
    from lastgood.ledger.store import Ledger

RECORDS_FOLDER = "records"
OBJECT_BYTES_MAX = 1024 * 1024
OBJECTS_MAX = 256
OBJECT_SECONDS = 10.0
LEDGER_SECONDS = 0.5
_FILE_NAMED = 0o644
"""Of a file in a folder that was named: others may have been given it to read, as far as the umask lets them."""


def locate_records(checkpoint: Location) -> Location:
    """Where the records of a checkpoint's query are by default."""
    return checkpoint.sibling(".lastgood") / RECORDS_FOLDER


def open_record_taker(folder: Location, *, root: Location | None = None) -> RecordTaker:
    """What writes to this folder, wherever it is.

    Args:
        folder: Where the records go.
        root: The checkpoint beside which it lies; None: the folder was named itself.

    Raises:
        ExtraMissingError: the library for its kind of storage is not installed.
        StorageError: its filesystem refuses us.
    """
    if folder.scheme != "file":
        return ObjectSink(folder, open_writable(folder))
    mode = FILE if is_private(folder.path) else _FILE_NAMED
    return RecordFileWriter(
        Path(folder.path), mode=mode, open_folder=lambda place: _open_folder(place, root=root or folder)
    )


def _open_folder(folder: Path, *, root: Location) -> int:
    """Have a folder there, and open it; below `root`, and in its work folder, over no link.

    Raises:
        LinkNotFollowedError: a link is in the way: records would be written, and old ones removed, where it leads.
        OSError: it can be neither made nor opened.
    """
    tree = Tree(root.path)
    tree.place(f"{folder}/any", make=True)
    return tree.open(str(folder), os.O_RDONLY | os.O_DIRECTORY)


class AsTold:
    """Hands records on without secrets, and without the rows of the data that an exception quotes.

    What is written beside a checkpoint, many may read who may not read the data.
    """

    def __init__(self, sink: RecordTaker) -> None:
        """Hand them on to `sink`."""
        self._sink = sink
        self._offered: Sequence[dict[str, Any]] = ()
        self._told: list[dict[str, Any]] = []

    @property
    def pause_seconds(self) -> float:
        """As long as the sink needs."""
        return self._sink.pause_seconds

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """As the sink does; records that are offered again are the same ones for it, too."""
        if records is not self._offered:
            self._offered, self._told = records, [redact_record(each) for each in records]
        self._sink.write(self._told)

    def close(self) -> None:
        """Close the sink."""
        self._sink.close()


class ObjectSink:
    """Writes to a storage that cannot append: the newest object is put again, whole, until it is large enough.

    Every ten seconds at most: so much can be lost when the driver is killed.
    """

    pause_seconds = OBJECT_SECONDS

    def __init__(self, folder: Location, storage: WritableStorage) -> None:
        """Write below `folder`."""
        self._folder = folder
        self._storage = storage
        self._content = b""
        self._number = 0

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Store them.

        Raises:
            StorageError: the object cannot be written; nothing of them is.
        """
        if len(self._content) >= OBJECT_BYTES_MAX or self._number == 0:
            self._make_room()
            self._content = b""
            self._number += 1
        content = self._content + encode_records(records)
        self._storage.write(self._folder / name_record_file(self._number), content)
        self._content = content

    def close(self) -> None:
        """All is written already."""

    def _make_room(self) -> None:
        listed = self._storage.scan(self._folder, facts=False) or ()
        for name in list_surplus((entry.name for entry in listed), OBJECTS_MAX - 1):
            # Safe: only names that a recorder gives, the oldest of them, beyond as many as are kept.
            self._storage.remove(self._folder / name)


class LedgerSink:
    """Writes to a ledger, which may be missing, locked or full for a while: it is opened anew after every refusal."""

    pause_seconds = LEDGER_SECONDS

    def __init__(self, place: LedgerPlace) -> None:
        """Nothing is opened before there is something to write.

        Raises:
            ExtraMissingError: the libraries for it are not installed.
        """
        require_libraries(place)
        self._place = place
        self._ledger: Ledger | None = None

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Store them, each once.

        Raises:
            LedgerError, NoSpaceError: the ledger refuses; what was stored of them is not stored twice later.
        """
        read = [parse_record(record) for record in records]
        try:
            self._ledger = self._ledger or open_ledger(self._place)
            self._ledger.record(record for record in read if record is not None)
        except BaseException:  # whatever it was, the next record opens the ledger anew
            self.close()
            raise

    def close(self) -> None:
        """Let the ledger go."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger = None


class BesideCheckpoints:
    """Each query's records beside its checkpoint."""

    def __init__(self, elsewhere: Path) -> None:
        """Nothing is opened before there is something to write.

        Args:
            elsewhere: For the records of queries whose checkpoint is not known, does not last, or has no place beside.
        """
        self._elsewhere = elsewhere
        self._sinks: dict[str | None, RecordTaker] = {}
        self._offered: Sequence[dict[str, Any]] = ()
        self._done: set[str | None] = set()

    @property
    def pause_seconds(self) -> float:
        """As long as the one that needs most."""
        return max((sink.pause_seconds for sink in self._sinks.values()), default=0.0)

    def write(self, records: Sequence[dict[str, Any]]) -> None:
        """Store them; where one checkpoint's storage fails, those of the others are stored all the same.

        Raises:
            StorageError, OSError: the first that failed; offered again, only what has failed is tried.
        """
        if records is not self._offered:
            self._offered, self._done = records, set()
        groups: dict[str | None, list[dict[str, Any]]] = {}
        for record in records:
            groups.setdefault(record["checkpoint"], []).append(record)
        failed: list[Exception] = []
        for checkpoint, group in groups.items():
            if checkpoint not in self._done:
                try:
                    self._sink(checkpoint).write(group)
                    self._done.add(checkpoint)
                except (StorageError, OSError) as error:
                    failed.append(error)
        if failed:
            raise failed[0]

    def close(self) -> None:
        """Close all of them."""
        for sink in self._sinks.values():
            sink.close()

    def _sink(self, checkpoint: str | None) -> RecordTaker:
        if checkpoint not in self._sinks:
            self._sinks[checkpoint] = _open_beside(checkpoint) or RecordFileWriter(self._elsewhere)
        return self._sinks[checkpoint]


def _open_beside(checkpoint: str | None) -> RecordTaker | None:
    """None where there is no place beside it, or none that we can write to whatever we wait for."""
    try:
        if checkpoint is None:
            location = None
        else:
            location = parse_location(checkpoint)
        if location is None or location.name.startswith(TEMPORARY_CHECKPOINT):
            return None
        return open_record_taker(locate_records(location), root=location)
    except (LocationInvalidError, ExtraMissingError):
        return None
