"""What a kind of sink is: what is so of every sink of it, and how one is opened and changed.

What a kind does is imported when it is done: who only asks what it is needs neither a storage nor a database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from lastgood.frozen import dataclass
from lastgood.values import JsonValue

if TYPE_CHECKING:
    from lastgood.sinks.changes import SinkChanges
    from lastgood.sinks.evidence import Sink
    from lastgood.storage.reading import Location, Storage
    from lastgood.storage.writing import WritableStorage


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReader:
    """How Spark reads what a sink shows, to count it."""

    format: str
    """As `spark.read.format` takes it."""
    has_versions: bool = False
    """Whether a version can be named, so that every pass reads the same rows."""
    extension: str | None = None
    """Class that `spark.sql.extensions` has to name."""
    catalog: str | None = None
    """Class of `spark_catalog`, if the session names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkTraits:
    """What is so of every sink of a kind, whatever it holds."""

    is_there: bool = True
    """Whether there is a sink at all."""
    tells_batches: bool = True
    """Whether such a sink, where it can be looked at, tells of batches."""
    marks_every_batch: bool = True
    """Whether Spark's own writer of it leaves a mark for every batch, also for one without rows."""
    skips_unrun: bool = False
    """Whether Spark does not even run a batch whose number it has."""
    is_idempotent: bool = False
    """Whether a batch that it has and that is run again adds nothing, whatever its number."""
    shows_all_or_none: bool = False
    """Whether it has no row of a query of which it shows no batch; else a function may have written some."""
    keeps_log: bool | None = False
    """Whether its readers go by a log of Spark's that must miss no number; None: it may come to be so."""
    appends_only: bool = False
    """Whether Spark writes it in output mode append alone."""
    can_be_marked: bool = False
    """Whether lastgood can make a mark in it that stands for a batch without a row."""
    tells_query_ids: bool = False
    """Whether the id of a lost query can be taken from its marks."""
    tells_offsets: bool = False
    """Whether lastgood reads from its rows which offsets of Kafka they were made of."""
    is_swept: bool = True
    """Whether who cleans up in its folder removes what is not of it."""
    mark: str | None = None
    """What the mark of a query in it is called; None: the newest batch that it shows."""
    version_sign: str = ""
    """What stands before the number of a version of it."""
    reader: SinkReader | None = None
    """None: what it holds is not counted."""
    widening: Mapping[str, str] | None = None
    """Options with which Spark's writer gives it columns that it has not; None: it takes none."""
    marking: tuple[str, str] | None = None
    """Options with which a function tells Spark's writer for which application and as which batch of it rows are
    written, so that what is there is passed over; None: it knows none."""


@dataclass(frozen=True, slots=True)
class OwnRows(JsonValue):
    """Which rows of a sink are those of one query."""

    version: int | None
    """Of the table, in which they are; None where it has none."""
    files: tuple[str, ...] | None
    """Paths below the sink, escaped as its log has them, of the files that hold them; None: all rows are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """On behalf of what all rows of a query are taken out of a sink."""

    query_id: str
    checkpoint: str
    """Of the query."""
    recovery: str
    """By which it is found that it is done."""
    at_ms: int
    may_write: int | None
    """The newest batch that a driver may still write which sleeps on another machine; None: there is none."""


@dataclass(frozen=True, slots=True)
class TakenOut(JsonValue):
    """What has become of the rows of a query that were taken out of a sink."""

    version: int | None
    """The version of the table that took them out, in whose history they are; None if there is none."""
    kept: str | None
    """Where they lie now; None if that is in the table's own history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """How a sink is opened, as far as the caller has said."""

    app_id: str | None = None
    """What a function gives as `txnAppId`; None: the query id."""
    ref: str | None = None
    """The branch that the query writes; None: the main one."""
    sink_name: str | None = None
    """Which of several sinks in one table."""
    timeout_seconds: float
    """How long each reading may take."""


def _claim_never(text: str) -> bool:
    del text
    return False


def _make_no_changes() -> SinkChanges | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkKind:
    """One line of the table in `sinks/kinds.py`."""

    name: str
    """As in `SinkEvidence.kind`, and as the prefix of a sink that is typed."""
    traits: SinkTraits
    sign: str = ""
    """What lies in its folder by which it is known; empty: it is no folder."""
    is_at: Callable[[Storage, Location], bool] | None = None
    """Whether one is at a location; None: it is no folder. Raises StorageError."""
    is_named: Callable[[Location], bool] | None = None
    """Whether the name of a file alone says that it is one; None: no name does."""
    open_at: Callable[[Storage, Location, Opening], Sink] | None = None
    """Gives access to the one at a location; None: it is no folder."""
    claims: Callable[[str], bool] = _claim_never
    """Whether a text that is typed can be nothing but a sink of this kind, which is no folder."""
    open_text: Callable[[str, Opening], Sink] | None = None
    """Gives access to what it claims."""
    find_own_rows: Callable[[Storage, Location, str, int], OwnRows | str] | None = None
    """The rows that so many batches of a query have put into one, or why nobody can tell; None: of this kind never."""
    find_broken_batch: Callable[[Storage, Location, str, Collection[int]], str | None] | None = None
    """Which of these batches of a query does not stand in one once, for a person; or None.

    None: of this kind whoever writes a batch a second time writes the same, and in its place.
    """
    count_rows: Callable[[Storage, Location, str, int], int | None] | None = None
    """How many rows a batch of a query has put into one; None if its log does not tell (any more)."""
    take_out: Callable[[WritableStorage, Location, Taking], TakenOut | str] | None = None
    """Takes all rows of a query out of one, once however often it is called; or why that cannot be done.

    None: of this kind never.
    """
    reserve: Callable[[WritableStorage, Location, Location, int | None], str | None] | None = None
    """Keeps one for the query of a checkpoint, whose newest plan is that batch; or why it cannot be its own.

    None: it may be that of several.
    """
    changes: Callable[[], SinkChanges | None] = _make_no_changes
    """What lastgood changes in it; None: nothing ever."""
