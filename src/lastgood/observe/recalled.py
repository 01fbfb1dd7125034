"""What mirror and ledger remember of a checkpoint: whether it is lost, or is older than what they know.

Of a checkpoint that holds no batch it is the ledger that is asked, where the mirror knows nothing; of any other both
are, for the newest batch that was committed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.copies import Copy, select_standing
from lastgood.checkpoint.layout import COMMITS, OFFSETS, find_newest_batch, parse_batch
from lastgood.checkpoint.lines import LONG_MAX
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import KafkaOffset, parse_source_offset
from lastgood.errors import LastgoodError, StorageError
from lastgood.frozen import dataclass
from lastgood.journal.endings import find_endings, select_as_left
from lastgood.ledger.url import VARIABLE, LedgerPlace
from lastgood.mirror.mirror import locate_mirror, read_mirror
from lastgood.observe.open_query import OpenQuery, find_mirrored_only
from lastgood.observe.remembered import recall_query
from lastgood.planning.plan import PlanInvalidError
from lastgood.planning.repairs.lost import RETAINED
from lastgood.query.edited_plans import make_mirrored_plan
from lastgood.query.lost import MIRROR
from lastgood.query.observation import CommittedElsewhere, LedgerMemory, MirroredPlan
from lastgood.query.sinks import NONE
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS

if TYPE_CHECKING:
    from lastgood.ledger.facts import BatchFacts
    from lastgood.ledger.store import Ledger, QueryRow


class Ledgers:
    """The ledgers that many checkpoints are looked up in: each is opened once, and asked once if it does not answer."""

    def __init__(self) -> None:
        """Open none yet."""
        self._lock = threading.Lock()
        self._opened: dict[str, Ledger | LastgoodError] = {}

    def get(self, place: LedgerPlace) -> Ledger:
        """The ledger at a place, which stays open.

        Raises:
            LastgoodError: as `open_ledger`, each time the same.
        """
        from lastgood.ledger.opening import open_ledger  # noqa: PLC0415 - most have none

        with self._lock:
            found = self._opened.get(str(place))
            if found is None:
                try:
                    found = open_ledger(place, create=False)
                except LastgoodError as error:
                    found = error
                self._opened[str(place)] = found
        if isinstance(found, LastgoodError):
            raise found
        return found

    def __enter__(self) -> Self:
        """Close all at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close all."""
        for each in self._opened.values():
            if not isinstance(each, LastgoodError):
                each.close()


def add_memory(
    opened: OpenQuery, environment: Mapping[str, str] = os.environ, *, ledgers: Ledgers | None = None
) -> OpenQuery:
    """The same with what mirror and ledger remember of batches that the checkpoint does not hold.

    Of a checkpoint without a batch the ledger is asked where the mirror knows none. Of any other both are asked for
    what was committed after its newest plan. The ledger is that of the target, else of `LASTGOOD_LEDGER`. One that does
    not answer holds nothing up: what it says says so.

    Args:
        opened: With its mirror read where that was wanted, and knowing whether it was left behind on purpose.
        environment: Environment variables.
        ledgers: Those that are open already; None: it is opened and closed here.

    Raises:
        StorageError: the storage of the checkpoint does not answer (subclasses).
    """
    checkpoint = opened.checkpoint
    with contextlib.ExitStack() as stack:
        open_here = ledgers or stack.enter_context(Ledgers())
        if checkpoint.last_planned is not None:
            mirrored = _ask_mirror(opened, checkpoint.last_planned)
            ledger = _ask_ledger(opened, environment, open_here, checkpoint.last_planned)
            later = tuple(_select_later(opened, (mirrored.later, ledger), checkpoint.last_planned))
            return replace(opened, seen=replace(opened.seen, committed_elsewhere=later, mirrored_plans=mirrored.plans))
        if checkpoint.last_committed is not None or find_mirrored_only(opened):
            return opened
        return replace(opened, seen=replace(opened.seen, memory=_recall(opened, environment, open_here)))


def _select_later(
    opened: OpenQuery, asked: Sequence[CommittedElsewhere | None], planned: int
) -> Iterator[CommittedElsewhere]:
    """What each of them knows beyond the newest plan, or why it did not tell."""
    told = [each for each in asked if each is not None]
    yield from (each for each in told if each.unknown is not None)
    later = [(each.batch_id, each) for each in told if each.batch_id is not None]
    if not later:
        return
    # A query that runs has planned more since its logs were listed: what is known is held against them as they are now.
    names = opened.storage.names(opened.location / OFFSETS) or ()
    newest = find_newest_batch(names)
    if newest is None:
        newest = planned
    yield from (each for batch_id, each in later if batch_id > newest)


@dataclass(frozen=True, slots=True)
class _Mirrored:
    """What the mirror knows of the newest batches."""

    later: CommittedElsewhere | None = None
    """The newest batch after the newest plan that was committed, as recoveries have left it; None: none."""
    plans: Mapping[int, MirroredPlan] = field(default_factory=dict)
    """The plans from which a start goes on, as it saw them, by batch."""


def _ask_mirror(opened: OpenQuery, planned: int) -> _Mirrored:
    """What it knows of the newest batches of the logs, and of later ones.

    First only what was seen since those were planned is looked through. What was seen before that was planned before
    it; the mirror is read as a planner reads it only where that tells something else than the logs.
    """
    if not opened.location.name:  # the root of a bucket has nothing beside it
        return _Mirrored()
    query_id = opened.query_id
    try:
        copies = opened.seen.copies or _read_newest(opened)
        ours = [copy for copy in copies if copy.query_id == query_id]
        if any(_is_news(copy, opened.checkpoint, planned) for copy in ours):
            since = find_mirror_since(opened.checkpoint)
            whole = opened.seen.copies or read_mirror(opened.storage, locate_mirror(opened.location), since=since)
            endings = find_endings(opened.storage, opened.location)
            ours = [copy for copy in select_as_left(whole, endings) if copy.query_id == query_id]
    except (StorageError, PlanInvalidError) as error:
        return _Mirrored(CommittedElsewhere(MIRROR, unknown=_describe_refusal(error)))
    standing = select_standing(ours).values()
    newest = max((_parse_committed(copy) for copy in standing if _is_commit_after(copy, planned)), default=NONE)
    later = CommittedElsewhere(MIRROR, newest) if newest > planned else None
    contents = {copy.path: copy.content for copy in standing}
    first = _find_first_that_counts(opened.checkpoint)
    listed = opened.checkpoint.offsets.ids.within(range(first, planned + 1))
    plans = {number: parse_offset_entry(contents.get(f"{OFFSETS}/{number}", b"")) for number in listed}
    return _Mirrored(later, {n: make_mirrored_plan(plan) for n, plan in plans.items() if isinstance(plan, OffsetEntry)})


def _find_first_that_counts(checkpoint: Checkpoint) -> int:
    """The oldest batch from whose plan a start goes on."""
    planned, committed = checkpoint.last_planned or 0, checkpoint.last_committed
    return planned if committed is None else min(planned, committed)


def _read_newest(opened: OpenQuery) -> list[Copy]:
    """What the mirror has seen in the files since the oldest plan was made from which a start goes on."""
    first = _find_first_that_counts(opened.checkpoint)
    entry = opened.checkpoint.offsets.entries.get(first)
    planned_ms = None
    if isinstance(entry, OffsetEntry) and entry.metadata is not None:
        planned_ms = entry.metadata.batch_timestamp_ms - MAX_CLOCK_SKEW_MS
    return list(read_mirror(opened.storage, locate_mirror(opened.location), since=first, from_ms=planned_ms))


def _is_news(copy: Copy, checkpoint: Checkpoint, planned: int) -> bool:
    """Whether a copy tells something else than the logs."""
    return _is_commit_after(copy, planned) or _is_other_plan(copy, checkpoint)


def _is_other_plan(copy: Copy, checkpoint: Checkpoint) -> bool:
    """Whether it is a plan from which a start goes on, and not as it is in the logs."""
    batch_id = parse_batch(copy.path, OFFSETS)
    if batch_id is None or batch_id < _find_first_that_counts(checkpoint):
        return False
    return checkpoint.offsets.entries.get(batch_id) != parse_offset_entry(copy.content)


def _is_commit_after(copy: Copy, planned: int) -> bool:
    batch_id = parse_batch(copy.path, COMMITS)
    return batch_id is not None and batch_id > planned


def _parse_committed(copy: Copy) -> int:
    """The batch of a commit that can be read, else `NONE`."""
    if not isinstance(parse_commit_entry(copy.content), CommitEntry):
        return NONE
    batch_id = parse_batch(copy.path, COMMITS)
    return NONE if batch_id is None else batch_id


def _ask_ledger(
    opened: OpenQuery, environment: Mapping[str, str], ledgers: Ledgers, planned: int
) -> CommittedElsewhere | None:
    """The newest batch after `planned` that the ledger knows to be committed, and no recovery took back; None: none."""
    holder, query_id = "the ledger", opened.query_id
    try:
        chosen = choose_known_ledger(opened, environment)
        if chosen is None or query_id is None:
            return None
        holder = f"the ledger {chosen}"
        known = recall_query(ledgers.get(chosen), opened.location, query_id)
        newest = None if known is None else known.newest(is_committed=True)
        if known is None or newest is None or newest <= planned:
            return None
        facts = known.ledger.batches(known.query, [newest]).get(newest)
        at_ms = 0 if facts is None else _find_known_ms(facts)
        seen = Copy(query_id, f"{COMMITS}/{newest}", at_ms, None, b"")
        is_void = any(ending.voids(seen) for ending in find_endings(opened.storage, opened.location))
        return None if is_void else CommittedElsewhere(holder, newest)
    except LastgoodError as error:
        if error.condition == "LEDGER_MISSING":  # it is made with the first batch that somebody tells it
            return None
        return CommittedElsewhere(holder, unknown=_describe_refusal(error))


def _find_known_ms(facts: BatchFacts) -> int:
    """When a batch was committed, else when it was planned, as far as anybody said; 0: nobody did."""
    planned_ms = None if facts.plan is None else facts.plan.planned_at_ms
    return facts.committed_at_ms or planned_ms or 0


def choose_known_ledger(opened: OpenQuery, environment: Mapping[str, str]) -> LedgerPlace | None:
    """The ledger of the target, else of `LASTGOOD_LEDGER`; None: there is none.

    Raises:
        LedgerUrlError: it cannot be understood.
    """
    if opened.target.ledger is None and VARIABLE not in environment:
        return None
    from lastgood.observe.ledger import choose_ledger  # noqa: PLC0415 - it needs much that most need not

    return choose_ledger(None, opened.target, environment)


def _describe_refusal(error: LastgoodError) -> str:
    return error.sentence if error.found is None else f"{error.sentence}: {error.found}"


def _recall(opened: OpenQuery, environment: Mapping[str, str], ledgers: Ledgers) -> LedgerMemory | None:
    place = "LASTGOOD_LEDGER"
    try:
        chosen = choose_known_ledger(opened, environment)
        if chosen is None:
            return None
        place = str(chosen)
        return _find_remembered(opened, ledgers.get(chosen), place)
    except LastgoodError as error:
        if error.condition == "LEDGER_MISSING":  # it is made with the first batch that somebody tells it
            return None
        return LedgerMemory(place, unknown=_describe_refusal(error))


def _find_remembered(opened: OpenQuery, ledger: Ledger, place: str) -> LedgerMemory | None:
    """The newest query at this checkpoint of which a batch is known, and that nobody has given up on purpose."""
    known = [(query, ledger.bounds(query)) for query in ledger.queries(opened.location.identity)]
    lost = [(query, bounds) for query, bounds in known if bounds is not None and not _is_given_up(opened, query)]
    if not lost:
        return None
    own_id = opened.query_id
    query, (oldest, newest) = next((each for each in lost if each[0].query_id == own_id), lost[-1])
    return LedgerMemory(place, query.query_id, oldest, newest, _find_known_batch(ledger, query))


def _is_given_up(opened: OpenQuery, query: QueryRow) -> bool:
    """Whether a recovery has begun the query anew since, at batch 0, by its own checkpoint or by the application's."""
    left, seen_ms = opened.seen.left, query.last_seen_ms or 0
    if left is not None:
        return query.query_id == left.query_id or seen_ms <= left.at_ms
    ending = next(reversed(find_endings(opened.storage, opened.location)), None)
    if ending is None or ending.since_ms is not None or ending.planned != NONE or not ending.written:
        return False
    own = opened.checkpoint.query
    is_as_left = isinstance(own, QueryMetadata) and all(copy.query_id == own.query_id for copy in ending.written)
    return is_as_left and seen_ms <= ending.at_ms


def _find_known_batch(ledger: Ledger, query: QueryRow) -> int | None:
    """The newest committed batch, else the newest, if it is known where it ended in Kafka."""
    for is_committed in (True, False):
        batch_id = ledger.planned_at(query, LONG_MAX, is_committed=is_committed)
        facts = None if batch_id is None else ledger.batches(query, [batch_id]).get(batch_id)
        ends = [] if facts is None else [parse_source_offset(text) for text in facts.ends.values()]
        if any(isinstance(end, KafkaOffset) for end in ends):
            return batch_id
    return None


def find_mirror_since(checkpoint: Checkpoint) -> int:
    """From which batch on the mirror can be needed: what the logs list, and as much again; 0 where one is lost.

    No start may wait until months of batches are read of which it needs none.
    """
    oldest = checkpoint.offsets.ids.oldest, checkpoint.commits.ids.oldest
    return 0 if None in oldest else max(0, min(each for each in oldest if each is not None) - RETAINED)
