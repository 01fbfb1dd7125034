"""What a draft wants of sinks, measured: the steps of each, by what is there now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lastgood.planning.draft import RepairRefusedError
from lastgood.sinks.changing import find_changes, find_fencing
from lastgood.sinks.evidence import SinkEvidence
from lastgood.steps.step import SinkEdit, Step
from lastgood.storage.reading import open_storage, parse_location


def find_fenceable(sink: SinkEvidence) -> str | None:
    """The name whose writers can be fenced off from a sink; None if none can."""
    fence = find_fencing(sink.kind)
    if fence is None:
        return None
    return fence.name_of(sink)


def make_sink_steps(edits: Iterable[SinkEdit]) -> Iterator[Step]:
    """The steps that take sinks back.

    Raises:
        RepairRefusedError: a sink has changed while the plan was made.
        StorageError: a storage does not answer (subclasses).
    """
    for edit in edits:
        storage = open_storage(parse_location(edit.location))
        changes = find_changes(edit.kind)
        steps = f"a sink of the kind {edit.kind}" if changes is None else changes.measure(edit, storage)
        if isinstance(steps, str):
            raise RepairRefusedError(
                f"a sink cannot be taken back to batch {edit.batch}",
                subject=edit.location,
                found=steps,
                expected="the sink as it was a moment ago",
                effect="nothing has been changed",
                next="make the plan again",
            )
        yield from steps
