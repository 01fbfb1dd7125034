"""Partitions of Kafka that stand at no position: nobody wrote down how far they were read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST, SourceOffset, get_topics, name_offset
from lastgood.frozen import dataclass
from lastgood.sources.kafka.facts import KafkaFacts

Ends = Mapping[str, SourceOffset]
"""Where each source stands, by its id."""


@dataclass(frozen=True, slots=True)
class UnresolvedEnd:
    """One partition, and what a start from somewhere makes of it."""

    topic: str
    partition: int
    stood_at: int
    """-1 or -2: the latest or the earliest."""
    recovery: str | None
    """The recovery that has put it there, and has said what is left out by that; None: somebody else."""
    may_lose: bool
    """Whether a start may leave out what nobody has read."""

    def __str__(self) -> str:
        by = ""
        if self.recovery is not None:
            by = f", where recovery {self.recovery} has put it"
        where = f"{self.topic}-{self.partition} stood at {name_offset(self.stood_at)}{by}"
        return f"{where}: how far it was read is not known"


def list_unresolved_ends(
    new: Ends, least: Ends, most: Ends, facts: KafkaFacts | None, recovery: str | None = None
) -> Iterator[UnresolvedEnd]:
    """The partitions of which nobody wrote down how far the sinks show them.

    The plan that would tell it was made to end at the earliest or the latest offset. Read from the earliest, nothing is
    left out if Kafka still has all that there ever was; of what it has deleted nobody knows whether it was read.

    Args:
        new: Where each source starts.
        least: Up to where every sink shows it.
        most: Up to where any sink shows it, as far as somebody knows.
        facts: What Kafka serves; None if it was not asked.
        recovery: The recovery that made it end there; None: somebody else.
    """
    for source_id, start in new.items():
        bounds = [get_topics(each.get(source_id)) for each in (least, most)]
        for topic, parts in get_topics(start).items():
            for partition, at in parts.items():
                shown = min(each.get(topic, {}).get(partition, 0) for each in bounds)
                if shown < 0:
                    is_whole = facts is not None and facts.earliest.get(topic, {}).get(partition) == 0
                    is_told = is_whole or recovery is not None
                    may_lose = not is_told or at != OFFSET_EARLIEST
                    yield UnresolvedEnd(topic, partition, shown, recovery, may_lose)
