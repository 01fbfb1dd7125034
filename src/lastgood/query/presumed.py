"""What is left of the word of a sink whose name for the query is only presumed. Pure."""

from __future__ import annotations

from dataclasses import replace

from lastgood.query.missing import list_missing
from lastgood.query.observation import Observation, make_views
from lastgood.query.sinks import NONE, SinkView
from lastgood.sinks.evidence import SinkEvidence, make_unknown_evidence


def drop_presumed(observed: Observation) -> Observation:
    """The same, where what a sink shows under a name that is only presumed to be this query's is not known of it.

    What would be missing there under that name stays: as a doubt.
    """
    if all(sink.presumed_app_id is None for sink in observed.sinks):
        return observed
    return replace(observed, sinks=tuple(map(_drop, observed.sinks, make_views(observed))))


def _drop(sink: SinkEvidence, view: SinkView) -> SinkEvidence:
    name = sink.presumed_app_id
    if name is None:
        return sink
    because = f"that the query writes as {name} is likely, and not proven: --txn-app-id {name} says so"
    unknown = make_unknown_evidence(sink.kind, sink.location, sink.dedupe_key, because)
    others, at_ms = {**sink.others, name: NONE}, dict(sink.others_at_ms)
    if sink.last_batch is not None:
        others[name] = sink.last_batch
    if sink.marked_at_ms is not None:
        at_ms[name] = sink.marked_at_ms
    return replace(
        unknown,
        others=others,
        others_at_ms=at_ms,
        times_by_driver=sink.times_by_driver,
        asked_at_ms=sink.asked_at_ms,
        unclear=next((f"if the query writes there as {name}, {lacks}" for lacks in list_missing([view])), None),
    )
