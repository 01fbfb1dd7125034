"""Finds a batch in a long offset log by a few looks at once, since times and offsets grow with the batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import read_file
from lastgood.frozen import dataclass
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Location, Storage


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """Where a search ended."""

    batch_id: int | None
    """The newest batch that does not exceed the bound; None if all do that can be measured."""
    is_ordered: bool
    """False if what was looked at does not grow with the batches: then `batch_id` means nothing."""
    is_exceeded: bool = field(default=False, compare=False)
    """Whether any entry that was looked at exceeds the bound."""


def search_log(
    storage: Storage, location: Location, ids: BatchIds, measure: Callable[[OffsetEntry], int | None], bound: int
) -> SearchEnd:
    """The newest entry of the offset log whose measure is at most `bound`.

    Entries without a measure (damaged, purged meanwhile, or `measure` gives None) are passed over. Only what was looked
    at tells whether the log is ordered: a dip between two looks stays unseen.

    Args:
        storage: From `open_storage(location)`.
        location: The checkpoint.
        ids: The entries to search, such as `checkpoint.offsets.ids`.
        measure: What grows with the batches.
        bound: What it may be at most.

    Raises:
        StorageError: the storage does not answer, or (StorageDeniedError) does not let us look.
    """
    known = list(ids)
    newest = lower = upper = None
    is_ordered = True
    low, high = 0, len(known)
    step = max(1, high // storage.parallel)
    with open_threads(storage) as pool:
        while low < high:
            samples = range(low, high, step)
            values = pool.map(lambda at: _measure(storage, location, known[at], measure), samples)
            found = [(at, value) for at, value in zip(samples, values, strict=True) if value is not None]
            between = [value for _, value in found]
            around = [value for value in (lower, *between, upper) if value is not None]
            is_ordered = is_ordered and around == sorted(around)
            for at, value in found:
                if value > bound:
                    high, upper = at, value
                    break
                newest, low, lower = known[at], at + 1, value
            if step == 1:
                break
            if found:
                step = max(1, (high - low) // storage.parallel)
            else:
                step = 1
    return SearchEnd(newest, is_ordered, upper is not None)


def _measure(
    storage: Storage, location: Location, batch_id: int, measure: Callable[[OffsetEntry], int | None]
) -> int | None:
    entry = read_file(storage, location / f"{OFFSETS}/{batch_id}", parse_offset_entry)
    if not isinstance(entry, OffsetEntry):
        return None
    return measure(entry)
