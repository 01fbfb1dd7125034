"""What a kind of source is: by what its offsets are known, and what is so of every source of it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lastgood.checkpoint.lines import Json
from lastgood.frozen import dataclass

Shape: TypeAlias = "Callable[[Mapping[str, Json]], bool]"
"""Whether an offset that is JSON is one of this kind."""


def _recognise_never(value: Mapping[str, Json]) -> bool:
    del value
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One line of the table in `sources/kinds.py`."""

    name: str
    """As `SourceOffset.kind` where its offsets have a type of their own; else as a person is told of it."""
    title: str | None = None
    """What a person is told that it is; None: its name."""
    is_one: Shape = _recognise_never
    """By which its offsets are known, where they have no type of their own."""
    place: Callable[[Mapping[str, Json]], int | None] | None = None
    """How far on such an offset is; None where nobody knows how they follow each other."""
    makes_its_rows: bool = False
    """Whether it makes its rows from its offsets, so that none can be gone."""
    may_be_read_again: bool = False
    """Whether it can be asked for a range once more: what it still has then is for others to say."""
    is_read_again: bool = False
    """Whether it brings the same rows for the same offsets, as long as it has them, and Spark stops where not."""
    stops_where_gone: bool = False
    """Whether it looks itself, before it reads, whether it has what it had, and stops where not."""
    keeps_log: bool = False
    """Whether its folder in the checkpoint is a log with an entry for each batch."""
    notes_beginning: bool = False
    """Whether its first batch cannot run without where it began, which it has written down."""
    line_error: str | None = None
    """What Spark says of an offset that this source cannot parse; None: what it says of any JSON."""
    has_row_of_each_offset: bool = False
    """Whether a batch reads one row of each offset in its range that is served, so that rows can be counted."""
    price: str = "other"
    """What it is called in a price."""
    told_as: str | None = None
    """What a driver's log calls it, where that tells in its own words where the source lies."""
    is_table: bool = False
    """Whether what a log says of where it lies is a table whose log can be asked."""

    @property
    def shown(self) -> str:
        """What a person is told that it is."""
        return self.name if self.title is None else self.title
