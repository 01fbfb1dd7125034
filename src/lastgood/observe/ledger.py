"""A ledger filled from what queries leave behind: their mirrors, their logs, and the files of their recorders."""

from __future__ import annotations

import contextlib
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES, parse_batch
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.ledger.facts import BatchFacts, Commit, PlannedBatch, QueryFacts, Sighting, Teller
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.telling import Telling, clean_value
from lastgood.ledger.url import VARIABLE, LedgerPlace, parse_place
from lastgood.mirror.mirror import MirrorWriter, locate_mirror, read_mirror
from lastgood.observe.open_query import read_clock_ms
from lastgood.records.files import RECORD_FILE, parse_records, sort_record_files
from lastgood.settings.target import Target
from lastgood.spark.record_sinks import locate_records
from lastgood.storage.reading import Location, Storage, open_storage, read_part
from lastgood.storage.writing import open_writable

if TYPE_CHECKING:
    from lastgood.ledger.store import Ledger

COPIES_AT_ONCE = 1000
_RECORD_BYTES_AT_ONCE = 4 * 1024 * 1024
_LATE_MS = 3_600_000
"""So much later than another's may what one writer of a mirror saw get there: clocks differ, and storages wait."""


@dataclass(frozen=True, slots=True)
class Filled:
    """What was given to the ledger; most of it may have been known to it."""

    copies: int
    """Files of the logs, from the checkpoint or its mirror."""
    records: int


def fill_ledger(target: Target, ledger: Ledger) -> Filled:
    """Give a ledger all that is known of a query and that it may not have yet.

    That is what its logs hold now, what the mirror beside them has copied since the last time, and what recorders have
    written to `CHECKPOINT.lastgood/records`.

    Args:
        target: Which query.
        ledger: Where to.

    Raises:
        LedgerError, NoSpaceError: the ledger refuses; what it has got it keeps.
        StorageError: checkpoint, mirror or records cannot be read (subclasses).
    """
    location = target.location
    return fill_with(location, take_snapshot(location), ledger)


def fill_with(location: Location, copies: Sequence[Copy], ledger: Ledger) -> Filled:
    """The same with the log files of the checkpoint at hand, as `take_snapshot` gives them."""
    storage = open_storage(location)
    mirrored = fill_from_mirror(location, ledger, storage)
    add_copies(location, copies, ledger, Teller.CHECKPOINT)
    return Filled(mirrored + len(copies), fill_from_records(locate_records(location), ledger, storage))


def choose_ledger(named: str | None, target: Target | None, environment: Mapping[str, str]) -> LedgerPlace | None:
    """The ledger that is meant: the one named, else the configuration's, else that of `LASTGOOD_LEDGER`; or none.

    Of no target no configuration tells.

    Raises:
        LedgerUrlError: it cannot be understood.
    """
    if named is not None:
        return parse_place(named)
    told = environment.get(VARIABLE)
    configured = None if target is None else target.ledger
    return configured or (parse_place(told) if told else None)


@contextlib.contextmanager
def open_asked_ledger(target: Target, named: str | None, *, environment: Mapping[str, str]) -> Iterator[Ledger | None]:
    """The ledger to ask about a target while the block runs; None without one.

    One that was not named, but configured, is not missed: where it does not answer, an error of the block says so.

    Raises:
        LedgerUrlError: it cannot be understood.
        ExtraMissingError, LedgerError: the one that was named cannot be opened (subclasses).
    """
    place = choose_ledger(named, target, environment)
    opened, refused = None, None
    if place is not None:
        try:
            opened = open_ledger(place, create=False)
        except LastgoodError as error:
            if named is not None:
                raise
            refused = error
    try:
        with opened or contextlib.nullcontext():
            yield opened
    except LastgoodError as error:
        if refused is not None and error.effect is None:
            error.effect = f"the ledger {place} could not be asked: {refused.sentence}"
        raise


def take_snapshot(location: Location) -> list[Copy]:
    """Every log file of a checkpoint as it stands now; nothing is written.

    Raises:
        StorageError: the checkpoint cannot be read.
    """
    storage = open_writable(location)
    folder = locate_mirror(location)
    name = secrets.token_hex(4)
    return MirrorWriter(
        location, storage=storage, folder=folder, target=storage, writer=name, now_ms=read_clock_ms
    ).snapshot()


def add_copies(location: Location, copies: Iterable[Copy], ledger: Ledger, teller: Teller) -> None:
    """Give a ledger what these files of a checkpoint say."""
    for some in _split_chunks(copies, COPIES_AT_ONCE):
        ledger.add(make_telling_of_copies(location, some, teller))


def fill_from_mirror(
    location: Location, ledger: Ledger, storage: Storage, *, go_on: Callable[[], bool] = lambda: True
) -> int:
    """Give a ledger what the mirror of a checkpoint has copied since the last time; how many files that were.

    Args:
        location: The checkpoint.
        ledger: Where to.
        storage: Its filesystem.
        go_on: Asked now and then; once it says no, the rest waits for the next time.
    """
    since_ms = read_filled_until(location, ledger) - _LATE_MS
    count, newest_ms = 0, -1
    found = read_mirror(storage, locate_mirror(location), days=_count_days_since(storage, location, since_ms))
    for some in _split_chunks((copy for copy in found if copy.seen_ms > since_ms), COPIES_AT_ONCE):
        if not go_on():
            return count
        add_copies(location, some, ledger, Teller.MIRROR)
        count += len(some)
        newest_ms = max(newest_ms, *(copy.seen_ms for copy in some))
    if newest_ms >= 0:
        set_filled_until(location, ledger, newest_ms)
    return count


def read_filled_until(location: Location, ledger: Ledger) -> int:
    """Until when, milliseconds since 1970, the ledger has what the mirror of a checkpoint saw; -1 if it has nothing."""
    return ledger.filled(locate_mirror(location).identity).get("", -1)


def set_filled_until(location: Location, ledger: Ledger, seen_ms: int) -> None:
    """Remember it."""
    ledger.set_filled(locate_mirror(location).identity, {"": max(seen_ms, read_filled_until(location, ledger))})


def _count_days_since(storage: Storage, location: Location, since_ms: int) -> int | None:
    """How many of the mirror's days go back to this time; None: all."""
    if since_ms < 0:
        return None
    first = datetime.fromtimestamp(since_ms / 1000, UTC).date().isoformat()
    names = {entry.name[: len(first)] for entry in storage.scan(locate_mirror(location), facts=False) or ()}
    return sum(name >= first for name in names if name[:1].isdigit()) or 1


def fill_from_records(
    folder: Location, ledger: Ledger, storage: Storage, *, go_on: Callable[[], bool] = lambda: True
) -> int:
    """Give a ledger what recorders have added to the files of a folder since the last time; how many records."""
    sizes = {entry.name: entry.size for entry in storage.scan(folder) or () if RECORD_FILE.fullmatch(entry.name)}
    if not sizes:
        return 0
    before = ledger.filled(folder.identity)
    positions = {name: before.get(name, 0) for name in sort_record_files(sizes)}
    count = 0
    for name, begin in positions.items():
        size = sizes[name]
        position = begin
        while position < (size or 0) and go_on():
            piece = _read_whole_lines(storage, folder / name, position)
            if not piece:
                break
            records = parse_records(piece).records
            ledger.record(records)
            count += len(records)
            position += len(piece)
        positions[name] = position
    if positions != before:
        ledger.set_filled(folder.identity, positions)
    return count


def _read_whole_lines(storage: Storage, file: Location, begin: int) -> bytes:
    """What a record file holds from there on, as far as its lines are whole; a few megabytes at most.

    A line that is longer is no record: it comes in pieces, which are none either.
    """
    content = read_part(storage, file, begin=begin, limit=_RECORD_BYTES_AT_ONCE) or b""
    end = content.rfind(b"\n") + 1
    if end or len(content) < _RECORD_BYTES_AT_ONCE:
        return content[:end]
    return content


def make_telling_of_copies(location: Location, copies: Iterable[Copy], teller: Teller) -> Telling:
    """What files of a checkpoint's logs say of its queries; copies without a query id say nothing."""
    of_query: dict[str, list[Copy]] = defaultdict(list)
    for copy in copies:
        if copy.query_id is not None:
            of_query[copy.query_id].append(copy)
    return Telling(
        tuple(_make_query_facts(query_id, location.identity, group, teller) for query_id, group in of_query.items())
    )


def _make_query_facts(query_id: str, checkpoint: str, copies: Iterable[Copy], teller: Teller) -> QueryFacts:
    batches: dict[int, BatchFacts] = {}
    initial: dict[str, str] = {}
    times_ms = []
    for copy in copies:
        facts = _make_batch_facts(copy, teller)
        if facts is not None:
            known = batches.get(facts.batch_id)
            if known is None:
                batches[facts.batch_id] = facts
            else:
                batches[facts.batch_id] = known.with_other(facts)
            times_ms += [plan.planned_at_ms or copy.seen_ms for plan in facts.plans]
        elif copy.path.startswith(f"{SOURCES}/"):
            initial |= _parse_initial(copy)
    return QueryFacts(
        query_id=query_id,
        checkpoint=checkpoint,
        first_seen_ms=min(times_ms, default=None),
        last_seen_ms=max(times_ms, default=None),
        initial=initial,
        batches=batches,
    )


def _make_batch_facts(copy: Copy, teller: Teller) -> BatchFacts | None:
    planned, committed = parse_batch(copy.path, OFFSETS), parse_batch(copy.path, COMMITS)
    if planned is not None:
        entry = parse_offset_entry(copy.content)
        if isinstance(entry, OffsetEntry):
            seen = Sighting(copy.seen_ms, copy.seen_ms)
            return BatchFacts(batch_id=planned, told_by=teller, plans={_make_planned_batch(entry): seen})
    elif committed is not None:
        commit = parse_commit_entry(copy.content)
        if isinstance(commit, CommitEntry):
            told = Commit(copy.seen_ms, copy.modified_ms, commit.next_batch_watermark_ms or None)
            return BatchFacts(batch_id=committed, told_by=teller, commit=told)
    return None


def _make_planned_batch(entry: OffsetEntry) -> PlannedBatch:
    planned_at_ms = entry.metadata.batch_timestamp_ms if entry.metadata else 0
    ends = sorted((clean_value(line.source_id), clean_value(line.text)) for line in entry.sources)
    return PlannedBatch(planned_at_ms or None, entry.batch_watermark_ms or None, tuple(ends))


def _parse_initial(copy: Copy) -> dict[str, str]:
    """Where a source of Kafka began, if it is that which the file tells."""
    _, source_id, name = copy.path.split("/", 2)
    began = None
    if name == "0":
        began = parse_initial_offset(copy.content)
    if not isinstance(began, InitialOffset) or not isinstance(began.offset, KafkaOffset):
        return {}
    return {clean_value(source_id): began.offset.to_text()}


def _split_chunks(copies: Iterable[Copy], size: int) -> Iterator[list[Copy]]:
    rest = iter(copies)
    while some := list(islice(rest, size)):
        yield some
