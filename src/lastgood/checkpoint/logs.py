"""One log of a checkpoint: what its folder holds, and its newest entries. Pure.

A log may have 100,000 entries, so ids are kept as runs and files are parsed in small numbers.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Generic, TypeVar

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX, SourceLogEntry
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.layout import parse_log_name
from lastgood.frozen import dataclass

EntryT = TypeVar("EntryT")


@dataclass(frozen=True, slots=True)
class BatchIds:
    """A set of batch ids, in order. Make one with `BatchIds.of`."""

    runs: tuple[range, ...] = ()
    """Neighbouring ids, oldest run first; one run in a log without a hole."""

    @classmethod
    def of(cls, ids: Iterable[int]) -> BatchIds:
        """The set of `ids`, which may come in any order."""
        runs: list[range] = []
        first = last = None
        for batch_id in sorted(ids):
            if last is not None and batch_id <= last + 1:
                last = batch_id
                continue
            if first is not None and last is not None:
                runs.append(range(first, last + 1))
            first = last = batch_id
        if first is not None and last is not None:
            runs.append(range(first, last + 1))
        return cls(tuple(runs))

    @property
    def newest(self) -> int | None:
        """The largest id; None if there is none."""
        if not self.runs:
            return None
        return self.runs[-1][-1]

    @property
    def oldest(self) -> int | None:
        """The smallest id; None if there is none."""
        if not self.runs:
            return None
        return self.runs[0][0]

    @property
    def gaps(self) -> tuple[range, ...]:
        """What is missing between the oldest and the newest id."""
        return tuple(range(before.stop, after.start) for before, after in zip(self.runs, self.runs[1:], strict=False))

    def within(self, numbers: range) -> Iterator[int]:
        """Those of the set that lie in an unbroken range, ascending; it may be as wide as it likes."""
        for run in self.runs:
            yield from range(max(run.start, numbers.start), min(run.stop, numbers.stop))

    def missing(self, numbers: range) -> tuple[range, ...]:
        """What of an unbroken range is not in the set, oldest first; it may be as wide as it likes."""
        found, start = [], numbers.start
        for run in self.runs:
            if run.stop > start and run.start < numbers.stop:
                found.append(range(start, max(start, run.start)))
                start = run.stop
        found.append(range(start, max(start, numbers.stop)))
        return tuple(gap for gap in found if gap)

    def last(self, count: int) -> list[int]:
        """The `count` largest ids, ascending."""
        newest: list[int] = []
        for run in reversed(self.runs):
            if len(newest) >= count:
                break
            newest.extend(reversed(run[max(0, len(run) - (count - len(newest))) :]))
        return newest[::-1]

    def before(self, batch_id: int) -> int | None:
        """The largest id below `batch_id`: the previous batch of a query that writes its progress sparsely."""
        at = bisect.bisect_left([run.start for run in self.runs], batch_id) - 1
        if at < 0:
            return None
        return min(batch_id - 1, self.runs[at][-1])

    def after(self, batch_id: int) -> int | None:
        """The smallest id above `batch_id`."""
        at = bisect.bisect_right([run[-1] for run in self.runs], batch_id)
        if at == len(self.runs):
            return None
        return max(batch_id + 1, self.runs[at][0])

    def __contains__(self, batch_id: object) -> bool:
        if not isinstance(batch_id, int):
            return False
        at = bisect.bisect_right(self.runs, batch_id, key=lambda run: run.start) - 1
        return at >= 0 and batch_id in self.runs[at]

    def __iter__(self) -> Iterator[int]:
        for run in self.runs:
            yield from run

    def __len__(self) -> int:
        return sum(map(len, self.runs))


def name_batches(ids: Iterable[int]) -> str:
    """Batches for a sentence."""
    if isinstance(ids, range) and ids.step == 1 and ids.stop - ids.start > 1:  # it may be as long as a mark is high
        return f"batches {ids[0]} to {ids[-1]}"
    found = sorted(set(ids))
    if len(found) == 1:
        return f"batch {found[0]}"
    if found[-1] - found[0] + 1 == len(found):
        return f"batches {found[0]} to {found[-1]}"
    if len(found) > 5:
        more = f" and {len(found) - 5} more"
    else:
        more = ""
    return f"batches {', '.join(map(str, found[:5]))}{more}"


@dataclass(frozen=True, slots=True)
class LogListing:
    """What lies in the folder of a log."""

    exists: bool = False
    """Whether there is such a folder; object stores have no empty ones."""
    ids: BatchIds = BatchIds()
    """Entries that Spark can open, compact or not."""
    compact: BatchIds = BatchIds()
    """Those of them that are compact files."""
    noncanonical: Mapping[str, int] = field(default_factory=dict)
    """Names such as `006`, and the id that Spark takes them for and then cannot open."""
    checksums: BatchIds = BatchIds()
    """Entries that have a `.N.crc` of Hadoop."""
    stale_checksums: tuple[str, ...] = ()
    """`.NAME.crc` whose file is gone: on a local disk Spark cannot write that entry again."""
    temporary: tuple[str, ...] = ()
    """Writes that were never finished."""
    foreign: tuple[str, ...] = ()
    """Whatever else is there; folders end with a slash."""

    def entry_name(self, log_id: int) -> str:
        """Name of the file that holds an entry."""
        if log_id in self.compact:
            return f"{log_id}{COMPACT_SUFFIX}"
        return str(log_id)

    @property
    def newest_listed(self) -> int | None:
        """The id that Spark takes for the newest, be it openable or not."""
        newest = self.ids.newest
        return max((*self.noncanonical.values(), *(() if newest is None else (newest,))), default=None)


def list_log(names: Iterable[str] | None, *, compactible: bool = False) -> LogListing:
    """Sort what a folder holds, as `Storage.names` gives it; None for a folder that does not exist."""
    if names is None:
        return LogListing()
    plain: list[int] = []
    compact: list[int] = []
    checksums: list[int] = []
    others: list[str] = []
    for name in names:
        if _is_canonical(name):
            plain.append(int(name))
        elif name[0] == "." and name.endswith(".crc") and _is_canonical(name[1:-4]):
            checksums.append(int(name[1:-4]))
        elif compactible and name.endswith(COMPACT_SUFFIX) and _is_canonical(name[: -len(COMPACT_SUFFIX)]):
            compact.append(int(name[: -len(COMPACT_SUFFIX)]))
        else:
            others.append(name)
    stale = [f".{batch_id}.crc" for batch_id in sorted(set(checksums).difference(plain))]
    rest = _sort_others(others, set(compact), compactible=compactible)
    return LogListing(
        exists=True,
        ids=BatchIds.of([*plain, *compact]),
        compact=BatchIds.of(compact),
        noncanonical=MappingProxyType(rest.noncanonical),
        checksums=BatchIds.of(checksums),
        stale_checksums=(*stale, *rest.stale),
        temporary=tuple(rest.temporary),
        foreign=tuple(rest.foreign),
    )


def _is_canonical(name: str) -> bool:
    return name.isdecimal() and name.isascii() and len(name) < 19 and (name[0] != "0" or name == "0")


@dataclass(slots=True)
class _Others:
    noncanonical: dict[str, int] = field(default_factory=dict)
    stale: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


def _sort_others(names: list[str], compact: Collection[int], *, compactible: bool) -> _Others:
    rest = _Others()
    present = set(names)
    for name in sorted(names):
        parsed = parse_log_name(name, compactible=compactible)
        if parsed:
            rest.noncanonical[name] = parsed.batch_id
        elif name.startswith(".") and name.endswith(".crc"):
            of = name[1:-4]
            number = of.removesuffix(COMPACT_SUFFIX)
            if of not in present and not (_is_canonical(number) and int(number) in compact):
                rest.stale.append(name)
        elif name.startswith(".") and name.endswith(".tmp"):
            rest.temporary.append(name)
        else:
            rest.foreign.append(name)
    return rest


@dataclass(frozen=True, slots=True)
class BatchLog(Generic[EntryT]):
    """The offset log or the commit log."""

    folder: str
    listing: LogListing
    entries: Mapping[int, EntryT | Damage] = field(default_factory=dict)
    """The newest ones, as many as were asked for."""
    checksum_damage: Mapping[int, Damage] = field(default_factory=dict)
    """Of those: whose `.N.crc` does not fit. Spark reads them all the same."""
    newest_modified_ms: int | None = None
    """When the newest entry was written."""

    @property
    def ids(self) -> BatchIds:
        """Every entry that Spark can open."""
        return self.listing.ids

    @property
    def newest(self) -> int | None:
        """The newest entry that Spark can open; None if there is none."""
        return self.listing.ids.newest

    @property
    def newest_entry(self) -> EntryT | Damage | None:
        """The content of the newest entry; None if there is none."""
        if self.newest is None:
            return None
        return self.entries.get(self.newest)

    @property
    def damage(self) -> Mapping[str, Damage]:
        """Path and damage of each entry that was read and is damaged."""
        return {f"{self.folder}/{n}": entry for n, entry in self.entries.items() if isinstance(entry, Damage)}


@dataclass(frozen=True, slots=True)
class SourceLog:
    """The private folder of one source, `sources/<name>`."""

    name: str
    """Index of the source, or its name where sources are named."""
    listing: LogListing
    entries: Mapping[int, SourceLogEntry | InitialOffset | Damage] = field(default_factory=dict)
    """Those since the newest compact file, and that one if it is small; the initial offset of Kafka and rate is 0."""

    @property
    def folder(self) -> str:
        """Its path below the checkpoint."""
        return f"sources/{self.name}"

    @property
    def initial(self) -> InitialOffset | None:
        """Where batch 0 began, for a source that writes that down."""
        entry = self.entries.get(0)
        return entry if isinstance(entry, InitialOffset) else None

    @property
    def damage(self) -> Mapping[str, Damage]:
        """Path and damage of each entry that was read and is damaged."""
        return {
            f"{self.folder}/{self.entry_name(n)}": entry
            for n, entry in self.entries.items()
            if isinstance(entry, Damage) and entry.kind is not DamageKind.TOO_LARGE
        }

    def entry_name(self, log_id: int) -> str:
        """Name of the file that holds an entry."""
        return self.listing.entry_name(log_id)
