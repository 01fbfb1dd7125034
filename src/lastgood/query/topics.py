"""How far the batches of a query have read a topic: what tells whether it is still the topic that was read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import topics_of
from lastgood.sources.kafka_retention import ReadUpTo


def reads_of(checkpoint: Checkpoint, topic: str) -> list[ReadUpTo]:
    """The committed batches that were read, newest first, with how far they read a topic.

    Of several sources that read the topic the one that is further behind counts.
    """
    found: list[ReadUpTo] = []
    for batch_id in sorted(checkpoint.offsets.entries, reverse=True):
        entry = checkpoint.offsets.entries[batch_id]
        is_done = checkpoint.last_committed is not None and batch_id <= checkpoint.last_committed
        if is_done and isinstance(entry, OffsetEntry) and entry.metadata is not None:
            found.append(ReadUpTo(entry.metadata.batch_timestamp_ms, _ends(entry, topic)))
    return found


def _ends(entry: OffsetEntry, topic: str) -> Mapping[int, int]:
    lowest: dict[int, int] = {}
    for line in entry.sources:
        for partition, end in topics_of(line.offset).get(topic, {}).items():
            lowest[partition] = min(end, lowest.get(partition, end))
    return lowest
