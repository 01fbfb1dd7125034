"""`plan --event-time`: from where on topics hold events that an open window counts, as a Spark job finds it."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lastgood.spark
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import ExtraMissingError, LastgoodError, Retry, UsageError
from lastgood.lab.jars import fetch_jars
from lastgood.lab.spark import find_default_spark, submit
from lastgood.notes import read_json
from lastgood.observe.broker import open_broker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery
from lastgood.process.java import find_java
from lastgood.process.told import place_log
from lastgood.redaction import redact_told
from lastgood.sources.kafka.config import read_client_properties
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.reader import KafkaUnreachableError
from lastgood.visible import shorten

Ranges = dict[str, dict[str, dict[str, tuple[int, int]]]]
"""Per source, topic and partition: the first offset, and the next after the last."""

_JOB = Path(lastgood.spark.__file__).parent / "event_time_job.py"
_CONF = {"spark.master": "local[*]", "spark.driver.memory": "1g"}
_SHOWN = 500


class EventTimeInvalidError(UsageError):
    """Spark does not understand how the time of an event is told, or it gives no time."""

    condition = "EVENT_TIME_INVALID"


class ScanFailedError(LastgoodError):
    """The Spark job that reads the times of events failed."""

    condition = "SCAN_FAILED"
    exit_code = 90
    retry = Retry.LATER


def find_open_starts(
    found: OpenQuery, event_time: str, since_ms: int, evidence: EvidenceOptions, tell: Callable[[str], None]
) -> Mapping[str, str]:
    """From where each source is read again, so that every event of a time or later is among what is read.

    All is read once by a Spark job that Kafka still has of what the query has read; nothing is written.

    Args:
        found: The query, with what its broker says.
        event_time: SQL over a record of Kafka (`key`, `value`, `timestamp` and so on); gives a timestamp.
        since_ms: Milliseconds since 1970.
        evidence: Names the broker, and its `client.properties`.
        tell: Is told, in a few words, what takes time.

    Raises:
        UsageError: a source is none of Kafka's, or no broker was named.
        KafkaUnreachableError: the broker does not say where each partition begins.
        EventTimeInvalidError: the SQL is not understood, or gives no timestamp.
        ScanFailedError: the job failed.
        ExtraMissingError, JavaMissingError: there is no Spark here.
    """
    ends, facts = _list_ends(found), found.seen.kafka
    broker = open_broker(evidence.kafka, evidence.kafka_config)
    if broker is None or broker.facts is not None or facts is None:
        raise UsageError("nobody says where the records are", subject="--event-time", expected="--kafka SERVERS")
    ranges = _list_ranges(ends, facts)
    options = {f"kafka.{name}": value for name, value in _read_properties(evidence.kafka_config).items()}
    spec = {
        # Records of transactions that were aborted as well: the query may have read them.
        "kafka": {**options, "kafka.bootstrap.servers": broker.bootstrap, "kafka.isolation.level": "read_uncommitted"},
        "ranges": ranges,
        "event_time": event_time,
        "since_ms": since_ms,
    }
    told = _run(spec, tell)
    if "first" not in told:
        raise _make_invalid_error(event_time, told)
    first = told["first"]
    return {source: _choose_starts(end, facts.earliest, first.get(source, {})) for source, end in ends.items()}


def _list_ends(found: OpenQuery) -> dict[str, KafkaOffset]:
    """Up to where each source was read by the newest batch that is committed."""
    checkpoint = found.seen.checkpoint
    plan = checkpoint.offsets.entries.get(-1 if checkpoint.last_committed is None else checkpoint.last_committed)
    ends = {}
    for line in plan.sources if isinstance(plan, OffsetEntry) else ():
        if not isinstance(line.offset, KafkaOffset):
            other = f"source {line.source_id}"
            raise UsageError("a source is none of Kafka's", subject="--event-time", found=other, expected="Kafka")
        ends[line.source_id] = line.offset
    return ends


def _list_ranges(ends: Mapping[str, KafkaOffset], facts: KafkaFacts) -> Ranges:
    """What Kafka still has of it; partitions of which it has nothing are left out.

    Raises:
        KafkaUnreachableError: where a partition begins, or ends, is not known: nothing could be told of what is in it.
    """
    found: Ranges = {}
    for source, offset in ends.items():
        for topic, partition, end in _list_partitions(offset):
            begin = facts.earliest.get(topic, {}).get(partition)
            if begin is None or end < 0:
                raise KafkaUnreachableError(
                    f"where {topic}/{partition} begins, and up to where it was read, is not known",
                    subject="--event-time",
                    found=facts.unknown or f"begin {begin}, end {end}",
                    effect="nothing was planned",
                )
            if begin < end:
                found.setdefault(source, {}).setdefault(topic, {})[str(partition)] = (begin, end)
    return found


def _list_partitions(offset: KafkaOffset) -> Iterator[tuple[str, int, int]]:
    for topic, partitions in offset.topics.items():
        for partition, end in partitions.items():
            yield topic, partition, end


def _choose_starts(end: KafkaOffset, earliest: Offsets, first: Mapping[str, Mapping[str, int]]) -> str:
    """The first such offset of each partition, else its end.

    Events come in any order. So of a partition that has lost records nobody can tell whether one of them was such: then
    the newest of these is wanted as well, and whoever plans says that it is gone.
    """
    starts: dict[str, dict[int, int]] = {}
    for topic, partition, until in _list_partitions(end):
        begin = earliest[topic][partition]
        at = first.get(topic, {}).get(str(partition), until)
        if begin > 0:
            at = max(min(begin, until) - 1, 0)
        starts.setdefault(topic, {})[partition] = at
    return KafkaOffset(starts).to_text()


def _read_properties(kafka_config: Path | None) -> Mapping[str, str]:
    return {} if kafka_config is None else read_client_properties(kafka_config)


def _run(spec: Mapping[str, Any], tell: Callable[[str], None]) -> Mapping[str, Any]:
    """What the job has found."""
    if find_spec("pyspark") is None:
        raise ExtraMissingError(extra="spark", module="pyspark", needed_for="--event-time")
    environment, java = find_default_spark(), find_java(os.environ)
    if environment.jar_set is None:
        raise UsageError(f"no libraries of Kafka are known for Spark {environment.version}", subject="--event-time")
    jars = fetch_jars([environment.jar_set], java=java, progress=tell)[environment.jar_set]
    log = place_log("event-times.log")
    with tempfile.TemporaryDirectory(prefix="lastgood-event-times-") as folder:
        question, answer = Path(folder) / "spec.json", Path(folder) / "answer.json"
        question.write_text(json.dumps(spec))
        tell("reading the times of events with Spark")
        with (
            log.open("wb") as output,
            submit(
                _JOB,
                [str(question), str(answer)],
                environment=environment,
                java=java,
                jars=jars,
                conf=_CONF,
                output=output,
            ) as child,
        ):
            ending = child.wait()
        if not answer.exists():
            raise ScanFailedError(
                "the Spark job that reads the times of events failed",
                found=f"it ended with {ending}",
                effect="nothing was planned",
                next=f"less +G {log}",
            )
        told: Mapping[str, Any] = read_json(answer.read_bytes())
        return told


def _make_invalid_error(event_time: str, told: Mapping[str, Any]) -> EventTimeInvalidError:
    if "type" in told:
        sentence, found = "what is to be the time of an event is none", f"type {told['type']}"
    else:
        sentence, found = (
            "Spark does not understand the SQL",
            redact_told(str(told.get("error")).strip().partition("\n")[0]),
        )
    return EventTimeInvalidError(
        sentence,
        subject=f"--event-time {shorten(event_time, _SHOWN)}",
        found=shorten(found, _SHOWN),
        expected="SQL over a record of Kafka that gives a timestamp, such as"
        " timestamp(get_json_object(cast(value as string), '$.at'))",
    )
