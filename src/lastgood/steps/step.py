"""A step: one thing that a plan does, with what it found and what it leaves. Pure.

Each kind of step is a frozen value with a home of its own; beside it lies how it is carried out (`carrying.py`), and
`kinds.py` joins the two. Whoever goes by a step asks it, and never which kind it is.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from lastgood.frozen import dataclass
from lastgood.storage.location import LocationInvalidError, resolve_location
from lastgood.values import JsonValue

Rank: TypeAlias = tuple[int, int, int, str]


class Turn(enum.IntEnum):
    """When a step is taken, as the first of its rank; see `planning.steps.sort_steps`."""

    SINK = -1
    REMOVED = 0
    WRITTEN = 1
    OUTSIDE = 2


@dataclass(frozen=True, slots=True)
class SinkEdit:
    """A sink goes back, rows and mark."""

    kind: str
    """As in `SinkEvidence.kind`."""
    location: str
    app_id: str | None
    """Delta: whose mark it is."""
    batch: int
    """The newest batch that it shows then."""
    why: str
    """One line for a person."""
    renews: bool = False
    """Delta: it shows the batch already, and only the mark, which has expired, is made again."""
    after: int | None = None
    """Delta: it shows this batch and no later one, and the numbers above, up to `batch`, are used up without a row."""


@dataclass(frozen=True, slots=True)
class WrittenOutside:
    """A file outside of the checkpoint and of all sinks, as a step finds and leaves it."""

    location: str
    before: str | None
    """The digest of what it was when the plan was made; None: there was no such file."""
    after: bytes
    """What it is then."""


class Step(JsonValue, ABC):
    """What every step can be asked. A frozen dataclass of the kind says what is not as it stands here.

    Its form is the object in `steps` of a plan; `kind` in it is the kind, and what it may touch its form checks.
    """

    __slots__ = ()

    kind: ClassVar[str]
    """Its name in a plan, once for all: plans of long ago are read by it."""

    if TYPE_CHECKING:  # fields of the dataclasses, which would take a property here for their default

        @property
        def path(self) -> str:
            """What it touches: a path below the checkpoint, or a location outside of it."""

        @property
        def why(self) -> str:
            """What it is for; one line for a person."""

    @property
    @abstractmethod
    def do(self) -> str:
        """What it does; one line for a person."""

    @property
    @abstractmethod
    def undo(self) -> str:
        """What takes it back; one line for a person."""

    @property
    @abstractmethod
    def rank(self) -> Rank:
        """Its place in the order in which steps are safe, the `Turn` first."""

    @property
    def effect(self) -> str | None:
        """What others will see of it; one line for a person, None for nothing."""
        return None

    @property
    def found(self) -> Mapping[str, str | None]:
        """Of each file of the logs that it writes or removes the digest of what it was; None: there was none."""
        return {}

    @property
    def left(self) -> Mapping[str, bytes | None]:
        """Each file of the checkpoint that it touches, as it leaves it; None: no such file."""
        return {}

    @property
    def brought(self) -> Mapping[str, tuple[str, int]]:
        """Each file of the checkpoint that it takes from what lies beside it: from where, and its bytes."""
        return {}

    @property
    def edit(self) -> SinkEdit | None:
        """What it comes to for its sink, once all steps of that sink are done; None: it changes no sink."""
        return None

    @property
    def sink(self) -> str | None:
        """The location of the sink that it changes; None: it changes none."""
        return None if self.edit is None else self.edit.location

    @property
    def writer(self) -> str | None:
        """The name whose rows and mark it changes, where the sink tells several writers apart."""
        return None

    @property
    def used_up(self) -> int | None:
        """The number of a batch that it uses up: no driver inside that batch writes anything any more."""
        return None

    @property
    def outside(self) -> WrittenOutside | None:
        """The file that it writes outside of the checkpoint and of all sinks; None: it writes none."""
        return None

    @property
    def file_outside(self) -> str | None:
        """The location of that file."""
        return None if self.outside is None else self.outside.location


def require_location(text: str) -> None:
    """See that the sink of a step is a location at all.

    Raises:
        ValueError: it is none; the message is one line for a person.
    """
    try:
        resolve_location(text)
    except LocationInvalidError as error:
        raise ValueError(f"{text} is no location of a sink") from error
