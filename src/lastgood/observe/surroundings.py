"""What stands around a checkpoint: what its sinks show, and what Kafka still serves.

Whoever cannot be reached, or does not let us look, has answered too: the answer is "unknown", and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Generic, TypeVar

from lastgood.asked import Asked
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import OFFSET_LATEST, KafkaOffset
from lastgood.errors import ExtraMissingError, LastgoodError, UsageError, reason
from lastgood.observe.broker import Broker, open_broker
from lastgood.observe.evidence import GatheredQuery
from lastgood.query.history import BatchRecord
from lastgood.query.kafka import Reading
from lastgood.query.spans import orphan_of
from lastgood.query.topics import reads_of, times_to_ask
from lastgood.redaction import without_login
from lastgood.settings.target import Target, known_here
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, unknown_evidence
from lastgood.sinks.opening import open_sink
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.unasked import REPLAYS
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import LocationInvalidError
from lastgood.values import JsonValue

TIMEOUT_SECONDS = 10.0
"""How long all answers together may take."""
ONE_SECONDS = 9.0
"""How long one of them may: what it says of its own silence tells more than that time is up."""
NOT_YET = "(a query that is not there yet)"
"""Whom a sink is asked about where a checkpoint was left behind, so that it tells what it knows of others."""
_PARALLEL = 16
_TOPIC_IS_THE_SAME = "--topic-is-the-same"

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True)
class EvidenceOptions:
    """Where else to look than into the checkpoint; the same for all verbs."""

    sinks: tuple[str, ...] = ()
    """As `open_sink` takes them."""
    kafka: str | None = None
    """`bootstrap.servers`, or a file of facts that were written down before (`KafkaFacts.to_json`)."""
    topics: tuple[str, ...] = ()
    """Topics beside those that the logs name."""
    subscribe_pattern: str | None = None
    """Regular expression that matches the whole name of further topics."""
    kafka_config: Path | None = None
    """A `client.properties`, as Kafka's own tools take it."""
    txn_app_id: str | None = None
    """What the application's function gives as `txnAppId`, with the number of the batch as `txnVersion`, when it writes
    to its Delta tables; None: the query id."""
    topic_is_the_same: bool = False
    """Whether a person says that no topic was deleted and created again since the query read it."""
    source_replays: bool = False
    """Whether sources that cannot be asked serve their ranges again: a person's word for it."""

    def of(self, target: Target) -> EvidenceOptions:
        """The same, with what the configuration knows of the target wherever nothing else was said."""
        kafka, config = self.kafka, self.kafka_config
        if target.kafka is not None:
            kafka, config = kafka or target.kafka.bootstrap, config or target.kafka.config
        sinks = self.sinks or ((target.sink,) if target.sink is not None else ())
        return replace(
            self,
            sinks=sinks,
            kafka=kafka,
            kafka_config=config,
            topics=self.topics or target.topics,
            txn_app_id=self.txn_app_id or target.txn_app_id,
            source_replays=self.source_replays or target.source_replays,
        )

    def beyond(self, target: Target) -> EvidenceOptions:
        """What of it is said beyond the configuration, which knows the rest of the target."""
        configured = EvidenceOptions().of(target)
        nothing = EvidenceOptions()
        unsaid = {
            field.name: getattr(nothing, field.name)
            for field in fields(self)
            if getattr(self, field.name) == getattr(configured, field.name)
        }
        return replace(self, **unsaid)

    def words(self) -> tuple[str, ...]:
        """The same as words of a command line, which may be shown and kept: without passwords."""
        config = None if self.kafka_config is None else str(self.kafka_config)
        given = [("--sink", without_login(sink)) for sink in self.sinks]
        given += [("--kafka", self.kafka or ""), ("--kafka-config", config or "")]
        given += [("--topic", topic) for topic in self.topics]
        given += [("--subscribe-pattern", self.subscribe_pattern or ""), ("--txn-app-id", self.txn_app_id or "")]
        flags = [_TOPIC_IS_THE_SAME] if self.topic_is_the_same else []
        flags += [REPLAYS] if self.source_replays else []
        return (*(word for name, value in given if value for word in (name, value)), *flags)


def asked_of(
    target: Target, options: EvidenceOptions, *, spark: str | None = None, fail_on_data_loss: bool = True
) -> Asked:
    """How a verb was called, for the commands that it prints.

    A pipeline that is known here goes by its name: then its configuration says the rest, also what no command may
    show. Any other is told by its location, which is left open here, and by all that is known of it; but by the name of
    a pipeline here where that alone can say it.

    Args:
        target: What it is about.
        options: Where else it looked.
        spark: The version that will start; None: nobody said it.
        fail_on_data_loss: As the Kafka source has it.
    """
    start = start_words(spark, fail_on_data_loss=fail_on_data_loss)
    known = target if target.name is not None else _by_whose_name(target, options)
    if known is not None and known.name is not None:
        return Asked(known.name, options.beyond(known).words(), start)
    return Asked(evidence=options.of(target).words(), start=start, policy=target.config.named)


def said_of(target: Target, options: EvidenceOptions) -> Asked:
    """The same of a query that is told by its location, with no more said than that and the options.

    Args:
        target: Its location, or its name here.
        options: Where else to look.
    """
    known = _by_whose_name(Target(target.typed, config=target.config), options)
    if known is None or known.name is None:
        return Asked(target.typed, options.words())
    return Asked(known.name, options.beyond(known).words())


def _by_whose_name(target: Target, options: EvidenceOptions) -> Target | None:
    """The query here whose name says what no command may show, and nothing else; None if there is none, or no need."""
    said = options.of(target)
    if target.config.named is not None or all(without_login(sink) == sink for sink in said.sinks):
        return None
    try:
        known = known_here(target.checkpoint, target.config)
    except LastgoodError:  # whoever types the command is told what is wrong with the configuration
        return None
    return known if known is not None and said.of(known) == said else None


def start_words(spark: str | None, *, fail_on_data_loss: bool) -> tuple[str, ...]:
    """What was said of the Spark that will start, as words of a command line."""
    version = () if spark is None else ("--spark", spark)
    return version if fail_on_data_loss else (*version, "--fail-on-data-loss", "false")


def options_of(words: Sequence[str]) -> EvidenceOptions:
    """The options that `EvidenceOptions.words` has written down.

    Raises:
        UsageError: the words are none.
    """
    given: dict[str, list[str]] = {}
    pairs = [word for word in words if word not in (_TOPIC_IS_THE_SAME, REPLAYS)]
    for name, value in zip(pairs[::2], pairs[1::2], strict=False):
        given.setdefault(name, []).append(value)
    one = {name: values[-1] for name, values in given.items()}
    found = EvidenceOptions(
        sinks=tuple(given.get("--sink", ())),
        kafka=one.get("--kafka"),
        topics=tuple(given.get("--topic", ())),
        subscribe_pattern=one.get("--subscribe-pattern"),
        kafka_config=Path(one["--kafka-config"]) if "--kafka-config" in one else None,
        txn_app_id=one.get("--txn-app-id"),
        topic_is_the_same=_TOPIC_IS_THE_SAME in words,
        source_replays=REPLAYS in words,
    )
    if sorted(found.words()) != sorted(words):
        raise UsageError("the options are not understood", found=" ".join(words))
    return found


@dataclass(frozen=True, slots=True)
class Surroundings(JsonValue):
    """What sinks and broker said, when they were asked."""

    sinks: tuple[SinkEvidence, ...] = ()
    """In the order of the options."""
    kafka: KafkaFacts | None = None
    """None: not asked."""


def look_around(
    evidence: GatheredQuery,
    options: EvidenceOptions,
    *,
    now_ms: int,
    headroom: bool = False,
    sinks: bool = True,
    kafka: bool = True,
) -> Surroundings:
    """Ask all sinks and Kafka at once; an answer within `TIMEOUT_SECONDS`, whatever happens.

    Args:
        evidence: The checkpoint. Its mirror is read where only that can tell the query's id or its topics.
        options: Where to look; what `lastgood.toml` says of the target holds wherever they say nothing.
        now_ms: The time, milliseconds since 1970.
        headroom: Ask Kafka for the times of the first unread records as well, and for what was written after the
            newest plans (`KafkaFacts.unread`; `KafkaFacts.first_at` at `Reading.after`).
        sinks: Whether the sinks are asked.
        kafka: Whether Kafka is asked.

    Raises:
        UsageError: an option is not understood, or names a file that cannot be read (subclasses).
        LocationInvalidError: the location of a sink is not understood.
        ExtraMissingError: an option needs a library that is not installed; if only the configuration asks for it,
            the answer is "unknown".
        StorageError: the checkpoint cannot be read (subclasses).
    """
    wanted = options.of(evidence.target)
    broker = open_broker(wanted.kafka, wanted.kafka_config) if kafka else None
    texts = wanted.sinks if sinks else ()
    if not texts and broker is None:
        return Surroundings()
    has_topics = broker is None or evidence.checkpoint.newest_offsets is not None
    if not (evidence.mirror or (has_topics and evidence.query_id is not None)):
        evidence = evidence.with_mirror()
    query_id = evidence.query_id or (None if evidence.left is None else NOT_YET)
    questions: list[Question[Any]] = [
        sink_question(text, query_id, now_ms=now_ms, app_id=wanted.txn_app_id, is_default=not options.sinks)
        for text in texts
    ]
    asked = None if broker is None else _kafka_question(broker, evidence, wanted, now_ms=now_ms, headroom=headroom)
    if asked is not None:
        questions.append(replace(asked, is_default=options.kafka is None and options.kafka_config is None))
    found = answers(questions, str(evidence.location))
    return Surroundings(
        tuple(each for each in found if isinstance(each, SinkEvidence)),
        next((each for each in found if isinstance(each, KafkaFacts)), None),
    )


def reading(evidence: GatheredQuery, *, through: int | None = None) -> Reading:
    """Where a query stands in its topics, from its checkpoint, else from its mirror.

    Args:
        evidence: The checkpoint.
        through: A planned batch that counts as read, since its sinks have it; None: what is committed.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = evidence.checkpoint
    planned, last = checkpoint.last_planned, checkpoint.last_committed
    if last is None and planned is not None:
        last = planned - 1  # without any commit Spark runs the newest plan again, from where the one before it ends
    last = last if through is None else through
    evidence = evidence if last is None else evidence.with_batches([last])
    plans = [record for record in evidence.records().values() if isinstance(record.offsets, OffsetEntry)]
    read = [plan for plan in plans if (plan.is_committed if last is None else plan.batch_id <= last)]
    stands = _kafka_offsets(read[-1]) if read else _initial(evidence)
    next_offsets: dict[str, dict[int, int]] = {}
    for offset in stands:
        for topic, partitions in offset.topics.items():
            lowest = next_offsets.setdefault(topic, {})
            lowest |= {each: min(end, lowest.get(each, end), key=_height) for each, end in partitions.items()}
    named = _kafka_offsets(plans[-1]) if plans else ()
    topics = dict.fromkeys((*next_offsets, *(topic for offset in named for topic in offset.topics)))
    time_ms = read[-1].time_ms if read else None
    counted = _counted(checkpoint, plans, read)
    reads = {topic: tuple(reads_of(counted, topic)) for topic in topics}
    after = times_to_ask(counted, read[-1].batch_id if read else None)
    return Reading(tuple(topics), next_offsets, time_ms, {name: each for name, each in reads.items() if each}, after)


def _counted(
    checkpoint: Checkpoint, plans: Iterable[BatchRecord], read: Iterable[BatchRecord]
) -> dict[int, OffsetEntry]:
    """The plans of batches that are done, and of the one that runs again; continuous mode throws others away."""
    orphan = orphan_of(checkpoint)
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


def sink_question(
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
    shown = without_login(text, instead=":***")
    ask = partial(_ask_sink, text, query_id, app_id, now_ms=now_ms)
    unknown = partial(unknown_evidence, "unknown", shown, DedupeKey.NONE)
    return Question(ask, partial(unknown, is_silent=True), is_default, without_library=unknown)


def answers(questions: Sequence[Question[Any]], subject: str) -> list[Any]:
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
    return [
        answer.value if answer.error is None else question.unknown(reason(answer.error))
        for question, answer in zip(questions, asked, strict=True)
    ]


def _kafka_question(
    broker: Broker, evidence: GatheredQuery, options: EvidenceOptions, *, now_ms: int, headroom: bool
) -> Question[KafkaFacts] | None:
    """None if the query reads no topic."""
    where = reading(evidence)
    topics = tuple(dict.fromkeys((*where.topics, *options.topics)))
    if not topics and options.subscribe_pattern is None and evidence.checkpoint.newest_offsets is not None:
        return None
    ask = partial(
        broker.ask,
        topics,
        now_ms=now_ms,
        timeout_seconds=ONE_SECONDS,
        subscribe_pattern=options.subscribe_pattern,
        times_ms=where.after if headroom else (),
        next_offsets=where.next_offsets if headroom else None,
    )
    return Question(ask, partial(broker.silent, now_ms=now_ms))


def _ask_sink(text: str, query_id: str | None, app_id: str | None, *, now_ms: int) -> SinkEvidence:
    found = open_sink(text, app_id=app_id, timeout_seconds=ONE_SECONDS).evidence(query_id or "", now_ms=now_ms)
    if query_id is not None or found.dedupe_key is not DedupeKey.QUERY_ID:
        return found
    if not found.known:
        return replace(found, skips_known=False)
    because = "the id of the query is not known: neither the checkpoint nor a mirror tells it"
    if not found.others:
        because = "it holds no mark of any query, and a function need not leave one"
    return replace(unknown_evidence(found.kind, found.location, found.dedupe_key, because), others=found.others)


def _height(offset: int) -> float:
    """How far on in its partition an offset is."""
    return inf if offset == OFFSET_LATEST else offset


def _initial(evidence: GatheredQuery) -> tuple[KafkaOffset, ...]:
    return tuple(offset for offset in evidence.initial.values() if isinstance(offset, KafkaOffset))


def _kafka_offsets(record: BatchRecord) -> tuple[KafkaOffset, ...]:
    lines = record.offsets.sources if isinstance(record.offsets, OffsetEntry) else ()
    return tuple(line.offset for line in lines if isinstance(line.offset, KafkaOffset))
