"""Batches as JSON: each with what the sinks show of it, one in full with how to read its input once more."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import OFFSET_EARLIEST
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.rows import BatchRow
from lastgood.observe.shown import SinkComparison
from lastgood.query.history import SourceRead
from lastgood.query.kafka import find_not_served
from lastgood.sources.files.folders import format_for_spark
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Range, Ranges, ranges_to_json, unite


def encode_head(query: OpenQuery, comparison: SinkComparison) -> dict[str, Any]:
    """What the JSON begins with: the checkpoint, and what was asked beside it."""
    told = [
        {
            "location": sink.location,
            "kind": sink.kind,
            "known": sink.known,
            "last_batch": sink.last_batch,
            "skips_up_to": sink.skips_up_to,
            "because": sink.because,
        }
        for sink in comparison.sinks
    ]
    return {**query.to_json(), "sinks": told}


def encode_row(row: BatchRow, comparison: SinkComparison) -> dict[str, Any]:
    """A batch with what the sinks show of it."""
    return {**row.to_json(), "sinks": [each.to_json() for each in comparison.of(row)]}


def encode_batch(row: BatchRow, query: OpenQuery) -> dict[str, Any]:
    """One batch in full: `encode_row`, what its commit says, its pinned confs, how to process it again."""
    record = query.records([row.batch])[row.batch]
    commit = record.commit if isinstance(record.commit, CommitEntry) else None
    kafka = query.seen.kafka
    expired = _find_expired(row, kafka)
    next_batch_watermark_ms = commit.next_batch_watermark_ms if commit else None
    if isinstance(record.offsets, OffsetEntry):
        conf = dict(sorted(record.offsets.conf.items()))
    else:
        conf = {}
    bootstrap = kafka.bootstrap if kafka else None
    expired_json = None
    if expired is not None:
        expired_json = ranges_to_json(expired)
    return {
        **encode_row(row, SinkComparison(query, query.seen.sinks)),
        "next_batch_watermark_ms": next_batch_watermark_ms,
        "conf": conf,
        "again": list_commands_again(row, query, bootstrap),
        "expired": expired_json,
    }


def _find_expired(row: BatchRow, facts: KafkaFacts | None) -> Ranges | None:
    """What the batch read and Kafka no longer has; None if that is not known."""
    whole: Ranges = reduce(unite, (read.ranges for read in row.reads if read.ranges), {})
    if facts is None or not whole or any(read.open_spans for read in row.reads):
        return None
    earliest = facts.earliest
    known = all(each in earliest.get(topic, {}) for topic, parts in whole.items() for each in parts)
    if not known:
        return None
    return find_not_served(whole, facts)


def list_commands_again(row: BatchRow, query: OpenQuery, bootstrap: str | None = None) -> list[str]:
    """What to type to read the input of a batch once more, as a batch query of Spark."""
    if bootstrap is None:
        servers = "…"
    else:
        servers = f'"{bootstrap}"'
    lines = []
    for read in row.reads:
        spans = _resolve_spans(read)
        if spans:
            start = {topic: {str(p): first for p, (first, _) in each.items()} for topic, each in spans.items()}
            end = {topic: {str(p): last for p, (_, last) in each.items()} for topic, each in spans.items()}
            partitions = {topic: list(map(int, each)) for topic, each in start.items()}
            options = {"assign": partitions, "startingOffsets": start, "endingOffsets": end}
            given = "".join(f""".option("{name}", '{json.dumps(value)}')""" for name, value in options.items())
            lines.append(f'spark.read.format("kafka").option("kafka.bootstrap.servers", {servers}){given}.load()')
        elif read.files is not None:
            first, stop = read.files
            known = query.source_files(read.source_id)
            wanted = [file.path for file in known if first <= file.log_id < stop]
            files = dict.fromkeys(map(format_for_spark, wanted))
            lines.append(f"spark.read…load({json.dumps(list(files))})")
    return lines


def _resolve_spans(read: SourceRead) -> dict[str, dict[int, Range]]:
    """From where to where a batch query has to read each partition; where that is the earliest, Spark looks it up."""
    found = {
        topic: {each: (parts[0][0], parts[-1][1]) for each, parts in partitions.items()}
        for topic, partitions in (read.ranges or {}).items()
    }
    for topic, partitions in read.open_spans.items():
        from_earliest = {each: span for each, span in partitions.items() if span[0] == OFFSET_EARLIEST and span[1] >= 0}
        if from_earliest:
            found[topic] = {**found.get(topic, {}), **from_earliest}
    return found
