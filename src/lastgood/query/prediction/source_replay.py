"""Which sources of a query nobody asked: whether they still serve what a start will want, and what they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import DeltaOffset, KafkaOffset, RateMicroBatchOffset, SourceOffset
from lastgood.query.observation import Observation
from lastgood.sources.kinds import recognise_source
from lastgood.sources.unasked import REPLAYS, Unasked, describe_source, is_counting_rows

_LIKE_KAFKA = "Kafka by its offsets, which wrote down no beginning as Kafka does"
_NOT_KAFKA = "Kafka by its offsets, where a recorder saw another source, as Azure Event Hubs is"
_ELSE_LEFT_OUT = "else Spark leaves out what Kafka no longer serves, without a word"
_NOT_RATE = "rate-micro-batch by the keys of its offsets, and not by their numbers"


_NOTHING: Mapping[str, SourceOffset] = {}


def list_unasked_sources(observed: Observation, begun_before: Mapping[str, SourceOffset] = _NOTHING) -> list[Unasked]:
    """Every source that could not be asked, and for which Spark does not stop by itself, in the order of the plan.

    Args:
        observed: What was found and asked.
        begun_before: Where sources began, as somebody noted down of a checkpoint that has lost it.
    """
    return list(_list_unasked(observed, begun_before))


def list_taken_for_kafka(observed: Observation, begun_before: Mapping[str, SourceOffset]) -> list[str]:
    """What a promise rests on where a source is Kafka by all that it wrote down, and nobody was asked; one line each.

    Azure's connector for Event Hubs, and some others, write offsets and beginning as Kafka's does.
    """
    if observed.kafka is not None:
        return []
    taken = [
        source_id
        for source_id, offset, initial in _list_reached(observed, begun_before)
        if isinstance(offset, KafkaOffset) and isinstance(initial, KafkaOffset)
    ]
    if _is_recorded_as_kafka(observed) is None:
        found = [
            f"the assumption that source {source_id} is Kafka, and its topics those that were read: it looks so, and so"
            " does Azure Event Hubs, and no --kafka is named"
            for source_id in taken
        ]
    else:
        found = [
            f"the assumption that the topics of source {source_id} are those that were read: no --kafka is named"
            for source_id in taken
            if _is_recorded_as_kafka(observed)
        ]
    if found and observed.fail_on_data_loss:
        found.append(f"the assumption that failOnDataLoss is true: {_ELSE_LEFT_OUT}")
    return found


def list_taken_for_tables(observed: Observation) -> list[str]:
    """What a promise rests on where a query reads a Delta table, and nobody has looked at that; one line each.

    A table has its id from its log: an older copy that was put back has it as well, and once it is written on, other
    rows have numbers that were read.
    """
    taken = []
    for source_id, offset, _ in _list_reached(observed, _NOTHING):
        if not isinstance(offset, DeltaOffset) or source_id in observed.tables:
            continue
        line = (
            f"the assumption that the table of source {source_id} is as it was read: no file tells where it is, so that"
        )
        taken.append(f"{line} nobody has looked")
    return taken


def list_taken_for_rate(observed: Observation) -> list[str]:
    """What is taken to be so where a source is Spark's `rate-micro-batch` by all that its offsets show; one line each.

    That source makes its rows of its offsets. A place and a time are what others keep as well, and what they have read
    may be gone.
    """
    if observed.source_replays:
        return []
    return [
        f"source {source_id} is Spark's rate-micro-batch, as it looks, and no other source that keeps a place and a"
        f" time: {REPLAYS} says that it serves its ranges again"
        for source_id, offset, _ in _list_reached(observed, _NOTHING)
        if isinstance(offset, RateMicroBatchOffset) and _is_like_rate(observed, source_id)
    ]


def list_begun_by_options(observed: Observation) -> list[str]:
    """What is taken to be so of a first batch that is not done, where no file tells where it begins; one line each.

    Spark looks the options of such a source up at each start until a batch is done. A Delta table notes down no more
    than where its first batch ends, and that only shows that it began with all that the table had while it is inside
    that: with `startingVersion` `latest` a later start begins later, also with the batch that is planned.
    """
    checkpoint = observed.checkpoint
    if checkpoint.last_committed is not None or (checkpoint.last_planned or 0) > 0:
        return []
    planned = checkpoint.offsets.entries.get(0)
    if isinstance(planned, OffsetEntry):
        return [
            f"source {line.source_id} begins where its first batch did: a Delta table keeps that nowhere, and with"
            " startingVersion latest what came until this start is left out"
            for line in planned.sources
            if isinstance(line.offset, DeltaOffset) and not line.offset.is_starting_version
        ]
    if checkpoint.query is None or any(log.listing.newest_listed is not None for log in checkpoint.sources):
        return []
    told = "no source begins at the latest: no file tells where the query was to begin, and what came until this start"
    return [f"{told} would be left out"]


def _is_recorded_as_kafka(observed: Observation) -> bool | None:
    """Whether a recorder has seen that every source that looks like Kafka is Kafka; None: nobody has."""
    recorded, newest = observed.advice.kafka_sources, observed.checkpoint.newest_offsets
    if recorded is None or newest is None:
        return None
    return recorded >= sum(isinstance(line.offset, KafkaOffset) for line in newest.sources)


def _describe_like_kafka(observed: Observation) -> str:
    return _NOT_KAFKA if _is_recorded_as_kafka(observed) is False else _LIKE_KAFKA


def _list_reached(
    observed: Observation, begun_before: Mapping[str, SourceOffset]
) -> Iterator[tuple[str, SourceOffset, SourceOffset | None]]:
    """Each source in the order of the plan: how far it was read, and where it began, if it wrote that down."""
    newest = observed.checkpoint.newest_offsets
    written = {log.name: log.initial.offset for log in observed.checkpoint.sources if log.initial is not None}
    begun = {**begun_before, **written}
    if newest:
        reached = {line.source_id: line.offset for line in newest.sources}
    else:
        reached = begun
    for source_id, offset in reached.items():
        yield source_id, offset, begun.get(source_id)


def _list_unasked(observed: Observation, begun_before: Mapping[str, SourceOffset]) -> Iterator[Unasked]:
    for source_id, offset, initial in _list_reached(observed, begun_before):
        if not _is_asked(observed, source_id, offset, initial):
            is_gone = is_counting_rows(offset, initial)
            if isinstance(offset, KafkaOffset):
                name = _describe_like_kafka(observed)
            elif isinstance(offset, RateMicroBatchOffset):
                name = _NOT_RATE
            else:
                name = describe_source(offset, initial)
            yield Unasked(source_id, name, is_gone, is_vouched_for=observed.source_replays and not is_gone)


def _is_asked(observed: Observation, source_id: str, offset: SourceOffset, initial: SourceOffset | None) -> bool:
    """Whether it told what it has, or is of a kind for which Spark stops where something is gone."""
    kind = recognise_source(offset)
    if isinstance(offset, RateMicroBatchOffset):
        return _is_like_rate(observed, source_id)
    if kind.makes_its_rows or kind.keeps_log or kind.stops_where_gone:
        return True
    match offset:
        case DeltaOffset():
            return observed.fail_on_data_loss or source_id in observed.tables
        case KafkaOffset():  # other connectors write the same shape, and Kafka's own always its beginning as well
            if _is_recorded_as_kafka(observed) is False:  # of several nobody knows which it is
                return _has_topics(observed, offset)
            return isinstance(initial, KafkaOffset) or _has_topics(observed, offset)
    return False


def _is_like_rate(observed: Observation, source_id: str) -> bool:
    """Whether the newest plan is one of `rate-micro-batch`: so many batches of one length, as Spark writes it."""
    entries = observed.checkpoint.offsets.entries
    newest = max((n for n, entry in entries.items() if isinstance(entry, OffsetEntry)), default=-1)
    plan = entries.get(newest)
    if not isinstance(plan, OffsetEntry):
        return False
    line = plan.source(source_id)
    if line is None or not isinstance(line.offset, RateMicroBatchOffset):
        return False
    return line.text == line.offset.to_text() and line.offset.offset % (newest + 1) == 0


def _has_topics(observed: Observation, offset: KafkaOffset) -> bool:
    """Whether a broker has every topic that is read."""
    topics = observed.kafka.topics if observed.kafka is not None else {}
    return all(topic in topics and topics[topic].exists for topic in offset.topics)
