"""Where a load stands: the offset of its source, as it lies in the logs of its checkpoint. Pure."""

from __future__ import annotations

from dataclasses import field

from lastgood.checkpoint.source_offsets import DELTA_BEGINNING, DeltaOffset
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.values import JsonValue, make_form

POSITION_MAX = 2**63
"""No file has so many bytes."""
OFFSET_SIGN = "lastgood_load"
"""A key that stands in the offsets of no other source."""


@dataclass(frozen=True, slots=True, order=True)
class LoadPosition(JsonValue):
    """Where a load stands, and the offset of its source: all files before this one are read, this one up to here."""

    json = make_form(f"{OFFSET_SIGN}=_version file position upto", left_out="upto")

    file: int
    position: int
    """Bytes, on the begin of a record or at the end of the file; of a table rows, as they were counted before, or the
    version before which all is read."""
    upto: str | None = field(default=None, compare=False)
    """Of a table, the last value of its order that is read, as `spark.load_table` writes it, or how many files of its
    version; None: nothing is, or a file."""

    @property
    def place(self) -> int:
        """One number that grows with it: all of a file comes before the next one."""
        return self.file * POSITION_MAX + self.position

    @property
    def _version(self) -> int:
        """Of this form; offsets of the first loads have none."""
        return 1


def read_position(text: str) -> LoadPosition:
    """An offset of the source, as it stands in a log.

    Raises:
        ShapeError, ValueError: it is none.
    """
    return LoadPosition.from_json(read_json(text))


def make_version_position(offset: DeltaOffset) -> LoadPosition:
    """The same of a load that reads the versions of a Delta table, by an offset of Spark's own source."""
    version, index = offset.place
    is_whole = index == DELTA_BEGINNING
    return LoadPosition(0, version, None if is_whole else str(index))
