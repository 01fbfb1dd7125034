"""What the tests of the planner share: a query that was run, what its sinks and its broker say, and its mirror."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import ALL_BATCHES, read_checkpoint
from lastgood.planning.draft import Draft
from lastgood.planning.goals.kind import Goal
from lastgood.planning.planner import draft
from lastgood.query.edited_plans import make_mirrored_plan
from lastgood.query.lost import MIRROR
from lastgood.query.observation import CommittedElsewhere, MirroredPlan, Observation, RepairFacts
from lastgood.query.prediction.spark_version import SPARK_4_2, SparkVersion
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, Input

SPARK = SPARK_4_2
WINDOW = {"spark.timeWindow": True, "spark.watermarkDelayMs": 30000}
"""What Spark notes down of a window that is a key of the state."""
COUNT = [{"name": "count", "type": "long", "nullable": False, "metadata": {}}]
LATER_MS = 4_000_000_000_000
"""After every plan."""


def query(folder: Path, batches: int, *, orphan: bool = False, source: Input | None = None) -> CheckpointBuilder:
    """A query of so many committed batches; each reads five offsets of two partitions if nothing else is said."""
    builder = CheckpointBuilder(folder, source)
    builder.run(batches)
    if orphan:
        builder.plan()
    return builder


def stateful(folder: Path, batches: int, *, orphan: bool, source: Input | None = None) -> dict[str, int]:
    """A query with one state store of two partitions; the orphan has written its version already."""
    query(folder, batches, orphan=orphan, source=source)
    sizes = {}
    for partition in (0, 1):
        place = folder / f"state/0/{partition}"
        place.mkdir(parents=True)
        for version in range(1, batches + 1 + orphan):
            for name in (f"{version}.delta", f".{version}.delta.crc"):
                (place / name).write_bytes(b"LZ4Block" + bytes(20))
                sizes[f"state/0/{partition}/{name}"] = 28
    return sizes


def make_state_schema(key: Mapping[str, Any], value: list[dict[str, Any]] = COUNT) -> bytes:
    """As Spark writes it, version 1."""
    keys = [{"name": "window", "type": "string", "nullable": False, "metadata": dict(key)}]
    texts = ["v1", *(json.dumps({"type": "struct", "fields": fields}) for fields in (keys, value))]
    return b"".join(len(text).to_bytes(2) + text.encode() for text in texts)


def windowed(
    folder: Path,
    batches: int,
    *,
    orphan: bool = False,
    source: Input | None = None,
    key: Mapping[str, Any] = WINDOW,
) -> dict[str, int]:
    """The same as `stateful`, with what Spark notes down of one windowed aggregation."""
    sizes = stateful(folder, batches, orphan=orphan, source=source)
    told = {"operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"}}
    told |= {"stateStoreInfo": [{"storeName": "default", "numColsPrefixKey": 0, "numPartitions": 2}]}  # type: ignore[dict-item]
    for path, content in (
        ("state/0/_metadata/metadata", b"v1\n" + json.dumps(told).encode()),
        ("state/0/0/_metadata/schema", make_state_schema(key)),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
        sizes[path] = len(content)
    return sizes


def read(folder: Path) -> Checkpoint:
    return read_checkpoint(LocalStorage(), parse_location(str(folder)), batches=ALL_BATCHES)


def mirror_of(folder: Path) -> dict[str, bytes]:
    """The files of the logs as they stand."""
    logs = [folder / "metadata", *sorted(folder.glob("offsets/[0-9]*")), *sorted(folder.glob("commits/[0-9]*"))]
    logs += sorted(folder.glob("sources/*/[0-9]*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in logs if path.exists()}


def known(folder: Path, *sinks: SinkEvidence, mirror: Mapping[str, bytes] | None = None, **others: Any) -> Observation:
    """All that the planner is told of the query in `folder`; further arguments: fields of Observation, RepairFacts."""
    facts = {name: others.pop(name) for name in ("state_files", "mirrored_id") if name in others}
    if mirror is not None:
        facts.setdefault("mirrored_id", QUERY_ID)
    checksums = frozenset(str(path.relative_to(folder)) for path in folder.glob("**/.*.crc"))
    repair = RepairFacts(mirror=mirror or {}, checksums=checksums, **facts)
    if mirror is not None and facts["mirrored_id"] == QUERY_ID:
        others.setdefault("committed_elsewhere", _list_committed_in(mirror))
        others.setdefault("mirrored_plans", _list_plans_in(mirror))
    return Observation(read(folder), location="/chk", sinks=sinks, repair=repair, **others)


def _list_committed_in(mirror: Mapping[str, bytes]) -> tuple[CommittedElsewhere, ...]:
    """What the mirror knows to be committed, as it is asked where a query is looked at."""
    written = [path for path, content in mirror.items() if path.startswith("commits/") and content]
    committed = [int(path.removeprefix("commits/")) for path in written]
    return (CommittedElsewhere(MIRROR, max(committed)),) if committed else ()


def _list_plans_in(mirror: Mapping[str, bytes]) -> dict[int, MirroredPlan]:
    """The plans that the mirror has."""
    plans = {path: parse_offset_entry(content) for path, content in mirror.items() if path.startswith("offsets/")}
    read = {path: plan for path, plan in plans.items() if isinstance(plan, OffsetEntry)}
    return {int(path.removeprefix("offsets/")): make_mirrored_plan(plan) for path, plan in read.items()}


def drafted(what: Observation, goal: Goal, spark: SparkVersion = SPARK) -> Draft:
    return draft(what, goal, spark)


def changes(found: Draft) -> dict[str, str]:
    """What happens to each file."""
    return {edit.path: "set aside" if edit.after is None else "written" for edit in found.edits}


def written(found: Draft, path: str) -> bytes | None:
    return next(edit.after for edit in found.edits if edit.path == path)


def carried_out(folder: Path, found: Draft) -> Checkpoint:
    """The checkpoint after all steps, as it is read then."""
    for edit in found.edits:
        file = folder / edit.path
        if edit.after is None:
            file.unlink()
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(edit.after)
    for step in found.moves:
        (folder / step.path).unlink()
    return read(folder)


def written_ms(batch_id: int) -> int:
    """When a sink got a batch: half a second after it was planned, as `CheckpointBuilder` plans."""
    return STARTED_MS + 1000 * batch_id + 500


def delta(last: int | None, **others: Any) -> SinkEvidence:
    """A Delta table that Spark's own sink writes and that shows every batch up to `last`."""
    count = 0 if last is None else last + 1
    fields: dict[str, Any] = {
        "batches": tuple(CommittedBatch(n, n, is_streaming=True, committed_at_ms=written_ms(n)) for n in range(count)),
        "skips_up_to": last,
        "complete_from": 0,
        "times_by_driver": True,
        **others,
    }
    told = {"last_batch": last, "known": True, **fields}
    return SinkEvidence("delta", "/lake/out", DedupeKey.QUERY_ID, because="its log", **told)


def append(last: int | None, **others: Any) -> SinkEvidence:
    """A table that says in which mode it is written."""
    found = delta(last, **others)
    return replace(found, batches=tuple(replace(each, output_mode="Append") for each in found.batches))


def files(last: int | None, **others: Any) -> SinkEvidence:
    """A folder that Spark's file sink writes."""
    numbers = range(0 if last is None else last + 1)
    fields: dict[str, Any] = {
        "skips_up_to": last,
        "log_names": tuple(map(str, numbers)),
        "batches": tuple(CommittedBatch(n, is_streaming=True, committed_at_ms=written_ms(n)) for n in numbers),
        **others,
    }
    return SinkEvidence("file", "/lake/files", DedupeKey.DIRECTORY, last, known=True, because="its log", **fields)


def fence(last: int) -> SinkEvidence:
    """A table that a function writes in one transaction with its rows."""
    return SinkEvidence("fence", "sqlite:///f#fence", DedupeKey.QUERY_ID, last, known=True, because="its rows")


def silent() -> SinkEvidence:
    """A sink that does not tell what it has."""
    return SinkEvidence(
        "unrecognised", "/lake/other", DedupeKey.NONE, None, known=False, because="no mark", skips_known=False
    )


def broker(*bounds: tuple[int, int], topic: str = "orders", topic_id: str | None = None) -> KafkaFacts:
    """What Kafka serves: earliest and latest of each partition."""
    parts = {number: PartitionFacts(*each) for number, each in enumerate(bounds)}
    return KafkaFacts("broker:9092", 1, {topic: TopicFacts(topic_id=topic_id, partitions=parts)})


def serve(*bounds: tuple[int, int]) -> KafkaFacts:
    """The same, of a topic that is known to keep every record until it expires."""
    found = broker(*bounds)
    topics = {name: replace(each, config={"cleanup.policy": "delete"}) for name, each in found.topics.items()}
    return replace(found, topics=topics)


def recreated(facts: KafkaFacts, topic: str = "orders") -> KafkaFacts:
    """The same, whose topic had another id when the query read it."""
    return replace(facts, topic_ids_before={topic: "another"})
