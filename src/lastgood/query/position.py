"""The position of a query: how far its plans, commits, state and sinks have come. Pure.

Diagnosis, planner and status all take it from here.
"""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage
from lastgood.frozen import dataclass
from lastgood.query.sink_batches import find_planned_anew
from lastgood.sinks.evidence import SinkEvidence
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class Position(JsonValue):
    """How far each record of a query has come; batch ids, None where there is none or it is not known."""

    json = make_form("planned committed state sink sink_known skipped_up_to")
    """The object `position` of plans and of `diagnose --format json`."""

    planned: int | None
    """L: the newest batch in the offset log."""
    committed: int | None
    """C: the newest batch in the commit log."""
    state: int | None
    """V: the newest batch after which every state store can be loaded; None for a stateless query too."""
    sink: int | None
    """S: the newest batch that every sink shows; None if a sink shows none, was not asked, or does not tell."""
    sink_known: bool
    """Whether `sink` is the truth, so that None means that a sink shows none; what is presumed is not."""
    skipped_up_to: int | None
    """R: batches up to this one would be skipped by a sink without a word; None if none would, as far as is known."""
    last_good: int | None
    """The newest batch on which all that is known agrees."""
    reasons: tuple[str, ...]
    """Why it is not a later one, and what is not known; one line each."""

    @property
    def orphan(self) -> int | None:
        """The batch that is planned and not committed; None if there is none."""
        if self.planned is None or (self.committed is not None and self.committed >= self.planned):
            return None
        return self.planned


def locate(checkpoint: Checkpoint, sinks: Sequence[SinkEvidence] = ()) -> Position:
    """The position of a query, by its checkpoint and by what its sinks say.

    Args:
        checkpoint: With its newest entries read.
        sinks: One for each sink of the query; several sinks agree as far as the one that is furthest behind.
    """
    doubts = {index: doubt for index, sink in enumerate(sinks) if (doubt := _find_doubt(checkpoint, sink)) is not None}
    known = bool(sinks) and not doubts
    shown = [sink.last_batch for sink in sinks]
    behind = min((batch for batch in shown if batch is not None), default=None)
    sink = None
    if known and None not in shown:
        sink = behind
    proven = [sink for sink in sinks if sink.presumed_app_id is None]
    skipped = [sink.skips_up_to for sink in proven if sink.skips_up_to is not None]
    last_good, reasons = _find_last_good(checkpoint, sink, sink_shows_none=known and None in shown)
    reasons += doubts.values()
    if not sinks:
        reasons.append("no sink was asked")
    return Position(
        planned=checkpoint.last_planned,
        committed=checkpoint.last_committed,
        state=checkpoint.last_loadable if checkpoint.is_stateful else None,
        sink=sink,
        sink_known=known,
        skipped_up_to=max(skipped, default=None),
        last_good=last_good,
        reasons=tuple(reasons),
    )


def _find_doubt(checkpoint: Checkpoint, sink: SinkEvidence) -> str | None:
    """Why the number that a sink shows is not how far the query has come in it; None if it is."""
    if not sink.known:
        return f"{sink.location}: not known what it shows: {sink.because}"
    if sink.presumed_app_id is not None:
        if sink.last_batch is None:
            shown = "no batch"
        else:
            shown = f"batch {sink.last_batch}"
        return f"{sink.location}: shows {shown}, not proven to be of this query: {sink.because}"
    anew = find_planned_anew(checkpoint, sink)
    if anew is None:
        return None
    return f"{sink.location}: what it shows of batch {checkpoint.orphan} is not known to be of its plan: {anew.because}"


def _find_last_good(checkpoint: Checkpoint, sink: int | None, *, sink_shows_none: bool) -> tuple[int | None, list[str]]:
    """Go down from the newest commit to the first batch that every record has."""
    offsets, commits = checkpoint.offsets, checkpoint.commits
    reasons: list[str] = []
    found = commits.newest
    if found is None:
        return None, ["no batch is committed"]
    if sink_shows_none:
        return None, ["a sink shows no batch of this query"]
    if sink is not None and sink < found:
        reasons.append(f"the sink shows batches up to {sink}, {found} is committed")
        found = sink
    state = checkpoint.last_loadable
    if checkpoint.is_stateful and (state is None or state < found):
        reasons.append(f"the state after batch {found} cannot be loaded")
        found = state
    while found is not None:
        why = _explain_why_not(found, checkpoint)
        if why is None:
            return found, reasons
        reasons.append(why)
        below = [log.ids.before(found) for log in (offsets, commits)]
        found = None
        if None not in below:
            found = min((batch for batch in below if batch is not None), default=None)
    return None, reasons


def _explain_why_not(batch_id: int, checkpoint: Checkpoint) -> str | None:
    for log, what in ((checkpoint.offsets, "planned"), (checkpoint.commits, "committed")):
        if batch_id not in log.ids:
            return f"batch {batch_id} is not {what} in {log.folder}"
        entry = log.entries.get(batch_id)
        if isinstance(entry, Damage):
            return f"{log.folder}/{batch_id} is damaged: {entry}"
    return None
