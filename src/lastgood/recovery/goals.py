"""What a user may ask for. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lastgood.sources.kafka_ranges import Offsets


@dataclass(frozen=True, slots=True)
class Resume:
    """Run again from the last good batch, in the cheapest way that is exact."""

    name = "resume"

    def to_json(self) -> dict[str, Any]:
        """The goal's options."""
        return {}


@dataclass(frozen=True, slots=True)
class Replan:
    """Drop the plan that is not committed, so that today's limits apply."""

    name = "replan"

    def to_json(self) -> dict[str, Any]:
        """The goal's options."""
        return {}


@dataclass(frozen=True, slots=True)
class Reposition:
    """Start again from chosen offsets, in place."""

    offsets: Mapping[str, Offsets]
    """By the id of the source; partitions that are not named stay where they are. -2: the earliest, whatever it is."""
    chosen: str
    """How they were chosen; one line for a person."""

    name = "reposition"

    def to_json(self) -> dict[str, Any]:
        """The goal's options."""
        return {"chosen": self.chosen, "offsets": {source: _texts(each) for source, each in self.offsets.items()}}


@dataclass(frozen=True, slots=True)
class Fresh:
    """Seed a new checkpoint, because the old one is lost or to be left behind."""

    offsets: Mapping[str, Offsets] | None = None
    """By the id of the source; None: what the mirror holds."""
    chosen: str = "the mirror"
    """How they were chosen; one line for a person."""
    proof_exact: str | None = None
    """What shows that they are where the newest batch in the sinks ends, such as the table's own columns without a
    hole; None: nothing but the logs does."""
    proof_complete: str | None = None
    """What shows that the sinks lack nothing below them; None: nothing but the logs does."""
    new_query_id: str | None = None
    """An id for the query if the old one is lost."""

    name = "fresh"

    def to_json(self) -> dict[str, Any]:
        """The goal's options."""
        offsets = None if self.offsets is None else {source: _texts(each) for source, each in self.offsets.items()}
        return {
            "chosen": self.chosen,
            "offsets": offsets,
            "proof_exact": self.proof_exact,
            "proof_complete": self.proof_complete,
            "new_query_id": self.new_query_id,
        }


Goal: TypeAlias = Resume | Replan | Reposition | Fresh


def _texts(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {topic: {str(each): offset for each, offset in where.items()} for topic, where in offsets.items()}
