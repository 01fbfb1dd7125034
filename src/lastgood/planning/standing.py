"""Where a query stands when it is to be repaired: its logs, what Spark would do, and what each sink shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.frozen import dataclass
from lastgood.query.observation import Observation, make_views
from lastgood.query.position import Position, locate
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome, Restart
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.query.sinks import NONE, SinkView
from lastgood.query.topics import list_recreated
from lastgood.query.unmarked import Unmarked, find_unmarked
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.steps.step import SinkEdit

_NAMED_MAX = 5
RUNS = (Outcome.STARTS, Outcome.RESUMES, Outcome.RERUNS)
"""What a start may come to that commits a batch."""


@dataclass(frozen=True, slots=True)
class Standing:
    """One query. Make one with `Standing.of`."""

    observed: Observation
    spark: SparkVersion
    position: Position
    restart: Restart
    sinks: tuple[SinkView, ...]
    moved: frozenset[str] = frozenset()
    """Where sinks are whose marks are not yet what is told of them here."""

    @classmethod
    def of(cls, observed: Observation, spark: SparkVersion, moved: Iterable[str] = ()) -> Standing:
        """What is so, or would be once sinks have moved, and what a Spark of this version would do."""
        restart = predict(observed, spark)
        position = locate(observed.checkpoint, observed.sinks)
        sinks = make_views(observed)
        return cls(observed, spark, position, restart, tuple(sinks), frozenset(moved))

    @property
    def checkpoint(self) -> Checkpoint:
        """The checkpoint."""
        return self.observed.checkpoint

    @property
    def planned(self) -> int:
        """L, or `NONE`."""
        found = self.checkpoint.last_planned
        return NONE if found is None else found

    @property
    def committed(self) -> int:
        """C, or `NONE`."""
        found = self.checkpoint.last_committed
        return NONE if found is None else found

    @property
    def has_orphan(self) -> bool:
        """Whether the newest plan is not committed."""
        return self.planned > self.committed

    @property
    def query_id(self) -> str | None:
        """The id in `metadata`; None if nobody can read it."""
        found = self.checkpoint.query
        return found.query_id if isinstance(found, QueryMetadata) else None

    @property
    def runs(self) -> bool:
        """Whether a start commits a batch."""
        return self.restart.outcome in RUNS

    @property
    def kafka(self) -> KafkaFacts | None:
        """What the broker said; None if it was not asked or did not answer."""
        facts = self.observed.kafka
        if facts is not None and facts.unknown is None:
            return facts
        return None

    def plan(self, batch_id: int) -> OffsetEntry | None:
        """A plan that can be read."""
        entry = self.checkpoint.offsets.entries.get(batch_id)
        return entry if isinstance(entry, OffsetEntry) else None

    def commit(self, batch_id: int) -> CommitEntry | None:
        """A commit that can be read."""
        entry = self.checkpoint.commits.entries.get(batch_id)
        return entry if isinstance(entry, CommitEntry) else None

    @property
    def newest_commit(self) -> CommitEntry | None:
        """The newest commit that can be read: the template of one that is written by hand."""
        entries = self.checkpoint.commits.entries
        found = (entries[batch_id] for batch_id in sorted(entries, reverse=True))
        return next((entry for entry in found if isinstance(entry, CommitEntry)), None)

    # What the sinks show.

    @property
    def shown(self) -> tuple[int | None, ...]:
        """Per sink the newest batch that it shows, `NONE` if surely none, and None if that is not known."""
        return tuple(each.complete_to for each in self.sinks)

    @property
    def sinks_known(self) -> bool:
        """Whether it is known of every sink of the query what it shows."""
        return bool(self.sinks) and None not in self.shown

    @property
    def common(self) -> int | None:
        """The one batch up to which all sinks show everything; None if they differ, or one is not known."""
        shown = set(self.shown)
        if len(shown) == 1:
            return shown.pop()
        return None

    @property
    def furthest(self) -> int:
        """The newest batch that any sink is known to show, or `NONE`."""
        return max((batch for batch in self.shown if batch is not None), default=NONE)

    @property
    def unmarked(self) -> dict[str, Unmarked]:
        """By sink what it may have beyond the newest batch that it shows, under no mark of the query."""
        found = {each.sink.location: find_unmarked(each) for each in self.sinks}
        return {location: each for location, each in found.items() if each is not None}

    @property
    def reached_at_most(self) -> int:
        """The newest batch that a sink shows, or is likely to have under no mark; `NONE` if there is none."""
        reached = self.furthest
        for each in self.unmarked.values():
            if each.is_likely:
                reached = max(reached, *each.batches)
        return reached

    @property
    def skipped_up_to(self) -> int:
        """The newest number that any sink is known to drop without a word, or `NONE`."""
        found = self.position.skipped_up_to
        return NONE if found is None else found

    @property
    def skips_beyond(self) -> SinkView | None:
        """A sink that drops numbers above what it shows: somebody took its rows back and not its mark (row 12)."""
        pairs = zip(self.sinks, self.shown, strict=True)
        return next((each for each, shown in pairs if each.sink.known and each.skips > _take_most(shown, each)), None)

    def would_take(self, batch_id: int) -> bool:
        """Whether every sink is known not to drop a batch of this number."""
        return bool(self.sinks) and all(each.sink.would_skip(batch_id) is False for each in self.sinks)

    @property
    def planned_anew(self) -> tuple[SinkView, ...]:
        """Sinks that hold, or may hold, an older plan's rows under the number of the orphan."""
        return tuple(each for each in self.sinks if each.is_planned_anew)

    @property
    def recognises_orphan(self) -> bool:
        """Whether every sink is known to take the orphan once: those that hold it drop it, the others write it."""
        if self.may_have_orphan_unmarked:
            return False
        return bool(self.sinks) and all(each.recognises_orphan for each in self.sinks)

    @property
    def may_have_orphan_unmarked(self) -> bool:
        """Whether a sink is likely to have the orphan under no mark of the query: then it takes it a second time."""
        return self.has_orphan and any(
            each.is_likely and self.planned in each.batches for each in self.unmarked.values()
        )

    def list_unmarked(self) -> Iterator[str]:
        """What sinks may have, or are taken not to have, beyond what they show; one line each."""
        for location, each in self.unmarked.items():
            which = ", ".join(map(str, each.batches[:_NAMED_MAX]))
            if each.is_likely:
                yield f"{location} may have rows of batch {which} under no mark of the query: {each.because}"
            else:
                yield f"the assumption that {location} has no row of batch {which}, though {each.because} since"

    def written_elsewhere(self) -> Iterator[str]:
        """What of the orphan no sink can tell: a query has one sink, and a function may write to others as well."""
        if self.has_orphan and any(each.is_by_function for each in self.sinks):
            yield f"the assumption that the function writes batch {self.planned} into the named sinks and nowhere else"

    def list_taken_for_own(self) -> Iterator[str]:
        """What is taken to be so where a sink has the orphan, and drops it by its number alone; one line each."""
        for each in self.sinks:
            yield from each.list_taken_for_own()

    def list_heads_untold(self) -> Iterator[str]:
        """Sinks of which nobody has said that what was read is what their catalog has; one line each."""
        for each in self.sinks:
            if each.sink.head_untold is not None:
                yield f"the assumption that {each.sink.location} is as it was read: {each.sink.head_untold}"

    def marks(self) -> Iterator[str]:
        """What the sinks that are known rest on; one line each."""
        for each, shown in zip(self.sinks, self.shown, strict=True):
            if shown is not None and each.sink.location not in self.moved:
                yield self._mark(each.sink, shown)

    def _mark(self, sink: SinkEvidence, shown: int) -> str:
        if shown == NONE:
            return f"{sink.location} shows no batch of this query: {sink.because}"
        mark = sink.traits.mark
        if mark is not None:
            if sink.dedupe_key is DedupeKey.QUERY_ID:
                of = f" of query {self.query_id}"
            else:
                of = ""
            return f"{mark} {shown}{of} in {sink.location}"
        return f"{sink.kind} sink {sink.location} shows batch {shown}"

    # What the sources are.

    @property
    def kinds(self) -> dict[str, str]:
        """Per source what it is, by the newest plan that can be read."""
        entry = self.checkpoint.newest_offsets
        if not entry:
            return {}
        return {line.source_id: line.offset.kind for line in entry.sources}

    @property
    def is_kafka_only(self) -> bool:
        """Whether all sources are Kafka, which is not asked again for a batch that is committed."""
        kinds = self.kinds
        return bool(kinds) and set(kinds.values()) == {KafkaOffset.kind}

    @property
    def may_be_committed(self) -> bool:
        """Whether the orphan, if all sinks have it, can be committed by hand: nothing but the logs goes by it."""
        return self.is_kafka_only and not self.observed.is_stateful and self.newest_commit is not None

    @property
    def recreated(self) -> tuple[str, ...]:
        """See the function of this name."""
        return list_recreated(self.observed)


def see_as(observed: Observation, query_id: str, *, asked_as: str | None = None) -> Observation:
    """The same, where sinks that go by query id were asked about another one: what they hold under this id is its own.

    Args:
        observed: With its sinks.
        query_id: The id of the query.
        asked_as: The id that they were asked about; None if there was none.
    """
    if query_id == asked_as:
        return observed
    return replace(observed, sinks=tuple(_see_sink_as(sink, query_id, asked_as) for sink in observed.sinks))


def take_back_evidence(sink: SinkEvidence, edits: Iterable[SinkEdit]) -> SinkEvidence:
    """What a sink will say once it has gone back, if it is one of those that go."""
    edit = next((each for each in edits if each.location == sink.location), None)
    if edit is None:
        return sink
    if sink.broken_from is not None and edit.batch < sink.broken_from:
        sink = replace(sink, files_gone=(), files_damaged=(), broken_from=None)
    return replace(
        sink,
        last_batch=edit.batch,
        skips_up_to=edit.batch,
        batches=tuple(each for each in sink.batches if each.batch_id <= edit.batch),
        because=f"its mark is moved to batch {edit.batch}",
        back_to=None,
        log_names=tuple(name for name in sink.log_names if (_parse_entry_number(name) or 0) <= edit.batch),
        notes=(),
    )


def _parse_entry_number(name: str) -> int | None:
    number = name.removesuffix(COMPACT_SUFFIX)
    if number.isdecimal():
        return int(number)
    return None


def _see_sink_as(sink: SinkEvidence, query_id: str, asked_as: str | None) -> SinkEvidence:
    last = sink.others.get(query_id)
    is_own = asked_as is None and sink.last_batch is not None
    is_told = sink.known or (asked_as is None and last is not None)  # without an id nobody knew whom to ask about
    if sink.dedupe_key is not DedupeKey.QUERY_ID or not is_told or is_own:
        return sink
    if last is None and asked_as is None:
        return sink
    others = {name: batch for name, batch in sink.others.items() if name != query_id}
    if asked_as is not None and sink.last_batch is not None:
        others[asked_as] = sink.last_batch
    because = f"its mark of query {query_id}"
    return replace(
        sink,
        last_batch=last,
        known=True,
        skips_up_to=last,
        skips_known=True,
        batches=(),
        marked_at_ms=sink.others_at_ms.get(query_id),
        because=because,
        others=others,
    )


def _take_most(shown: int | None, reading: SinkView) -> int:
    if shown is None:
        return reading.shown
    return max(shown, reading.shown)
