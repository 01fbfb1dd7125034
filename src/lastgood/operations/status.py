"""`status`: one checkpoint on one screen, or every checkpoint below a folder, graded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from lastgood.errors import StorageError
from lastgood.incident.last import judge_signature, read_last_incident
from lastgood.journal.failed import read_failed
from lastgood.journal.holding import find_holder
from lastgood.observe.advice_facts import select_query_facts
from lastgood.observe.below import Reach, find_checkpoints_below
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.fleet import look_around_all
from lastgood.observe.load_standing import look_at_load_standing
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import OpenQuery, gather_at, look_for_left_behind, read_clock_ms, require_checkpoint
from lastgood.observe.query_status import Status, judge_status
from lastgood.observe.recalled import Ledgers, add_memory
from lastgood.observe.surroundings import look_around
from lastgood.planning.plan import PlanInvalidError
from lastgood.recovery.outage import find_outage
from lastgood.settings.config import Config
from lastgood.settings.target import Target
from lastgood.storage.parallel import QUICK_SECONDS, open_threads, take_as_they_come
from lastgood.storage.reading import Location, Storage, open_storage

_NOTHING_ASKED = EvidenceOptions()
_QUICK_SECONDS = 30 * QUICK_SECONDS
"""Of a checkpoint about thirty things are asked."""


def status(
    target: Target,
    *,
    query: str | None = None,
    options: EvidenceOptions = _NOTHING_ASKED,
    max_downtime_ms: int | None = None,
    clock_ms: Callable[[], int] = read_clock_ms,
) -> Status:
    """Where one query stands: from its files, and from its sinks and Kafka where these are named.

    Args:
        target: Which query.
        query: `target` is a session-wide checkpoint root; the name of the query in it.
        options: Sinks and Kafka.
        max_downtime_ms: How long it may be down without losing anything; None: as its pipeline says.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        CheckpointMissingError: there is no such folder, or nothing in it, nor a mirror of it.
        StorageError: the storage does not answer (subclasses).
        LastgoodError: an option is not understood; see `look_around`.
    """
    if query is not None:
        below = str(target.location / query)
        target = replace(target, checkpoint=below, typed=below)
    location = target.location
    storage = open_storage(location)
    with ThreadPoolExecutor(2) as beside:
        incident = beside.submit(read_last_incident, storage, location)
        held = beside.submit(find_holder, storage, location)
        found = add_memory(_add_left(gather_at(target, storage, batches=BATCHES)))
        if not found.is_known:
            require_checkpoint(location, found.checkpoint, options)
        at_ms = clock_ms()
        facts = beside.submit(select_query_facts, found, max_downtime_ms=max_downtime_ms)
        found = look_around(found, options, now_ms=at_ms, headroom=True)
        judged = judge_status(found, facts.result(), options, at_ms, max_downtime_ms)
        last = incident.result()
        holder = held.result()
        outage = find_outage(location, target.policy, now_ms=at_ms)
        return replace(
            judged,
            incident=last,
            incident_signature=judge_signature(storage, location, last, target.config),
            failed=read_failed(storage, location, found.checkpoint.last_committed),
            outage=None if outage is None else outage.foreseen,
            load=look_at_load_standing(found, holder),
            held=holder,
            target=target.typed,
            max_downtime_ms=max_downtime_ms,
        )


def list_statuses_below(
    root: Target,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    max_downtime_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
    reach: Reach | None = None,
    clock_ms: Callable[[], int] = read_clock_ms,
) -> list[Status]:
    """Where every query below a folder stands, worst first.

    Args:
        root: A folder full of checkpoints, such as `spark.sql.streaming.checkpointLocation`.
        options: Sinks and Kafka of them all; each sink tells itself which of the queries write to it.
        max_downtime_ms: How long each of them may be down; None: as the pipeline says whose name this is, if any does.
        progress: Told how many have been read so far.
        reach: How far to look at most; it is told how far that was.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        StorageError: the folder itself cannot be listed.
        LastgoodError: an option is not understood; see `look_around`.
    """
    options = options.of(root)
    wanted_ms = root.max_downtime_ms if max_downtime_ms is None else max_downtime_ms
    location = root.location
    storage = open_storage(location)
    asks = bool(options.sinks) or options.kafka is not None
    threads = open_threads(storage, max(2, storage.parallel // 4), quick_seconds=_QUICK_SECONDS)
    with Ledgers() as ledgers, threads as pool:
        # Where nobody is asked each is judged at once: what a thousand checkpoints hold need not be kept.
        look: Callable[[Storage, Location], OpenQuery | Status | None] = partial(_read, root.config, ledgers)
        below = list(find_checkpoints_below(storage, location, reach))
        if not asks:
            look = partial(_look, root.config, ledgers, options=options, max_downtime_ms=wanted_ms, at_ms=clock_ms())
        looked = []
        for done in take_as_they_come(pool, partial(_look_as_one_of_many, look, storage), below):
            looked.append(done)
            if progress is not None:
                progress(len(looked))
        gathered = [each for each in looked if isinstance(each, OpenQuery) and _is_any(each)]
        at_ms = clock_ms()
        gathered = look_around_all(gathered, options, now_ms=at_ms) if asks else []
        again = partial(_look_again, options=options, max_downtime_ms=wanted_ms, at_ms=at_ms)
        found = list(pool.map(again, gathered))
    found += [each for each in looked if isinstance(each, Status)]
    found = [  # of unreadable ones, too
        replace(each, target=str(each.location), options=options, max_downtime_ms=wanted_ms) for each in found
    ]
    return sorted(found, key=lambda each: (-each.grade, str(each.location)))


def _look_as_one_of_many(
    look: Callable[[Storage, Location], OpenQuery | Status | None], storage: Storage, location: Location
) -> OpenQuery | Status | None:
    """What is told of a checkpoint that may not let us look: of many, it is one line."""
    try:
        return look(storage, location)
    except StorageError as error:
        return Status(location, None, error)


def _read(config: Config, ledgers: Ledgers, storage: Storage, location: Location) -> OpenQuery:
    query = gather_at(Target(str(location), config=config), storage, batches=BATCHES)
    return add_memory(_add_left(query), ledgers=ledgers)


def _add_left(query: OpenQuery) -> OpenQuery:
    """The same, knowing whether a recovery has left the checkpoint behind."""
    with contextlib.suppress(PlanInvalidError):  # what cannot be read is the business of whoever repairs
        return look_for_left_behind(query)
    return query


def _look(
    config: Config,
    ledgers: Ledgers,
    storage: Storage,
    location: Location,
    *,
    options: EvidenceOptions,
    max_downtime_ms: int | None,
    at_ms: int,
) -> Status | None:
    """One that nobody else tells of; None if it is none."""
    query = _read(config, ledgers, storage, location)
    if not _is_any(query):
        return None
    return _look_again(query, options=options, max_downtime_ms=max_downtime_ms, at_ms=at_ms)


def _look_again(query: OpenQuery, *, options: EvidenceOptions, max_downtime_ms: int | None, at_ms: int) -> Status:
    try:
        facts = select_query_facts(query, max_downtime_ms=max_downtime_ms)
        return judge_status(query, facts, options, at_ms, max_downtime_ms)
    except StorageError as error:
        return Status(query.location, None, error)


def _is_any(query: OpenQuery) -> bool:
    """Whether there is a checkpoint, or somebody knows of one."""
    return query.is_known or query.checkpoint.is_there
