"""Which batch of a query has failed again and again, as `recover` and `run` have counted it."""

from __future__ import annotations

from lastgood.errors import LastgoodError
from lastgood.journal.attempts_file import read_attempts
from lastgood.ladder.tally import FailedBatch, find_failed_batch
from lastgood.storage.reading import Location, Storage


def read_failed(storage: Storage, checkpoint: Location, committed: int | None) -> FailedBatch | None:
    """What has failed since the newest commit; None where nothing has, or where it cannot be read.

    Args:
        storage: Of the checkpoint.
        checkpoint: Where it lies.
        committed: The newest committed batch.
    """
    if not checkpoint.name:
        return None
    try:
        kept = read_attempts(storage, checkpoint)
    except LastgoodError:  # as little a reason to say nothing of the rest
        return None
    if kept is None:
        return None
    return find_failed_batch(kept, committed)
