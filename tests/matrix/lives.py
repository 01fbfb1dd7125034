"""Lives of queries, made up: drivers that plan, write, commit and die; people and brokers who do things meanwhile.

What Spark, its sinks and Kafka do is written down here a second time, from their rules and with nothing of lastgood's:
each record that was ever produced is a value of its own, so that at the end of a life they can be counted. What the
verbs are told of a life is what a checkpoint, a sink and a broker would show of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from planning import read

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import SourceOffset, get_topics
from lastgood.planning.draft import Draft
from lastgood.query.observation import Observation, RepairFacts
from lastgood.query.topics import collect_offset_entries, list_times_to_ask
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sources.kafka.facts import Found, FoundRecord, KafkaFacts, PartitionFacts, TopicFacts
from lastgood.testing.checkpoints import PINNED_CONF, QUERY_ID, STARTED_MS

Place = tuple[str, int]
"""Topic and partition."""
Record = tuple[str, int, int, int]
"""Topic, how often it had been created (and how often its end had been lost, `_ENDS` times), partition, offset."""
KEPT_CLOCK_MS = 5000
"""No clock that is kept is wrong by as much."""
_ENDS = 1000
Ends = dict[Place, int]


class DiesError(Exception):
    """Spark stops with an error."""


@dataclass
class Partition:
    """One partition as its broker keeps it."""

    times_ms: list[int] = field(default_factory=list)
    """Of every record that was ever written to it."""
    earliest: int = 0
    holes: set[int] = field(default_factory=set)
    """Offsets that hold no record: a transaction ends there, or it was compacted."""
    compacted: set[int] = field(default_factory=set)
    """Of these, what a broker does not find by its time."""
    leader: int = 0
    """How often its end was lost: each time another one leads."""
    leaders: list[int] = field(default_factory=list)
    """Who led when each record was written."""

    def write(self, at_ms: int) -> None:
        self.times_ms.append(at_ms)
        self.leaders.append(self.leader)

    def lose_end(self, first: int) -> None:
        """An election of one that has not got what comes from `first` on."""
        del self.times_ms[first:], self.leaders[first:]
        self.holes = {at for at in self.holes if at < first}
        self.compacted = {at for at in self.compacted if at < first}
        self.leader += 1

    @property
    def latest(self) -> int:
        return len(self.times_ms)


@dataclass
class Topic:
    """A topic, which may be deleted and created again."""

    name: str
    partitions: dict[int, Partition]
    created: int = 0
    is_transactional: bool = False
    is_compacted: bool = False

    @property
    def topic_id(self) -> str:
        return f"{self.name}-{self.created}"

    def record(self, number: int, at: int) -> Record:
        return self.name, self.created + _ENDS * self.partitions[number].leaders[at], number, at


@dataclass
class Planned:
    """A file of the log of plans."""

    at_ms: int
    """By the clock of its driver."""
    ends: list[Ends]
    """By source."""


@dataclass
class Written:
    """A batch as one sink got it."""

    number: int
    rows: list[Record]
    at_ms: int
    version: int
    is_live: bool = True


@dataclass
class Sink:
    """Delta by query id or by `txnAppId`, the file sink, or one that tells nothing (`silent`)."""

    kind: str
    location: str
    has_times: bool = True
    """Whether it tells when it got a batch."""
    is_lazy: bool = False
    """Whether a batch without rows leaves no mark, as a function may do it."""
    mark: int = -1
    marked_ms: int | None = None
    log: list[Written] = field(default_factory=list)
    is_restored: bool = False
    forgotten: int = 0
    """Versions below are no longer in its log: the checkpoint of the log keeps rows and mark alone."""
    unclear_before: int = 0
    """A RESTORE went back to a version that is no longer in its log: what of the ones before is live is not told."""
    made_ms: int = STARTED_MS
    """When the table was made."""

    @property
    def is_delta(self) -> bool:
        return self.kind in ("delta", "txn")

    def write(self, number: int, rows: list[Record], at_ms: int) -> None:
        """Take a batch, or drop it by its number."""
        if number <= self.mark or (self.is_lazy and not rows):
            return
        self.log.append(Written(number, rows, at_ms, len(self.log)))
        if self.kind != "silent":
            self.mark, self.marked_ms = number, at_ms

    def clean_log(self, kept: int) -> None:
        """Old versions of the log go; after a RESTORE they stay, or nobody could ever tell."""
        if not self.is_restored:
            self.forgotten = max(self.forgotten, len(self.log) - kept)

    def restore(self, newest: int) -> None:
        """A RESTORE of the table: rows go, and the mark stays."""
        self.is_restored = True
        if self.forgotten and newest < min((each.number for each in self._told()), default=self.mark + 1):
            self.unclear_before = len(self.log)
        for each in self.log:
            each.is_live = each.is_live and each.number <= newest

    def make_again(self, now_ms: int) -> None:
        """The table is dropped, and another one made in its place."""
        self.mark, self.marked_ms, self.log, self.made_ms = -1, None, [], now_ms
        self.is_restored, self.forgotten, self.unclear_before = False, 0, 0

    def take_back(self, newest: int) -> None:
        """Rows and mark."""
        for each in self.log:
            each.is_live = each.is_live and each.number <= newest
        self.mark = newest

    def rows(self) -> Iterator[Record]:
        for each in self.log:
            if each.is_live:
                yield from each.rows

    def came_ms(self, number: int) -> int | None:
        """When it got the rows that it shows of a batch, as far as it tells."""
        told = [each.at_ms for each in self._told() if each.number == number and self._is_live(each) is not False]
        if told:
            newest_ms: int | None = max(told)
        else:
            newest_ms = self.marked_ms if self.is_delta and self.mark == number else None
        return newest_ms if self.has_times else None

    def tells_when(self, number: int) -> bool:
        """Whether it tells when it got a batch."""
        return self.has_times and any(each.number == number for each in self._told())

    def _told(self) -> list[Written]:
        return [each for each in self.log if each.version >= self.forgotten]

    def _is_live(self, each: Written) -> bool | None:
        return each.is_live if each.version >= self.unclear_before else None

    def evidence(self, now_ms: int) -> SinkEvidence:
        if self.kind == "silent":
            none = DedupeKey.NONE
            return SinkEvidence(
                "unrecognised", self.location, none, None, known=False, because="no mark", skips_known=False
            )
        told = self._told()
        last = max((each.number for each in told if self._is_live(each)), default=None)
        known = last is not None or not self.forgotten or not self.is_restored
        if last is None and known and self.forgotten:
            last = self.mark if self.mark >= 0 else None
        keys = {"delta": DedupeKey.QUERY_ID, "txn": DedupeKey.APP_ID, "file": DedupeKey.DIRECTORY}
        batches = tuple(
            CommittedBatch(
                each.number,
                each.version if self.is_delta else None,
                is_live=self._is_live(each),
                row_count=None if self.kind == "file" else len(each.rows),
                committed_at_ms=each.at_ms if self.has_times else None,
                is_streaming={"delta": True, "file": True, "txn": False}.get(self.kind),
            )
            for each in told
        )
        can_go_back = self.kind in ("delta", "file") and not self.is_restored and bool(told)
        first = told[0].number if told else self.mark + 1
        is_marked = self.is_delta and self.has_times and self.mark == last
        return SinkEvidence(
            "delta" if self.is_delta else self.kind,
            self.location,
            keys[self.kind],
            last,
            known=known,
            because="its log",
            skips_up_to=self.mark if self.mark >= 0 else None,
            batches=batches,
            complete_from=first if self.forgotten else 0,
            marked_at_ms=self.marked_ms if is_marked else None,
            unclear="it went back to a version that is gone from its log" if self.unclear_before else None,
            times_by_driver=True,
            asked_at_ms=now_ms,
            log_names=tuple(str(each.number) for each in self.log) if self.kind == "file" else (),
            created_at_ms=self.made_ms if self.is_delta else None,
            app_id={"delta": QUERY_ID, "txn": "etl"}.get(self.kind),
            back_to=(first if self.forgotten else 0) if can_go_back else None,
        )


class Life:
    """One query from its beginning to the moment at which it is looked at."""

    def __init__(self, folder: Path, sources: list[list[Topic]], sinks: list[Sink]) -> None:
        self.folder = folder
        self.sources = sources
        self.topics = {topic.name: topic for topics in sources for topic in topics}
        self.sinks = sinks
        self.now_ms = STARTED_MS
        self.skew_ms = 0
        """How far the clock of the driver is ahead."""
        self.producer_ms = 0
        """How far those are ahead that set the times of records."""
        self.plans: dict[int, Planned] = {}
        self.commits: set[int] = set()
        self.begun: list[Ends] | None = None
        self.produced: set[Record] = set()
        self.ids_begun: dict[str, str] = {}
        """What the topics were when the query began."""
        self.ids_before: dict[str, str] = {}
        self.is_strict = True
        self.planned_anew: set[int] = set()
        """Numbers that were planned anew after a sink had got them."""
        self.held_before: set[tuple[int, str]] = set()
        """The same with the sinks that had got them, until they get the number again."""
        self.is_looked_at = False
        self.is_asked = True
        """Whether a broker tells anything."""
        self.mirror: dict[str, bytes] = {}
        """The logs as somebody copied them once."""
        self.floor = -1
        """The newest plan when a topic was last created again: nobody could tell without it."""

    # What brokers and producers do.

    def wait(self, ms: int) -> None:
        self.now_ms += ms

    def produce(self, topic: Topic, count: int) -> None:
        for number, partition in topic.partitions.items():
            for _ in range(count):
                self.now_ms += 1
                partition.write(self.now_ms + self.producer_ms)
                self.produced.add(topic.record(number, partition.latest - 1))
            if topic.is_transactional and count:
                partition.holes.add(partition.latest)
                partition.write(self.now_ms + self.producer_ms)

    def compact(self, topic: Topic, gone: Mapping[int, set[int]]) -> None:
        """Records whose key came again are taken out; nobody is owed them."""
        for number, offsets in gone.items():
            topic.partitions[number].holes |= offsets
            topic.partitions[number].compacted |= offsets
        owed = {topic.record(number, at) for number, offsets in gone.items() for at in offsets}
        self.produced -= owed

    def lose_ends(self, topic: Topic, count: int) -> None:
        """The newest records of each partition are gone: nobody is owed them."""
        for number, each in topic.partitions.items():
            first = max(each.earliest, each.latest - count)
            self.produced -= {topic.record(number, at) for at in range(first, each.latest)}
            each.lose_end(first)

    def recreate(self, topic: Topic) -> None:
        topic.created += 1
        self.floor = max(self.plans, default=-1)
        topic.partitions = {number: Partition() for number in topic.partitions}

    # What Spark does.

    def start(self, limit: int, batches: int, dies: str | None = None) -> None:
        """A driver runs so many batches; `dies`: in the last one, `planned` or `written`.

        Raises:
            DiesError: it stops with an error.
        """
        newest, committed = max(self.plans, default=-1), max(self.commits, default=-1)
        if committed > newest:
            raise DiesError("no plan of the newest commit")
        number = committed + 1 if newest == committed else newest
        if number > 0 and number - 1 not in self.plans:
            raise DiesError("no plan before")
        for each in range(batches):
            is_last = each == batches - 1
            if number not in self.plans and not self._plan(number, limit):
                return
            if is_last and dies == "planned":
                return
            self._write(number)
            if is_last and dies == "written":
                return
            self.commits.add(number)
            self.now_ms += 10
            number += 1

    def _begins(self, number: int) -> list[Ends]:
        if number > 0:
            return self.plans[number - 1].ends
        if self.begun is None:
            self.begun = [self._earliest(topics) for topics in self.sources]
            self._forget({place: at for begin in self.begun for place, at in begin.items()})
            self.produced = {each for each in self.produced if each[1] % _ENDS == self.topics[each[0]].created}
            self.ids_begun = {topic.name: topic.topic_id for topic in self.topics.values()}
        return self.begun

    def _earliest(self, topics: list[Topic]) -> Ends:
        return {(topic.name, p): each.earliest for topic in topics for p, each in topic.partitions.items()}

    def _forget(self, below: Ends) -> None:
        """What is below is owed to nobody: it was gone before the query began, or may go without a word."""
        created = {topic.name: topic.created for topic in self.topics.values()}
        self.produced = {
            (name, times, p, at)
            for name, times, p, at in self.produced
            if at >= below.get((name, p), 0) or times % _ENDS != created[name]
        }

    def _plan(self, number: int, limit: int) -> bool:
        """False if there is nothing to read."""
        begins, ends = self._begins(number), []
        is_back = False
        for topics, begin in zip(self.sources, begins, strict=True):
            end: Ends = {}
            for topic in topics:
                for p, each in topic.partitions.items():
                    at = begin.get((topic.name, p), 0)
                    is_back = is_back or each.latest < at
                    end[topic.name, p] = min(each.latest, at + limit)
            ends.append(end)
        if ends == begins:
            return False
        self.now_ms += 5
        self.plans[number] = Planned(self.now_ms + self.skew_ms, ends)
        if any(sink.mark >= number for sink in self.sinks):
            self.planned_anew.add(number)
        self.held_before |= {(number, sink.location) for sink in self.sinks if sink.mark >= number}
        self.now_ms += 5
        if is_back and self.is_strict:
            raise DiesError("offset was changed")
        return True

    def _write(self, number: int) -> None:
        rows: list[Record] | None = None
        for sink in self.sinks:
            if number <= sink.mark:
                continue
            rows = rows if rows is not None else self._read(number)
            self.now_ms += 50
            sink.write(number, rows, self.now_ms + self.skew_ms)
            self.held_before.discard((number, sink.location))

    def _read(self, number: int) -> list[Record]:
        rows = []
        for begin, end in zip(self._begins(number), self.plans[number].ends, strict=True):
            for (name, p), last in end.items():
                topic = self.topics[name]
                first = begin.get((name, p), 0)
                partition = topic.partitions.get(p)
                if first >= last:
                    if first > last and self.is_strict:
                        raise DiesError("offset was changed")
                    continue
                if partition is None or partition.earliest > first or partition.latest < last:
                    if self.is_strict:
                        raise DiesError("cannot fetch offset")
                    if partition is None:
                        continue
                    if not self.is_looked_at:  # that is what failOnDataLoss=false is for
                        self._forget({(name, p): partition.earliest} if partition.earliest > first else {})
                there = range(first, last) if partition is None else range(partition.earliest, partition.latest)
                holes = set() if partition is None else partition.holes
                rows += [topic.record(p, at) for at in range(first, last) if at in there and at not in holes]
        return rows

    # What is told of it.

    def is_past_telling(self) -> bool:
        """Whether a batch that is done was dropped by a sink that does not tell when it had got it: nothing is left."""
        done = max(max(self.commits, default=-1), max(self.plans, default=-1) - 1)
        numbers = [number for number in self.planned_anew if number <= done]
        if any(not sink.tells_when(number) for sink in self.sinks for number in numbers):
            return True
        return any(self._is_hidden(number, sink) for sink in self.sinks for number in numbers)

    def is_hidden_by_clocks(self) -> bool:
        """Whether a sink has an older plan of the batch that runs again, and all times are as if it were of this one.

        The driver that wrote it had a clock that was ahead of the next one's: that nobody set one back is what a word
        rests on then, and it has to say so.
        """
        newest = max(self.plans, default=-1)
        is_open = newest > max(self.commits, default=-1)
        return is_open and any(self._is_hidden(newest, sink) for sink in self.sinks)

    def _is_hidden(self, number: int, sink: Sink) -> bool:
        """Whether it has an older plan of a batch, and all that has a time is in its order."""
        came_ms = sink.came_ms(number)
        if (number, sink.location) not in self.held_before or number not in self.plans or came_ms is None:
            return False
        times_ms = []
        for each in (number - 1, number, number + 1):
            planned = self.plans.get(each)
            times_ms += [None if planned is None else planned.at_ms, sink.came_ms(each)]
        told = [each for each in times_ms if each is not None]
        is_after_now = self.plans[number].at_ms <= self.now_ms < came_ms - KEPT_CLOCK_MS
        return told == sorted(told) and not is_after_now

    def write_down(self) -> Checkpoint:
        for path, content in self.files().items():
            (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / path).write_bytes(content)
        for log in ("offsets", "commits", *(f"sources/{n}" for n in range(len(self.sources)))):
            (self.folder / log).mkdir(parents=True, exist_ok=True)
        return read(self.folder)

    def files(self) -> dict[str, bytes]:
        """The logs, by path."""
        found = {"metadata": json.dumps({"id": QUERY_ID}, separators=(",", ":")).encode()}
        for n, begin in enumerate(self.begun or []):
            found[f"sources/{n}/0"] = b"\0v1\n" + _text(begin).encode()
        for number, plan in self.plans.items():
            metadata = {"batchWatermarkMs": 0, "batchTimestampMs": plan.at_ms, "conf": dict(PINNED_CONF)}
            lines = ["v1", json.dumps(metadata, separators=(",", ":")), *map(_text, plan.ends)]
            found[f"offsets/{number}"] = "\n".join(lines).encode()
        for number in self.commits:
            found[f"commits/{number}"] = b'v1\n{"nextBatchWatermarkMs":0}'
        return found

    def take_over(self, checkpoint: Checkpoint) -> None:
        """Go on with what a plan has made of the checkpoint."""
        self.commits = set(checkpoint.commits.entries)
        entries = checkpoint.offsets.entries.items()
        plans = {number: entry for number, entry in entries if isinstance(entry, OffsetEntry)}
        self.plans = {n: Planned(0, [_ends(line.offset) for line in entry.sources]) for n, entry in plans.items()}
        begun = [_ends(log.initial.offset) for log in checkpoint.sources if log.initial is not None]
        self.begun = begun or None

    def kafka(self, checkpoint: Checkpoint) -> KafkaFacts:
        times = list_times_to_ask(collect_offset_entries(checkpoint), checkpoint.last_committed)
        return KafkaFacts(
            "broker:9092",
            self.now_ms,
            {topic.name: self._topic(topic) for topic in self.topics.values()},
            {time: self._first_at(time) for time in times},
            topic_ids_before=self.ids_before,
        )

    @staticmethod
    def _topic(topic: Topic) -> TopicFacts:
        parts = {p: PartitionFacts(each.earliest, each.latest) for p, each in topic.partitions.items()}
        return TopicFacts(
            topic.topic_id,
            parts,
            {"cleanup.policy": "compact" if topic.is_compacted else "delete", "retention.ms": "-1"},
        )

    def _first_at(self, time: int) -> Found:
        return {
            topic.name: {p: _first(each, time) for p, each in topic.partitions.items()}
            for topic in self.topics.values()
        }

    def observed(self) -> Observation:
        self.is_looked_at = True
        checkpoint = self.write_down()
        sinks = tuple(sink.evidence(self.now_ms) for sink in self.sinks)
        return Observation(
            checkpoint,
            location="/chk",
            sinks=sinks,
            kafka=self.kafka(checkpoint) if self.is_asked else None,
            fail_on_data_loss=self.is_strict,
            now_ms=self.now_ms,
        )

    def known(self) -> Observation:
        facts = RepairFacts(mirror=self.mirror, mirrored_id=QUERY_ID if self.mirror else None)
        return replace(self.observed(), repair=facts)

    # What comes of it.

    def change_sinks(self, found: Draft) -> None:
        for edit in found.sinks:
            sink = next(each for each in self.sinks if each.location == edit.location)
            if edit.after is not None:
                sink.mark = edit.batch
            elif not edit.renews:
                sink.take_back(edit.batch)

    def rows(self) -> list[Counter[Record]]:
        return [Counter(sink.rows()) for sink in self.sinks]


def _first(partition: Partition, time: int) -> FoundRecord:
    for offset in range(partition.earliest, partition.latest):
        if partition.times_ms[offset] >= time and offset not in partition.compacted:
            return FoundRecord(offset, partition.times_ms[offset], leader_epoch=partition.leaders[offset])
    return FoundRecord()


def _text(ends: Mapping[Place, int]) -> str:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), at in ends.items():
        found.setdefault(topic, {})[str(partition)] = at
    return json.dumps(found, separators=(",", ":"))


def _ends(offset: SourceOffset) -> Ends:
    return {(topic, p): at for topic, parts in get_topics(offset).items() for p, at in parts.items()}
