"""The files of a load, as a streaming source of Spark 4.2 and later: imported by its Pythons.

Its offset is a position in the files, on the begin of a record. What a batch reads is cut into pieces of equal size, of
which a task reads the records. How the files are written `load_readers` knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow
from pyspark.sql.types import StringType, StructField, StructType

from lastgood.errors import LastgoodError, Retry, StorageError
from lastgood.journal.lease import is_newest
from lastgood.load.input_files import is_as_it_was
from lastgood.load.position import LoadPosition, read_position
from lastgood.load.quoting import IrregularError
from lastgood.load.ranges import LongLineError, Piece, begin_of, find_end_of_chunk, list_pieces
from lastgood.load.specification import Bound, InputFile
from lastgood.load.text import NotTextError
from lastgood.notes import read_json
from lastgood.spark.load_columns import LINE
from lastgood.spark.load_readers import find_reader
from lastgood.spark.piece_files import FILE, PieceFile, write_piece
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.writing import open_writable

NAME = "lastgood"
OVERTAKEN = "another machine has gone on with this load"
_BOUNDS = "bounds"
_INTO = "into"


def tell_whole(error: LastgoodError) -> str:
    """What an error says, with its place and its cause, in one line."""
    return ": ".join(filter(None, (error.sentence, error.subject, error.found)))


@contextmanager
def name_storage() -> Iterator[None]:
    """Have the error of a storage name its place: Spark passes on no more than what stands behind the class of one.

    Raises:
        ConnectionError: it does not answer; whatever its library has met there says no more, and is nobody's code.
        RuntimeError: it refuses.
    """
    try:
        yield
    except StorageError as error:
        if error.retry is Retry.LATER:
            raise ConnectionError(tell_whole(error)) from None
        raise RuntimeError(tell_whole(error)) from error


class LoadPartition(InputPartition):
    """What one task reads."""

    def __init__(self, piece: Piece) -> None:
        self.piece = piece


class LoadReader:
    """What both readers do."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.files = [InputFile.from_json(each) for each in read_json(options["files"])]
        self.chunk = int(options["chunk"])
        self.tasks = int(options["tasks"])
        self.reader = find_reader(options)
        self.into = Path(options[_INTO]) if _INTO in options else None
        """The folder of the table into which tasks write themselves; None: Spark writes."""
        self.lease = int(options["lease"]) if "lease" in options else None
        self.work = options.get("work", "")
        """The folder beside the checkpoint, in which the leases lie."""
        self.codec, self.umask = options.get("codec", ""), int(options.get("umask", "0"))

    def list_partitions(self, start: LoadPosition, end: LoadPosition) -> Sequence[LoadPartition]:
        """Those of a range."""
        return [LoadPartition(piece) for piece in list_pieces(self.files, start, end, self.tasks, self._cut)]

    def _cut(self, piece: Piece, size: int) -> Iterable[Piece]:
        return self.reader.cut(self.files[piece.file], piece, size)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """What a piece has."""
        if not isinstance(partition, LoadPartition):
            return  # where there is none to read, Spark has one of its own read
        with name_storage():
            yield from self.read_piece(partition.piece)

    def read_piece(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """As `read`.

        Raises:
            StorageError: the file cannot be read (subclasses).
        """
        file = self.files[piece.file]
        location = parse_location(file.location)
        _require_unchanged(file, location)
        try:
            yield from self._give(self.reader.read(file, piece))
        except EOFError as error:
            raise RuntimeError(f"{file.location} was cut off while it was loaded") from error
        except (IrregularError, LongLineError, NotTextError) as error:
            raise RuntimeError(f"{file.location}: {error}") from error
        _require_unchanged(file, location)  # else what was read may be of two files

    def _give(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What is read, or what is left of it once plain records are written."""
        if self.into is None:
            return batches
        return write_piece(batches, PieceFile(self.into, self.reader.columns.fieldNames(), self.codec, self.umask))


def _require_unchanged(file: InputFile, location: Location) -> None:
    if not is_as_it_was(open_storage(location), location, file):
        raise RuntimeError(f"{file.location} was changed while it was loaded")


class LoadStream(LoadReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads chunk after chunk."""

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark calls it so
        """Nothing: the files are those that were looked at before."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A chunk."""
        return ReadMaxBytes(self.chunk)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """The first record."""
        return begin_of(self.files).to_json()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Where a chunk ends that begins there."""
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        with name_storage():
            self._require_held()
            return find_end_of_chunk(self.files, LoadPosition.from_json(start), most, self.reader.find_end).to_json()

    def _require_held(self) -> None:
        """See that nobody has taken over, right before a chunk is planned."""
        if self.lease is None:
            return
        work = parse_location(self.work)
        if not is_newest(open_writable(work), work, self.lease):
            raise RuntimeError(OVERTAKEN)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        with name_storage():
            return self.list_partitions(LoadPosition.from_json(start), LoadPosition.from_json(end))


class TableStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Tells where the chunks of a table end, and has no rows: `load_table` reads them, as Spark's own readers do."""

    def __init__(self, bounds: str) -> None:
        self.bounds = [Bound.from_json(each) for each in read_json(bounds)]

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark calls it so
        """Nothing: the bounds are those that were found before."""

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A chunk."""
        return ReadAllAvailable()

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before the first value."""
        return LoadPosition(0, 0).to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The next bound; where there is none any more, where it is."""
        del limit
        at = LoadPosition.from_json(start)
        ends = (LoadPosition(0, each.position, each.upto) for each in self.bounds)
        return next((end for end in ends if end > at), at).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """None."""
        del start, end
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Nothing: where there is none to read, Spark has one of its own read."""
        del partition
        return iter(())


class LoadRange(LoadReader, DataSourceReader):
    """Reads one range once more, to count it."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self.start, self.end = (read_position(options[name]) for name in ("start", "end"))

    def partitions(self) -> Sequence[InputPartition]:
        """What its tasks read."""
        with name_storage():
            return self.list_partitions(self.start, self.end)


class LoadSource(DataSource):
    """The source by its name; its options come from the job of the load."""

    @classmethod
    def name(cls) -> str:
        """What `format` is told."""
        return NAME

    def schema(self) -> StructType:
        """Those of what is read: columns under names of its own, a line, or both."""
        if _BOUNDS in self.options:
            return StructType([StructField(LINE, StringType())])
        if _INTO in self.options:
            return StructType([StructField(FILE, StringType()), StructField(LINE, StringType())])
        return find_reader(self.options).find_schema()

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        """All of it, chunk by chunk."""
        del schema
        if _BOUNDS in self.options:
            return TableStream(self.options[_BOUNDS])
        return LoadStream(self.options)

    def reader(self, schema: Any) -> DataSourceReader:
        """One range."""
        del schema
        return LoadRange(self.options)
