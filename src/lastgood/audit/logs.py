"""`verify`, from the logs alone: every offset in exactly one committed batch, as planned, not as read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from itertools import pairwise
from typing import ClassVar

from lastgood.audit.input_files import FileTwice, NotListed, check_input_files
from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.layout import SOURCES
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.frozen import dataclass
from lastgood.observe.open_query import MirrorUse, OpenQuery, collect_mirrored_batches, gather, trace_lineage
from lastgood.observe.walk import Progress, Walk
from lastgood.query.history import BatchRecord, InitialOffsets, Seam, find_seams, find_seams_between
from lastgood.query.refills import is_refill
from lastgood.query.source_steps import NotCompared, SourceSteps, list_not_joined
from lastgood.settings.target import Target
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class LogAudit(JsonValue):
    """Whether the known batches of a query follow each other without gap or overlap."""

    json = make_form(
        "*query contiguous=is_contiguous first_batch=first last_batch=last batches queries seams compared "
        "not_compared unread not_listed files_twice refills rests_on",
        left_out="not_listed files_twice refills",
    )
    """What `verify --format json` prints."""
    rests_on: ClassVar = "offsets as planned, not as read"

    query: OpenQuery
    first: int | None
    """The oldest batch that was compared: nothing is said of what came before."""
    last: int | None
    """The newest batch that was compared."""
    batches: int
    """How many committed batches were compared."""
    queries: tuple[str, ...]
    """Ids of the queries that this checkpoint has had, oldest first."""
    seams: tuple[Seam, ...]
    compared: Mapping[str, str] = field(default_factory=dict)
    """Each source whose offsets have an order, with its name."""
    not_compared: tuple[NotCompared, ...] = ()
    """The others."""
    unread: tuple[int, ...] = ()
    """Batches that are committed and whose plan is damaged or lost: what they read, nobody can tell."""
    not_listed: tuple[NotListed, ...] = ()
    """Entries of the logs of file sources by which committed batches have read, and that are missing or damaged."""
    files_twice: tuple[FileTwice, ...] = ()
    """Files that were read twice."""
    refills: tuple[int, ...] = ()
    """Batches with which a recovery has filled an emptied state: they have read once more what was read before, and
    written no row of that twice."""

    @property
    def is_contiguous(self) -> bool | None:
        """True if there is neither gap nor overlap, and no batch is missing between; None if that is not known.

        It is not where a source or a batch does not tell, nor where no batch is committed.
        """
        if self.seams or self.files_twice:
            return False
        if self.not_compared or self.unread or self.not_listed or not self.batches:
            return None
        return True


class _Committed:
    """The committed ones among the batches that pass by: which can be compared, and before which others are missing."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._count = 0
        self.first: int | None = None
        self.last: int | None = None
        self.after_a_hole: list[int] = []
        self.unread: list[int] = []
        self.refills: list[int] = []
        self._before: BatchRecord | None = None

    def __iter__(self) -> Iterator[BatchRecord]:
        purged = []
        for record in self._walk:
            if not record.is_committed:
                continue
            if isinstance(record.offsets, OffsetEntry):
                if self.last is not None and record.batch_id > self.last + 1 and self.last + 1 not in self._walk.passed:
                    self.after_a_hole.append(record.batch_id)
                self._count += 1
                self.first = record.batch_id if self.first is None else self.first
                self.last = record.batch_id
                self._note_refill(record)
            elif record.offsets is None and self.first is None:
                purged.append(record.batch_id)
            else:
                self.unread.append(record.batch_id)
            yield record
        # Spark takes old plans away before their commits: what is older than the oldest plan is purged, not lost.
        if self.first is None:
            self.unread = purged + self.unread

    def _note_refill(self, record: BatchRecord) -> None:
        before, self._before = self._before, record
        is_next = before is not None and before.batch_id + 1 == record.batch_id
        if before is not None and is_next and is_refill(before.offsets, record.offsets):
            self.refills.append(record.batch_id)

    @property
    def count(self) -> int:
        return self._count + len(self._walk.passed)


def verify_logs(target: Target, *, progress: Progress | None = None) -> LogAudit:
    """Check that all known committed batches are contiguous, within a query and from one query to the next.

    Every file of the logs is read, and held no longer than until the next batch.

    Args:
        target: Which query.
        progress: Is told how many batches have been read, and of how many.

    Raises:
        CheckpointMissingError: there is neither a checkpoint nor a mirror.
        StorageError: the storage does not answer (subclasses).
    """
    query = gather(target, batches=2, mirror=MirrorUse.ALWAYS)
    walk = Walk(query, only_ends=True, progress=progress)
    committed = _Committed(walk)
    steps = SourceSteps(committed, query.initial)
    found = find_seams(steps, is_sparse=True)  # of the holes we know which were read
    found = sorted([*found, *steps.seams], key=lambda seam: seam.batch_id)
    refills = committed.refills if query.checkpoint.is_stateful else []  # without state it wrote its rows twice
    emptied = {batch_id - 1 for batch_id in refills}
    found = [seam for seam in found if seam.condition != "OVERLAP" or seam.batch_id not in emptied]
    if query.checkpoint.mode is not Mode.ASYNC_PROGRESS:
        holes = [Seam("UNKNOWN", batch_id) for batch_id in committed.after_a_hole]
        found = sorted([*holes, *found], key=lambda seam: seam.batch_id)
    queries = trace_lineage(query)
    unknown = list(steps.not_compared)
    for before, after in pairwise(queries):
        left = _find_newest_committed(before.copies)
        if left is not None:
            began = _find_initial(after.copies)
            found += find_seams_between(left, began)
            unknown += list_not_joined(left, began)
    files = check_input_files(query, steps.read_up_to)
    return LogAudit(
        walk.query,
        committed.first,
        committed.last,
        committed.count,
        tuple(query.query_id for query in queries),
        tuple(found),
        {each: name for each, name in steps.names.items() if each not in {one.source_id for one in unknown}},
        tuple(unknown),
        tuple(committed.unread),
        files.not_listed,
        files.twice,
        tuple(refills),
    )


def _find_newest_committed(copies: tuple[Copy, ...]) -> OffsetEntry | None:
    """The newest plan that is committed and whole."""
    for batch_id, batch in reversed(collect_mirrored_batches(copies).items()):
        record = batch.record(batch_id)
        if record.is_committed and isinstance(record.offsets, OffsetEntry):
            return record.offsets
    return None


def _find_initial(copies: tuple[Copy, ...]) -> InitialOffsets:
    found = {}
    for copy in copies:
        folder, _, name = copy.path.rpartition("/")
        began = None
        if name == "0" and folder.startswith(f"{SOURCES}/"):
            began = parse_initial_offset(copy.content)
        if isinstance(began, InitialOffset):
            found[folder.removeprefix(f"{SOURCES}/")] = began.offset
    return found
