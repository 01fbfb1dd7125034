"""Which rows of the input the price of a plan speaks of."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from conformance.edits_of_kafka import read_topic
from conformance.flavours import RECORDS_PER_FILE

from lastgood.planning.plan import Plan
from lastgood.sources.kafka.ranges import Ranges

_NUMBER = re.compile(r"f(\d+)\.json$")


def lost_rows(plan: Plan, folder: Path) -> Counter[str]:
    """Rows that are lost by its price, by their keys."""
    return Counter(
        key for each in plan.sources for key in (*_of_ranges(each.lost, folder), *_of_files(each.lost_files))
    )


def duplicated_rows(plan: Plan, folder: Path) -> Counter[str]:
    """Rows that come twice by its price."""
    return Counter(
        key
        for each in plan.sources
        for key in (*_of_ranges(each.duplicated, folder), *_of_files(each.duplicated_files))
    )


def _of_ranges(ranges: Ranges, folder: Path) -> Iterator[str]:
    if not ranges:
        return
    again = "again-" if read_topic(folder)["recreated"] else ""
    for partitions in ranges.values():
        for number, spans in partitions.items():
            yield from (f"{again}{number}-{offset}" for first, end in spans for offset in range(first, end))


def _of_files(paths: Iterable[str]) -> Iterator[str]:
    for path in paths:
        found = _NUMBER.search(path)
        assert found is not None, path
        yield from rows_of_file(int(found[1]))


def rows_of_file(number: int) -> Iterator[str]:
    """The keys of the rows in an input file."""
    return (str(number * RECORDS_PER_FILE + n) for n in range(RECORDS_PER_FILE))
