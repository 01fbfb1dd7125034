"""The batch with which a recovery fills an emptied state: it reads once more what batches before it have read. Pure.

Its plan has the metadata of the one before it, time and watermark, so that the watermark stands still while it runs.
Spark never plans two batches at the same time; with which it repartitions a state, it reads nothing.
"""

from __future__ import annotations

from lastgood.checkpoint.offsets import OffsetEntry


def is_refill(before: object, plan: object) -> bool:
    """Whether a plan is of such a batch; False where one of the two was not read.

    Args:
        before: The entry of the batch before it.
        plan: Its own.
    """
    if not isinstance(before, OffsetEntry) or not isinstance(plan, OffsetEntry) or plan.metadata is None:
        return False
    is_at_once = plan.metadata == before.metadata and plan.metadata.control is None
    return is_at_once and plan.sources != before.sources
