"""What a broker and a file sink tell of a query of `CheckpointBuilder`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lastgood.testing.checkpoints import STARTED_MS

HOUR_MS = 3_600_000
NOW = STARTED_MS + HOUR_MS


def kafka(folder: Path, partitions: dict[str, tuple[int, int]], *, last: int = 2) -> str:
    """Facts about the topic of a query whose newest committed batch is `last`."""
    time_ms, end = STARTED_MS + 1000 * last, 5 * (last + 1)
    told: dict[str, Any] = {
        "bootstrap": "b:9092",
        "captured_at_ms": NOW,
        "topics": {
            "orders": {
                "partitions": {each: {"earliest": ends[0], "latest": ends[1]} for each, ends in partitions.items()},
                "config": {"cleanup.policy": "delete", "retention.ms": str(24 * HOUR_MS), "retention.bytes": "-1"},
            }
        },
        "first_at": {str(time_ms + 1): {"orders": {each: {"offset": end} for each in partitions}}},
        "unread": {"orders": {each: {"offset": end, "timestamp_ms": STARTED_MS} for each in partitions}},
    }
    file = folder / "facts of kafka.json"
    file.write_text(json.dumps(told))
    return str(file)


def file_sink(folder: Path, batches: int) -> str:
    log = folder / "_spark_metadata"
    log.mkdir(parents=True)
    for batch_id in range(batches):
        (log / str(batch_id)).write_text("v1")
    return str(folder)
