from __future__ import annotations

import pytest

from lastgood.failures.causes import Thrown
from lastgood.failures.classify import classify_causes
from lastgood.failures.of_checkpoint import CHECKPOINT_RULES

ENGINE = ("java.lang.A.a", "org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.populateStartOffsets")
CASES = [
    ("stale_crc", "FileAlreadyExistsException", None, "Rename destination file:/c/offsets/.3.crc already exists."),
    ("concurrent_log_update", "SparkException", "CONCURRENT_STREAM_LOG_UPDATE", ""),
    ("concurrent_log_update", "", None, "Multiple streaming jobs detected for 4."),
    ("concurrent_log_file", "SparkConcurrentModificationException", None,
     "Multiple streaming queries are concurrently using file:/c/offsets."),
    ("concurrent_log_file", "IllegalStateException", None, "Race while writing batch 3"),
    ("concurrent_query", "IllegalStateException", None,
     "Cannot start query with id 1 as another query with same id is already active."),
    ("concurrent_query", "SparkConcurrentModificationException", "CONCURRENT_QUERY", ""),
    ("delta_concurrent_transaction", "ConcurrentTransactionException", "DELTA_CONCURRENT_TRANSACTION", ""),
    ("delta_conflict", "ConcurrentAppendException", None, "Files were added"),
    ("delta_conflict", "MetadataChangedException", "DELTA_METADATA_CHANGED", ""),
    ("delta_schema_changed", "DeltaIllegalStateException", "DELTA_SCHEMA_CHANGED_WITH_VERSION", ""),
    ("log_file_empty", "IllegalStateException", None, "Incomplete log file in the offset commit log"),
    ("log_version", "SparkIllegalStateException", "INVALID_LOG_VERSION.EXACT_MATCH_VERSION", ""),
    ("log_version", "IllegalStateException", None,
     "UnsupportedLogVersion: maximum supported log version is v1, but encountered v99."),
    ("log_malformed", "SparkIllegalStateException", "MALFORMED_LOG_FILE", ""),
    ("log_malformed", "IllegalStateException", None, "Log file was malformed: failed to read correct log version"),
    ("log_malformed", "NullPointerException", None,
     'Cannot invoke "o.WatermarkTracker.currentWatermark()" because "x" is null'),
    ("log_malformed", "NullPointerException", None,
     'Cannot invoke "o.WatermarkTracker.updateWatermark(org.apache.SparkPlan)" because the return value is null'),
    ("log_malformed", "IllegalArgumentException", None, "requirement failed: Batch 6 metadata not found"),
    ("log_malformed", "IllegalArgumentException", None, "requirement failed: Previous batch 5 metadata not found"),
    ("log_entry_missing", "IllegalStateException", None, "batch 6 doesn't exist"),
    ("log_entry_missing", "IllegalArgumentException", None,
     "requirement failed: Previous batch 6 not found in offset log"),
    ("log_entry_missing", "IllegalStateException", None, "batches (5, 6) don't exist (startId: Some(5)"),
    ("log_entry_missing", "FileNotFoundException", None,
     "file:/c/sources/0/2 doesn't exist (latestId: 5, compactInterval: 10)"),
    ("log_entry_missing", "IllegalStateException", None,
     "/out/_spark_metadata/0 doesn't exist when compacting batch 9 (compactInterval: 10)"),
    ("log_entry_missing", "IllegalStateException", None, "Batch 3 was committed without end epoch offsets!"),
    ("metadata_missing", "SparkRuntimeException", "STREAMING_CHECKPOINT_MISSING_METADATA_FILE", ""),
    ("repartition_unfinished", "SparkRuntimeException", "STREAMING_UNFINISHED_REPARTITION_DETECTED", ""),
    ("state_checksum", "SparkException", "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
     "Checksum verification failed, the file may be corrupted. File: s3a://b/c/state/0/1/8_x.zip Expected"),
    ("state_checksum", "ChecksumException", None, "Checksum error: file:/c/state/0/0/3.zip at 1536 exp: 1 got: 2"),
    ("log_checksum", "SparkException", "CHECKPOINT_FILE_CHECKSUM_VERIFICATION_FAILED",
     "Checksum verification failed, the file may be corrupted. File: s3a://b/c/offsets/8 Expected"),
    ("log_checksum", "ChecksumException", None, "Checksum error: file:/c/sources/0/3 at 0 exp: 1 got: 2"),
    ("log_json", "MismatchedInputException", None, "No content to map due to end-of-input"),
    ("log_json_as_told", "", None, "Unrecognized token 'not': was expecting (JSON String"),
    ("log_ends", "NoSuchElementException", None, "next on empty iterator"),
    ("log_file_gone", "FileNotFoundException", None, "File file:/c/offsets/6 does not exist"),
    ("offsets_inconsistent", "AssertionError", None, "assertion failed"),
    ("offsets_inconsistent", "AssertionError", None, "assertion failed: earliest offset -1 does not equal -2"),
    ("rename_failed", "SparkFileAlreadyExistsException", "FAILED_RENAME_PATH", ""),
    ("log_not_written", "SparkException", "STREAMING_CHECKPOINT_LOG_WRITE_FAILURE.OFFSET_LOG", ""),
    ("state_busy", "SparkException", "CANNOT_LOAD_STATE_STORE.UNRELEASED_THREAD_ERROR", ""),
    ("state_busy", "IllegalStateException", None, "RocksDB instance could not be acquired by [ThreadId: 1]"),
    ("state_not_loaded", "SparkException", "CANNOT_LOAD_STATE_STORE.CANNOT_READ_STREAMING_STATE_FILE", ""),
    ("state_not_loaded", "IllegalStateException", None,
     "Error reading delta file file:/c/8.delta of HDFSStateStoreProvider[id = (op=0,part=1)]: x does not exist"),
    ("state_not_loaded", "IllegalStateException", None, "Error reading streaming state file of /c/8.changelog does"),
    ("state_not_loaded", "RocksDBException", None, "Mismatch in unique ID on table file 000012.sst"),
    ("state_not_loaded", "SparkException", "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY", ""),
    ("state_rows_invalid", "InvalidUnsafeRowException", None,
     "The streaming query failed by state format invalidation."),
    ("state_rows_invalid", "SparkRuntimeException", "STATE_STORE_KEY_ROW_FORMAT_VALIDATION_FAILURE", ""),
    ("code_of_other_sources", "NotToStartError", None, "[CODE_DOES_NOT_FIT] sources/0: files of /b; there: /a"),
    ("code_of_other_windows", "NotToStartError", None, "[CODE_DOES_NOT_FIT] windows: windows of 20 s; there: "),
    ("code_of_other_state", "NotToStartError", None, "[CODE_DOES_NOT_FIT] state/0: keeps max long; there: "),
    ("code_of_fewer_operators", "NotToStartError", None, "[CODE_DOES_NOT_FIT] state: 0 stateful operators in the code"),
    ("state_schema", "StateStoreKeySchemaNotCompatible", "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE", ""),
    ("state_schema", "StateSchemaNotCompatible", None,
     "Provided schema doesn't match to the schema for existing state! Please note"),
    ("state_operators", "SparkRuntimeException", "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA", ""),
    ("state_not_consumed", "SparkException", "STATE_STORE_COMMIT_VALIDATION_FAILED", ""),
    ("offsets_without_sources", "AssertionError", None,
     "assertion failed: There are [0] sources in the checkpoint offsets and now there are [1] sources requested"),
    ("source_count", "AssertionError", None,
     "assertion failed: There are [2] sources in the checkpoint offsets and now there are [1] sources requested"),
    ("source_kind", "MappingException", None, "No usable value for logOffset"),
    ("source_kind", "IllegalArgumentException", None, "Wrong basePath file:/new for the root path: file:/old/f.json"),
    ("starting_offsets", "AssertionError", None,
     "assertion failed: If startingOffsets contains specific offsets, you must specify all TopicPartitions."),
    ("evolution", "SparkException", "STREAMING_QUERY_EVOLUTION_ERROR.CANNOT_ENABLE_ON_EXISTING_CHECKPOINT", ""),
    ("delta_incompatible_schema", "DeltaException", "DELTA_STREAMING_INCOMPATIBLE_SCHEMA_CHANGE", ""),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "class_name", "condition", "message"), CASES)
def test_checkpoint_that_stops_its_query_is_known(
    rule: str, class_name: str, condition: str | None, message: str
) -> None:
    name = f"org.x.{class_name}" if class_name else None
    cause = Thrown(
        language="java", class_name=name, condition=condition, message=message, frames=ENGINE if name else ()
    )
    assert classify_causes([cause]).rule == rule


def test_every_rule_is_tried() -> None:
    assert {rule for rule, *_ in CASES} == {rule.name for rule in CHECKPOINT_RULES}


def test_state_counts_before_the_file_that_it_could_not_read() -> None:
    state = Thrown(language="java", class_name="a.SparkException", condition="CANNOT_LOAD_STATE_STORE.UNCATEGORIZED")
    inner = Thrown(language="java", class_name="a.MismatchedInputException", message="No content", frames=ENGINE)
    assert classify_causes([state, inner]).rule == "state_not_loaded"
    assert classify_causes([inner]).rule == "log_json"


def test_same_words_of_user_code_or_of_a_state_store_are_no_damaged_log() -> None:
    of_a_store = ("scala.Predef$.assert", "org.apache.spark.sql.execution.streaming.state.RocksDB.load")
    of_a_function = ("a.B.c", "org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink.addBatch")
    for frames in (of_a_store, of_a_function):
        cause = Thrown(
            language="java", class_name="java.lang.AssertionError", message="assertion failed", frames=frames
        )
        assert classify_causes([cause]).rule != "offsets_inconsistent"
    python = Thrown(language="python", class_name="AssertionError", message="assertion failed")
    assert classify_causes([python]).rule is None
