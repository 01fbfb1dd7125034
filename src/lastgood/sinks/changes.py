"""How lastgood changes sinks, a line for each kind that can be taken back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lastgood.sinks.delta.carrying import CarriedDeltaStep, put_up_fence, require_means
from lastgood.sinks.delta.changing import delta_steps, fence_of
from lastgood.sinks.delta.step import DeltaStep
from lastgood.sinks.evidence import DELTA, FILE, SinkEvidence
from lastgood.sinks.files.changing import carry_entry, file_sink_steps
from lastgood.sinks.files.step import FileSinkStep
from lastgood.steps.carrying import Carrying, Site
from lastgood.steps.step import SinkEdit, Step
from lastgood.storage.reading import Storage


@dataclass(frozen=True, slots=True)
class Fence:
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
    fence: Fence | None = None
    """None: a sink whose writers cannot be fenced off."""


SINK_CHANGES: Final[dict[str, SinkChanges]] = {
    DELTA: SinkChanges(DeltaStep, CarriedDeltaStep, delta_steps, Fence(fence_of, put_up_fence, require_means)),
    FILE: SinkChanges(FileSinkStep, carry_entry, file_sink_steps),
}
"""By `SinkEvidence.kind`. A kind that is not here is never changed."""


def fence_at(kind: str) -> Fence | None:
    """How writers to a sink of a kind are fenced off; None if they cannot be."""
    changes = SINK_CHANGES.get(kind)
    return None if changes is None else changes.fence
