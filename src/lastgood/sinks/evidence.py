"""What a sink shows of a query: one value for every kind of sink. Pure."""

from __future__ import annotations

import enum
import uuid
from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from lastgood.errors import Retry, StorageError, explain_error
from lastgood.frozen import dataclass
from lastgood.sinks.kind import SinkTraits
from lastgood.sinks.kinds import find_traits
from lastgood.values import JsonValue, make_form

APPEND, COMPLETE, UPDATE = "append", "complete", "update"
"""Spark's output modes."""
START_MS = 30 * 60 * 1000
"""What lasts no longer than this is not relied upon: a query may be started as long after it was looked at."""


class DedupeKey(enum.Enum):
    """By what a sink recognises a batch that it has already."""

    QUERY_ID = "query_id"
    """A new checkpoint is a new query: it writes everything again."""
    APP_ID = "app_id"
    """A name that the user chose: a new checkpoint with the same name is skipped up to the old number."""
    DIRECTORY = "directory"
    """The folder itself: whatever query writes there next is skipped up to the newest number."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """A batch that a sink holds, or held until it was taken back."""

    batch_id: int
    version: int | None = None
    """Version of the table (Delta), snapshot (Iceberg), epoch (fence); None where there is no such thing."""
    is_live: bool | None = True
    """False if its rows were taken back since, by a RESTORE, a rollback or a lowered marker. None: unknown."""
    row_count: int | None = None
    """None: unknown."""
    committed_at_ms: int | None = None
    user_metadata: str | None = None
    """What the writer noted down with it."""
    is_streaming: bool | None = None
    """Whether Spark's own streaming sink wrote it, which leaves a mark for every batch, also for one without rows.
    False: a function did, which need not. None: unknown."""
    output_mode: str | None = None
    """In which its query wrote it, as the sink has it; None: it does not tell."""


@dataclass(frozen=True, slots=True)
class UnmarkedRows:
    """Rows that came under the name of no query and no application."""

    version: int
    """Version of the table."""
    row_count: int | None = None
    """None: unknown."""
    committed_at_ms: int | None = None
    """None: unknown."""

    def is_older_than(self, at_ms: int) -> bool:
        """Whether they are known to have come before then."""
        return self.committed_at_ms is not None and self.committed_at_ms < at_ms


@dataclass(frozen=True, slots=True)
class SinkEvidence(JsonValue):
    """What a sink says about one query, when it was asked."""

    json = make_form(
        "kind location dedupe_key last_batch known because skips_up_to skips_known batches complete_from identity "
        "created_at_ms app_id presumed_app_id marked_at_ms times_by_driver asked_at_ms others others_at_ms "
        "others_beside write_obstacles back_to back_because mark_lasts_ms unclear unclear_at_ms unreadable log_names "
        "files_gone files_damaged files_untold head_untold broken_from unmarked notes is_silent"
    )
    """The fields by their names."""

    kind: str
    """By its name in the table of kinds; `absent` if there is nothing, `unrecognised` if it is none of these."""
    location: str
    dedupe_key: DedupeKey
    last_batch: int | None
    """Newest batch that the sink shows; None if it shows none, or if that is not known."""
    known: bool
    """Whether `last_batch` is the truth, so that None means "none"."""
    because: str
    """What it rests on, or why it is not known; one line for a person."""
    skips_up_to: int | None = None
    """Batches up to this one would be skipped without a word, whatever they hold; None if it would skip none."""
    skips_known: bool = True
    """Whether `skips_up_to` is the truth. If not, it is what can be seen, which may not be all."""
    batches: tuple[CommittedBatch, ...] = ()
    """Those that can be told one by one, in the order in which they were committed; one batch may stand twice."""
    complete_from: int | None = None
    """A batch from this one on that is not among `batches` was not committed. None: absence says nothing."""
    identity: str | None = None
    """Id of the table: another one, if it was created again. None where there is none."""
    created_at_ms: int | None = None
    """When the table was made, or its first rows were, by the clock of whoever made it; None where that is not told, or
    where it was made with rows that are older."""
    app_id: str | None = None
    """Delta: the name under which the batches were written: query id, or `txnAppId`."""
    presumed_app_id: str | None = None
    """Delta: it shows nothing of the query's id, and was asked by the only application id that it holds instead. That
    the query writes under that name is likely and not proven; None if the answer does not rest on such a guess."""
    marked_at_ms: int | None = None
    """When the mark of `last_batch` was made, where the sink tells that apart from `batches`."""
    times_by_driver: bool = False
    """Whether its times are by the clock of the driver, which also notes down when it plans a batch."""
    asked_at_ms: int | None = field(default=None, compare=False)
    """When it had answered, by the clock of who asked; None: nobody noted it. The same answer is the same later."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Further queries or applications whose marker the sink holds, with their last batch."""
    others_at_ms: Mapping[str, int] = field(default_factory=dict)
    """When their markers were made, as far as the sink tells."""
    others_beside: tuple[str, ...] = ()
    """Those of them that have had a batch of a number that this one has had before its newest: of other queries."""
    log_names: tuple[str, ...] = ()
    """File sink: what lies in its log, by name; folders end with a slash."""
    write_obstacles: tuple[str, ...] = ()
    """Why lastgood could not take anything back here, such as a table feature that it cannot write."""
    back_to: int | None = None
    """The oldest batch to which rows and mark could be taken back exactly, nobody else's touched; None: to none."""
    back_because: str | None = None
    """What stands against going further back; one line for a person."""
    mark_lasts_ms: int | None = None
    """Delta: how long a mark counts once it is made; None: for ever."""
    unclear: str | None = None
    """What was taken back or replaced that nobody can tell, so that a batch which is not told to be live may be gone;
    None: nothing was."""
    unclear_at_ms: int | None = None
    """When that was, where it tells no batch at all: those that were planned later are not meant; None: not told."""
    unreadable: tuple[int, ...] = ()
    """Entries of the sink's own log that its readers and its next compaction need, and that are missing or damaged."""
    files_gone: tuple[str, ...] = ()
    """Data files that its log names and that are not there, by their path below the folder."""
    files_damaged: tuple[str, ...] = ()
    """Data files that are not as long as its log says, by their path below the folder."""
    files_untold: str | None = None
    """Why it is not known whether its newest data files are there; None: they were looked for, or there is no log that
    names any."""
    head_untold: str | None = None
    """Why it is not known whether what was read is the table as its catalog has it; None: it is."""
    broken_from: int | None = None
    """The oldest batch of which one of these is; None where there is none, or that is not told."""
    unmarked: tuple[UnmarkedRows, ...] = ()
    """Delta: rows that came since the newest batch that it shows and that no mark stands for, oldest first; of many the
    newest."""
    notes: tuple[str, ...] = ()
    """Traps that were seen; each one line for a person."""
    is_silent: bool = False
    """Whether it gave no answer at all, and may give one in a while."""

    @property
    def traits(self) -> SinkTraits:
        """What is so of every sink of its kind."""
        return find_traits(self.kind)

    @property
    def holes(self) -> tuple[int, ...]:
        """Batches below the newest that were taken back and not written again: their rows are missing."""
        live = {batch.batch_id for batch in self.batches if batch.is_live is not False}
        gone = {batch.batch_id for batch in self.batches} - live
        return tuple(sorted(batch_id for batch_id in gone if batch_id < (self.last_batch or 0)))

    def has_broken_file(self, batch_id: int) -> bool:
        """Whether a data file that is gone or damaged is, or may be, of this batch or of one since."""
        is_any = bool(self.files_gone or self.files_damaged)
        return is_any and (self.broken_from is None or self.broken_from <= batch_id)

    def would_skip(self, batch_id: int) -> bool | None:
        """Whether the sink would drop this batch without a word; None if that is not known."""
        if not self.skips_known:
            return None
        return self.skips_up_to is not None and batch_id <= self.skips_up_to

    def may_skip(self, batch_id: int) -> bool:
        """Whether a mark is seen by which the sink would drop this batch, be it known to be the last one or not."""
        return self.skips_up_to is not None and batch_id <= self.skips_up_to

    def live_version(self, batch_id: int) -> int | None:
        """The version that holds a batch now; None if none is known."""
        found = [batch.version for batch in self.batches if batch.is_live and batch.batch_id == batch_id]
        if not found:
            return None
        return found[-1]

    def versions(self, batch_id: int) -> tuple[int, ...]:
        """Every version that wrote a batch, oldest first; several if it was taken back and written again."""
        return tuple(
            batch.version for batch in self.batches if batch.batch_id == batch_id and batch.version is not None
        )


class Sink(Protocol):
    """A place where a query writes. Make one with `open_sink`."""

    @property
    def kind(self) -> str:
        """As in `SinkEvidence.kind`."""

    @property
    def location(self) -> str:
        """As a person names it."""

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        """What it says about a query, within its time limit; what cannot be found out is part of the answer.

        Args:
            query_id: From the checkpoint's `metadata`.
            now_ms: The time, to tell what has expired.

        Raises:
            ExtraMissingError: a library is needed that is not installed.
        """


def is_query_id(name: str) -> bool:
    """Whether a name under which batches were written is the id of a query, rather than one that a user chose."""
    try:
        return str(uuid.UUID(name)) == name.lower()
    except ValueError:
        return False


def make_unknown_evidence(
    kind: str, location: str, dedupe_key: DedupeKey, because: str, *, is_silent: bool = False
) -> SinkEvidence:
    """The answer of a sink of which nothing could be found out."""
    return SinkEvidence(
        kind, location, dedupe_key, None, known=False, because=because, skips_known=False, is_silent=is_silent
    )


def make_silent_evidence(kind: str, location: str, dedupe_key: DedupeKey, error: StorageError) -> SinkEvidence:
    """The answer of a sink that could not be looked at."""
    is_silent = error.retry is Retry.LATER
    return make_unknown_evidence(kind, location, dedupe_key, explain_error(error), is_silent=is_silent)
