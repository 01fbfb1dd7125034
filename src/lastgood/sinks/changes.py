"""How lastgood changes sinks: what it asks of each kind that can be taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.kinds import SINK_KINDS
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


def find_changes(kind: str) -> SinkChanges | None:
    """What lastgood does to sinks of a kind; None if it never changes one."""
    found = SINK_KINDS.get(kind)
    if found is None:
        return None
    return found.changes()


def find_fencing(kind: str) -> Fencing | None:
    """How writers to a sink of a kind are fenced off; None if they cannot be."""
    changes = find_changes(kind)
    return None if changes is None else changes.fence


def list_changes() -> Iterator[SinkChanges]:
    """Those of every kind of sink that is ever changed."""
    for kind in SINK_KINDS.values():
        changes = kind.changes()
        if changes is not None:
            yield changes
