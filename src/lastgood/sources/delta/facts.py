"""A Delta table as a source: which of its versions can still be read, and whether an offset is among them. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.delta_log.listing import DeltaLogListing
from lastgood.frozen import dataclass

_SCHEMA_BARRIERS = (-19, -20)


@dataclass(frozen=True, slots=True)
class DeltaFacts:
    """What the log of a table that is read as a stream still holds."""

    location: str
    table_id: str | None = None
    """`reservoirId` of the offsets; another one if the table was created again."""
    earliest_version: int | None = None
    """The oldest version from which on every commit file is there; None: none is."""
    latest_version: int | None = None
    checkpoint_versions: tuple[int, ...] = ()
    """Versions whose whole state can be had without older commit files."""
    written_ms: Mapping[int, int] = field(default_factory=dict)
    """When versions were written that somebody asked about, by the clock of the writer; those whose commit is there and
    tells it."""
    exists: bool | None = True
    """None: unknown."""
    unknown: str | None = None
    """Why nothing is known."""

    def can_rebuild(self, version: int) -> bool:
        """Whether the whole state of a version can still be had: a first snapshot is read from that."""
        earliest, latest = self.earliest_version, self.latest_version
        if latest is None or version > latest:
            return False
        if earliest == 0 or version in self.checkpoint_versions:
            return True
        bases = [base for base in self.checkpoint_versions if base <= version]
        return earliest is not None and bool(bases) and earliest <= bases[-1] + 1


class Serving(enum.Enum):
    """Whether a source still has what an offset asks for."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DeltaServing:
    """Whether a table can still serve what follows an offset."""

    serving: Serving
    because: str
    lost_versions: range = range(0)
    """Versions that are needed and gone; `failOnDataLoss=false` skips them without a word."""


def make_facts(
    location: str, listing: DeltaLogListing, table_id: str | None, written_ms: Mapping[int, int]
) -> DeltaFacts:
    """What a listing of the log shows, and when some of its versions were written."""
    unbroken = listing.unbroken
    earliest_version = unbroken.start if unbroken else None
    return DeltaFacts(
        location=location,
        table_id=table_id,
        earliest_version=earliest_version,
        latest_version=listing.newest,
        written_ms=written_ms,
        checkpoint_versions=tuple(checkpoint.version for checkpoint in listing.checkpoints),
    )


def can_serve(facts: DeltaFacts, start: DeltaOffset) -> DeltaServing:
    """Tell whether the table still has the log of everything after `start`; data files are `ask_data_files`.

    Spark asks a Delta source, when it starts, for the range of the last *committed* batch once more. So give the
    offset at which that batch began, not the one at which it ended.

    Args:
        facts: Of today.
        start: Where the range begins.
    """
    if facts.unknown is not None or facts.exists is None:
        return DeltaServing(Serving.UNKNOWN, facts.unknown or "the table is not known")
    if not facts.exists or facts.latest_version is None:
        return DeltaServing(Serving.NO, "there is no table")
    if facts.table_id is not None and facts.table_id != start.table_id:
        because = f"the table was created again: its id was {start.table_id} and is {facts.table_id}"
        return DeltaServing(Serving.NO, because)
    return _has_versions(facts, start, facts.latest_version)


def find_newest_read(offset: DeltaOffset) -> int | None:
    """The newest version of which something is read at an offset; None before the first."""
    is_begun = offset.is_starting_version or offset.index >= 0
    version = offset.table_version if is_begun else offset.table_version - 1
    return version if version >= 0 else None


def find_starting_version(offset: DeltaOffset) -> int | None:
    """The `startingVersion` with which a new query goes on after `offset`; None if it is in the middle of a version.

    There only a checkpoint can hold it. A first snapshot that is not read to its end cannot be gone on with, either.
    """
    if offset.is_starting_version or (offset.index >= 0 or offset.index in _SCHEMA_BARRIERS):
        return None
    return offset.table_version


def _has_versions(facts: DeltaFacts, start: DeltaOffset, latest: int) -> DeltaServing:
    version = start.table_version
    if version > latest + 1:
        return DeltaServing(
            Serving.NO, f"versions {latest + 1} to {version - 1} have vanished", range(latest + 1, version)
        )
    if start.is_starting_version and not facts.can_rebuild(version):
        return DeltaServing(Serving.NO, f"the first snapshot, version {version}, can no longer be rebuilt")
    if start.is_starting_version:
        first = version + 1
    else:
        first = version
    if first > latest:
        return DeltaServing(Serving.YES, "nothing is unread")
    if facts.earliest_version is None:
        earliest = latest + 1
    else:
        earliest = facts.earliest_version
    if first < earliest:
        because = f"versions {first} to {earliest - 1} are no longer in the log"
        return DeltaServing(Serving.NO, because, range(first, earliest))
    return DeltaServing(Serving.YES, f"versions {first} to {latest} are in the log")
