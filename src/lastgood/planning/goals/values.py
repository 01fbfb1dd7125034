"""What a user may ask for. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lastgood.frozen import dataclass
from lastgood.planning.price import Guarantee
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import StartFile
from lastgood.values import JsonValue, make_form, to_json


@dataclass(frozen=True, slots=True)
class ResumeGoal(JsonValue):
    """Run again from the last good batch, in the cheapest way that is exact."""

    name = "resume"


@dataclass(frozen=True, slots=True)
class ReplanGoal(JsonValue):
    """Drop the plan that is not committed, so that today's limits apply."""

    name = "replan"


@dataclass(frozen=True, slots=True)
class RepositionGoal(JsonValue):
    """Start again from chosen offsets, in place."""

    json = make_form("chosen offsets")

    offsets: Mapping[str, Offsets]
    """By the id of the source; partitions that are not named stay where they are. -2: the earliest, whatever it is."""
    chosen: str
    """How they were chosen; one line for a person."""

    name = "reposition"


@dataclass(frozen=True, slots=True)
class RecomputeGoal(JsonValue):
    """Make the state anew from the sources, in place: open windows are counted again, written ones stay."""

    json = make_form(
        "chosen starts appends_windows output_mode conf max_replay", left_out="starts output_mode conf max_replay"
    )

    starts: Mapping[str, str] = field(default_factory=dict)
    """By the id of a source the offset, as Spark writes it, where reading begins; else it begins where the query
    began."""
    chosen: str = "the query began"
    """How they were chosen; one line for a person."""
    rests_on: tuple[str, ...] = ()
    """On what it rests that nothing before them is of an open window; one line each."""
    appends_windows: bool = False
    """Whether a person says that the query is one windowed aggregation with a watermark, in output mode append."""
    output_mode: str | None = None
    """Whether a person says that the query is one aggregation in output mode `complete` or `update`."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """How the state is to be kept from then on, by the names of Spark's confs; what is not there stays as it is."""
    max_replay: int | None = None
    """How many offsets and files may be read again at most; None: however many."""

    name = "recompute"


@dataclass(frozen=True, slots=True)
class Extent:
    """How far the sinks have come in each source, by something else than the logs."""

    least: Mapping[str, Offsets]
    """By the id of the source: all below is shown, as far as `word` goes."""
    most: Mapping[str, Offsets] | None
    """Nothing from here on is shown; None: nobody knows."""
    word: Guarantee
    """The best that can be said of a start at `least`."""
    rests_on: tuple[str, ...]
    """One line each."""
    tables: Mapping[str, int] = field(default_factory=dict)
    """Delta tables whose rows told it, with their version: rows that came since would belie it."""
    anew: tuple[str, ...] = ()
    """Topics that look as if they were created again since."""


@dataclass(frozen=True, slots=True)
class FreshGoal:
    """Seed a new checkpoint, because the old one is lost or to be left behind."""

    offsets: Mapping[str, Offsets] | None = None
    """By the id of the source; None: what the mirror holds."""
    chosen: str = "the mirror"
    """How they were chosen; one line for a person."""
    extent: Extent | None = None
    """How far the sinks have come, where that is known beside the logs; None: nothing but the logs tells."""
    new_query_id: str | None = None
    """An id for the query if the old one is lost."""
    via: StartFile | None = None
    """The file that tells the application where to start, on an empty checkpoint; None: the checkpoint tells it."""
    takes_any_number: bool = False
    """With `via`: whether a person says that sinks which nobody can ask do not go by the numbers of batches."""

    name = "fresh"

    def to_json(self) -> dict[str, Any]:
        """The goal's options."""
        if self.extent is None:
            tables = {}
        else:
            tables = dict(self.extent.tables)
        told = {
            "chosen": self.chosen,
            "offsets": to_json(self.offsets),
            "new_query_id": self.new_query_id,
            "tables": tables,
        }
        if self.via is None:
            return told
        return {**told, "start_file": self.via.to_json(), "takes_any_number": self.takes_any_number}
