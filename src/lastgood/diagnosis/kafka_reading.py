"""What a Kafka source reads next and what the broker says of it, side by side; and how partitions are named. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastgood.checkpoint.source_offsets import KafkaOffset, get_topics, name_offset
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.frozen import dataclass
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart
from lastgood.query.sink_batches import is_in_sinks
from lastgood.query.spans import SourceStand, Span, list_spans, list_stands
from lastgood.query.topics import find_recorded_ids
from lastgood.sources.kafka.facts import KafkaFacts, TopicFacts
from lastgood.sources.kafka.ranges import Offsets, Ranges
from lastgood.visible import join_words

_SHOWN_MAX = 4


@dataclass(frozen=True, slots=True)
class KafkaReading:
    """One Kafka source of a query."""

    observed: Observation
    restart: Restart
    stand: SourceStand
    read: tuple[Span, ...]
    """Its batches, oldest first."""

    @property
    def start(self) -> Offsets:
        """Where the next batch begins, without what is no position; empty if nobody knows."""
        return select_positions(get_topics(self.stand.start))

    @property
    def end(self) -> Offsets:
        """Where it ends, if it was planned already."""
        return select_positions(get_topics(self.stand.end))

    @property
    def named(self) -> Offsets:
        """Every topic and partition that the plans name for it."""
        start, end = get_topics(self.stand.start), get_topics(self.stand.end)
        return {topic: {**start.get(topic, {}), **end.get(topic, {})} for topic in {**start, **end}}

    @property
    def begun(self) -> Offsets:
        """Where it began, if it wrote that down."""
        sources = self.observed.checkpoint.sources
        logs = (log for log in sources if log.name == self.stand.source_id)
        begin = next((log.initial for log in logs), None)
        return {} if begin is None else get_topics(begin.offset)

    @property
    def facts(self) -> KafkaFacts:
        """What the broker said; nothing at all if it was not asked or did not answer."""
        facts = self.observed.kafka
        if facts is not None and facts.unknown is None:
            return facts
        return KafkaFacts("", 0)

    @property
    def is_asked(self) -> bool:
        """Whether the broker has answered."""
        return self.observed.kafka is not None and self.observed.kafka.unknown is None

    @property
    def there(self) -> Mapping[str, TopicFacts]:
        """Its topics that exist and of which the broker has told."""
        found = {topic: self.facts.topics[topic] for topic in self.named if topic in self.facts.topics}
        return {name: topic for name, topic in found.items() if topic.exists and not topic.unknown and topic.partitions}

    @property
    def is_in_sinks(self) -> bool:
        """Whether the batch that runs again is in every sink, so that what it reads is not lost."""
        return self.stand.is_rerun and is_in_sinks(self.observed.checkpoint, self.observed.sinks)

    def is_gone(self, topic: str) -> bool:
        """Whether the broker said that there is no such topic."""
        return self.is_asked and self.facts.exists(topic) is False

    def recorded_id(self, topic: str) -> str | None:
        """The id that the topic had while it was read, if somebody wrote it down."""
        return find_recorded_ids(self.observed).get(topic)

    def finding(
        self,
        condition: Condition,
        subject: str,
        effect: str,
        evidence: Mapping[str, Any],
        command: str | None = None,
        level: Severity | None = None,
    ) -> Finding:
        """A finding about this source; evidence that is None is left out."""
        told = {name: value for name, value in evidence.items() if value is not None}
        return Finding(condition, subject, effect, {"source": self.stand.source_id, **told}, command, level)

    def planning_fails(self, what: str, silently: str) -> str:
        """The effect of what Spark checks in the driver, when it plans.

        Args:
            what: What is so, without a full stop.
            silently: What Spark does with `failOnDataLoss=false`.
        """
        what = what[:1].upper() + what[1:]
        if self.observed.fail_on_data_loss:
            return f"{what}: Spark plans a batch and then fails, and that plan fails at every start."
        return f"{what}: Spark {silently}."

    def inspect(self) -> str:
        """The command that shows the batch that a start goes by: the one it runs again, else the newest of all."""
        stand = self.stand
        if stand.is_rerun:
            shown = stand.batch_id
        else:
            shown = stand.batch_id - 1
        return self.observed.command("inspect", *(("--batch", str(shown)) if shown >= 0 else ()))

    def topics_command(self, *words: str) -> str:
        """A line of Kafka's own tool."""
        return join_words(["kafka-topics.sh", "--bootstrap-server", self.facts.bootstrap or "SERVERS", *words])


def list_readings(observed: Observation, restart: Restart) -> Iterator[KafkaReading]:
    """Every Kafka source of the query."""
    read = list_spans(observed.checkpoint)
    for stand in list_stands(observed.checkpoint):
        if isinstance(stand.start, KafkaOffset) or isinstance(stand.end, KafkaOffset):
            own = tuple(span for span in read if span.source_id == stand.source_id)
            yield KafkaReading(observed, restart, stand, own)


def make_status_command(observed: Observation) -> str:
    """The command that shows what is lost and what will be."""
    return observed.command("status")


def select_positions(offsets: Offsets) -> Offsets:
    """Without what is no position, such as `OFFSET_EARLIEST`."""
    known = {}
    for topic, parts in offsets.items():
        known[topic] = {partition: at for partition, at in parts.items() if at >= 0}
    return known


def select_within(offsets: Offsets, places: Mapping[str, Mapping[int, object]]) -> Offsets:
    """The offsets of the partitions that `places` names as well."""
    found = ((topic, parts, places[topic]) for topic, parts in offsets.items() if topic in places)
    kept = {}
    for topic, parts, named in found:
        kept[topic] = {partition: at for partition, at in parts.items() if partition in named}
    return kept


def turn_ranges(back: Mapping[str, Mapping[int, tuple[int, int]]]) -> Ranges:
    """What `find_went_back` gives, as ranges that ascend."""
    return {topic: {p: ((last, first),) for p, (first, last) in parts.items()} for topic, parts in back.items()}


def name_partitions(places: Mapping[str, Mapping[int, object]]) -> str:
    """Partitions as Kafka writes them."""
    return _name_some([f"{topic}-{p}" for topic, parts in sorted(places.items()) for p in sorted(parts)])


def describe_ranges(ranges: Ranges) -> str:
    """Ranges, for a sentence."""
    each = ((topic, p, span) for topic, parts in sorted(ranges.items()) for p in sorted(parts) for span in parts[p])
    return _name_some([f"[{first}, {last}) of {topic}-{p}" for topic, p, (first, last) in each])


def to_json(offsets: Mapping[str, Mapping[int, object]]) -> dict[str, dict[str, object]]:
    """One offset for each partition; what is no position by its name."""
    return {topic: {str(p): _show_offset(parts[p]) for p in sorted(parts)} for topic, parts in sorted(offsets.items())}


def _show_offset(offset: object) -> object:
    if not isinstance(offset, int):
        return offset
    return name_offset(offset)


def _name_some(items: list[str]) -> str:
    more = len(items) - _SHOWN_MAX
    if more <= 0:
        return ", ".join(items)
    return f"{', '.join(items[:_SHOWN_MAX])} and {more} more"
