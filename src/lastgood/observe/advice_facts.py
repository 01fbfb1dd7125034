"""Finds out what advice rests on: where a checkpoint lies, and what a recorder last saw of its query.

One round of requests, at the same time and within a time limit; what does not answer is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from lastgood.checkpoint.layout import METADATA, OFFSETS
from lastgood.diagnosis.rules_advice import RETAINED_DEFAULT
from lastgood.ids import parse_time_ms
from lastgood.journal.room import list_recoveries
from lastgood.journal.topic_ids import read_topic_ids
from lastgood.observe.open_query import OpenQuery
from lastgood.query.advice_facts import AdviceFacts, TableAround
from lastgood.sinks.kind import SinkKind
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.storage.own_disks import MOUNTS, find_own_disk
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import LocalStorage, Location, Storage
from lastgood.storage.rights import WORK_SUFFIX

TIMEOUT_SECONDS = 5.0
_FOLDERS_ABOVE = 5
RECORDS_FOLDER = "records"
"""Below the work folder of a checkpoint."""


def find_advice_facts(
    query: OpenQuery, *, max_downtime_ms: int | None = None, spark: str | None = None, mounts: Path = MOUNTS
) -> AdviceFacts:
    """What is known around a checkpoint that advice rests on.

    Args:
        query: The checkpoint, and its mirror if that was read.
        max_downtime_ms: How long the query may be down (`--max-downtime`); None: as its pipeline says.
        spark: The version that is to start it (`--spark`), such as `4.2`; None if nobody said.
        mounts: Where the system lists what is mounted.
    """
    storage, location = query.storage, query.location
    questions: dict[str, Callable[[], Any]] = {
        "records": partial(_read_recorded, query),
        "repaired": partial(_find_repaired_at, query),
    }
    if location.name:
        questions["topics"] = partial(read_topic_ids, storage, location, query.query_id)
    places = _list_possible_tables(location)
    for kind, folder in places:
        if kind.is_at is not None:
            questions[f"{kind.name} {folder}"] = partial(kind.is_at, storage, folder)
    oldest = query.checkpoint.offsets.ids.oldest
    if oldest and len(query.checkpoint.offsets.ids) <= RETAINED_DEFAULT:
        questions["metadata"] = partial(_find_modified, storage, location / METADATA)
        questions["oldest"] = partial(_find_modified, storage, location / f"{OFFSETS}/{oldest}")
    answers = ask_all(
        list(questions.values()),
        parallel=storage.parallel,
        deadline=Deadline.after(TIMEOUT_SECONDS),
        subject=str(location),
    )
    found = {name: answer.value for name, answer in zip(questions, answers, strict=True)}
    recorded: AdviceFacts = found["records"] or AdviceFacts()
    tables = (TableAround(str(folder), kind.name) for kind, folder in places if found[f"{kind.name} {folder}"])
    return replace(
        recorded,
        topic_ids={**recorded.topic_ids, **(found.get("topics") or {})},
        repaired_at_ms=found["repaired"],
        filesystem=find_own_disk(location, mounts) if isinstance(storage, LocalStorage) else None,
        table=next(tables, None),
        metadata_modified_ms=found.get("metadata"),
        oldest_plan_modified_ms=found.get("oldest"),
        query_ids=_list_query_ids(query),
        max_downtime_ms=_choose_max_downtime_ms(query, max_downtime_ms),
        spark=spark,
    )


def select_query_facts(query: OpenQuery, *, max_downtime_ms: int | None = None) -> AdviceFacts:
    """Of these facts those on which more than advice rests.

    What was recorded of the query, its topics' ids, and how long it may be down.

    Args:
        query: See `find_advice_facts`.
        max_downtime_ms: See `find_advice_facts`.
    """
    questions: list[Callable[[], Any]] = [partial(_read_recorded, query), partial(_find_repaired_at, query)]
    if query.location.name:
        questions.append(partial(read_topic_ids, query.storage, query.location, query.query_id))
    answers = ask_all(
        questions,
        parallel=len(questions),
        deadline=Deadline.after(TIMEOUT_SECONDS),
        subject=str(query.location),
    )
    recorded, repaired_at_ms, *topics = (answer.value for answer in answers)
    facts: AdviceFacts = recorded or AdviceFacts()
    return replace(
        facts,
        topic_ids={**facts.topic_ids, **((topics[0] if topics else None) or {})},
        repaired_at_ms=repaired_at_ms,
        max_downtime_ms=_choose_max_downtime_ms(query, max_downtime_ms),
    )


def _choose_max_downtime_ms(query: OpenQuery, said_ms: int | None) -> int | None:
    """What is said now counts before what the configuration of the pipeline says."""
    return query.target.max_downtime_ms if said_ms is None else said_ms


def _list_possible_tables(location: Location) -> list[tuple[SinkKind, Location]]:
    """What to look for, and in which of the folders above; nearest first, not in the root."""
    above = [str(path) for path in PurePosixPath(location.path).parents][:_FOLDERS_ABOVE]
    kinds = [kind for kind in SINK_KINDS.values() if kind.is_at is not None]
    return [(kind, replace(location, path=path)) for path in above if path != "/" for kind in kinds]


def _find_modified(storage: Storage, file: Location) -> int | None:
    found = storage.stat(file)
    return found.modified_ms if found else None


def _list_query_ids(query: OpenQuery) -> tuple[str, ...]:
    """The ids in the mirror, in the order in which they were seen."""
    copies = sorted(query.seen.copies, key=lambda copy: copy.seen_ms)
    return tuple(query_id for query_id, _ in groupby(copy.query_id for copy in copies) if query_id is not None)


def _read_recorded(query: OpenQuery) -> AdviceFacts | None:
    """Batches and runs from the records beside a checkpoint."""
    if not query.location.name:
        return None
    folder = query.location.sibling(WORK_SUFFIX) / RECORDS_FOLDER
    names = [name for name in query.storage.names(folder) or () if not name.endswith("/")]
    if not names:
        return None
    from lastgood.observe.recorded import (  # noqa: PLC0415 - 10 ms that a query without a recorder need not pay
        count_recorded_kafka_sources,
        list_recorded_batches,
        list_recorded_runs,
        list_recorded_subscriptions,
        list_recorded_topic_ids,
        read_newest_records,
    )

    records = read_newest_records(query.storage, folder, names)
    batches = list_recorded_batches(records, query.query_id)
    return AdviceFacts(
        batches=batches,
        runs=list_recorded_runs(records),
        topic_ids=list_recorded_topic_ids(records, query.query_id),
        subscriptions=list_recorded_subscriptions(records, query.query_id),
        kafka_sources=count_recorded_kafka_sources(records, query.query_id),
        is_stateful=any(batch.state_rows is not None for batch in batches),
    )


def _find_repaired_at(query: OpenQuery) -> int | None:
    """When the newest recovery of a checkpoint was begun; None without one."""
    if not query.location.name:
        return None
    recoveries = list_recoveries(query.storage, query.location)
    return parse_time_ms(recoveries[-1]) if recoveries else None
