"""The forms of Delta tables that are made.

Every table gets batches 0 to 5 of three applications, and one checkpoint of its log after batch 4.
"""

from __future__ import annotations

from typing import Any

PART_SIZE = "spark.databricks.delta.checkpoint.partSize"
TOP_LEVEL = "spark.databricks.delta.checkpointV2.topLevelFileFormat"
V2 = {"delta.checkpointPolicy": "v2"}
FORMS: dict[str, dict[str, Any]] = {
    "classic": {},
    "multi_part": {"conf": {PART_SIZE: "3"}},
    "v2_json": {"properties": V2, "conf": {TOP_LEVEL: "json", PART_SIZE: "2"}},
    "v2_parquet": {"properties": V2, "conf": {TOP_LEVEL: "parquet"}},
    "deletion_vectors": {
        "properties": {"delta.enableDeletionVectors": "true"},
        "after": "DELETE FROM {} WHERE id = 11",
    },
    "type_widening": {
        "properties": {"delta.enableTypeWidening": "true"},
        "columns": "id INT, v STRING",
        "before": "ALTER TABLE {} ALTER COLUMN id TYPE BIGINT",
    },
    "column_mapping": {"properties": {"delta.columnMapping.mode": "name"}},
    "row_tracking": {"properties": {"delta.enableRowTracking": "true"}},
    "in_commit_timestamps": {"properties": {"delta.enableInCommitTimestamps": "true"}},
    "clustered": {"columns": "id BIGINT, v STRING", "more": "CLUSTER BY (id)"},
    "partitioned": {"properties": {"delta.checkpoint.writeStatsAsStruct": "true"}, "more": "PARTITIONED BY (v)"},
    "change_feed": {"properties": {"delta.enableChangeDataFeed": "true"}},
    "iceberg": {"properties": {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}},
    "variant": {"columns": "id BIGINT, v STRING, x VARIANT"},
    "timestamp_ntz": {"columns": "id BIGINT, v STRING, x TIMESTAMP_NTZ"},
    "constraint": {"before": "ALTER TABLE {} ADD CONSTRAINT positive CHECK (id >= 0)"},
    "vacuum_check": {"properties": {"delta.feature.vacuumProtocolCheck": "supported"}},
    "checkpoint_protection": {"properties": {"delta.feature.checkpointProtection": "supported"}},
    "restored": {"after": "RESTORE TABLE {} TO VERSION AS OF 3"},
    "expiring": {"properties": {"delta.setTransactionRetentionDuration": "interval 30 days"}},
}
