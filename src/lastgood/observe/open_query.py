"""A query that is looked at: the handles by which it is, and the one value that holds all that was seen."""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from enum import Enum, auto
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from lastgood.asked import Asked
from lastgood.checkpoint.commits import parse_commit_entry
from lastgood.checkpoint.contents import Checkpoint, Presence, take_log_in_mode
from lastgood.checkpoint.copies import Copy, select_standing
from lastgood.checkpoint.file_logs import FileLogEntry, SourceFile, parse_source_log_entry
from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES, parse_batch, parse_folder_number, parse_log_name
from lastgood.checkpoint.lines import TIME_MS_END
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import ALL_BATCHES, read_batches, read_checkpoint, read_file
from lastgood.checkpoint.search import SearchEnd, search_log
from lastgood.diagnosis.rules_links import select_links_that_matter
from lastgood.errors import LastgoodError, Retry, StorageError
from lastgood.frozen import dataclass
from lastgood.journal.left_behind import find_left_behind
from lastgood.mirror.copies import pack_copies
from lastgood.mirror.mirror import FILE_BYTES_MAX, locate_mirror, read_mirror
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.remembered import Remembered, recall_query
from lastgood.query.history import BatchRecord, InitialOffsets, merge
from lastgood.query.observation import LedgerMemory, LeftBehind, Observation
from lastgood.query.prediction.readers import find_newest_reading
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.settings.target import Target
from lastgood.signing import NO_KEYS, KeyRing
from lastgood.storage.reading import LocalStorage, Location, Storage, open_storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.values import JsonValue, make_form

if TYPE_CHECKING:
    from lastgood.ledger.store import Ledger

_NOTHING_ASKED = EvidenceOptions()
_WORK_FOLDERS = ("mirror", "mirror/parts", "backups", "incidents", "leases", "recoveries", "records")


class CheckpointMissingError(LastgoodError):
    """There is no checkpoint at this location, nor a mirror of one."""

    condition = "CHECKPOINT_MISSING"
    exit_code = 20
    retry = Retry.AFTER_CHANGE


class CheckpointHasLinksError(LastgoodError):
    """A link stands in the checkpoint or in its work folder, and is not followed."""

    condition = "CHECKPOINT_HAS_LINKS"
    exit_code = 33
    retry = Retry.AFTER_CHANGE


class BatchUnknownError(LastgoodError):
    """Neither the checkpoint nor its mirror knows such a batch."""

    condition = "BATCH_UNKNOWN"
    exit_code = 21
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class SourceLogFile:
    """One file of a file source's log."""

    log_id: int
    entry: FileLogEntry[SourceFile]
    is_compact: bool = False
    """Whether it holds all entries before it as well."""
    is_copy: bool = False
    """Whether it is in the mirror; it may be an older version of that file."""


@dataclass(frozen=True, slots=True)
class OpenQuery(JsonValue):
    """A query that can be looked at: what it takes to look, and all that was seen so far."""

    json = make_form(
        "checkpoint=location query_id mode=checkpoint.mode spark=checkpoint.spark_versions "
        "stateful=checkpoint.is_stateful last_planned=checkpoint.last_planned "
        "last_committed=checkpoint.last_committed last_loadable_state=checkpoint.last_loadable damaged=_damaged "
        "absent=checkpoint.absent",
        texts="checkpoint spark",
    )
    """What every reading verb says of a checkpoint first."""

    target: Target
    location: Location
    storage: Storage
    seen: Observation
    """Values only; who judges takes nothing else."""
    options: EvidenceOptions = field(default_factory=EvidenceOptions)
    """Where else is looked, as it was said; the commands that are printed carry it."""
    remembered: Remembered | None = None
    """What the ledger knows of it, which is open; None without one."""
    starts: SparkVersion | None = None
    """The version of Spark that will start, where somebody said it."""

    def command(self, verb: str, *options: object) -> str:
        """A command about this query that can be pasted; see `Asked.command`."""
        return Asked(self.target.name or str(self.location), self.options.words()).command(verb, *options)

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint as it was seen."""
        return self.seen.checkpoint

    @property
    def asked(self) -> EvidenceOptions:
        """Where else is looked, with what the configuration knows."""
        return self.options.of(self.target)

    @property
    def spark(self) -> SparkVersion:
        """The version that will start; where nobody said it, the newest that can read the logs."""
        return self.starts or find_newest_reading(self.seen)

    @property
    def _damaged(self) -> dict[str, str]:
        return {path: str(damage) for path, damage in self.checkpoint.damage.items()}

    @property
    def is_known(self) -> bool:
        """Whether mirror, ledger or a recovery knows of the query: then an empty checkpoint tells something, too."""
        memory = self.seen.memory
        is_remembered = memory is not None and memory.newest is not None
        return bool(self.seen.copies or self.seen.left) or is_remembered

    @property
    def links(self) -> dict[str, str]:
        """The links that were met so far and not followed; path and text."""
        if not isinstance(self.storage, LocalStorage):
            return {}
        return dict(self.storage.left_out)

    @property
    def query_id(self) -> str | None:
        """The query's id, from `metadata`, else from the mirror; None if neither tells."""
        if isinstance(self.checkpoint.query, QueryMetadata):
            return self.checkpoint.query.query_id
        newest = max(self.seen.copies, key=lambda copy: copy.seen_ms, default=None)
        if newest is None and self.remembered is not None:
            return self.remembered.query.query_id
        return newest.query_id if newest else None

    @property
    def copies(self) -> tuple[Copy, ...]:
        """What the mirror holds of this query, and not of a former one."""
        query_id = self.query_id
        return tuple([copy for copy in self.seen.copies if copy.query_id == query_id])

    @property
    def initial(self) -> InitialOffsets:
        """Where the sources began, as far as they write that down."""
        found = {source.name: source.initial.offset for source in self.checkpoint.sources if source.initial}
        for copy in self.copies:
            if not copy.path.startswith(f"{SOURCES}/"):
                continue
            folder, _, name = copy.path.rpartition("/")
            source = folder.removeprefix(f"{SOURCES}/")
            if name == "0" and source not in found and folder != source:
                began = parse_initial_offset(copy.content)
                if isinstance(began, InitialOffset):
                    found[source] = began.offset
        return found

    def records(self, only: Collection[int] | None = None) -> dict[int, BatchRecord]:
        """Every batch that was read, oldest first; of the mirror, which may be long, `only` some."""
        checkpoint = self.checkpoint
        ids = set(checkpoint.offsets.entries) | set(checkpoint.commits.entries)
        from_checkpoint = (
            BatchRecord(each, checkpoint.offsets.entries.get(each), checkpoint.commits.entries.get(each))
            for each in ids
        )
        batches = collect_mirrored_batches(self.copies, only).items()
        from_mirror = (batch.record(each) for each, batch in batches if only is None or each in only)
        return merge(from_checkpoint, [*from_mirror, *self.seen.recalled])

    @property
    def known(self) -> BatchIds:
        """Every batch that has a plan or a commit in the checkpoint, or a plan in what was read of the mirror."""
        mirrored = (parse_batch(copy.path, OFFSETS) for copy in self.copies)
        logged = (*self.checkpoint.offsets.ids, *self.checkpoint.commits.ids)
        logged = (*logged, *(self.remembered.bounds() if self.remembered else ()))
        return BatchIds.of([*logged, *(batch_id for batch_id in mirrored if batch_id is not None)])

    @property
    def current(self) -> int | None:
        """CURRENT: the newest file in the offset log; where that log is lost, the newest plan in mirror or ledger."""
        planned = self.checkpoint.last_planned
        if planned is not None:
            return planned
        mirrored = [
            batch_id for batch_id, batch in collect_mirrored_batches(self.copies).items() if batch.plan is not None
        ]
        newest = None
        if self.remembered:
            newest = self.remembered.newest()
        return max(mirrored if newest is None else [*mirrored, newest], default=None)

    def newest_committed(self, at_most: int) -> int | None:
        """The newest committed batch up to `at_most` among those that were read; None if there is none."""
        entries = (*self.checkpoint.offsets.entries, *self.checkpoint.commits.entries)
        recalled = (record.batch_id for record in self.seen.recalled)
        for batch_id in sorted({*entries, *recalled, *collect_mirrored_batches(self.copies)}, reverse=True):
            if batch_id <= at_most and self.records([batch_id])[batch_id].is_committed:
                return batch_id
        return None

    def with_mirror(self, since: int = 0) -> OpenQuery:
        """The same with the mirror read, but for the plans and commits of batches before `since`."""
        copies = pack_copies(read_mirror(self.storage, locate_mirror(self.location), since=since))
        return replace(
            self, seen=replace(self.seen, copies=_select_since_left(copies, self.seen.left), copied_since=since)
        )

    def with_batches(self, batch_ids: Iterable[int]) -> OpenQuery:
        """The same with these batches read as well, from the mirror where the checkpoint does not have them.

        What the mirror does not have either is recalled from the ledger.

        Raises:
            StorageError: the storage does not answer (subclasses).
            LedgerError: the ledger does not answer (subclasses).
        """
        checkpoint = self.checkpoint
        wanted = {batch_id for batch_id in batch_ids if batch_id >= 0}
        logs = (checkpoint.offsets, checkpoint.commits)
        unread = {each for each in wanted for log in logs if each in log.ids and each not in log.entries}
        batches = list(read_batches(self.storage, self.location, unread))
        plans = {batch.batch_id: batch.offsets for batch in batches if batch.offsets is not None}
        commits = {batch.batch_id: batch.commit for batch in batches if batch.commit is not None}
        planned = replace(checkpoint.offsets, entries={**checkpoint.offsets.entries, **plans})
        planned = replace(planned, entries=take_log_in_mode(planned, checkpoint.mode))
        committed = replace(checkpoint.commits, entries={**checkpoint.commits.entries, **commits})
        found = replace(
            self, seen=replace(self.seen, checkpoint=replace(checkpoint, offsets=planned, commits=committed))
        )
        is_whole = all(isinstance(planned.entries.get(batch_id), OffsetEntry) for batch_id in wanted)
        is_read = self.seen.copies and all(batch_id >= self.seen.copied_since for batch_id in wanted)
        if is_whole:
            return found
        return (found if is_read else found.with_mirror()).with_recalled(wanted)

    def with_recalled(self, batch_ids: Iterable[int]) -> OpenQuery:
        """The same with what the ledger knows of these batches and nobody else.

        Raises:
            LedgerError: the ledger does not answer (subclasses).
        """
        if self.remembered is None:
            return self
        records = self.records(set(batch_ids))
        plans = {each: records[each].offsets for each in batch_ids if each in records}
        missing = [each for each in batch_ids if not isinstance(plans.get(each), OffsetEntry)]
        if not missing:
            return self
        return replace(self, seen=replace(self.seen, recalled=(*self.seen.recalled, *self.remembered.records(missing))))

    def planned_at(self, time_ms: int) -> int | None:
        """The newest batch in the checkpoint that was planned at or before a time; None if all are younger.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        return self.search(_get_planned_ms, time_ms).batch_id

    def search(self, measure: Callable[[OffsetEntry], int | None], bound: int) -> SearchEnd:
        """The newest batch in the checkpoint whose plan measures at most `bound`, by a few looks at a long log.

        Raises:
            StorageError: the storage does not answer.
        """
        return search_log(self.storage, self.location, self.checkpoint.offsets.ids, measure, bound)

    def source_files(self, source_id: str) -> Iterator[SourceFile]:
        """Every input file that a file source is known to have planned, from its own log and from the mirror."""
        seen: set[SourceFile] = set()
        for each in self.source_entries(source_id):
            for file in each.entry:
                if file not in seen:
                    seen.add(file)
                    yield file

    def source_entries(self, source_id: str) -> Iterator[SourceLogFile]:
        """The files of a file source's log that can be read, from its newest compaction on; then those of the mirror.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        for source in self.checkpoint.sources:
            if source.name == source_id:
                since = source.listing.compact.newest or 0
                for log_id in source.listing.ids:
                    entry: object = source.entries.get(log_id)
                    # Of a large log not all was read.
                    if log_id >= since and not isinstance(entry, FileLogEntry):
                        file = self.location / f"{source.folder}/{source.entry_name(log_id)}"
                        entry = read_file(self.storage, file, parse_source_log_entry, limit=FILE_BYTES_MAX)
                    if isinstance(entry, FileLogEntry):
                        yield SourceLogFile(log_id, entry, is_compact=log_id in source.listing.compact)
        for copy in self.copies:
            folder, _, name = copy.path.rpartition("/")
            named = parse_log_name(name, compactible=True)
            if folder == f"{SOURCES}/{source_id}" and named is not None:
                parsed = parse_source_log_entry(copy.content)
                if isinstance(parsed, FileLogEntry):
                    yield SourceLogFile(named.batch_id, parsed, is_compact=named.is_compact, is_copy=True)


def look_for_left_behind(query: OpenQuery, keys: KeyRing = NO_KEYS) -> OpenQuery:
    """The same, knowing whether a recovery left the checkpoint behind on purpose and no batch was planned since.

    Args:
        query: As it was gathered.
        keys: Of which one has to have signed what that recovery noted down; none: nobody need have.

    Raises:
        PlanInvalidError: what the newest recovery has noted down cannot be read.
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = query.checkpoint
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None:
        return query
    left = find_left_behind(query.storage, query.location, query.target.config, keys)
    if left is None:
        return query
    found = replace(query, seen=replace(query.seen, left=left)).with_mirror()
    # What was seen empty may be a part of the seal, on its way out.
    seen = [copy.path for copy in found.seen.copies if copy.content]
    has_planned = any(parse_batch(path, OFFSETS) is not None for path in seen)
    has_committed = any(parse_batch(path, COMMITS) is not None for path in seen)
    return query if has_planned or has_committed else found


def _select_since_left(copies: Iterable[Copy], left: LeftBehind | None) -> tuple[Copy, ...]:
    """What the mirror saw of the query that was begun instead of the one that was left behind."""
    if left is None:
        return tuple(copies)
    is_other = left.query_id is None
    return tuple(copy for copy in copies if copy.seen_ms > left.at_ms and (is_other or copy.query_id != left.query_id))


class MirrorUse(Enum):
    """When `gather` reads the mirror of a checkpoint."""

    ALWAYS = auto()
    WHERE_WANTED = auto()
    """Where the checkpoint does not hold as many batches as are wanted, or is damaged."""
    NEVER = auto()


def gather(
    target: Target,
    *,
    batches: int | None = None,
    mirror: MirrorUse = MirrorUse.WHERE_WANTED,
    ledger: Ledger | None = None,
    may_be_missing: bool = False,
    may_have_links: bool = False,
    options: EvidenceOptions = _NOTHING_ASKED,
) -> OpenQuery:
    """Read a checkpoint, and its mirror where the checkpoint does not hold as many batches as are wanted.

    Args:
        target: Which query.
        batches: How many of the newest batches; None: all that are known, at once (see `Walk` for a long log).
        mirror: Whether its mirror is read.
        ledger: Knows what neither of them has; open as long as the query is looked at.
        may_be_missing: Whether it is no error that there is nothing yet.
        may_have_links: Whether it is no error that a link was not followed: who asks tells it.
        options: Where else is looked, for the commands that errors name.

    Raises:
        CheckpointMissingError: there is neither a checkpoint nor a mirror of one, nor does the ledger know it.
        StorageError: the storage does not answer, or does not let us look (subclasses).
        LedgerError: the ledger does not answer (subclasses).
    """
    location = target.location
    query = gather_at(target, open_storage(location), batches=batches, mirror=mirror)
    if not may_have_links:
        require_no_links(query, options)
    known = recall_query(ledger, location, query.query_id)
    if not query.seen.copies and known is None and not may_be_missing:
        require_checkpoint(location, query.checkpoint, options)
    return replace(query, remembered=known, options=options)


def gather_at(
    target: Target, storage: Storage, *, batches: int | None, mirror: MirrorUse = MirrorUse.WHERE_WANTED
) -> OpenQuery:
    """The same in a storage that is open; that there is nothing is no error.

    Raises:
        CheckpointMissingError: there is a file, where Spark wants a folder.
        LocationInvalidError: the location is not understood.
        StorageError: the storage does not answer, or does not let us look (subclasses).
    """
    location = target.location
    if isinstance(storage, LocalStorage):
        storage = storage.leave_links_out()
    wanted = ALL_BATCHES if batches is None else batches

    def mirrored() -> tuple[Copy, ...]:
        # The root of a bucket has nothing beside it.
        if not location.name:
            return ()
        return tuple(pack_copies(read_mirror(storage, locate_mirror(location))))

    if batches is None and mirror is MirrorUse.WHERE_WANTED:
        mirror = MirrorUse.ALWAYS  # for nobody knows beforehand how many there are
    with ThreadPoolExecutor(1) as beside:
        early = None
        if mirror is MirrorUse.ALWAYS:
            early = beside.submit(mirrored)
        checkpoint = read_checkpoint(storage, location, batches=wanted)
        if early:
            copies = early.result()
        else:
            copies = ()
    if checkpoint.presence is Presence.MISSING:
        _require_no_file(storage, location)
    if mirror is MirrorUse.WHERE_WANTED and (len(checkpoint.offsets.ids) < wanted or checkpoint.damage):
        copies = mirrored()
    _look_beside(storage, location)
    return OpenQuery(target, location, storage, Observation(checkpoint, copies, location=str(location)))


def _require_no_file(storage: Storage, location: Location) -> None:
    """Tell a file from nothing: no query ever starts there."""
    found = None
    if location.name:
        found = storage.stat(location)
    if found is not None and not found.is_folder:
        raise CheckpointMissingError(
            "there is no checkpoint",
            subject=str(location),
            found="a file",
            expected="a folder with offsets and commits, or nothing yet",
        )


def _look_beside(storage: Storage, location: Location) -> None:
    """See whether links stand in the work folder; on a disk of this machine, where a look costs next to nothing."""
    if isinstance(storage, LocalStorage) and location.name:
        work = location.sibling(WORK_SUFFIX)
        for folder in (work, *(work / below for below in _WORK_FOLDERS)):
            with contextlib.suppress(StorageError):  # whoever needs what is in it is told then
                deque(storage.names(folder) or (), maxlen=0)


def require_no_links(query: OpenQuery, options: EvidenceOptions = _NOTHING_ASKED) -> None:
    """Refuse a checkpoint of which not all was read, since links are not followed; `options` as of `gather`.

    Raises:
        CheckpointHasLinksError: Spark, or a repair, would follow one.
    """
    matter = select_links_that_matter(query.links, query.checkpoint.location)
    if not matter:
        return
    path = min(matter)
    if len(matter) > 1:
        more = f", and {len(matter) - 1} more"
    else:
        more = ""
    raise CheckpointHasLinksError(
        "a link stands in the checkpoint, and is not followed",
        subject=path,
        found=f"a link to {matter[path]}{more}",
        expected="a file or folder of its own",
        effect="what it leads to was not read, so that nothing sure can be said; nothing was changed",
        next=Asked(str(query.location), options.words()).command("diagnose"),
    )


def require_checkpoint(
    location: Location,
    checkpoint: Checkpoint,
    options: EvidenceOptions = _NOTHING_ASKED,
    memory: LedgerMemory | None = None,
) -> None:
    """Refuse a folder that holds nothing of a checkpoint; `options` as of `gather`, `memory` what a ledger knows of it.

    Raises:
        CheckpointMissingError: there is nothing that Spark would read.
    """
    if checkpoint.is_there:
        return
    told = {Presence.MISSING: "no such folder", Presence.EMPTY: "an empty folder"}
    found = told.get(checkpoint.presence, "a folder without offsets and commits")
    asked, following = Asked(str(location), options.words()), None
    if checkpoint.presence is Presence.PRESENT:
        following = asked.command("status")
    if memory is not None and memory.newest is not None:
        found = f"{found}; the ledger {memory.place} knows batches {memory.oldest} to {memory.newest}"
        following = asked.command("diagnose")
    raise CheckpointMissingError(
        "there is no checkpoint",
        subject=str(location),
        found=found,
        expected="a folder with offsets and commits, or a mirror beside it",
        next=following,
    )


def _get_planned_ms(entry: OffsetEntry) -> int | None:
    return entry.metadata.batch_timestamp_ms if entry.metadata else None


def read_clock_ms() -> int:
    """The time, milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def make_batch_unknown_error(query: OpenQuery, batch_id: int) -> BatchUnknownError:
    """The error for a batch that nobody knows; it names those that are known."""
    known = query.known
    return BatchUnknownError(
        f"batch {batch_id} is not known",
        subject=str(query.location),
        found=f"batches {known.oldest} to {known.newest}" if known else "no batch",
        expected=f"batch {batch_id} in the offset log or in its mirror",
        next=query.command("inspect"),
    )


@dataclass(frozen=True, slots=True)
class FormerQuery:
    """A query id that the checkpoint has had, and what the mirror holds of it."""

    query_id: str
    copies: tuple[Copy, ...]


def trace_lineage(query: OpenQuery) -> list[FormerQuery]:
    """Every query id of a checkpoint, oldest first, as far as the mirror saw them."""
    first_seen: dict[str, int] = {}
    for copy in query.seen.copies:
        if copy.query_id is not None and copy.seen_ms < first_seen.get(copy.query_id, TIME_MS_END):
            first_seen[copy.query_id] = copy.seen_ms
    return [
        FormerQuery(query_id, tuple(copy for copy in query.seen.copies if copy.query_id == query_id))
        for query_id in sorted(first_seen, key=first_seen.__getitem__)
    ]


def find_mirrored_only(query: OpenQuery) -> BatchIds | None:
    """Where both logs are lost: the batches of the newest query in the mirror; None where there are none."""
    checkpoint = query.checkpoint
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None:
        return None
    copies = [copy for query in trace_lineage(query)[-1:] for copy in query.copies]
    planned = [parse_batch(copy.path, OFFSETS) for copy in copies]
    ids = BatchIds.of([batch_id for batch_id in planned if batch_id is not None])
    return ids or None


class MirroredBatch(NamedTuple):
    """What the mirror holds of one batch, by the versions that count; nothing of it is parsed yet."""

    plan: Copy | None
    commit: Copy | None

    def record(self, batch_id: int) -> BatchRecord:
        """The batch as its copies tell."""
        plan = None
        if self.plan:
            plan = parse_offset_entry(self.plan.content)
        commit = None
        if self.commit:
            commit = parse_commit_entry(self.commit.content)
        return BatchRecord(
            batch_id,
            plan,
            commit,
            is_mirrored=True,
        )


def collect_mirrored_batches(copies: Sequence[Copy], only: Collection[int] | None = None) -> dict[int, MirroredBatch]:
    """The batches of one query in the mirror, oldest first; if `only` some are wanted, at least these."""
    if only is not None:
        copies = _select_that_tell_of(copies, only)
    plans: dict[int, Copy] = {}
    commits: dict[int, Copy] = {}
    logs = {OFFSETS: plans, COMMITS: commits}
    for path, copy in select_standing(copies).items():
        folder, _, name = path.rpartition("/")
        log = logs.get(folder)
        batch_id = None
        if log is not None:
            batch_id = parse_folder_number(name)
        if log is not None and batch_id is not None:
            log[batch_id] = copy
    return {each: MirroredBatch(plans.get(each), commits.get(each)) for each in sorted({*plans, *commits})}


def _select_that_tell_of(copies: Sequence[Copy], batch_ids: Collection[int]) -> list[Copy]:
    """Those by which it is told which copies of some batches count.

    These are their own, and those of files of which there are several versions: a plan that was made anew takes back
    what came after it (`select_standing`), and of any other file there is nothing to be told.
    """
    own = {f"{log}/{batch_id}" for batch_id in batch_ids for log in (OFFSETS, COMMITS)}
    counts = Counter(map(attrgetter("path"), copies))
    return [copy for copy in copies if counts[copy.path] > 1 or copy.path in own]


def parse_records(copies: Sequence[Copy]) -> Iterator[BatchRecord]:
    """The batches of one query in the mirror, oldest first, each parsed when it is its turn."""
    return (batch.record(batch_id) for batch_id, batch in collect_mirrored_batches(copies).items())
