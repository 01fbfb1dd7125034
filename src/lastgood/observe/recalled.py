"""What a ledger remembers of a checkpoint that holds no batch: whether it is lost, or never had any."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from lastgood.checkpoint.lines import LONG_MAX
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import KafkaOffset, parse_source_offset
from lastgood.errors import LastgoodError
from lastgood.journal.endings import find_endings
from lastgood.observe.open_query import OpenQuery, find_mirrored_only
from lastgood.query.observation import LedgerMemory
from lastgood.query.sinks import NONE

if TYPE_CHECKING:
    from lastgood.ledger.store import Ledger, QueryRow


def add_memory(opened: OpenQuery, environment: Mapping[str, str] = os.environ) -> OpenQuery:
    """The same with what the ledger remembers, where neither checkpoint nor mirror knows a batch; else nobody asks.

    The ledger is that of the target, else of `LASTGOOD_LEDGER`. One that does not answer holds nothing up: its memory
    says so.

    Args:
        opened: With its mirror read, and knowing whether it was left behind on purpose.
        environment: Environment variables.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = opened.checkpoint
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None or find_mirrored_only(opened):
        return opened
    seen = replace(opened.seen, memory=_recall(opened, environment))
    return replace(opened, seen=seen)


def _recall(opened: OpenQuery, environment: Mapping[str, str]) -> LedgerMemory | None:
    from lastgood.ledger.opening import open_ledger  # noqa: PLC0415 - of a checkpoint that has batches nobody asks it
    from lastgood.observe.ledger import choose_ledger  # noqa: PLC0415

    place = "LASTGOOD_LEDGER"
    try:
        chosen = choose_ledger(None, opened.target, environment)
        if chosen is None:
            return None
        place = str(chosen)
        with open_ledger(chosen, create=False) as ledger:
            return _find_remembered(opened, ledger, place)
    except LastgoodError as error:
        if error.condition == "LEDGER_MISSING":  # it is made with the first batch that somebody tells it
            return None
        return LedgerMemory(
            place, unknown=error.sentence if error.found is None else f"{error.sentence}: {error.found}"
        )


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
