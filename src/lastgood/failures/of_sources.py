"""Failures of what a query reads: it is gone, or another one. In order; before all that user code may make of them."""

from __future__ import annotations

from lastgood.failures.failure_class import FailureClass, Rule, compile_any_of

_KAFKA = "KafkaExceptions.scala, kafka-error-conditions.json; KafkaSourceProvider.scala of 3.5"
_DELTA = "DeltaErrors.scala, delta-error-classes.json"

SOURCE_RULES: tuple[Rule, ...] = (
    Rule(
        "kafka_available_now",
        FailureClass.TRANSIENT,
        "Kafka's offsets moved while an availableNow run was planned; Spark says to restart",
        _KAFKA,
        conditions=(
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_END_OFFSET_AND_PREFETCHED",
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_PREFETCHED",
            "LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW",
            "END_OFFSET_HAS_GREATER_OFFSET_FOR_TOPIC_PARTITION_THAN_LATEST_WITH_TRIGGER_AVAILABLENOW",
        ),
        text=compile_any_of(r"Trigger\.AvailableNow.*The error could be transient - restart your query"),
    ),
    Rule(
        "kafka_offset_went_back",
        FailureClass.SOURCE_RECREATED,
        "a partition of the topic ends below the offset that was read: the topic was deleted and created again",
        f"{_KAFKA}; seen on 4.0, 4.2",
        conditions=("KAFKA_DATA_LOSS.PARTITION_OFFSET_CHANGED", "RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"),
        text=compile_any_of(r"Partition \S+ offset was changed from \d+ to \d+"),
    ),
    Rule(
        "kafka_partitions_gone",
        FailureClass.SOURCE_RECREATED,
        "partitions that were read are gone: the topic was deleted or created again, or the subscription changed",
        f"{_KAFKA}; seen on 4.2",
        conditions=(
            "KAFKA_DATA_LOSS.PARTITIONS_DELETED",
            "KAFKA_DATA_LOSS.PARTITIONS_DELETED_AND_GROUP_ID_CONFIG_PRESENT",
        ),
        text=compile_any_of(
            r"Partitions (?:Set|HashSet)?\(?.{0,2000}\)? have been deleted", r"Set\(.{0,2000}\) are gone\."
        ),
    ),
    Rule(
        "kafka_topic_unknown",
        FailureClass.SOURCE_RECREATED,
        "the broker does not know the topic: it was deleted, or is not there yet",
        "seen on 4.0, 4.2; Kafka's client",
        classes=("UnknownTopicOrPartitionException",),
    ),
    Rule(
        "kafka_offsets_gone",
        FailureClass.SOURCE_EXPIRED,
        "Kafka no longer has the offsets that the batch was to read",
        f"{_KAFKA}, KafkaDataConsumer of 3.5; seen on 4.0, 4.2",
        conditions=("KAFKA_DATA_LOSS",),
        text=compile_any_of(
            r"Could not read records in offset \[\d+, \d+\) for topic partition",
            r"Cannot fetch offset \d+ \(GroupId: ",
            r"Added partition \S+ starts from \d+ instead of 0",
            r"Cannot find (?:earliest|initial) offsets (?:of|for partitions) ",
            r"Some data may have been (?:lost|missed)",
        ),
    ),
    Rule(
        "kafka_out_of_range",
        FailureClass.SOURCE_EXPIRED,
        "Kafka no longer has the offsets that the batch was to read",
        "Kafka's client; seen on 4.0, 4.2",
        classes=("OffsetOutOfRangeException",),
        is_weak=True,
    ),
    Rule(
        "delta_other_table",
        FailureClass.SOURCE_RECREATED,
        "the Delta table that is read is another one of the same name",
        f"{_DELTA}; seen on Spark 4.0",
        conditions=(
            "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE",
            "DELTA_STREAMING_SCHEMA_LOG_INCOMPATIBLE_DELTA_TABLE_ID",
        ),
        text=compile_any_of(r"The streaming query was reading from an unexpected Delta table"),
    ),
    Rule(
        "delta_versions_gone",
        FailureClass.SOURCE_EXPIRED,
        "the Delta table that is read has dropped versions that were still to be read",
        f"{_DELTA}; seen on Spark 4.0",
        conditions=(
            "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
            "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE",
            "DELTA_STREAMING_TRAILING_COMMIT_MISSING",
        ),
        text=compile_any_of(
            r"Delta stream cannot resume from version", r"The stream from your Delta table was expecting process data"
        ),
    ),
    Rule(
        "delta_changes_in_source",
        FailureClass.POISON_DATA,
        "a commit of the Delta table that is read deletes or rewrites rows, which the query does not accept",
        f"{_DELTA}; seen on Spark 4.0",
        conditions=("DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"),
        text=compile_any_of(
            r"Detected (?:deleted data|a data update) \(for example .{0,2000}\) (?:from|in the) (?:streaming|source)"
        ),
    ),
    Rule(
        "source_file_gone",
        FailureClass.SOURCE_EXPIRED,
        "a file that the batch was to read is gone",
        "QueryExecutionErrors.scala; seen on 4.0",
        conditions=("FAILED_READ_FILE.FILE_NOT_EXIST",),
        text=compile_any_of(r"It is possible the underlying files have been updated"),
    ),
    Rule(
        "iceberg_snapshot_expired",
        FailureClass.SOURCE_EXPIRED,
        "the Iceberg snapshot from which to go on was expired",
        "SparkMicroBatchStream, SnapshotUtil of Iceberg",
        text=compile_any_of(
            r"Cannot load current offset at snapshot \d+",
            r"Cannot find snapshot after \d+: not an ancestor of table's current snapshot",
        ),
    ),
    Rule(
        "event_hubs_expired",
        FailureClass.SOURCE_EXPIRED,
        "Event Hubs no longer has the events that the batch was to read",
        "azure-event-hubs-spark 488",
        text=compile_any_of(r"request seqNo \d+ is less than the received seqNo"),
    ),
    Rule(
        "kinesis_expired",
        FailureClass.SOURCE_EXPIRED,
        "Kinesis no longer serves the position from which to go on",
        "AWS SDK",
        classes=("ExpiredIteratorException", "TrimmedDataAccessException"),
    ),
)
