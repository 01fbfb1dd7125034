from __future__ import annotations

import pytest

from lastgood.failures.classify import classify_causes
from lastgood.failures.of_sources import SOURCE_RULES
from lastgood.records.record import ChainedException

LOSS = "Some data may have been lost because they are not available in Kafka any more;\nReason: "
CASES = [
    ("kafka_available_now", "KafkaIllegalStateException", None,
     "For Kafka data source with Trigger.AvailableNow, … The error could be transient - restart your query"),
    ("kafka_available_now", "E", "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED", ""),
    ("kafka_offset_went_back", "E", "KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", LOSS),
    ("kafka_offset_went_back", "E", None, LOSS + "Partition a.b-0 offset was changed from 2 to 1"),
    ("kafka_partitions_gone", "KafkaIllegalStateException", None, LOSS + "Partitions Set(g-5) have been deleted."),
    ("kafka_partitions_gone", "IllegalStateException", None, "Set(g-5) are gone. Kafka option 'kafka.group.id'"),
    ("kafka_topic_unknown", "UnknownTopicOrPartitionException", None, "This server does not host this topic."),
    ("kafka_offsets_gone", "KafkaIllegalStateException", "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE", LOSS),
    ("kafka_offsets_gone", "KafkaIllegalStateException", None,
     LOSS + "Could not read records in offset [10, 20) for topic partition fbx-0"),
    ("kafka_offsets_gone", "KafkaIllegalStateException", None,
     LOSS + "Cannot find initial offsets for partitions Set(t-1)."),
    ("kafka_out_of_range", "OffsetOutOfRangeException", None, "Fetch position is out of range for partition t-0"),
    ("delta_other_table", "DeltaIllegalStateException", "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", ""),
    ("delta_versions_gone", "DeltaIllegalStateException", "DELTA_MISSING_FILES_UNEXPECTED_VERSION", ""),
    ("delta_versions_gone", "DeltaFileNotFoundException", "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE", ""),
    ("delta_changes_in_source", "DeltaUnsupportedOperationException", "DELTA_SOURCE_TABLE_IGNORE_CHANGES", ""),
    ("delta_changes_in_source", "UnsupportedOperationException", None,
     "Detected deleted data (for example part-0.parquet) from streaming source at version 3."),
    ("source_file_gone", "SparkException", "FAILED_READ_FILE.FILE_NOT_EXIST", ""),
    ("source_file_gone", "SparkFileNotFoundException", None,
     "File file:/x does not exist\nIt is possible the underlying files have been updated."),
    ("iceberg_snapshot_expired", "IllegalStateException", None,
     "Cannot load current offset at snapshot 42, the snapshot was expired or removed"),
    ("event_hubs_expired", "IllegalStateException", None, "request seqNo 1 is less than the received seqNo 2."),
    ("kinesis_expired", "ExpiredIteratorException", None, "Iterator expired."),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "class_name", "condition", "message"), CASES)
def test_source_that_lacks_what_was_to_be_read_is_known(
    rule: str, class_name: str, condition: str | None, message: str
) -> None:
    cause = ChainedException(language="java", class_name=f"org.x.{class_name}", condition=condition, message=message)
    assert classify_causes([cause]).rule == rule


def test_every_rule_is_tried() -> None:
    assert {rule for rule, *_ in CASES} == {rule.name for rule in SOURCE_RULES}
