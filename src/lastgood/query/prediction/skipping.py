"""Batches that a sink has already, which Spark then commits without running them. Pure.

A batch that is not run makes no state either: batch N + 1 loads what batch N made when it was run the first time.
"""

from __future__ import annotations

from collections.abc import Sequence

from lastgood.checkpoint.contents import Checkpoint
from lastgood.sinks.evidence import DedupeKey, SinkEvidence


def is_skipped(sinks: Sequence[SinkEvidence], batch: int) -> bool:
    """Whether a sink that has the batch already does not even run it, so that none of its tasks can fail."""
    own = (sink for sink in sinks if sink.dedupe_key is not DedupeKey.APP_ID)  # else a function runs
    return any(sink.traits.skips_unrun and sink.would_skip(batch) for sink in own)


def may_be_skipped(sinks: Sequence[SinkEvidence], batch: int) -> bool:
    """The same, or a function writes it, to sinks that all have it: whether it runs the batch is its own affair."""
    return is_skipped(sinks, batch) or (bool(sinks) and all(_has(sink, batch) for sink in sinks))


def _has(sink: SinkEvidence, batch: int) -> bool:
    if sink.traits.is_idempotent:
        return sink.last_batch is not None and sink.last_batch >= batch
    return sink.traits.skips_unrun and sink.would_skip(batch) is True


def find_version_loaded(checkpoint: Checkpoint, sinks: Sequence[SinkEvidence]) -> int | None:
    """The version of the state that is loaded first; None if no batch was ever planned."""
    return max(list_versions_loaded(checkpoint, sinks), default=None)


def list_versions_loaded(checkpoint: Checkpoint, sinks: Sequence[SinkEvidence]) -> tuple[int, ...]:
    """The same, and the version that is loaded if the sink gives the batch back that it would skip."""
    planned = checkpoint.last_planned
    if planned is None:
        return ()
    if checkpoint.last_committed == planned:
        batch = planned + 1
    else:
        batch = planned
    if is_skipped(sinks, batch):
        return (batch, batch + 1)
    return (batch,)
