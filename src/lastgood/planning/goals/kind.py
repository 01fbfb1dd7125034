"""What a kind of goal is: how it is drafted, from where it begins, and where it is offered. Pure."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias

from lastgood.frozen import dataclass
from lastgood.planning.draft import Draft
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion


class Goal(Protocol):
    """What is asked for, with all that was chosen."""

    @property
    def name(self) -> str:
        """As in the table of goals."""

    def to_json(self) -> Mapping[str, Any]:
        """Its options."""


Offer: TypeAlias = tuple[Goal, tuple[str, ...]]
"""A goal, and the options that ask for it."""


class Begins(enum.Enum):
    """From where a query goes on."""

    BY_ITSELF = "by_itself"
    """The goal finds that out: nobody chooses."""
    WHERE_CHOSEN = "where_chosen"
    """From offsets that are chosen, with the checkpoint as it is."""
    ANEW = "anew"
    """From offsets, a sink or a mirror, be there a checkpoint or not."""
    WITHOUT_STATE = "without_state"
    """With an empty state, from as far back as what it held is to be read again."""


def _offer_never(observed: Observation, asked: Goal) -> Iterator[Offer]:
    del observed, asked
    yield from ()


def _offer_nothing_instead(observed: Observation) -> Iterator[Offer]:
    del observed
    yield from ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalKind:
    """One line of the table in `planning/goals/kinds.py`."""

    name: str
    """As `--goal` takes it."""
    begins: Begins
    make: Callable[..., Goal]
    """Gives the goal: of nothing if it begins by itself; else of offsets, and of how they were chosen in one line."""
    draft: Callable[[Observation, Any, SparkVersion], Draft]
    """Which files change, and what can be said of it. Raises RepairRefusedError."""
    offer: Callable[[Observation, Goal], Iterator[Offer]] = _offer_never
    """The same goal, where another one was asked for and this one may be the better way."""
    offer_instead: Callable[[Observation], Iterator[Offer]] = _offer_nothing_instead
    """What is offered where the one that was offered first is refused."""
    tells_start: bool = False
    """Whether the ways that are offered are told apart by where they start; then `chosen` of the goal says it."""
