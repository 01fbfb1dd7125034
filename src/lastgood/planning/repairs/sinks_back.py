"""Repairs that take sinks back, rows and mark, or lower a mark that was left too high. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.source_offsets import (
    FileOffset,
    KafkaOffset,
    SourceOffset,
    VoidOffset,
    get_topics,
)
from lastgood.planning.pricing import find_ends, list_files_between
from lastgood.planning.repairs.repair import Repair, Work, refuse
from lastgood.planning.standing import Standing
from lastgood.query.kafka import find_not_served
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.state_load import is_about_skipping
from lastgood.query.sinks import NONE, SinkView
from lastgood.query.spans import BEFORE_FIRST_FILE
from lastgood.sinks.evidence import START_MS, SinkEvidence
from lastgood.sources.files.facts import FileState
from lastgood.sources.kafka.facts import is_compacted
from lastgood.sources.kafka.ranges import find_planned_ranges, select_only_in
from lastgood.sources.kinds import recognise_source
from lastgood.steps.step import SinkEdit

READABLE_AGAIN = "kafka, file, delta, iceberg, rate-micro-batch"
_MINUTE_MS = 60_000


def lower_mark(work: Work) -> Repair | None:
    """A sink's rows were taken back by hand and its mark was not: the mark follows (row 12).

    Raises:
        RepairRefusedError: it cannot.
    """
    standing = work.standing
    found = standing.skips_beyond
    if found is None:
        return None
    shown = standing.shown[standing.sinks.index(found)]
    if shown is None or not _can_reach(found, shown):
        raise refuse(
            standing,
            "a sink would drop batches that it does not show: its rows were taken back, and its mark was not",
            subject=found.sink.location,
            found=f"it shows batch {found.sink.last_batch}, and drops every batch up to {found.skips}",
            expected="a mark at the batch that it shows",
            effect="what is planned under these numbers would be lost without a word",
            next=standing.observed.command("status"),
        )
    return _make_going_back([found], shown, "its rows were taken back, and its mark was not")


def renew_mark(work: Work) -> Repair | None:
    """The orphan is in a table whose mark of it has expired: the mark is made again, and the batch known (row 13)."""
    standing = work.standing
    batch_id = standing.planned
    if not standing.sinks_known or not standing.has_orphan or standing.may_be_committed:
        return None
    pairs = zip(standing.sinks, standing.shown, strict=True)
    expired = [each.sink for each, shown in pairs if shown == batch_id and _has_expired(each.sink, batch_id)]
    if not expired:
        return None
    lasts_ms = min(sink.mark_lasts_ms or 0 for sink in expired)
    lines = [f"{sink.location} holds batch {batch_id}: {sink.because}" for sink in expired]
    until = f"a start within {lasts_ms // _MINUTE_MS:,} minutes of the repair: then the mark expires again"
    edits = tuple(
        SinkEdit(sink.kind, sink.location, sink.app_id, batch_id, "it holds the rows", renews=True) for sink in expired
    )
    repair = Repair((), sinks=edits, rests_on=(*lines, until), keeps_state=True)
    then = work.with_repair(repair).standing
    runs_on = then.restart.outcome is Outcome.RERUNS and then.restart.next_stop is None
    if then.recognises_orphan and runs_on:
        return repair
    return None


def run_again(work: Work) -> Repair | None:
    """A sink skips the orphan, and the state that it made the first time is gone: the sink gives it back (row 1).

    Raises:
        RepairRefusedError: it cannot, or its range is not known to be there any more.
    """
    standing = work.standing
    batch_id, restart = standing.planned, standing.restart
    stop = restart.next_stop
    if stop is None and restart.stop is not None and is_about_skipping(restart.stop):
        stop = restart.stop
    if stop is None or not standing.has_orphan or restart.batch != batch_id or batch_id not in standing.shown:
        return None
    if not standing.observed.is_stateful:
        return None
    why = f"batch {batch_id} is to run again and make its state: {stop.subject}: {stop.because}"
    repair = replace(take_sinks_back(standing, batch_id - 1, why), drops=True)
    return repair if work.with_repair(repair).standing.restart.next_stop is None else None


def _has_expired(sink: SinkEvidence, batch_id: int) -> bool:
    """Whether a table would not recognise a batch that it holds, and would if its mark were made again."""
    lasts_ms = sink.mark_lasts_ms
    is_lasting = lasts_ms is not None and lasts_ms >= START_MS
    is_own = sink.app_id is not None and not sink.write_obstacles
    return sink.traits.can_be_marked and is_own and is_lasting and sink.would_skip(batch_id) is not True


def take_sinks_back(standing: Standing, batch_id: int, why: str) -> Repair:
    """Every sink that is further goes back to a batch, rows and mark.

    Args:
        standing: Where the query stands; what each sink shows is known.
        batch_id: Where they go.
        why: One line for a person.

    Raises:
        RepairRefusedError: one cannot go back that far without anybody else's rows being touched, or a source is not
            known to have what would be read again.
    """
    _require_read_again(standing, batch_id, why)
    pairs = zip(standing.sinks, standing.shown, strict=True)
    ahead = [reading for reading, shown in pairs if shown is not None and shown > batch_id]
    for reading in ahead:
        if not _can_reach(reading, batch_id):
            raise refuse(
                standing,
                f"a sink shows batch {reading.shown}, and cannot be taken back to batch {batch_id}",
                subject=reading.sink.location,
                found=reading.sink.back_because or f"a sink of the kind {reading.sink.kind}",
                expected="a Delta table or a file sink that still holds these batches as they were written",
                effect=f"{why}; what is planned anew under these numbers would be dropped or come twice",
                next=standing.observed.command("diagnose"),
            )
    return _make_going_back(ahead, batch_id, why)


def _require_read_again(standing: Standing, batch_id: int, why: str) -> None:
    start = find_ends(standing.plan(batch_id))
    for source_id, end in find_ends(standing.plan(standing.planned)).items():
        before = start.get(source_id, VoidOffset())
        lacking = find_unserved(standing, source_id, before, end)
        if isinstance(end, KafkaOffset):
            lacking = lacking or _find_untold(standing, before, end)
        if not recognise_source(end).is_read_again:
            lacking = f"source {source_id} of the kind {end.kind}", "kafka, file, rate-micro-batch"
        if lacking is not None:
            found, expected = lacking
            raise refuse(
                standing,
                f"a sink has rows that would have to be read again after batch {batch_id}, and that is not sure",
                found=found,
                expected=expected,
                effect=f"{why}; rows that the sink shows would be lost",
                next=standing.observed.command("plan", "--goal", "resume"),
            )


def go_on_from(standing: Standing, batch_id: int) -> Repair | None:
    """The sinks are ahead of the logs, and nobody knows by which ranges: they go back to them (rows 9 and 10).

    Only where Kafka is known to serve all that came after, and so what the batches read that go.

    Returns:
        None if that is not known.
    """
    if not standing.sinks_known or not can_serve_all_after(standing, batch_id):
        return None
    ahead = [each for each in standing.sinks if each.shown > batch_id]
    if not all(_can_reach(each, batch_id) for each in ahead):
        return None
    return _make_going_back(
        ahead,
        batch_id,
        f"the logs end with batch {batch_id}, and what later ones read is known to nobody",
        rests_on=(f"{OFFSETS}/{batch_id}, and Kafka, which still serves all that comes after",),
    )


def can_serve_all_after(standing: Standing, batch_id: int) -> bool:
    """Whether Kafka, and nothing else is read, is known to serve all that came after a batch.

    Of a topic that is compacted it does not: what was superseded since is gone from between its offsets. Nor of one of
    which that is not known: what is taken out of a sink might be nowhere then.
    """
    facts, plan = standing.kafka, standing.plan(batch_id)
    if facts is None or plan is None or not standing.is_kafka_only:
        return False
    for offset in find_ends(plan).values():
        for topic, parts in get_topics(offset).items():
            earliest, latest = facts.earliest.get(topic, {}), facts.latest.get(topic, {})
            if is_compacted(facts, topic) is not False:
                return False
            if any(not earliest.get(p, at + 1) <= at <= latest.get(p, at - 1) for p, at in parts.items()):
                return False
    return True


def take_older_plan_back(standing: Standing, why: str) -> Repair | None:
    """Sinks give back what they hold of an older plan under the number of the orphan, which then runs as planned.

    Returns:
        None if one cannot, or if Kafka is not known to serve all that either plan may have read.
    """
    before, ahead = standing.planned - 1, standing.planned_anew
    if not can_serve_all_after(standing, before) or not all(_can_reach(each, before) for each in ahead):
        return None
    return replace(_make_going_back(ahead, before, why), drops=True)


def is_only_to_delta(standing: Standing) -> bool:
    """Whether the one sink of the query is a table that Spark's own streaming sink writes, and that we can mark.

    A query has one sink; only a function (`foreachBatch`) could write elsewhere, too.
    """
    if len(standing.sinks) != 1:
        return False
    (reading,) = standing.sinks
    sink = reading.sink
    is_own = sink.traits.can_be_marked and reading.has_every_mark and any(each.is_streaming for each in sink.batches)
    return is_own and sink.back_to is not None


def _find_untold(standing: Standing, start: SourceOffset, end: KafkaOffset) -> tuple[str, str] | None:
    """What Kafka did not say of a range that a sink has, and that is to be read again."""
    if standing.kafka is None:
        return "nobody who was asked what Kafka still serves", "--kafka"
    untold = find_unsettled_topics(standing, start, end)
    if untold:
        return (
            f"a broker that does not tell whether {untold[0]} is compacted",
            "the right to describe its configuration",
        )
    return None


def find_unsettled_topics(standing: Standing, start: SourceOffset, end: SourceOffset) -> list[str]:
    """The topics of a range of which nobody knows whether they are compacted."""
    topics = _list_topics(start, end)
    return [topic for topic in topics if is_compacted(standing.kafka, topic) is None]


def _list_topics(start: SourceOffset, end: SourceOffset) -> list[str]:
    """Those of which a range has records."""
    if not (isinstance(start, KafkaOffset) and isinstance(end, KafkaOffset)):
        return []
    added = select_only_in(end.topics, start.topics)
    return sorted({*find_planned_ranges(start.topics, end.topics), *added})


def find_unserved(standing: Standing, source_id: str, start: SourceOffset, end: SourceOffset) -> tuple[str, str] | None:
    """What a source is not known to have any more of a range that is to be read again, and what it should have."""
    if not recognise_source(start).may_be_read_again:
        return f"source {source_id} of the kind {start.kind}", READABLE_AGAIN
    if isinstance(start, KafkaOffset) and isinstance(end, KafkaOffset):
        facts, wanted = standing.kafka, find_planned_ranges(start.topics, end.topics)
        if facts is None and not standing.observed.fail_on_data_loss:
            return "failOnDataLoss=false, and no broker that was asked", "--kafka"
        topics = _list_topics(start, end)
        compacted = [topic for topic in topics if is_compacted(facts, topic)]
        if compacted:
            return f"{compacted[0]}, which is compacted: what was superseded is gone", "a topic that keeps every record"
        if facts:
            gone = find_not_served(wanted, facts)
        else:
            gone = {}
        if gone:
            return f"Kafka no longer serves all of {', '.join(sorted(gone))}", "its records"
    if isinstance(start, FileOffset | VoidOffset) and isinstance(end, FileOffset):
        first = start.log_offset if isinstance(start, FileOffset) else BEFORE_FIRST_FILE.log_offset
        files = list_files_between(standing.checkpoint, source_id, first, end.log_offset)
        states = {each.file.path: each.state for each in standing.observed.files.get(source_id, ())}
        doubtful = [path for path in files if states.get(path) is not FileState.PRESENT]
        if doubtful or len(files) < end.log_offset - first:
            if doubtful:
                found = doubtful[0]
            else:
                found = "entries of its log that were not read"
            return f"source {source_id}: {found}", "every file as it was logged"
    return None


def _can_reach(reading: SinkView, batch_id: int) -> bool:
    sink = reading.sink
    return sink.known and sink.back_to is not None and NONE < sink.back_to <= batch_id


def _make_going_back(ahead: Iterable[SinkView], batch_id: int, why: str, rests_on: tuple[str, ...] = ()) -> Repair:
    sinks = [each.sink for each in ahead]
    edits = tuple(SinkEdit(sink.kind, sink.location, sink.app_id, batch_id, why) for sink in sinks)
    logs = (f"the log of {sink.location}: what is above batch {batch_id} can be taken out alone" for sink in sinks)
    return Repair((), sinks=edits, rests_on=(*rests_on, *logs), keeps_state=True)
