"""What a lost checkpoint is seeded from: the sink's newest batch, the rows of its table, its last commit, Kafka."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.delta_log.actions import TableCommit
from lastgood.delta_log.table import read_table_log
from lastgood.errors import LastgoodError, StorageError, UsageError
from lastgood.observe.ledger import open_asked_ledger
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.observe.positions import StartChoice, choose_offsets, find_first_records, find_oldest_records, read_at
from lastgood.observe.surroundings import TIMEOUT_SECONDS
from lastgood.planning.extents import (
    Reads,
    measure_extent_from_beginning,
    measure_extent_of_batch,
    measure_extent_of_rows,
    measure_extent_since,
)
from lastgood.planning.goals.values import FreshGoal
from lastgood.planning.price import Guarantee
from lastgood.planning.pricing import find_ends
from lastgood.planning.repairs.lost import find_newest_mirrored
from lastgood.planning.standing import see_as
from lastgood.query.sink_batches import find_held_batch
from lastgood.settings.target import Target
from lastgood.sinks.delta.offsets import read_offsets
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.offset_columns import OffsetColumnsError, TableOffsets, parse_offset_columns
from lastgood.sources.kafka.facts import Found, FoundRecord, KafkaFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.retention import MAX_CLOCK_SKEW_MS
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import open_storage, parse_location

_ONLY_SOURCE = "0"
_WRITES = ("STREAMING UPDATE", "WRITE", "MERGE")


def make_seed(found: OpenQuery, where: StartChoice) -> FreshGoal:
    """The goal `fresh` of a query whose checkpoint is lost, or to be left behind.

    With where it starts, and how far the sinks have come if anybody tells.

    Raises:
        UsageError: no choice, or more than one; or what it needs is not given (subclasses).
        BatchUnknownError: nobody knows where the batch ended that the sink shows.
        SourceKindError: no source of the query is Kafka.
        StorageError: the table cannot be read.
    """
    where.require_one()
    return replace(_make_seed(found, where), new_query_id=str(uuid.uuid4()))


def choose_seed(found: OpenQuery) -> FreshGoal:
    """What can be trusted most: the mirror, else the newest batch of the sinks if anybody knows where it ended."""
    if not found.seen.repair.mirror:
        with contextlib.suppress(LastgoodError):
            return make_seed(found, StartChoice(at_sink=True))
    return FreshGoal()


def list_other_seeds(found: OpenQuery, goal: FreshGoal) -> Iterator[tuple[FreshGoal, tuple[str, ...]]]:
    """Further ways to seed it, each with the options that ask for it; those that lack something are left out."""
    if goal.extent is not None and not goal.extent.anew and goal.extent.most not in (None, goal.offsets):
        at = json.dumps({t: parts for each in goal.extent.most.values() for t, parts in each.items()})
        yield replace(goal, offsets=goal.extent.most, chosen="the end of the rows"), ("--at", at)
    ways = {
        ("--at-sink",): StartChoice(at_sink=True),
        ("--at-last-commit",): StartChoice(at_last_commit=True),
        ("--earliest",): StartChoice(earliest=True),
    }
    for options, where in ways.items():
        with contextlib.suppress(LastgoodError):
            other = make_seed(found, where)
            if other.chosen != goal.chosen:
                yield other, options


def _make_seed(found: OpenQuery, where: StartChoice) -> FreshGoal:
    if where.at_sink:
        return _seed_by_mark(found)
    if where.offset_columns is not None:
        return _seed_by_rows(where.offset_columns, where, found)
    topics = _list_kafka_topics(found)
    if not topics and where.at is not None:
        topics = {_ONLY_SOURCE: read_at(where.at)}
    if not topics and not (where.batch is not None or where.stable_lag is not None):
        raise UsageError(
            "no log names a topic that the query reads",
            subject=str(found.location),
            expected="--topic NAME and --kafka SERVERS",
        )
    reads = _make_reads(found, topics)
    if where.at_last_commit:
        return _seed_by_time(where, found, reads)
    offsets, chosen = choose_offsets(where, found, topics=topics or None)
    is_whole = where.earliest and reads.facts is not None and not where.only
    return FreshGoal(offsets, chosen, measure_extent_from_beginning(reads) if is_whole else None)


def _seed_by_mark(found: OpenQuery) -> FreshGoal:
    """Where the newest batch ended that all sinks show."""
    sinks = found.seen.sinks
    if found.query_id is None:
        query_id = _recall_id(found.target)
        if query_id is not None:
            sinks = see_as(found.seen, query_id).sinks
    shown = {sink.last_batch for sink in sinks}
    if len(shown) != 1 or None in shown or not all(sink.known and sink.presumed_app_id is None for sink in sinks):
        raise UsageError(
            "the sinks do not name the one batch that all of them show",
            subject="--at-sink",
            found="; ".join(f"{sink.location}: {sink.because}" for sink in sinks) or "no sink was asked",
            expected="--sink LOCATION, one that shows batches of this query",
        )
    batch = shown.pop() or 0
    standing = find_offsets_after(found.target, batch=batch, said=found.asked)
    checkpoint = found.with_batches([batch - 1, batch]).checkpoint
    for sink in sinks:
        held = find_held_batch(checkpoint, sink, batch, standing.time_ms)
        if held is not None and held.origin.is_doubtful:
            raise UsageError(
                "where the batch ended that the sink shows is not known: the plan that is left is another one",
                subject="--at-sink",
                found=f"{sink.location}: {held.because}",
                expected="--offset-columns, --at-last-commit, --earliest",
            )
    marks = [f"{sink.location} shows batch {batch}: {sink.because}" for sink in sinks]
    told_by = f"where batch {batch} ended, as logs, mirror or ledger tell"
    holes = [f"{sink.location} lacks batches {sink.holes}, taken back before" for sink in sinks if sink.holes]
    extent = measure_extent_of_batch(standing.sources, marks=marks, told_by=told_by, holes=holes)
    return FreshGoal(standing.sources, f"the end of batch {batch}, the newest that the sink shows", extent)


def _recall_id(target: Target) -> str | None:
    """The id of a query of which only a ledger knows."""
    with open_asked_ledger(target, None, environment=os.environ) as ledger:
        return gather(target, batches=1, ledger=ledger, may_be_missing=True).query_id


def _seed_by_rows(text: str, where: StartChoice, found: OpenQuery) -> FreshGoal:
    """Where the rows of the table end, or where the first of them is missing."""
    columns = parse_offset_columns(text)
    table = _choose_table(found, "--offset-columns")
    _require_judged(table)
    topics = _list_kafka_topics(found)
    topic = None
    if columns.topic is None:
        topic = _choose_topic(topics, text)
    oldest, untold = _find_oldest(found, topics)
    rows = read_offsets(parse_location(table.location), columns, topic=topic, since=_take_offsets(oldest))
    _require_topics(found, topics, rows)
    told = topics or {_ONLY_SOURCE: rows.ends}
    if not any(topic in rows.held for each in told.values() for topic in each):
        raise OffsetColumnsError(
            "the table holds no row of a topic that the query reads",
            subject=table.location,
            found=", ".join(rows.held) or "no rows",
            expected=", ".join(topic for each in told.values() for topic in each) or "--topic NAME",
        )
    reads = _make_reads(found, _restrict_to_source(told, where.source))
    anew, before = _find_created_again(found, table, rows, reads, oldest)
    earlier = [
        (Guarantee.LOSSY, f"{topic} looks as if it was created again earlier: {because}. What was unread then is lost")
        for topic, because in before.items()
    ]
    doubts = [*untold, *earlier, *_list_doubts(found, table, rows, told)]
    extent = measure_extent_of_rows(rows, str(columns), reads, doubts, anew)
    if anew:
        beside = f", and the beginning of {', '.join(anew)}"
    else:
        beside = ""
    chosen = f"the first offsets that no row of {table.location} carries in {columns}{beside}"
    return FreshGoal(extent.least, chosen, extent)


def _require_topics(found: OpenQuery, topics: Mapping[str, Offsets], rows: TableOffsets) -> None:
    """See that a broker that is to be asked was asked of the topics that the table holds."""
    if not topics and found.asked.kafka is not None and rows.held:
        raise UsageError(
            "Kafka was not asked, since no log names a topic",
            subject=f"--kafka {found.asked.kafka}",
            found=f"{rows.location} holds rows of {', '.join(rows.held)}",
            expected=" ".join(f"--topic {topic}" for topic in rows.held),
        )


def _list_doubts(
    found: OpenQuery, table: SinkEvidence, rows: TableOffsets, told: Mapping[str, Offsets]
) -> list[tuple[Guarantee, str]]:
    """What speaks against rows as the measure of how far the query has come."""
    others = len(found.seen.sinks) - 1
    doubts = []
    if others:
        line = f"how far {others} other sink{'s have' if others > 1 else ' has'} come, its rows do not tell"
        doubts.append((Guarantee.LOSSY, line))
    own = {found.query_id, found.seen.repair.mirrored_id, *(copy.query_id for copy in found.seen.copies)}
    foreign = [name for name in table.others if name not in own]
    if len(foreign) > (1 if own == {None} else 0):
        line = f"others write to {table.location} too: {', '.join(foreign[:3])}"
        doubts.append((Guarantee.AT_LEAST_ONCE, line))
    unread = [topic for topic in rows.held if not any(topic in each for each in told.values())]
    if unread:
        line = f"rows of {', '.join(unread[:3])}, which the query is not known to read, are left out"
        doubts.append((Guarantee.AT_LEAST_ONCE, line))
    return doubts


def _find_oldest(found: OpenQuery, topics: Mapping[str, Offsets]) -> tuple[Found, list[tuple[Guarantee, str]]]:
    """The oldest record that Kafka has of each partition, and what to say where a broker that was named is silent."""
    facts = found.seen.kafka
    if facts is None:
        return {}, []
    silent = facts.unknown
    if silent is None:
        try:
            return find_oldest_records(found, topics), []
        except UsageError as error:
            silent = error.found
    return {}, [(Guarantee.LOSSY, f"Kafka does not tell whether the topics are still those of the rows: {silent}")]


def _take_offsets(records: Found) -> Offsets:
    return {
        topic: {partition: record.offset for partition, record in each.items() if record.offset is not None}
        for topic, each in records.items()
    }


def _find_created_again(
    found: OpenQuery, table: SinkEvidence, rows: TableOffsets, reads: Reads, oldest: Found
) -> tuple[dict[str, str], dict[str, str]]:
    """The topics that look as if they were created again since rows were made of them, each with what shows it.

    A row that is older than the oldest record, and has its offset or a higher one, is of an earlier topic. If the row
    with the highest offset came long after that record, it is of the present one, and tells where to go on.

    Returns:
        Those of which rows do not tell where to go on, and the others.
    """
    if reads.facts is None:
        return {}, {}
    latest, ends = reads.facts.latest, list(_list_ends(rows, reads))
    anew = {
        topic: f"partition {partition} ends below rows of it"
        for topic, partition, end in ends
        if latest.get(topic, {}).get(partition, end) < end
    }
    before: dict[str, str] = {}
    times = [each.timestamp_ms for each in _list_commits(table) if each.changes_data and each.timestamp_ms is not None]
    if not times:
        return anew, before
    newest_ms = max(times)
    for topic, partition, end in ends:
        record = oldest.get(topic, {}).get(partition, FoundRecord())
        made_ms = record.timestamp_ms if record.offset is not None and record.offset < end else None
        since_ms = min(rows.since_ms.get(topic, {}).get(partition, newest_ms), newest_ms)
        if made_ms is not None and since_ms < made_ms:
            is_last = rows.written_ms.get(topic, {}).get(partition, newest_ms) >= made_ms + MAX_CLOCK_SKEW_MS
            told = before if is_last else anew
            told[topic] = f"rows of partition {partition} are older than the oldest record, and have such offsets"
    with contextlib.suppress(UsageError):  # facts that were written down tell of other times
        for each in find_first_records(found, reads.topics, newest_ms + MAX_CLOCK_SKEW_MS).values():
            for topic, partition, end in ends:
                if each.get(topic, {}).get(partition, end) < end:
                    anew[topic] = f"records of partition {partition} are younger than all rows, and have such offsets"
    return anew, {topic: because for topic, because in before.items() if topic not in anew}


def _list_ends(rows: TableOffsets, reads: Reads) -> Iterator[tuple[str, int, int]]:
    """Where the rows of each partition end that the query reads."""
    for topic in sorted({topic for each in reads.topics.values() for topic in each}):
        for partition, end in rows.ends.get(topic, {}).items():
            yield topic, partition, end


def _seed_by_time(where: StartChoice, found: OpenQuery, reads: Reads) -> FreshGoal:
    """What was written to Kafka since the query last saw all of it."""
    table = _choose_table(found, "--at-last-commit")
    commit = _find_commit_before_last(table, found.query_id)
    at_ms = (commit.timestamp_ms or 0) - where.margin_ms
    starts = find_first_records(found, reads.topics, at_ms)
    what = f"version {commit.version} of {table.location}, {commit.timestamp_ms} ms, the last batch but one"
    behind = f"{where.margin_ms // 1000} s"
    chosen = f"what was written to Kafka since {behind} before version {commit.version} of {table.location}"
    return FreshGoal(starts, chosen, measure_extent_since(starts, commit=what, behind=behind))


def _find_commit_before_last(table: SinkEvidence, query_id: str | None) -> TableCommit:
    """The last version but one that the query wrote; of several that may be it, the oldest.

    A batch is planned after the one before it is written: so the newest batch has read all that was in the topics when
    the last but one was written, while its own commit may come long after it was planned.

    Raises:
        UsageError: the log of the table does not go back that far.
    """
    by_writer: dict[str | None, list[TableCommit]] = {}
    for each in _list_commits(table):
        if each.operation in _WRITES and each.added and each.timestamp_ms is not None:
            by_writer.setdefault(next(iter(each.by_app), None), []).append(each)
    if query_id in by_writer:
        own = {query_id: by_writer[query_id]}
    else:
        own = by_writer
    if not own or any(len(each) < 2 for each in own.values()):
        raise UsageError(
            "the table does not tell when the last batch but one was written",
            subject=table.location,
            found=f"{sum(map(len, own.values()))} versions that wrote rows, by {len(own)} writers",
            expected="two of each writer that may be the query; else --earliest, or --at-time TIME",
        )
    return min((each[-2] for each in own.values()), key=lambda each: each.version)


def _require_judged(table: SinkEvidence) -> None:
    """See that the newest rows of a table are in it, as far as its log tells.

    Raises:
        StorageError: they may be elsewhere, or it is a table that we do not know.
    """
    place = parse_location(table.location)
    log = read_table_log(open_storage(place), place, deadline=Deadline.after(TIMEOUT_SECONDS), commits_max=1)
    if isinstance(log, Damage):
        untold = str(log)
    elif log is None:
        untold = None
    else:
        untold = log.unjudged
    if untold is not None:
        raise StorageError(
            "the table cannot be asked for its offsets",
            subject=table.location,
            found=untold,
            expected="a Delta table whose log tells all that is in it",
        )


def _list_commits(table: SinkEvidence) -> Sequence[TableCommit]:
    """The newest versions of a table, oldest first; none where they may not be the newest."""
    place = parse_location(table.location)
    log = read_table_log(open_storage(place), place, deadline=Deadline.after(TIMEOUT_SECONDS))
    return () if log is None or isinstance(log, Damage) or log.unjudged is not None else log.commits


def _choose_table(found: OpenQuery, option: str) -> SinkEvidence:
    """The one Delta table among the sinks."""
    tables = [sink for sink in found.seen.sinks if sink.traits.tells_offsets]
    if len(tables) != 1:
        raise UsageError(
            "which table?" if tables else "no sink is a Delta table",
            subject=option,
            found=", ".join(f"{sink.location}: {sink.kind}" for sink in found.seen.sinks) or "no sink was asked",
            expected="--sink LOCATION of one Delta table",
        )
    return tables[0]


def _list_kafka_topics(found: OpenQuery) -> dict[str, Offsets]:
    """The partitions of each Kafka source, by the newest plan, else by what was asked of Kafka; empty: nobody tells."""
    entry = found.seen.checkpoint.newest_offsets or find_newest_mirrored(found.seen.repair.mirror)
    if entry is not None:
        return {name: each.topics for name, each in find_ends(entry).items() if isinstance(each, KafkaOffset)}
    facts = _get_answered(found)
    known_topics = facts.topics if facts else {}
    topics = {name: dict.fromkeys(each.partitions, 0) for name, each in known_topics.items()}
    topics = topics or {name: {} for name in found.asked.topics}
    if not topics:
        return {}
    return {_ONLY_SOURCE: topics}


def _make_reads(found: OpenQuery, topics: Mapping[str, Offsets]) -> Reads:
    began = {name: each.topics for name, each in found.initial.items() if isinstance(each, KafkaOffset)}
    return Reads(topics, began, _get_answered(found))


def _get_answered(found: OpenQuery) -> KafkaFacts | None:
    facts = found.seen.kafka
    return facts if facts is not None and facts.unknown is None else None


def _restrict_to_source(topics: Mapping[str, Offsets], source: str | None) -> Mapping[str, Offsets]:
    return {name: each for name, each in topics.items() if source in (None, name)}


def _choose_topic(topics: Mapping[str, Offsets], text: str) -> str:
    names: Sequence[str] = [topic for each in topics.values() for topic in each]
    if len(names) != 1:
        raise OffsetColumnsError(
            "of which topic are the rows?",
            subject=f"--offset-columns {text}",
            found=", ".join(names) or "no log that names a topic",
            expected="--topic NAME, or TOPIC,PARTITION,OFFSET",
        )
    return names[0]
