"""Sources that lastgood cannot ask what they still serve: what they are called, and what is assumed of them. Pure.

Kafka, files and Delta tables tell what they still have, and Spark stops where it is gone. Of every other source only
its offsets are known, and whether it brings the same rows again for the same offsets is its own affair.
"""

from __future__ import annotations

from typing import Final

from lastgood.checkpoint.source_offsets import NumberOffset, SourceOffset
from lastgood.frozen import dataclass
from lastgood.sources.kinds import recognise_source

REPLAYS: Final = "--source-replays"
"""The option by which a person says that such a source serves its ranges again."""


@dataclass(frozen=True, slots=True)
class Unasked:
    """A source that nobody can ask."""

    source_id: str
    name: str
    """What it is, or may be, by the shape of its offsets."""
    is_lost_with_driver: bool = False
    """Whether its driver alone held what was not committed yet: it is gone with it."""
    is_vouched_for: bool = False
    """Whether a person says that it serves its ranges again."""

    @property
    def title(self) -> str:
        """What to call it."""
        return f"source {self.source_id} ({self.name})"

    @property
    def ground(self) -> str:
        """What a promise rests on, or what speaks against it; one line."""
        if self.is_lost_with_driver:
            return f"{self.title} cannot serve again what its driver held: what was not committed is gone"
        if self.is_vouched_for:
            return f"{self.title} serves its ranges again, as {REPLAYS} says"
        return f"the assumption that {self.title} serves again all that is not committed: {REPLAYS} says so"

    @property
    def unknown(self) -> str | None:
        """What nobody can tell before a start, one line; None where somebody has told."""
        if self.is_lost_with_driver:
            return f"{self.title}: how much it had brought that was not committed; it is gone"
        if self.is_vouched_for:
            return None
        return f"{self.title}: whether it still serves what is to be read cannot be asked ({REPLAYS})"


def describe_source(offset: SourceOffset, initial: SourceOffset | None) -> str:
    """What a source is, or may be, by its offsets.

    Args:
        offset: Where a plan ends.
        initial: What the source wrote down when it began (`sources/<i>/0`); None if it wrote nothing.
    """
    if is_counting_rows(offset, initial):
        return "a socket, memory, or another that counts its rows"
    return recognise_source(offset).shown


def is_counting_rows(offset: SourceOffset, initial: SourceOffset | None) -> bool:
    """Whether a source keeps a bare count and wrote down no beginning, as a socket and memory do, and rate does not."""
    return isinstance(offset, NumberOffset) and not isinstance(initial, NumberOffset)
