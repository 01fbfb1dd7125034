"""How lastgood changes sinks: what it asks of each kind that can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lastgood.frozen import dataclass
from lastgood.sinks.evidence import SinkEvidence
from lastgood.steps.carrying import Carrying, Site
from lastgood.steps.step import SinkEdit, Step
from lastgood.storage.reading import Storage


@dataclass(frozen=True, slots=True)
class Fencing:
    """How writers in flight are made to fail, so that what a sink shows next is what it will show."""

    name_of: Callable[[SinkEvidence], str | None]
    """The name whose writers can be fenced off; None if none can."""
    put_up: Callable[[Site, str, str], str | None]
    """Fence a name off at a location; None, or why that cannot be done any more."""
    require_means: Callable[[Site, str], None]
    """As `Carrying.require_means`, at a location."""


@dataclass(frozen=True, slots=True)
class SinkChanges:
    """What lastgood does to sinks of one kind."""

    step: type[Step]
    carry: Callable[[Any, Site], Carrying]
    """Gives one of these steps, where it is carried out."""
    measure: Callable[[SinkEdit, Storage], tuple[Step, ...] | str]
    """The steps that have a sink go back, by what is there now; or what stands against it, in a line for a person."""
    fence: Fencing | None = None
    """None: a sink whose writers cannot be fenced off."""
