"""Each advice is given where there is evidence for it, and only there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint, Mode, Presence
from lastgood.checkpoint.logs import BatchIds, BatchLog, LogListing
from lastgood.checkpoint.offsets import BatchMetadata, OffsetEntry, SourceLine
from lastgood.checkpoint.operators import OperatorMetadata, StoreInfo
from lastgood.checkpoint.partitions import Pins
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset
from lastgood.checkpoint.state import StateOperator, StateStore, judge_state
from lastgood.checkpoint.state_files import SnapshotMetadata, StateFile, StateFileKind
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.rules_advice import CONDITIONS, find_advice
from lastgood.query.advice_facts import AdviceFacts, RecordedBatch, RecordedRun, TableAround
from lastgood.query.observation import Observation
from lastgood.sources.kafka.facts import FoundRecord, KafkaFacts, PartitionFacts, TopicFacts

CHK = "s3a://lake/chk/orders"
MIB = 1024 * 1024
SPARK_3_5 = {"spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "true"}
SPARK_4_0 = {**SPARK_3_5, "spark.sql.streaming.stateStore.encodingFormat": "unsaferow"}


def plan(
    offset: SourceOffset | None = None, *, watermark_ms: int = 0, conf: Mapping[str, str] | None = None
) -> OffsetEntry:
    offset = offset or KafkaOffset({"orders": {0: 10, 1: 10}})
    fields: dict[str, Any] = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1000, "conf": dict(conf or {})}
    metadata = BatchMetadata(MappingProxyType(fields), "")
    return OffsetEntry(1, metadata, (SourceLine("0", offset.to_text(), offset),))


def checkpoint(
    batches: range = range(5),
    *,
    plans: Mapping[int, OffsetEntry] | None = None,
    operators: Iterable[StateOperator] = (),
    watermark_ms: int = 0,
    newest_modified_ms: int | None = None,
) -> Checkpoint:
    """Batches that are all committed; of the offset log the newest ten are read."""
    newest = list(batches)[-10:]
    entries = {n: (plans or {}).get(n, plan()) for n in newest}
    commits = {n: CommitEntry.of(1, next_batch_watermark_ms=watermark_ms) for n in newest}
    listing = LogListing(exists=True, ids=BatchIds.of(batches))
    operators = tuple(operators)
    state = judge_state(operators, {}, restart_version=batches[-1] + 1, pins=Pins()) if operators else None
    return Checkpoint(
        location=CHK,
        presence=Presence.PRESENT,
        mode=Mode.MICRO_BATCH,
        query=None,
        offsets=BatchLog("offsets", listing, entries, newest_modified_ms=newest_modified_ms),
        commits=BatchLog("commits", listing, commits),
        sources=(),
        state=state,
    )


def observed(found: Checkpoint | None = None, *, kafka: KafkaFacts | None = None, **advice: Any) -> Observation:
    return Observation(found or checkpoint(), location=CHK, kafka=kafka, advice=AdviceFacts(**advice))


def findings(about: Observation) -> dict[str, Finding]:
    found = list(find_advice(about))
    assert all(finding.condition in CONDITIONS for finding in found)
    assert {finding.condition.name for finding in found if finding.severity > Severity.INFO} <= {
        "TOPIC_RETENTION_SHORT"
    }
    assert all(finding.evidence and finding.effect.endswith(".") and finding.next for finding in found)
    names = [finding.condition.name for finding in found]
    assert len(names) == len(set(names))
    return dict(zip(names, found, strict=True))


def hdfs(
    sizes: Iterable[int], *, name: str | None = "stateStoreSave", version: int = 5, operator: int = 0
) -> StateOperator:
    """An operator whose partitions have one snapshot of these sizes."""
    stores = tuple(
        StateStore(operator, n, "default", (StateFile(version, StateFileKind.SNAPSHOT, size=size),))
        for n, size in enumerate(sizes)
    )
    metadata = name and OperatorMetadata(1, operator, name, (StoreInfo("default", 0, len(stores)),), {}, b"")
    return StateOperator(operator, metadata or None, None, stores)


def rocksdb(sizes: Iterable[int], *, looked_into: bool = True) -> StateOperator:
    zipped = StateFile(5, StateFileKind.ZIP, size=1000)
    stores = tuple(
        StateStore(
            0,
            n,
            "default",
            (zipped,),
            {"a.sst": size},
            {zipped: SnapshotMetadata(1, {"a.sst": size}, 1, {})} if looked_into else {},
        )
        for n, size in enumerate(sizes)
    )
    metadata = OperatorMetadata(1, 0, "dedupeWithinWatermark", (StoreInfo("default", 0, len(stores)),), {}, b"")
    return StateOperator(0, metadata, None, stores)


def recorded(count: int, **fields: Any) -> tuple[RecordedBatch, ...]:
    """Batches of one second each with 1,000 offsets, one a minute."""
    known: dict[str, Any] = {"run_id": "r1", "query_id": "q", "duration_ms": 1000, "offsets": 1000, "rows": 1000}
    return tuple(
        RecordedBatch(batch_id=n, **{"trigger_at_ms": 60_000 * n + 20, **known, **fields}) for n in range(count)
    )


def facts(**topic: Any) -> KafkaFacts:
    known: dict[str, Any] = {"partitions": {0: PartitionFacts(0, 10), 1: PartitionFacts(0, 10)}}
    return KafkaFacts("broker:9092", 0, {"orders": TopicFacts(**{**known, **topic})})


def test_nothing_is_advised_where_nothing_is_known() -> None:
    assert findings(observed()) == {}
    assert findings(observed(kafka=facts())) == {}
    assert findings(observed(checkpoint(range(40, 45)))) == {}


@pytest.mark.parametrize(("kind", "word"), [("ext4", "disk"), ("overlay", "with it"), ("tmpfs", "with it")])
def test_a_checkpoint_on_a_disk_of_one_machine(kind: str, word: str) -> None:
    found = findings(observed(filesystem=kind))["CHECKPOINT_ON_LOCAL_DISK"]
    assert found.evidence == {"filesystem": kind}
    assert word in found.effect
    assert found.next is not None
    assert "checkpointLocation" in found.next


@pytest.mark.parametrize(
    ("table", "kind", "below", "hidden"),
    [
        ("s3a://lake/chk", "delta", "orders", False),
        ("s3a://lake", "iceberg", "chk/orders", False),
        ("s3a://lake/chk", "file", "orders", False),
    ],
)
def test_a_checkpoint_inside_a_table(table: str, kind: str, below: str, hidden: bool) -> None:
    found = findings(observed(table=TableAround(table, kind)))["CHECKPOINT_IN_TABLE_FOLDER"]
    assert found.evidence == {"table": table, "kind": kind, "below": below, "hidden": hidden}
    assert ("cleans it up" in found.effect) == (kind != "file")


def test_a_name_with_an_underscore_is_spared_by_vacuum_and_not_by_a_drop() -> None:
    inside = replace(checkpoint(), location="s3a://lake/orders/_checkpoints/0")
    found = findings(observed(inside, table=TableAround("s3a://lake/orders", "delta")))["CHECKPOINT_IN_TABLE_FOLDER"]
    assert found.evidence["hidden"] is True
    assert "cleans" not in found.effect
    assert "drops" in found.effect


def run(run_id: str, first: int, last: int, conflict: int | None = None) -> RecordedRun:
    return RecordedRun(run_id=run_id, query_id="q", first_ms=first, last_ms=last, conflict_ms=conflict)


def test_a_run_that_spark_ended_while_another_lived_shares_its_checkpoint() -> None:
    found = findings(observed(runs=(run("a", 0, 50, conflict=60), run("b", 40, 90))))["CHECKPOINT_SHARED"]
    assert found.evidence == {"runs": ["a", "b"], "conflict_ms": 60}


@pytest.mark.parametrize(
    "runs",
    [
        (run("a", 0, 50), run("b", 40, 90)),
        (run("a", 0, 50, conflict=60),),
        (run("a", 0, 30), run("b", 40, 50, conflict=60)),
        (run("a", 0, 50, conflict=60), run("b", 70, 90)),
        (run("a", 0, 50, conflict=60), replace(run("b", 40, 90), query_id="another")),
    ],
)
def test_one_run_after_the_other_is_no_sharing(runs: tuple[RecordedRun, ...]) -> None:
    assert findings(observed(runs=runs)) == {}


def batch(run_id: str, batch_id: int, at_ms: int, query_id: str = "q") -> RecordedBatch:
    return RecordedBatch(run_id=run_id, batch_id=batch_id, trigger_at_ms=at_ms, query_id=query_id)


def test_batches_of_two_runs_that_alternate_are_of_two_queries() -> None:
    batches = (batch("a", 9, 100), batch("b", 10, 200), batch("a", 11, 300))
    found = findings(observed(batches=batches))["CHECKPOINT_SHARED"]
    assert found.evidence == {"runs": ["a", "b"], "batches": [9, 10, 11]}


@pytest.mark.parametrize(
    "batches",
    [
        [batch("a", 8, 97), batch("a", 9, 100), batch("b", 10, 98), batch("b", 11, 110)],  # clocks that differ
        [*(batch("a", n, n) for n in range(9)), *(batch("b", n, 20 + n) for n in range(4, 13))],  # taken back
        [batch("a", 9, 100), batch("b", 10, 200, "q2"), batch("a", 11, 300)],
    ],
)
def test_restarts_and_rewinds_are_no_sharing(batches: list[RecordedBatch]) -> None:
    assert findings(observed(batches=tuple(batches))) == {}


def test_query_ids_that_take_turns_are_two_queries_and_one_return_is_a_repair() -> None:
    assert findings(observed(query_ids=("q1", "q2", "q1"))) == {}
    found = findings(observed(query_ids=("q1", "q2", "q1", "q2")))["CHECKPOINT_SHARED"]
    assert found.evidence["query_ids"] == ["q1", "q2", "q1", "q2"]


def test_few_retained_batches_are_told_with_what_they_allow() -> None:
    few = checkpoint(range(40, 44), plans={43: plan(FileOffset(43))})
    found = findings(observed(few))["FEW_BATCHES_RETAINED"]
    assert found.evidence == {"retained": 3, "default": 100, "oldest": 40, "newest": 43}
    assert "2 batches" in found.effect
    assert found.next == "--conf spark.sql.streaming.minBatchesToRetain=100"


@pytest.mark.parametrize(
    ("batches", "advice", "is_purged"),
    [
        (range(40, 44), {"metadata_modified_ms": 0, "oldest_plan_modified_ms": 40_000}, True),
        (range(40, 44), {"metadata_modified_ms": 39_990, "oldest_plan_modified_ms": 40_000}, False),
        (range(40, 44), {}, False),
        (range(4), {"metadata_modified_ms": 0, "oldest_plan_modified_ms": 40_000}, False),
        (range(40, 141), {"metadata_modified_ms": 0, "oldest_plan_modified_ms": 40_000}, False),
    ],
)
def test_a_checkpoint_that_was_seeded_or_is_young_keeps_few_batches_too(
    batches: range, advice: dict[str, int], is_purged: bool
) -> None:
    about = observed(checkpoint(batches, newest_modified_ms=43_000), **advice)
    assert set(findings(about)) == ({"FEW_BATCHES_RETAINED"} if is_purged else set())


def test_state_older_than_the_oldest_plan_shows_that_there_were_older_ones() -> None:
    few = checkpoint(range(40, 44), operators=[hdfs([9, 9], version=40, name="dedupeWithinWatermark")])
    assert set(findings(observed(few))) == {"FEW_BATCHES_RETAINED"}


def test_an_aggregation_without_a_watermark_grows_for_ever() -> None:
    found = findings(observed(checkpoint(operators=[hdfs([9, 9])])))["UNBOUNDED_STATE"]
    assert found.subject == "state/0"
    assert found.evidence == {"operator": 0, "name": "stateStoreSave", "batches": 5, "watermark_ms": 0}
    assert "Every batch ran without a watermark" in found.effect


def test_a_watermark_that_never_moved_is_told_as_such() -> None:
    about = observed(checkpoint(operators=[hdfs([9, 9])]), batches=recorded(5, has_watermark=True))
    assert "is defined, but has not moved" in findings(about)["UNBOUNDED_STATE"].effect


def test_what_keeps_state_in_spark_3_is_not_known() -> None:
    found = findings(observed(checkpoint(operators=[hdfs([9, 9], name=None)])))["UNBOUNDED_STATE"]
    assert found.evidence["name"] is None
    assert "mapGroupsWithState" in found.effect


@pytest.mark.parametrize(
    "found",
    [
        checkpoint(operators=[hdfs([9, 9])], watermark_ms=1000),
        checkpoint(operators=[hdfs([9, 9])], plans={4: plan(watermark_ms=1000)}),
        checkpoint(range(2), operators=[hdfs([9, 9], version=2)]),
        checkpoint(operators=[hdfs([9, 9], name="transformWithStateExec")]),
        checkpoint(operators=[hdfs([9, 9], name="dedupeWithinWatermark")]),
    ],
)
def test_state_with_a_bound_or_an_unknown_one_is_not_called_unbounded(found: Checkpoint) -> None:
    assert findings(observed(found)) == {}


def test_state_that_was_seen_not_to_grow_has_a_fixed_set_of_keys() -> None:
    grown = tuple(replace(each, state_rows=10 + each.batch_id) for each in recorded(30))
    still = checkpoint(operators=[hdfs([9, 9])])
    assert findings(observed(still, batches=recorded(30, state_rows=10))) == {}
    evidence = findings(observed(still, batches=grown))["UNBOUNDED_STATE"].evidence
    assert (evidence["state_rows_first"], evidence["state_rows_last"], evidence["recorded_batches"]) == (10, 39, 30)


def variables(*, ttl: bool | None = False, name: str = "transformWithStateInPySparkExec") -> StateOperator:
    """An operator with two state variables, one of which may have a time to live."""
    listed = [{"stateName": "m", "ttlEnabled": False}, {"stateName": "n", "ttlEnabled": ttl}]
    properties: dict[str, Any] = {} if ttl is None else {"timeMode": "NoTime", "stateVariables": listed}
    metadata = OperatorMetadata(2, 0, name, (StoreInfo("default", 0, 2),), properties, b"")
    return replace(hdfs([9, 9]), metadata=metadata)


def growing(until: int, count: int = 30) -> tuple[RecordedBatch, ...]:
    return tuple(replace(each, state_rows=10 + min(each.batch_id, until)) for each in recorded(count))


def test_variables_without_a_time_to_live_that_were_seen_to_grow() -> None:
    found = findings(observed(checkpoint(operators=[variables()]), batches=growing(99)))["UNEXPIRED_STATE"]
    assert found.evidence == {
        "operator": 0,
        "variables": ["m", "n"],
        "time_mode": "NoTime",
        "state_rows_first": 10,
        "state_rows_last": 39,
        "recorded_batches": 30,
    }
    assert found.next == "timeMode=ProcessingTime, ttlDurationMs=86400000"


@pytest.mark.parametrize(
    ("operators", "batches"),
    [
        ([variables()], ()),
        ([variables()], growing(99, count=19)),
        ([variables()], growing(9)),  # it was filled, and stays as it is
        ([variables(ttl=True)], growing(99)),
        ([variables(ttl=None)], growing(99)),
        ([variables(), replace(variables(name="globalLimit"), operator=1)], growing(99)),
    ],
)
def test_state_that_expires_or_does_not_grow_without_an_end_is_no_advice(
    operators: list[StateOperator], batches: tuple[RecordedBatch, ...]
) -> None:
    assert findings(observed(checkpoint(operators=operators), batches=batches)) == {}


def test_deduplication_without_a_watermark_has_an_operator_of_its_own() -> None:
    found = findings(observed(checkpoint(operators=[hdfs([9, 9], name="dedupe")])))["UNBOUNDED_STATE"]
    assert found.next == '.withWatermark("EVENT_TIME", "1 hour").dropDuplicatesWithinWatermark(["KEY"])'


def test_large_hdfs_backed_state_belongs_into_rocksdb() -> None:
    about = observed(checkpoint(operators=[hdfs([30 * MIB, 120 * MIB], name="dedupeWithinWatermark")]))
    found = findings(about)["LARGE_HDFS_BACKED_STATE"]
    assert found.evidence == {
        "operator": 0,
        "bytes": 150 * MIB,
        "largest_partition_bytes": 120 * MIB,
        "partitions": 2,
    }
    assert found.next == f"lastgood inspect {CHK} --state"
    assert findings(observed(checkpoint(operators=[hdfs([99 * MIB] * 10, name="dedupeWithinWatermark")]))) == {}
    assert findings(observed(checkpoint(operators=[rocksdb([150 * MIB, 130 * MIB])]))) == {}


def test_a_partition_that_is_far_larger_than_the_median_is_skew() -> None:
    about = observed(checkpoint(operators=[rocksdb([10 * MIB, 10 * MIB, 90 * MIB, 12 * MIB])]))
    found = findings(about)["SKEWED_STATE"]
    assert (found.subject, found.evidence["partition"]) == ("state/0/2", 2)
    assert (found.evidence["bytes"], found.evidence["median_bytes"]) == (90 * MIB + 1000, 12 * MIB + 1000)


@pytest.mark.parametrize("sizes", [[MIB, MIB, 60 * MIB, MIB], [20 * MIB, 20 * MIB, 90 * MIB, 20 * MIB], [1, 90 * MIB]])
def test_small_even_or_few_partitions_are_no_skew(sizes: list[int]) -> None:
    assert findings(observed(checkpoint(operators=[rocksdb(sizes)]))) == {}


def test_sizes_that_were_not_looked_up_give_no_advice() -> None:
    assert findings(observed(checkpoint(operators=[rocksdb([90 * MIB, 1, 1, 1, 1], looked_into=False)]))) == {}


def test_many_tiny_partitions_cost_more_than_they_keep() -> None:
    tiny = checkpoint(range(20), operators=[hdfs([20_000] * 200, version=20, name="dedupeWithinWatermark")])
    found = findings(observed(tiny))["TOO_MANY_SHUFFLE_PARTITIONS"]
    assert (found.evidence["partitions"], found.evidence["files_per_batch"], found.evidence["suggested"]) == (
        200,
        200,
        8,
    )
    assert found.next == f"lastgood inspect {CHK} --state"
    young = checkpoint(range(5), operators=[hdfs([20_000] * 200, name="dedupeWithinWatermark")])
    assert findings(observed(young)) == {}
    assert findings(observed(tiny, batches=recorded(5, rows=2_000_000, offsets=None))) == {}
    few = checkpoint(range(20), operators=[hdfs([20_000] * 40, version=20, name="dedupeWithinWatermark")])
    assert findings(observed(few)) == {}


def test_huge_partitions_want_more_of_them() -> None:
    found = findings(observed(checkpoint(operators=[rocksdb([2048 * MIB] * 4)])))["TOO_FEW_SHUFFLE_PARTITIONS"]
    assert found.evidence["suggested"] == 129
    assert found.next == f"lastgood inspect {CHK} --state"


def test_a_backlog_is_told_in_minutes_with_the_limit_that_fits() -> None:
    unread = facts(partitions={0: PartitionFacts(0, 600_010), 1: PartitionFacts(0, 600_010)})
    found = findings(observed(kafka=unread, batches=recorded(6)))["BATCHES_TOO_LARGE"]
    assert (found.evidence["offsets"], found.evidence["seconds"]) == (1_200_000, 1200)
    assert found.evidence["trigger_interval_ms"] == 60_000
    assert "20.0 minutes" in found.effect
    assert found.next == '.option("maxOffsetsPerTrigger", "48000")'
    assert findings(observed(kafka=facts(), batches=recorded(6))) == {}
    assert findings(observed(kafka=unread, batches=recorded(4))) == {}
    limited = recorded(6, behind=10)
    assert "BATCHES_TOO_LARGE" not in findings(observed(kafka=unread, batches=limited))


def test_a_batch_that_took_very_much_longer_than_usual_is_told() -> None:
    batches = (*recorded(9), replace(recorded(1)[0], batch_id=9, offsets=5_000_000, duration_ms=1_800_000))
    found = findings(observed(batches=batches))["BATCHES_TOO_LARGE"]
    assert (found.subject, found.evidence["seconds"]) == ("offsets/9", 1800)


def test_a_limit_that_keeps_an_idle_query_behind_is_too_low() -> None:
    found = findings(observed(batches=recorded(6, behind=50_000)))["BATCHES_TOO_SMALL"]
    assert (found.evidence["limit"], found.evidence["behind_last"]) == (1000, 50_000)
    assert found.next == '.option("maxOffsetsPerTrigger", "48000")'
    catching_up = tuple(replace(each, behind=60_000 - 1000 * each.batch_id) for each in recorded(6))
    assert findings(observed(batches=catching_up)) == {}
    assert findings(observed(batches=recorded(6, behind=50_000, duration_ms=40_000))) == {}
    irregular = tuple(replace(each, trigger_at_ms=7_777 * each.batch_id) for each in recorded(6, behind=50_000))
    assert findings(observed(batches=irregular)) == {}


def test_a_topic_on_one_broker_is_told() -> None:
    found = findings(observed(kafka=facts(replication_factor=1)))["TOPIC_NOT_REPLICATED"]
    assert found.evidence == {"topic": "orders", "replication_factor": 1}
    assert found.next is not None
    assert found.next.startswith("kafka-reassign-partitions.sh --bootstrap-server broker:9092")
    assert findings(observed(kafka=facts(replication_factor=2))) == {}
    other = KafkaFacts("broker:9092", 0, {"clicks": TopicFacts(replication_factor=1)})
    assert findings(observed(kafka=other)) == {}


def alter(setting: str) -> str:
    return (
        "kafka-configs.sh --bootstrap-server broker:9092 --entity-type topics --entity-name orders --alter"
        f" --add-config {setting}"
    )


def test_retention_below_the_downtime_is_a_warning_with_the_line_to_type() -> None:
    short = facts(config={"retention.ms": "3600000", "cleanup.policy": "delete", "retention.bytes": "1000"})
    found = findings(observed(kafka=short, max_downtime_ms=86_400_000))["TOPIC_RETENTION_SHORT"]
    assert found.severity is Severity.WARNING
    assert found.evidence == {
        "topic": "orders",
        "retention_ms": 3_600_000,
        "max_downtime_ms": 86_400_000,
        "retention_bytes": 1000,
    }
    assert found.next == alter("retention.ms=115200000")


def test_retention_below_the_default_is_worth_a_word_where_nobody_says_how_long_the_query_may_be_down() -> None:
    short = facts(config={"retention.ms": "259200000", "cleanup.policy": "compact,delete"})
    found = findings(observed(kafka=short))["TOPIC_RETENTION_SHORT"]
    assert found.severity is Severity.INFO
    assert found.evidence == {"topic": "orders", "retention_ms": 259_200_000, "default_ms": 604_800_000}
    assert found.next == alter("retention.ms=604800000")
    assert findings(observed(kafka=short, max_downtime_ms=259_200_000)) == {}


@pytest.mark.parametrize("max_downtime_ms", [None, 86_400_000])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"retention.ms": "-1", "cleanup.policy": "delete"},
        {"retention.ms": "1000", "cleanup.policy": "compact"},
        {"retention.ms": "1000"},
        {"retention.ms": "604800000", "cleanup.policy": "delete"},
        {"retention.ms": "604800000", "cleanup.policy": "delete", "segment.ms": "604800000"},
        {"retention.ms": "604800000", "cleanup.policy": "delete", "segment.ms": "3600000"},
        {"retention.ms": "1000", "cleanup.policy": "compact", "segment.ms": "3600000"},
        {"retention.ms": "-1", "cleanup.policy": "delete", "segment.ms": "3600000"},
        {
            "retention.ms": "604800000",
            "cleanup.policy": "delete",
            "segment.ms": "999999999",
            "remote.storage.enable": "true",
        },
    ],
)
def test_retention_that_suffices_or_is_not_known_is_no_advice(
    config: dict[str, str], max_downtime_ms: int | None
) -> None:
    assert findings(observed(kafka=facts(config=config), max_downtime_ms=max_downtime_ms)) == {}


def sized(*, earliest: int = 5, hours_old: float | None = 5.0, downtime_h: int | None = 72) -> dict[str, Finding]:
    """Of a topic that a number of bytes limits, and whose partition 1 reaches back so far."""
    config = {"retention.ms": "604800000", "cleanup.policy": "delete", "retention.bytes": "1000000"}
    partitions = {0: PartitionFacts(0, 10), 1: PartitionFacts(earliest, 10)}
    now = 1_000_000_000
    time_ms = None if hours_old is None else now - int(hours_old * 3_600_000)
    oldest = {"orders": {0: FoundRecord(0, now - 3_600_000), 1: FoundRecord(earliest, time_ms)}}
    about = replace(facts(config=config, partitions=partitions), asked_at_ms=now, oldest=oldest)
    return findings(observed(kafka=about, max_downtime_ms=None if downtime_h is None else downtime_h * 3_600_000))


def test_a_limit_of_bytes_that_reaches_back_less_than_the_downtime() -> None:
    found = sized()["TOPIC_RETENTION_BY_SIZE"]
    assert (found.subject, found.severity) == ("orders/1", Severity.INFO)
    assert found.evidence == {
        "topic": "orders",
        "partition": 1,
        "retention_bytes": 1_000_000,
        "reaches_back_ms": 18_000_000,
        "max_downtime_ms": 259_200_000,
    }
    assert found.next == alter("retention.bytes=19200000")


def test_a_limit_of_bytes_that_has_deleted_nothing_or_reaches_far_is_no_advice() -> None:
    assert sized(earliest=0) == {}
    assert sized(hours_old=80) == {}
    assert sized(hours_old=None) == {}
    assert sized(hours_old=-1) == {}
    assert sized(downtime_h=None) == {}


def test_segments_that_are_longer_than_the_retention() -> None:
    day = facts(
        config={
            "retention.ms": "691200000",
            "cleanup.policy": "delete",
            "segment.ms": "777600000",
            "segment.bytes": "1073741824",
        }
    )
    found = findings(observed(kafka=day))["TOPIC_SEGMENTS_LONG"]
    assert found.evidence == {
        "topic": "orders",
        "retention_ms": 691_200_000,
        "segment_ms": 777_600_000,
        "segment_bytes": 1_073_741_824,
    }
    assert "up to 17.0 days" in found.effect
    assert "Only 8.0 days can be counted on" in found.effect
    assert found.next == alter("segment.ms=69120000")


def test_segments_that_are_a_thousandth_of_the_retention() -> None:
    tiny = {"retention.ms": "604800000", "cleanup.policy": "delete", "segment.ms": "600000"}
    found = findings(observed(kafka=facts(config=tiny)))["TOPIC_SEGMENTS_MANY"]
    assert (found.evidence["segments_at_most"], found.evidence["partitions"]) == (1008, 2)
    assert found.next == alter("segment.ms=60480000")
    assert findings(observed(kafka=facts(config={**tiny, "segment.ms": "700000"}))) == {}


def test_a_checkpoint_of_another_spark_is_told() -> None:
    old = checkpoint(plans=dict.fromkeys(range(5), plan(conf=SPARK_3_5)))
    found = findings(observed(old, spark="4.2"))["CHECKPOINT_OF_OTHER_SPARK"]
    assert found.evidence == {"written_by": "3.5 up to before 4.0", "spark": "4.2"}
    assert findings(observed(old, spark="3.5")) == {}
    assert findings(observed(old)) == {}


def test_an_upgrade_in_the_midst_of_the_log_is_told() -> None:
    upgraded = checkpoint(plans={n: plan(conf=SPARK_4_0 if n > 2 else SPARK_3_5) for n in range(5)})
    found = findings(observed(upgraded))["CHECKPOINT_OF_OTHER_SPARK"]
    assert (found.evidence["changed_at_batch"], found.evidence["written_before_by"]) == (3, "3.5 up to before 4.0")


@pytest.mark.parametrize(
    ("root", "is_told"), [("s3a://old/chk", True), ("s3://lake/chk/orders", False), ("x:y", False)]
)
def test_schema_files_at_another_place_are_told(root: str, is_told: bool) -> None:
    paths = (f"{root}/state/0/_stateSchema/default/0_uuid",)
    metadata = OperatorMetadata(2, 0, "transformWithStateExec", (StoreInfo("default", 0, 1, paths),), {}, b"")
    operator = replace(hdfs([9]), metadata=metadata, metadata_path="state/0/_metadata/v2/0")
    found = findings(observed(checkpoint(operators=[operator])))
    assert set(found) == ({"CHECKPOINT_OF_OTHER_ENVIRONMENT"} if is_told else set())
    if is_told:
        assert found["CHECKPOINT_OF_OTHER_ENVIRONMENT"].evidence["written_at"] == root


def test_no_advice_begins_like_a_condition_of_broken_state() -> None:
    assert not [each.name for each in CONDITIONS if each.name.startswith("STATE_")]
    warnings = [each.name for each in CONDITIONS if each.severity is not Severity.INFO]
    assert warnings == ["TOPIC_RETENTION_SHORT"]
