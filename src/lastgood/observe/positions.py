"""Which offsets a query is to start from: after a batch, at a time, as a file says, at either end of the topics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.observe.broker import open_broker
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import OpenQuery, read_clock_ms
from lastgood.observe.surroundings import ONE_SECONDS
from lastgood.query.topics import list_recreated
from lastgood.sources.kafka.facts import Found, KafkaFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.reader import SourceKindError
from lastgood.sources.kafka.start_files import FILE_BYTES_MAX
from lastgood.sources.kafka.starting_offsets import StartingOffsetsError, read_offsets

MARGIN_MS = 3_600_000
"""How far a query is taken to have been behind Kafka, if nothing else is said."""


@dataclass(frozen=True, slots=True)
class StartChoice:
    """Which offsets `reposition` and `fresh` are to start from; at most one of the choices."""

    stable_lag: int | None = None
    """After batch CURRENT - N."""
    batch: int | None = None
    """After this batch."""
    at: str | None = None
    """A file of `startingOffsets`, or that JSON itself."""
    at_time_ms: int | None = None
    """From the first record written at or after this time, milliseconds since 1970."""
    earliest: bool = False
    latest: bool = False
    only: tuple[str, ...] = ()
    """`topic/partition`: only these move."""
    source: str | None = None
    """Of several Kafka sources: which one."""
    at_sink: bool = False
    """`fresh`: after the newest batch that the sinks show."""
    offset_columns: str | None = None
    """`fresh`: where the rows of the Delta table end, by these columns."""
    at_last_commit: bool = False
    """`fresh`: from what was written to Kafka when the Delta table was last written to."""
    margin_ms: int = MARGIN_MS
    """With `at_last_commit`: how far before that, milliseconds."""

    @property
    def is_chosen(self) -> bool:
        """Whether there is any choice."""
        return any(self._choices)

    @property
    def is_of_sink(self) -> bool:
        """Whether the sink is to tell it, which only `fresh` asks for."""
        return self.at_sink or self.at_last_commit or self.offset_columns is not None

    @property
    def _choices(self) -> list[bool]:
        values = (self.stable_lag, self.batch, self.at, self.at_time_ms, self.offset_columns)
        flags = [self.earliest, self.latest, self.at_sink, self.at_last_commit]
        return [*flags, *(each is not None for each in values)]

    def words(self) -> tuple[str, ...]:
        """The same as words of a command line."""
        given: list[tuple[str, object]] = [
            ("--stable-lag", self.stable_lag),
            ("--batch", self.batch),
            ("--at", self.at),
            ("--at-time", self.at_time_ms),
            ("--offset-columns", self.offset_columns),
            *(("--only", each) for each in self.only),
            ("--source", self.source),
            ("--margin", f"{self.margin_ms}ms" if self.at_last_commit else None),
        ]
        flags = {
            "--earliest": self.earliest,
            "--latest": self.latest,
            "--at-sink": self.at_sink,
            "--at-last-commit": self.at_last_commit,
        }
        told = [word for name, value in given if value is not None for word in (name, str(value))]
        return (*(name for name, is_set in flags.items() if is_set), *told)

    def require_one(self) -> None:
        """See that there is one choice.

        Raises:
            UsageError: there is none, or more than one.
        """
        if sum(self._choices) != 1:
            raise UsageError(
                "one position has to be chosen",
                expected="one of --stable-lag N, --batch N, --at FILE, --at-time TIME, --earliest, --latest;"
                " for --goal fresh also --at-sink, --offset-columns, --at-last-commit",
            )


def choose_offsets(
    where: StartChoice,
    found: OpenQuery,
    *,
    topics: Mapping[str, Offsets] | None = None,
) -> tuple[Mapping[str, Offsets], str]:
    """The offsets that were chosen, by the id of the source, and how they were chosen in one line.

    Args:
        where: What is chosen.
        found: The query and what stands around it.
        topics: The partitions of each Kafka source; None: as the newest plan names them.

    Raises:
        UsageError: no choice, or more than one; a file or partition that is not understood (subclasses).
        BatchUnknownError: no such batch is known; names the oldest that is.
        SourceKindError: no source of the query is Kafka.
    """
    where.require_one()
    if where.stable_lag is not None or where.batch is not None:
        standing = find_offsets_after(found.target, batch=where.batch, stable_lag=where.stable_lag, said=found.asked)
        if where.stable_lag is None:
            lag = ""
        else:
            lag = f" (CURRENT is {standing.current})"
        others = list_recreated(found.seen)  # the batch's offsets are none of these: they stand at their beginning
        since = ", or lower where the query went back since" if standing.went_back else ""
        offsets: dict[str, Offsets] = {
            source_id: {topic: parts for topic, parts in each.items() if topic not in others}
            for source_id, each in standing.lowest.items()
        }
        chosen = f"the end of batch {standing.batch}{lag}{since}"
    else:
        named = _list_topics(found) if topics is None else topics
        named = {source_id: known for source_id, known in named.items() if where.source in (None, source_id)}
        told, chosen = _resolve_told(where, found, named)
        offsets = {source_id: _restrict_to_known(told, known) for source_id, known in named.items()}
    if where.source is not None:
        if where.source in offsets:
            offsets = {where.source: offsets[where.source]}
        else:
            offsets = {}
    if not offsets:
        raise SourceKindError(
            "there is no such Kafka source", subject=where.source or str(found.location), expected="a source of Kafka"
        )
    return {source_id: _select_only(each, where.only) for source_id, each in offsets.items()}, chosen


def _resolve_told(where: StartChoice, found: OpenQuery, topics: Mapping[str, Offsets]) -> tuple[Offsets, str]:
    """Offsets of all topics, as a file, a time or an end of the topics says."""
    if where.at is not None:
        return read_at(where.at), f"the offsets in {where.at}"
    partitions = {topic: dict(each) for known in topics.values() for topic, each in known.items()}
    if where.earliest:
        return {topic: dict.fromkeys(each, OFFSET_EARLIEST) for topic, each in partitions.items()}, "the earliest"
    if where.latest:
        return _ask_facts(found).latest, "the latest when the plan was made"
    at_ms = where.at_time_ms or 0
    return _find_first_records(found, partitions, at_ms), f"the first records written at or after {at_ms} ms"


def find_first_records(found: OpenQuery, topics: Mapping[str, Offsets], at_ms: int) -> dict[str, Offsets]:
    """By the id of the source the first record of each partition written at a time or later; the end if there is none.

    Raises:
        UsageError: nobody said where Kafka is, or it does not tell.
    """
    partitions = {topic: dict(each) for known in topics.values() for topic, each in known.items()}
    told = _find_first_records(found, partitions, at_ms)
    return {source_id: _restrict_to_known(told, known) for source_id, known in topics.items()}


def find_oldest_records(found: OpenQuery, topics: Mapping[str, Offsets]) -> Found:
    """The oldest record that Kafka has of each partition, with its time; empty where written facts do not tell.

    Raises:
        UsageError: nobody said where Kafka is, or it does not answer.
    """
    partitions = {topic: dict(each) for known in topics.values() for topic, each in known.items()}
    return _ask_facts(found, partitions, 0).first_at.get(0, {})


def _find_first_records(found: OpenQuery, partitions: Offsets, at_ms: int) -> dict[str, dict[int, int]]:
    facts = _ask_facts(found, partitions, at_ms)
    if at_ms not in facts.first_at:
        expected = "a broker that can be asked: facts that were written down tell of other times"
        raise UsageError("Kafka does not tell the offsets at that time", subject=f"{at_ms} ms", expected=expected)
    first, latest = facts.first_at[at_ms], facts.latest
    at_time: dict[str, dict[int, int]] = {}
    for topic, known in partitions.items():
        for each in known:
            record = first.get(topic, {}).get(each)
            if record is None or record.offset is None:
                offset = latest.get(topic, {}).get(each)
            else:
                offset = record.offset
            if offset is None or (record is not None and record.unknown is not None):
                why = record.unknown if record is not None else None
                raise UsageError("Kafka does not tell the offset at that time", subject=f"{topic}/{each}", found=why)
            at_time.setdefault(topic, {})[each] = offset
    return at_time


def _ask_facts(found: OpenQuery, topics: Mapping[str, object] | None = None, at_ms: int | None = None) -> KafkaFacts:
    """What Kafka says now; of one moment too.

    Raises:
        UsageError: nobody said where Kafka is, or it does not answer.
    """
    facts = found.seen.kafka
    if at_ms is not None and facts is not None and at_ms not in facts.first_at:
        broker = open_broker(found.asked.kafka, found.asked.kafka_config)
        if broker is not None:
            facts = broker.ask(
                list(topics or ()), now_ms=read_clock_ms(), timeout_seconds=ONE_SECONDS, times_ms=(at_ms,)
            )
    if facts is None or facts.unknown is not None:
        raise UsageError(
            "only Kafka can tell these offsets",
            subject="--kafka",
            found="not given" if facts is None else f"no answer: {facts.unknown}",
            expected="bootstrap.servers such as broker:9092",
        )
    return facts


def _list_topics(found: OpenQuery) -> dict[str, Offsets]:
    """The partitions of each Kafka source, from the newest plan."""
    entry = found.seen.checkpoint.newest_offsets
    return entry.topics if entry else {}


def _restrict_to_known(told: Offsets, known: Offsets) -> Offsets:
    """Those of the topics that a source reads."""
    return {topic: each for topic, each in told.items() if topic in known}


def _select_only(offsets: Offsets, only: tuple[str, ...]) -> Offsets:
    if not only:
        return offsets
    chosen: dict[str, dict[int, int]] = {}
    for text in only:
        topic, _, number = text.rpartition("/")
        if not number.isdecimal() or int(number) not in offsets.get(topic, {}):
            expected = ", ".join(f"{topic}/{each}" for topic, known in offsets.items() for each in known)
            raise UsageError("there is no such partition", subject=f"--only {text}", expected=expected[:200])
        chosen.setdefault(topic, {})[int(number)] = offsets[topic][int(number)]
    return chosen


def read_at(text: str) -> Offsets:
    """`startingOffsets` from a file, or the JSON itself.

    Raises:
        UsageError: the file cannot be read, or holds something else (subclasses).
    """
    content = text
    if not text.lstrip().startswith("{"):
        try:
            with Path(text).open(encoding="utf-8") as stream:
                content = stream.read(FILE_BYTES_MAX + 1)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError("the offsets cannot be read", subject=f"--at {text}", found=str(error)) from error
        if len(content) > FILE_BYTES_MAX:
            expected = f"at most {FILE_BYTES_MAX:,} characters"
            raise StartingOffsetsError("the offsets are too long", subject=f"--at {text}", expected=expected)
    try:
        return read_offsets(read_json(content))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StartingOffsetsError("these are no startingOffsets", subject=f"--at {text}", found=str(error)) from error
