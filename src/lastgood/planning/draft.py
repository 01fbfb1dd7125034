"""What the planner answers: which files change, and what can be said of it. Values only."""

from __future__ import annotations

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.planning.plan import Alternative
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.steps import BringStep, MoveStep, StateStep
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import StartFile
from lastgood.steps.step import SinkEdit


class RepairRefusedError(LastgoodError):
    """What was asked for cannot be done in a way of which anything can be promised."""

    condition = "REPAIR_REFUSED"
    exit_code = 57
    retry = Retry.AFTER_CHANGE

    def __init__(self, sentence: str, *, alternatives: tuple[Alternative, ...] = (), **facts: str | None) -> None:
        super().__init__(sentence, **facts)
        self.alternatives: tuple[Alternative, ...] = alternatives


@dataclass(frozen=True, slots=True)
class Edit:
    """A file of the logs gets this content; None: it is set aside."""

    path: str
    after: bytes | None
    why: str
    """One line for a person."""


@dataclass(frozen=True, slots=True)
class StartEdit:
    """A file of the application's configuration says where it starts."""

    file: StartFile
    offsets: Offsets
    why: str
    """One line for a person."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan before anybody has looked at the files that it touches."""

    edits: tuple[Edit, ...]
    """Empty: a plain restart."""
    guarantee: Guarantee
    rests_on: tuple[str, ...]
    """One line each."""
    moves: tuple[MoveStep, ...] = ()
    renewed: tuple[StateStep | BringStep, ...] = ()
    """Files of the state that are made anew."""
    sinks: tuple[SinkEdit, ...] = ()
    start: StartEdit | None = None
    """None: the checkpoint says where it starts."""
    sources: tuple[SourcePrice, ...] = ()
    guards: tuple[str, ...] = ()
    """Files that it rests on beside those that it touches."""
    alternatives: tuple[Alternative, ...] = ()
    is_plain: bool = False
    """Whether it is Spark's own restart, which needs no waiver."""
