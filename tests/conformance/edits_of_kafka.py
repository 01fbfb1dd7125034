"""Damage to the topic that a query reads: what a broker holds when Spark is started again.

The folder of a case says in `topic.json` what the topic is to hold; `brokers.py` makes it so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.folders import entry, ids, source_logs, write
from conformance.rows import Parameters, row


def read_topic(case: Path) -> dict[str, Any]:
    """`exists`, `recreated`, and `partitions`: for each its first offset and the one after its last."""
    topic: dict[str, Any] = json.loads((case / "topic.json").read_text())
    return topic


def write_topic(case: Path, topic: dict[str, Any]) -> None:
    (case / "topic.json").write_text(json.dumps(topic))


def is_kafka(case: Path) -> bool:
    return (case / "topic.json").exists()


def committed_ends(case: Path) -> dict[str, int]:
    """Per partition the end in the newest entry of the offset log that can be read."""
    for batch in reversed(ids(case, "offsets")):
        try:
            ends = json.loads(entry(case, "offsets", batch).read_bytes().split(b"\n")[2])
            return dict(next(iter(ends.values())))
        except (ValueError, IndexError, TypeError, AttributeError):
            continue
    return {}


def _expiries(case: Path) -> Iterator[Parameters]:
    if is_kafka(case):
        ends = committed_ends(case)
        topic = read_topic(case)["partitions"]
        for which in (sorted(topic)[:1], sorted(topic)):
            for by in (-15, -5, 0, 3, 5, 100):
                yield {"partitions": {name: ends.get(name, 0) + by for name in which}}


@row(_expiries, weight=6)
def expire_records(case: Path, partitions: dict[str, int]) -> None:
    """Delete the records below an offset, as retention does; all of them if it lies above the end."""
    topic = read_topic(case)
    for name, offset in partitions.items():
        if name in topic["partitions"]:
            first, end = topic["partitions"][name]
            topic["partitions"][name] = [min(max(first, offset), end), end]
    write_topic(case, topic)


def _recreations(case: Path) -> Iterator[Parameters]:
    if is_kafka(case):
        ends = list(committed_ends(case).values()) or [0]
        for partitions in (1, 2, 3):
            for records in (0, 5, max(ends), max(ends) + 5, max(ends) + 20):
                yield {"partitions": partitions, "records": records}


@row(_recreations, weight=4)
def recreate_topic(case: Path, partitions: int, records: int) -> None:
    ranges = {str(number): [0, records] for number in range(partitions)}
    write_topic(case, {**read_topic(case), "recreated": True, "partitions": ranges})


def _additions(case: Path) -> Iterator[Parameters]:
    if is_kafka(case):
        for first, end in ((0, 0), (0, 5), (4, 8), (5, 5)):
            yield {"partitions": 1, "first": first, "end": end}
        yield {"partitions": 2, "first": 0, "end": 5}


@row(_additions, weight=3)
def add_partitions(case: Path, partitions: int, first: int, end: int) -> None:
    topic = read_topic(case)
    for _ in range(partitions):
        topic["partitions"][str(len(topic["partitions"]))] = [first, end]
    write_topic(case, topic)


def _deletions(case: Path) -> Iterator[Parameters]:
    if is_kafka(case):
        yield {}


@row(_deletions, weight=1)
def delete_topic(case: Path) -> None:
    write_topic(case, {**read_topic(case), "exists": False})


_BEGINNINGS = (
    "spark-2.1",
    "any-byte",
    "any-byte-version-99999",
    "no-byte",
    "no-byte-no-version",
    "byte-only",
    "no-byte-99",
)
"""How else the file could begin in which a Kafka source writes down where it starts; a byte stands before it."""


def _beginnings(case: Path) -> Iterator[Parameters]:
    if is_kafka(case):
        for log in source_logs(case):
            for how in _BEGINNINGS:
                yield {"log": log, "how": how}


@row(_beginnings)
def begin_differently(case: Path, log: str, how: str) -> None:
    path = entry(case, log, 0)
    offsets = path.read_bytes().partition(b"\n")[2] if path.is_file() else b'{"t":{"0":0}}'
    written = {
        "spark-2.1": bytes([len(offsets) % 256]) + offsets + b"\n",
        "any-byte": b"0v1\n" + offsets,
        "any-byte-version-99999": b"0v99999\n" + offsets,
        "no-byte": b"v1\n" + offsets,
        "no-byte-no-version": offsets,
        "byte-only": b"\0",
        "no-byte-99": b"v99\n" + offsets,
    }
    write(path, written[how], crc="none")
