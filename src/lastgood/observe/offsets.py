"""`offsets`: where a query stood after a batch, as `startingOffsets` that Spark takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Any

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import (
    OFFSET_EARLIEST,
    OFFSET_LATEST,
    KafkaOffset,
    TextOffset,
    VoidOffset,
    name_offset,
)
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.ledger import open_asked_ledger
from lastgood.observe.open_query import (
    BatchUnknownError,
    OpenQuery,
    gather,
    make_batch_unknown_error,
    parse_records,
    read_clock_ms,
)
from lastgood.observe.surroundings import look_around
from lastgood.query.kafka import find_expired
from lastgood.settings.target import Target
from lastgood.sources.kafka.ranges import Offsets, Ranges, ranges_to_json, select_only_in, unite
from lastgood.sources.kafka.reader import SourceKindError
from lastgood.values import JsonValue, make_form

_NOTHING_ASKED = EvidenceOptions()
_PERHAPS_KAFKA = (KafkaOffset, VoidOffset, TextOffset)
"""Offsets of Kafka, none yet, or a line that is no offset of anything: a batch before may tell that it is Kafka."""


@dataclass(frozen=True, slots=True)
class OffsetsAfterBatch(JsonValue):
    """Where a query stood after one batch: the first offset of each partition that the batch had not read."""

    json = make_form(
        "checkpoint=query.location batch current committed=is_committed time_ms sources=_starts unresolved went_back "
        "expired=_expired sinks=_sinks",
        left_out="unresolved went_back",
        texts="checkpoint",
    )
    """What `offsets --format json` prints."""

    query: OpenQuery
    batch: int
    current: int
    """CURRENT: the newest file in the offset log."""
    is_committed: bool
    time_ms: int | None
    sources: dict[str, Offsets]
    """Source → topic → partition → next offset; -2, the beginning, where only a later batch knows the partition."""
    added: Offsets
    """Partitions that exist and that the batch does not know: they stand at -2, their beginning."""
    unresolved: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    """Partitions at which the plan itself holds `earliest` or `latest`: how far the batch had read it does not tell."""
    lowest: Mapping[str, Offsets] = field(default_factory=dict)
    """Source → topic → partition → `sources`, or lower where the query went back since; of what the newest plan names.

    A repair, or a topic that was created again, lets a later batch end below an earlier one. What lies between was to
    be read again then, or is of another topic: a start above it leaves it out.
    """

    @property
    def went_back(self) -> Offsets:
        """Partitions that a later batch left lower: where the lowest of them ended."""
        found: dict[str, dict[int, int]] = {}
        for source_id, topics in self.lowest.items():
            for topic, parts in topics.items():
                for partition, end in parts.items():
                    if end < self.sources[source_id][topic][partition]:
                        found.setdefault(topic, {})[partition] = end
        return found

    @property
    def expired(self) -> Ranges:
        """What lies between these offsets and the first that Kafka still has: a start from here finds it gone."""
        facts = self.query.seen.kafka
        found: Ranges = {}
        for topics in self.sources.values():
            known = {
                topic: {each: offset for each, offset in parts.items() if offset >= 0}
                for topic, parts in topics.items()
            }
            if facts is not None:
                found = unite(found, find_expired(known, facts))
        return found

    def starting_offsets(self, source_id: str | None = None) -> dict[str, dict[str, int]]:
        """The JSON that Spark's option `startingOffsets` takes, every partition named.

        Raises:
            UsageError: the query has several Kafka sources, and none was chosen.
        """
        if source_id is None and len(self.sources) > 1:
            raise self._which_source("which source?")
        if source_id is not None and source_id not in self.sources:
            raise self._which_source(f"the query has no Kafka source '{source_id}'")
        if source_id is not None:
            chosen = self.sources[source_id]
        else:
            chosen = next(iter(self.sources.values()))
        merged: dict[str, dict[str, int]] = {}
        for topic, partitions in chosen.items():
            named = {**dict.fromkeys(self.added.get(topic, {}), OFFSET_EARLIEST), **partitions}
            merged[topic] = {str(partition): named[partition] for partition in sorted(named)}
        return dict(sorted(merged.items()))

    def _which_source(self, sentence: str) -> UsageError:
        location, first = self.query.location, next(iter(self.sources))
        return UsageError(
            sentence,
            subject=str(location),
            found=", ".join(self.sources),
            next=self.query.command("offsets", "--batch", self.batch, "--source", first),
        )

    @property
    def _starts(self) -> dict[str, Any]:
        return {source: {"starting_offsets": self.starting_offsets(source)} for source in self.sources}

    @property
    def _expired(self) -> dict[str, Any] | None:
        if not self._earliest_known:
            return None
        return ranges_to_json(self.expired)

    @property
    def _sinks(self) -> list[dict[str, Any]]:
        return [
            {"location": sink.location, "known": sink.known, "last_batch": sink.last_batch}
            for sink in self.query.seen.sinks
        ]

    @property
    def _earliest_known(self) -> bool:
        return self.query.seen.kafka is not None and self.query.seen.kafka.unknown is None


def find_offsets_after(  # noqa: PLR0913 - all but the target by name
    target: Target,
    *,
    batch: int | None = None,
    time_ms: int | None = None,
    stable_lag: int | None = None,
    options: EvidenceOptions = _NOTHING_ASKED,
    said: EvidenceOptions | None = None,
    ledger: str | None = None,
    clock_ms: Callable[[], int] = read_clock_ms,
) -> OffsetsAfterBatch:
    """Where a query stood after a batch; after the newest committed one if nothing is said.

    Args:
        target: Which query.
        batch: After this batch.
        time_ms: After the newest batch planned at or before this time, milliseconds since 1970.
        stable_lag: After batch CURRENT - N, CURRENT being the newest file in the offset log.
        options: Sinks and Kafka. Partitions that Kafka has and the batch does not know are added at -2.
        said: Where the caller looks, for the commands that errors name; None: `options`.
        ledger: URL or path of a ledger, which knows what neither checkpoint nor mirror has. None: that of the
            configuration, else of `LASTGOOD_LEDGER`, if it answers.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        UsageError: more than one of `batch`, `time_ms`, `stable_lag`, or an option that is not understood.
        BatchUnknownError: no such batch is known; names the oldest that is.
        SourceKindError: no source of the query is Kafka.
        LedgerUrlError, ExtraMissingError, LedgerError: the ledger that was named cannot be asked (subclasses).
    """
    if sum(choice is not None for choice in (batch, time_ms, stable_lag)) > 1:
        raise UsageError("only one batch can be meant", expected="one of --batch, --time, --stable-lag")
    with open_asked_ledger(target, ledger, environment=os.environ) as opened:
        query, wanted = _choose(
            gather(target, batches=2, ledger=opened, options=said or options),
            batch,
            time_ms,
            stable_lag,
        )
        current = query.current
        records = query.records([wanted, *(() if current is None else (current,))])
        chosen = records.get(wanted)
        if current is None or chosen is None or not isinstance(chosen.offsets, OffsetEntry):
            raise make_batch_unknown_error(query.with_mirror(), wanted)
        query = replace(query, remembered=None)  # it cannot be asked any more
    newest = None
    if current in records:
        newest = records[current].offsets
    sources = _find_kafka_sources(chosen.offsets, newest if isinstance(newest, OffsetEntry) else None)
    if not sources:
        raise _make_no_kafka_error(query, chosen.offsets)
    query = look_around(query, options, now_ms=clock_ms())
    kafka = query.seen.kafka
    known = {topic for topics in sources.values() for topic in topics}
    there = kafka.topics if kafka else {}
    added = {
        topic: {
            each: OFFSET_EARLIEST
            for each in facts.partitions
            if not any(each in source.get(topic, {}) for source in sources.values())
        }
        for topic, facts in there.items()
        if topic in known
    }
    return OffsetsAfterBatch(
        query,
        wanted,
        current,
        chosen.is_committed,
        chosen.time_ms,
        sources,
        added,
        _find_unresolved(chosen.offsets),
        _find_lowest(query, wanted, current, sources),
    )


def _find_lowest(
    query: OpenQuery, batch: int, current: int, sources: Mapping[str, Offsets]
) -> dict[str, dict[str, dict[int, int]]]:
    """The lowest end of each partition from a batch on; see `Standing.lowest`."""
    later = [each for each in query.known if batch < each < current]  # of the mirror too, where that was read
    records = query.with_batches([batch, *later, current]).records([batch, *later, current])
    read = [record.offsets for each, record in records.items() if batch < each <= current]
    plans = [entry.topics for entry in read if isinstance(entry, OffsetEntry)]
    newest = plans[-1] if plans else sources
    lowest: dict[str, dict[str, dict[int, int]]] = {}
    for source_id, topics in sources.items():
        named = newest.get(source_id, {})
        lowest[source_id] = {
            topic: {
                partition: _choose_lowest(
                    end, [plan.get(source_id, {}).get(topic, {}).get(partition) for plan in plans]
                )
                for partition, end in parts.items()
                if partition in named[topic]
            }
            for topic, parts in topics.items()
            if topic in named
        }
    return lowest


def _choose_lowest(end: int, later: Iterable[int | None]) -> int:
    """The lowest of these places; "latest" is none, as nobody wrote down where that was."""
    return min([end, *(each for each in later if each is not None and each != OFFSET_LATEST)])


def _make_no_kafka_error(query: OpenQuery, entry: OffsetEntry) -> SourceKindError:
    return SourceKindError(
        "no source of the query is Kafka",
        subject=str(query.location),
        found=", ".join(f"'{line.offset.kind}'" for line in entry.sources),
        expected="offsets of Kafka",
        next=query.command("inspect"),
    )


def _find_unresolved(entry: OffsetEntry) -> dict[str, dict[int, str]]:
    found: dict[str, dict[int, str]] = {}
    for line in entry.sources:
        for topic, parts in line.offset.topics.items() if isinstance(line.offset, KafkaOffset) else ():
            for partition, offset in parts.items():
                if offset < 0:
                    found.setdefault(topic, {})[partition] = str(name_offset(offset))
    return found


def _find_kafka_sources(entry: OffsetEntry, newest: OffsetEntry | None) -> dict[str, Offsets]:
    """Next offsets per source; partitions that only CURRENT knows came later, and were read from their beginning."""
    sources: dict[str, Offsets] = {}
    for line in entry.sources:
        if isinstance(line.offset, KafkaOffset):
            topics = {topic: dict(partitions) for topic, partitions in line.offset.topics.items()}
            later = None
            if newest:
                later = newest.source(line.source_id)
            if later is not None and isinstance(later.offset, KafkaOffset):
                for topic, partitions in select_only_in(later.offset.topics, topics).items():
                    topics.setdefault(topic, {}).update(dict.fromkeys(partitions, OFFSET_EARLIEST))
            sources[line.source_id] = topics
    return sources


def _choose(query: OpenQuery, batch: int | None, time_ms: int | None, stable_lag: int | None) -> tuple[OpenQuery, int]:
    """The batch that is meant, and the query with its plan and that of CURRENT read."""
    if query.current is None:
        query = query.with_mirror()
    current = query.current
    if current is None:
        raise make_batch_unknown_error(query, batch or 0)
    newest = query.checkpoint.newest_offsets
    if newest is not None and not any(isinstance(line.offset, _PERHAPS_KAFKA) for line in newest.sources):
        raise _make_no_kafka_error(query, newest)  # before a batch is named that would not do either
    if time_ms is not None:
        query, wanted = _find_planned_at(query, time_ms)
    elif stable_lag is not None:
        wanted = current - stable_lag
        if wanted < 0:
            raise _make_too_far_back_error(query, current, stable_lag)
    elif batch is not None:
        wanted = batch
    else:
        committed = query.newest_committed(current)
        if committed is None and query.remembered:
            committed = query.remembered.newest(is_committed=True)
        wanted = current if committed is None else committed
    return query.with_batches([wanted, current]), wanted


def _make_too_far_back_error(query: OpenQuery, current: int, stable_lag: int) -> BatchUnknownError:
    oldest = query.with_mirror().known.oldest or 0
    return BatchUnknownError(
        f"there is no batch CURRENT-{stable_lag}",
        subject=str(query.location),
        found=f"CURRENT is {current}, and the oldest batch that is known is {oldest}",
        expected=f"--stable-lag {current - oldest} at most",
        next=query.command("offsets", "--stable-lag", current - oldest),
    )


def _find_planned_at(query: OpenQuery, time_ms: int) -> tuple[OpenQuery, int]:
    found = query.planned_at(time_ms)
    if found is not None:
        return query, found
    query = query.with_mirror()
    timed = ((record.batch_id, record.time_ms) for record in parse_records(query.copies))
    before = [batch_id for batch_id, planned_ms in timed if planned_ms is not None and planned_ms <= time_ms]
    recalled = None
    if query.remembered:
        recalled = query.remembered.planned_at(time_ms)
    before += [] if recalled is None else [recalled]
    if not before:
        oldest = query.known.oldest
        raise BatchUnknownError(
            "no known batch is that old",
            subject=str(query.location),
            found=f"the oldest is batch {oldest}",
            next=query.command("offsets", "--batch", oldest),
        )
    return query, max(before)
