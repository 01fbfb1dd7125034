"""The first batch after a recovery, held against what was promised of it. Pure.

Each judgement is one line for a person; what nobody can tell is told as that, never as kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from typing import Any

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.layout import OFFSETS, SOURCES
from lastgood.checkpoint.lines import to_json
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import (
    KafkaOffset,
    SourceOffset,
    VoidOffset,
    name_offset,
    parse_source_offset,
)
from lastgood.frozen import dataclass
from lastgood.observe.shown import find_shown_batch
from lastgood.planning.plan import Plan, PlannedSink
from lastgood.planning.pricing import find_ends
from lastgood.planning.steps import compute_digest, list_files_after
from lastgood.query.history import BatchRecord, InitialOffsets, SourceRead, find_source_reads
from lastgood.query.prediction.restart import Outcome
from lastgood.query.sink_batches import find_origins
from lastgood.query.sinks import Shown, judge_shown_at_last
from lastgood.query.topics import find_other_ids
from lastgood.records.record import Progress, RecordedSource
from lastgood.redaction import hide_login
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.ranges import Ranges, count_offsets, subtract
from lastgood.sources.kafka.starting_offsets import read_offsets
from lastgood.sources.kinds import find_source_kind

_SHOWN_MAX = 5


@dataclass(frozen=True, slots=True)
class Judged:
    """One thing that was looked at."""

    line: str
    """One line for a person."""
    is_kept: bool | None
    """False: it is otherwise than promised. None: nobody can tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstBatch:
    """A batch as logs, recorder and sinks tell of it."""

    record: BatchRecord
    before: BatchRecord | None
    """The batch before it; None if that is not known, or if there is none."""
    initial: InitialOffsets = field(default_factory=dict)
    """Where the sources began."""
    progress: Progress | None = None
    """What a recorder wrote down of it."""
    rows: int | None = None
    """How many it read; None: nobody counted them."""
    rows_by: str = ""
    """Who did."""
    sinks: Sequence[SinkEvidence] = ()

    @property
    def number(self) -> int:
        """Its id."""
        return self.record.batch_id

    @property
    def plan(self) -> OffsetEntry | None:
        """Its plan, if it can be read."""
        return self.record.offsets if isinstance(self.record.offsets, OffsetEntry) else None

    @property
    def reads(self) -> tuple[SourceRead, ...]:
        """What it read, as it was planned."""
        if self.plan is None:
            return ()
        before = self.before.offsets if self.before is not None else None
        earlier = before if isinstance(before, OffsetEntry) else None
        return find_source_reads(
            self.plan, earlier, self.initial if self.number == 0 else None, is_first=self.number == 0
        )

    @property
    def is_empty(self) -> bool:
        """Whether it surely had nothing to read."""
        found = self.reads
        return bool(found) and all(read.count == 0 and not read.added for read in found)

    @property
    def starts(self) -> Mapping[str, SourceOffset] | None:
        """Where it begins by the logs, by source; None if they do not tell."""
        if self.number == 0:
            return self.initial or None
        before = None if self.before is None else self.before.offsets
        if not isinstance(before, OffsetEntry):
            return None
        return find_ends(before)


def judge_number(plan: Plan | None, told: int, batch: FirstBatch) -> Judged:
    """Whether the batch is the one that was promised, and committed.

    Args:
        plan: What was promised; None for a plain restart of which nobody made a plan.
        told: The number of the first batch that was seen.
        batch: The one that was promised.
    """
    wanted = batch.number
    if plan is not None and plan.promise.batch is not None:
        wanted = plan.promise.batch
    if told < wanted:
        return Judged(f"the first new batch is {told}, and batch {wanted} was promised", is_kept=False)
    if batch.record.offsets is None and not batch.record.is_committed:
        return Judged(f"batch {wanted} is not known any more: neither the logs nor a mirror has it", is_kept=None)
    if not batch.record.is_committed:
        return Judged(f"batch {wanted} is planned, and not in the commit log", is_kept=False)
    return Judged(f"batch {wanted} was committed" + ("" if plan is None else ", as promised"), is_kept=True)


def judge_beginnings(plan: Plan | None, batch: FirstBatch) -> Iterator[Judged]:
    """Whether it begins where the plan put it, or where the batch before it ends; and reads what it was to read."""
    entry, starts = batch.plan, batch.starts
    if entry is None:
        yield Judged(
            f"what batch {batch.number} was to read is not known: {_explain_damage(batch.record)}", is_kept=None
        )
        return
    recorded = dict(_list_recorded_starts(entry, batch.progress))
    if plan is None:
        promised = {}
    else:
        promised = dict(_list_promised_starts(plan, batch.number))
    wrong = [*_find_changed(plan, batch), *_find_other_topics(plan, batch.progress), *_find_backwards(batch.reads)]
    by_logs = starts or {}
    for line in entry.sources:
        source_id = line.source_id
        wanted, logged = promised.get(source_id), by_logs.get(source_id)
        found = recorded.get(source_id, logged)
        wrong += _find_apart(source_id, wanted, found, "the plan put it at")
        wrong += _find_apart(source_id, logged, recorded.get(source_id), "the batch before it ends at")
    if wrong:
        yield from (Judged(each, is_kept=False) for each in _take_few(dict.fromkeys(wrong)))
    elif starts is None and not recorded:
        yield Judged(f"where batch {batch.number} begins is not known: {_explain_damage(batch.before)}", is_kept=None)
    else:
        put = "where the batch before it ends" if batch.number else "where its sources do"
        put = "where the plan put it" if promised else put
        by = ", as the recorder saw it" if recorded else ""
        yield Judged(f"batch {batch.number} begins {put}{by}: {_describe_places(recorded or by_logs)}", is_kept=True)


def judge_row_count(plan: Plan | None, batch: FirstBatch, *, is_rerun: bool) -> Judged | None:
    """Whether a range that is not empty gave rows; None where there is nothing to say.

    Rows that were read settle it; of a batch that its sink had already Spark reads none. Rows in a sink only say
    something where there are some: a filter or a window may hold all of them back. Only where every earlier batch had
    some, and this one has none, somebody should know.
    """
    lost = _collect_lost(plan)
    counts = [_count(read, lost) for read in batch.reads]
    expected = sum(count for count in counts if count is not None)
    if not expected and None not in counts:
        if not counts:
            return None
        return Judged(f"batch {batch.number} had nothing to read", is_kept=True)
    pairs = zip(batch.reads, counts, strict=True)
    of = " and ".join(f"{count:,} {read.unit}" for read, count in pairs if count) or "what cannot be counted"
    if batch.rows is None:
        return _judge_count_in_sinks(batch, of, expected)
    if batch.rows:
        return Judged(f"{batch.rows:,} rows were read of {of}, by {batch.rows_by}", is_kept=True)
    return _make_not_read(plan, batch, f"no row was read of {of}, by {batch.rows_by}", expected, is_rerun=is_rerun)


def _make_not_read(plan: Plan | None, batch: FirstBatch, line: str, expected: int, *, is_rerun: bool) -> Judged:
    sinks = () if plan is None else plan.sinks
    if is_rerun:
        had = _list_had_before(plan, batch)
    else:
        had = []
    if had:
        return Judged(f"{line}: {had[0]} had the batch already", is_kept=True)
    if is_rerun and not any(sink.known for sink in sinks):
        return Judged(f"{line}: so it is if the sink had the batch already, and none was asked before", is_kept=None)
    if not expected:
        return Judged(line, is_kept=None)
    unless = "unless these are markers of transactions, or records that were compacted away"
    if not any(sink.known for sink in sinks):
        unless += ", or a sink that was not asked has that number, and dropped the batch"
    return Judged(f"{line}: {unless}", is_kept=False)


def _list_had_before(plan: Plan | None, batch: FirstBatch) -> list[str]:
    sinks = () if plan is None else plan.sinks
    return [each.location for each in sinks if each.known and each.batch is not None and each.batch >= batch.number]


def judge_passed_over(plan: Plan | None, batch: FirstBatch, *, is_rerun: bool) -> Judged | None:
    """What Spark may have passed over: with failOnDataLoss=false it says nothing of records that Kafka has deleted.

    None where Spark would have failed, where nothing was to be read, where as many rows were read as offsets, and of a
    batch that its sinks had already.
    """
    if plan is None or plan.options.get("fail_on_data_loss", True):
        return None
    if is_rerun and plan.sinks and len(_list_had_before(plan, batch)) == len(plan.sinks):
        return None
    lost = _collect_lost(plan)
    counts = [_count(read, lost) for read in batch.reads if find_source_kind(read.kind).has_row_of_each_offset]
    expected = sum(count for count in counts if count is not None)
    is_whole = len(counts) == len(batch.reads) and batch.rows == expected
    if None not in counts and (not expected or is_whole):
        return None
    if batch.rows is None or batch.rows > expected:
        told = ""
    else:
        told = f"{expected - batch.rows:,} offsets gave no row: "
    return Judged(f"{told}with failOnDataLoss=false Spark passes without a word over what is deleted", is_kept=None)


def _judge_count_in_sinks(batch: FirstBatch, of: str, expected: int) -> Judged:
    written = [rows for rows in (_count_written(sink, batch.number) for sink in batch.sinks) if rows is not None]
    if any(written):
        return Judged(f"{max(written):,} rows were written of {of}, by the sink", is_kept=True)
    if not written:
        return Judged(f"how many rows were read of {of} is not known: nobody counted them", is_kept=None)
    if expected and any(_has_always_had_rows(sink, batch.number) for sink in batch.sinks):
        return Judged(f"no row was written of {of}, and every batch before that the sink knows had some", is_kept=False)
    return Judged(f"no row was written of {of}: whether any was read is not known", is_kept=None)


def judge_sinks(planned: Sequence[PlannedSink], batch: FirstBatch, *, is_rerun: bool) -> Iterator[Judged]:
    """Whether every sink that can tell shows the batch.

    Args:
        planned: What the sinks showed when the plan was made.
        batch: The batch.
        is_rerun: Whether it had been planned before: then a sink may have had it already.
    """
    told = {sink.location for sink in planned if sink.known and sink.batch is not None}
    if not batch.sinks:
        if told:
            yield Judged(f"{min(told)} was not asked whether it shows batch {batch.number}", is_kept=None)
        return
    for sink in batch.sinks:
        yield _judge_sink(sink, batch, is_rerun=is_rerun, was_known=hide_login(sink.location) in told)


def _judge_sink(sink: SinkEvidence, batch: FirstBatch, *, is_rerun: bool, was_known: bool) -> Judged:
    number, where = batch.number, hide_login(sink.location)
    told = [each for each in sink.batches if each.batch_id == number]
    shown = judge_shown_at_last(sink, number, told, was_known=was_known)
    if shown is Shown.LIVE:
        planned_ms = batch.record.time_ms
        held = None
        if planned_ms is not None:
            held = find_origins(sink, {number: planned_ms}).get(number)
        if not batch.is_empty and held is not None and held.origin.is_doubtful:
            return Judged(f"{where}: {held.because}: its rows may have been dropped", is_kept=None)
        version = find_shown_batch(sink, number, told).version
        if version is None:
            by_version = ""
        else:
            by_version = f", by version {version}"
        return Judged(f"{where} shows batch {number}{by_version}", is_kept=True)
    if batch.is_empty:
        return Judged(f"{where} does not show batch {number}, which had nothing to write", is_kept=True)
    if shown is Shown.TAKEN_BACK:
        return Judged(f"{where} showed batch {number}, and it was taken back since", is_kept=False)
    if shown is Shown.ABSENT:
        return _make_missing(sink, where, number)
    is_kept = None
    if sink.traits.tells_batches:
        cannot = f"does not tell whether it shows batch {number}"
    else:
        cannot = "cannot tell"
        if not was_known:
            is_kept = True
    return Judged(f"{where} {cannot}: {sink.because}", is_kept=is_kept)


def _make_missing(sink: SinkEvidence, where: str, number: int) -> Judged:
    if any(each.is_streaming is False for each in sink.batches):
        leaves_out = "the function that writes it may leave out what has no rows"
        return Judged(f"{where} does not show batch {number}: {leaves_out}", is_kept=None)
    if sink.last_batch is None:
        newest = "no batch"
    else:
        newest = f"batch {sink.last_batch} as the newest"
    return Judged(f"{where} shows {newest}, and batch {number} is committed", is_kept=False)


def _list_promised_starts(plan: Plan, number: int) -> Iterator[tuple[str, SourceOffset]]:
    """Where the plan put the beginning of a batch, by source."""
    left = list_files_after(plan.steps)
    written = {path: content for path, content in left.items() if content is not None}
    if number > 0:
        entry = parse_offset_entry(written.get(f"{OFFSETS}/{number - 1}", b""))
        if isinstance(entry, OffsetEntry):
            yield from find_ends(entry).items()
        return
    for path, content in written.items():
        folder, _, name = path.rpartition("/")
        initial = None
        if folder.startswith(f"{SOURCES}/") and name == "0":
            initial = parse_initial_offset(content)
        if isinstance(initial, InitialOffset):
            yield folder.removeprefix(f"{SOURCES}/"), initial.offset
    told = plan.options.get("starts_at")
    if told is not None:
        for source_id in plan.options.get("offsets", {}):  # it is one, as startingOffsets is
            yield source_id, KafkaOffset(read_offsets(told))


def _list_recorded_starts(entry: OffsetEntry, progress: Progress | None) -> Iterator[tuple[str, SourceOffset]]:
    """Where Spark began, by source; it tells its sources in an order of its own, so they go by where they end."""
    if progress is not None:
        left = list(progress.sources)
    else:
        left = []
    for line in entry.sources:
        same = next((source for source in left if _parse_offset(source.end_offset) == line.offset), None)
        if same is None:
            continue
        left.remove(same)
        start = _parse_offset(same.start_offset)
        if start is not None:
            yield line.source_id, start


def is_of(progress: Progress, entry: OffsetEntry) -> bool:
    """Whether a recorder's line is of this plan, and not of one that the batch had before."""
    found: list[RecordedSource] = list(progress.sources)
    return bool(found) and all(
        any(_parse_offset(each.end_offset) == line.offset for each in found) for line in entry.sources
    )


def _parse_offset(told: Any) -> SourceOffset | None:
    """Spark's JSON value, or the text that stands for it."""
    if told is None:
        return None
    parsed = parse_source_offset(told if isinstance(told, str) else to_json(told))
    return None if isinstance(parsed, VoidOffset | Damage) else parsed


def _find_other_topics(plan: Plan | None, progress: Progress | None) -> Iterator[str]:
    """Topics that are not those of which the plan was made: what Spark found there was never promised."""
    if plan is None:
        planned: Mapping[str, str | None] = {}
    else:
        planned = plan.options.get("topic_ids", {})
    for source in progress.sources if progress is not None else ():
        for topic, wanted, found in find_other_ids(planned, source.topic_ids or {}):
            yield f"{topic} is the topic {found}, and the plan was made of {wanted}"


def _find_changed(plan: Plan | None, batch: FirstBatch) -> Iterator[str]:
    """Plans that are not as the plan left them: that of the batch before, and of one that was to run again its own."""
    if plan is None:
        return
    expected = {**plan.guards}
    expected |= {path: compute_digest(content) for path, content in list_files_after(plan.steps).items()}
    is_rerun = plan.promise.outcome == Outcome.RERUNS.value
    for record in (batch.before, batch.record if is_rerun else None):
        entry = None if record is None else record.offsets
        if record is None or not isinstance(entry, OffsetEntry) or entry.raw is None:
            continue
        path = f"{OFFSETS}/{record.batch_id}"
        if expected.get(path) not in (None, compute_digest(entry.raw)):
            yield f"{path} is another plan than the one that was left there"
    if is_rerun and not plan.steps:
        yield from _find_reread_otherwise(plan, batch)


def _find_reread_otherwise(plan: Plan, batch: FirstBatch) -> Iterator[str]:
    """Where a batch that ran again did not read what the price of its plan says."""
    by_index = dict(enumerate(batch.reads))
    for price in plan.sources:
        ranges = None
        if price.index in by_index:
            ranges = by_index[price.index].ranges
        is_plain = not price.bound and not price.lost and sum(each.index == price.index for each in plan.sources) == 1
        if ranges is not None and is_plain:
            other = {**subtract(ranges, price.reread), **subtract(price.reread, ranges)}
            yield from (f"{each} is read otherwise than the plan said" for each in _name_partitions(other))


def _name_partitions(ranges: Ranges) -> Iterator[str]:
    return (f"{topic}/{partition}" for topic, parts in ranges.items() for partition in parts)


def _find_backwards(found: Iterable[SourceRead]) -> Iterator[str]:
    for read in found:
        for topic, partitions in read.went_back.items():
            yield from (f"{topic}/{each} goes back from {start} to {end}" for each, (start, end) in partitions.items())
        for topic, gone in read.gone.items():
            yield from (f"{topic}/{p} is not read any more from {name_offset(end)} on" for p, end in gone.items())


def _find_apart(source_id: str, wanted: SourceOffset | None, found: SourceOffset | None, words: str) -> Iterator[str]:
    """Where one source begins elsewhere; what is left to Kafka, such as the earliest, is no place."""
    if wanted is None or found is None or isinstance(wanted, VoidOffset):
        return
    if not isinstance(wanted, KafkaOffset) or not isinstance(found, KafkaOffset):
        if wanted != found:
            yield f"source {source_id} begins at {found.to_text()}, and {words} {wanted.to_text()}"
        return
    for topic, partitions in wanted.topics.items():
        for partition, at in partitions.items():
            begins = found.topics.get(topic, {}).get(partition)
            if begins is None:
                yield f"{topic}/{partition} is not read, and {words} {name_offset(at)}"
            elif at >= 0 and begins != at:
                yield f"{topic}/{partition} begins at {name_offset(begins)}, and {words} {at}"


def _describe_places(starts: Mapping[str, SourceOffset]) -> str:
    return ", ".join(_take_few(_list_places(starts)))


def _list_places(starts: Mapping[str, SourceOffset]) -> Iterator[str]:
    for source_id, offset in starts.items():
        if isinstance(offset, KafkaOffset):
            for topic, partitions in offset.topics.items():
                yield from (f"{topic}/{p} at {name_offset(at)}" for p, at in sorted(partitions.items()))
        else:
            yield f"source {source_id} at {offset.to_text()}"


def _take_few(lines: Iterable[str]) -> list[str]:
    each = iter(lines)
    found = list(islice(each, _SHOWN_MAX))
    more = sum(1 for _ in each)
    if not more:
        return found
    return [*found, f"and {more} more"]


def _collect_lost(plan: Plan | None) -> Ranges:
    """What the plan says is gone: nobody can read it."""
    found: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {}
    for price in plan.sources if plan is not None else ():
        for topic, partitions in price.lost.items():
            for partition, spans in partitions.items():
                of_topic = found.setdefault(topic, {})
                of_topic[partition] = (*of_topic.get(partition, ()), *spans)
    return found


def _count(read: SourceRead, lost: Ranges) -> int | None:
    """How much a batch was to read; None where that is left to Kafka, or of a source that is not counted."""
    if read.unresolved or any(end for each in read.added.values() for end in each.values()):
        return None
    ranges = {} if read.ranges is None else subtract(read.ranges, lost)
    if read.ranges is None:
        return read.count
    return count_offsets(ranges)


def _count_written(sink: SinkEvidence, number: int) -> int | None:
    return find_shown_batch(sink, number, [each for each in sink.batches if each.batch_id == number]).row_count


def _has_always_had_rows(sink: SinkEvidence, number: int) -> bool:
    before = [each.row_count for each in sink.batches if each.batch_id < number and each.row_count is not None]
    return len(before) >= _SHOWN_MAX and all(before)


def _explain_damage(record: BatchRecord | None) -> str:
    if record is None or record.offsets is None:
        return "neither the logs nor a mirror has its plan" if record is not None else "the plan before it is gone"
    return f"its plan is damaged: {record.offsets}"
