"""What lastgood changes in sinks, looked up by their kind."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.sinks.changes import Fencing, SinkChanges
from lastgood.sinks.kinds import SINK_KINDS


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
