"""Where a load lies that is asked for, by its files and its table."""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.frozen import dataclass
from lastgood.load.others import locate_loads
from lastgood.load.specification import name_load
from lastgood.observe.load_asked import find_places
from lastgood.observe.load_options import LoadOptions
from lastgood.storage.reading import Location, parse_location


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedLoad:
    """A load, by what is asked for."""

    inputs: Sequence[str]
    name: str
    table: str
    place: Location
    """Of the table."""
    checkpoint: Location


def locate_load(files: Sequence[str], to: str, wanted: LoadOptions) -> LocatedLoad:
    """Which load is meant, and where it lies.

    Args:
        files: As they are named: files, or one folder.
        to: The table, as it is named.
        wanted: How they are loaded; only `checkpoint` counts.

    Raises:
        UsageError: as `find_places`.
    """
    inputs, table = find_places(files, to, wanted)
    place = parse_location(table.partition(":")[2])
    name = name_load(inputs, table)
    checkpoint = locate_loads(place) / name
    if wanted.checkpoint:
        checkpoint = parse_location(wanted.checkpoint)
    return LocatedLoad(inputs=inputs, name=name, table=table, place=place, checkpoint=checkpoint)


def split_table(table: str) -> tuple[str, Location]:
    """The kind of a table, and where it lies."""
    kind, _, place = table.partition(":")
    return kind, parse_location(place)
