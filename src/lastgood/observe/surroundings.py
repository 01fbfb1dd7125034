"""What stands around a checkpoint: what its sinks show, and what Kafka still serves.

Whoever cannot be reached, or does not let us look, has answered too: the answer is "unknown", and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Generic, TypeVar

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import OFFSET_LATEST, KafkaOffset
from lastgood.errors import ExtraMissingError, explain_error
from lastgood.frozen import dataclass
from lastgood.observe.broker import Broker, open_broker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery, read_clock_ms
from lastgood.query.history import BatchRecord
from lastgood.query.kafka import Reading
from lastgood.query.spans import find_orphan
from lastgood.query.topics import list_reads, list_times_to_ask
from lastgood.redaction import hide_login
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, make_unknown_evidence
from lastgood.sinks.opening import open_sink
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import LocationInvalidError

TIMEOUT_SECONDS = 10.0
"""How long all answers together may take."""
ONE_SECONDS = 9.0
"""How long one of them may: what it says of its own silence tells more than that time is up."""
NOT_YET = "(a query that is not there yet)"
"""Whom a sink is asked about where a checkpoint was left behind, so that it tells what it knows of others."""
_PARALLEL = 16

AnswerT = TypeVar("AnswerT")


def look_around(
    query: OpenQuery,
    options: EvidenceOptions,
    *,
    now_ms: int,
    headroom: bool = False,
    sinks: bool = True,
    kafka: bool = True,
) -> OpenQuery:
    """Ask all sinks and Kafka at once; an answer within `TIMEOUT_SECONDS`, whatever happens.

    Args:
        query: The checkpoint. Its mirror is read where only that can tell the query's id or its topics.
        options: Where to look; what `lastgood.toml` says of the target holds wherever they say nothing.
        now_ms: The time, milliseconds since 1970.
        headroom: Ask Kafka for the times of the first unread records as well, and for what was written after the
            newest plans (`KafkaFacts.unread`; `KafkaFacts.first_at` at `Reading.after`).
        sinks: Whether the sinks are asked.
        kafka: Whether Kafka is asked.

    Returns:
        The query with what they said: `seen.sinks`, in the order of the options, and `seen.kafka`.

    Raises:
        UsageError: an option is not understood, or names a file that cannot be read (subclasses).
        LocationInvalidError: the location of a sink is not understood.
        ExtraMissingError: an option needs a library that is not installed; if only the configuration asks for it,
            the answer is "unknown".
        StorageError: the checkpoint cannot be read (subclasses).
    """
    wanted = options.of(query.target)
    broker = None
    if kafka:
        broker = open_broker(wanted.kafka, wanted.kafka_config)
    texts = wanted.sinks if sinks else ()
    if not texts and broker is None:
        return query
    has_topics = broker is None or query.checkpoint.newest_offsets is not None
    known = query
    if not (query.seen.copies or (has_topics and query.query_id is not None)):
        known = query.with_mirror()
    query_id = known.query_id or (None if known.seen.left is None else NOT_YET)
    questions: list[Question[Any]] = [
        make_sink_question(text, query_id, now_ms=now_ms, app_id=wanted.txn_app_id, is_default=not options.sinks)
        for text in texts
    ]
    asked = None
    if broker is not None:
        asked = _make_kafka_question(broker, known, wanted, now_ms=now_ms, headroom=headroom)
    if asked is not None:
        questions.append(replace(asked, is_default=options.kafka is None and options.kafka_config is None))
    found = ask_questions(questions, str(query.location))
    told = tuple(each for each in found if isinstance(each, SinkEvidence))
    facts = next((each for each in found if isinstance(each, KafkaFacts)), None)
    return replace(query, seen=replace(query.seen, sinks=told, kafka=facts))


def make_reading(query: OpenQuery, *, through: int | None = None) -> Reading:
    """Where a query stands in its topics, from its checkpoint, else from its mirror.

    Args:
        query: The checkpoint.
        through: A planned batch that counts as read, since its sinks have it; None: what is committed.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = query.checkpoint
    planned, last = checkpoint.last_planned, checkpoint.last_committed
    if last is None and planned is not None:
        last = planned - 1  # without any commit Spark runs the newest plan again, from where the one before it ends
    last = last if through is None else through
    if last is not None:
        query = query.with_batches([last])
    plans = [record for record in query.records().values() if isinstance(record.offsets, OffsetEntry)]
    if last is None:
        read = [plan for plan in plans if plan.is_committed]
    else:
        read = [plan for plan in plans if plan.batch_id <= last]
    if read:
        stands = _list_kafka_offsets(read[-1])
    else:
        stands = _list_initial(query)
    next_offsets: dict[str, dict[int, int]] = {}
    for offset in stands:
        for topic, partitions in offset.topics.items():
            lowest = next_offsets.setdefault(topic, {})
            lowest |= {each: min(end, lowest.get(each, end), key=_rank_offset) for each, end in partitions.items()}
    if plans:
        named = _list_kafka_offsets(plans[-1])
    else:
        named = ()
    topics = dict.fromkeys((*next_offsets, *(topic for offset in named for topic in offset.topics)))
    time_ms = None
    if read:
        time_ms = read[-1].time_ms
    counted = _select_counted(checkpoint, plans, read)
    reads = {topic: tuple(list_reads(counted, topic)) for topic in topics}
    after = list_times_to_ask(counted, read[-1].batch_id if read else None)
    return Reading(tuple(topics), next_offsets, time_ms, {name: each for name, each in reads.items() if each}, after)


def _select_counted(
    checkpoint: Checkpoint, plans: Iterable[BatchRecord], read: Iterable[BatchRecord]
) -> dict[int, OffsetEntry]:
    """The plans of batches that are done, and of the one that runs again; continuous mode throws others away."""
    orphan = find_orphan(checkpoint)
    done = {plan.batch_id for plan in read}
    counted = (plan for plan in plans if plan.batch_id in done or plan.batch_id == orphan)
    return {plan.batch_id: plan.offsets for plan in counted if isinstance(plan.offsets, OffsetEntry)}


@dataclass(frozen=True, slots=True)
class Question(Generic[AnswerT]):
    """To a sink or to Kafka."""

    ask: Callable[[], AnswerT]
    unknown: Callable[[str], AnswerT]
    """The answer of who gave none, and why."""
    is_default: bool = False
    """Whether the configuration alone asks it: then a library that is not installed is a reason, not an error."""
    without_library: Callable[[str], AnswerT] | None = None
    """The answer for that reason, which no waiting mends; None: as `unknown`."""

    def answer(self) -> AnswerT:
        """The answer.

        Raises:
            LastgoodError: see `look_around`.
        """
        try:
            return self.ask()
        except ExtraMissingError as error:
            if not self.is_default:
                raise
            unknown = self.without_library or self.unknown
            return unknown(f"{error}: {error.next}")


def make_sink_question(
    text: str, query_id: str | None, *, now_ms: int, app_id: str | None = None, is_default: bool = False
) -> Question[SinkEvidence]:
    """What a sink shows of a query; without an id it can only tell of others, if it goes by ids.

    Args:
        text: As `open_sink` takes it.
        query_id: The id of the query; None: nobody knows it.
        now_ms: The time.
        app_id: What its function gives as `txnAppId`; None: its own id.
        is_default: As `Question.is_default`.
    """
    shown = hide_login(text, instead=":***")
    ask = partial(_ask_sink, text, query_id, app_id, now_ms=now_ms)
    unknown = partial(make_unknown_evidence, "unknown", shown, DedupeKey.NONE)
    return Question(ask, partial(unknown, is_silent=True), is_default, without_library=unknown)


def ask_questions(questions: Sequence[Question[Any]], subject: str) -> list[Any]:
    """The answers to all questions, in their order and within `TIMEOUT_SECONDS`.

    Raises:
        LastgoodError: see `look_around`.
    """
    asked = ask_all(
        [question.answer for question in questions],
        parallel=_PARALLEL,
        deadline=Deadline.after(TIMEOUT_SECONDS),
        subject=subject,
    )
    for answer in asked:
        if isinstance(answer.error, LocationInvalidError):
            raise answer.error
    told = []
    for question, answer in zip(questions, asked, strict=True):
        if answer.error is None:
            told.append(answer.value)
        else:
            told.append(question.unknown(explain_error(answer.error)))
    return told


def _make_kafka_question(
    broker: Broker, query: OpenQuery, options: EvidenceOptions, *, now_ms: int, headroom: bool
) -> Question[KafkaFacts] | None:
    """None if the query reads no topic."""
    where = make_reading(query)
    topics = tuple(dict.fromkeys((*where.topics, *options.topics)))
    if not topics and options.subscribe_pattern is None and query.checkpoint.newest_offsets is not None:
        return None
    times_ms = where.after if headroom else ()
    next_offsets = where.next_offsets if headroom else None
    ask = partial(
        broker.ask,
        topics,
        now_ms=now_ms,
        timeout_seconds=ONE_SECONDS,
        subscribe_pattern=options.subscribe_pattern,
        times_ms=times_ms,
        next_offsets=next_offsets,
    )
    return Question(ask, partial(broker.silent, now_ms=now_ms))


def _ask_sink(text: str, query_id: str | None, app_id: str | None, *, now_ms: int) -> SinkEvidence:
    told = open_sink(text, app_id=app_id, timeout_seconds=ONE_SECONDS).evidence(query_id or "", now_ms=now_ms)
    found = replace(told, asked_at_ms=read_clock_ms())
    if query_id is not None or found.dedupe_key is not DedupeKey.QUERY_ID:
        return found
    if not found.known:
        return replace(found, skips_known=False)
    because = "the id of the query is not known: neither the checkpoint nor a mirror tells it"
    if not found.others:
        because = "it holds no mark of any query, and a function need not leave one"
    return replace(make_unknown_evidence(found.kind, found.location, found.dedupe_key, because), others=found.others)


def _rank_offset(offset: int) -> float:
    """How far on in its partition an offset is."""
    return inf if offset == OFFSET_LATEST else offset


def _list_initial(query: OpenQuery) -> tuple[KafkaOffset, ...]:
    return tuple(offset for offset in query.initial.values() if isinstance(offset, KafkaOffset))


def _list_kafka_offsets(record: BatchRecord) -> tuple[KafkaOffset, ...]:
    lines = record.offsets.sources if isinstance(record.offsets, OffsetEntry) else ()
    return tuple(line.offset for line in lines if isinstance(line.offset, KafkaOffset))
