"""Every parser of bytes that others wrote, real files to begin with, and what must hold whatever happened to them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lastgood.checkpoint.checksums import parse_hadoop_checksum, parse_spark_checksum
from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.copies import Copy
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import FileLogEntry, parse_sink_log_entry, parse_source_log_entry
from lastgood.checkpoint.initial import parse_initial_offset, parse_source_entry
from lastgood.checkpoint.layout import classify
from lastgood.checkpoint.lines import read_json
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.operators import parse_operator_metadata, parse_state_schema
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.checkpoint.source_offsets import parse_source_offset
from lastgood.checkpoint.state_files import parse_lineage, parse_snapshot, parse_snapshot_metadata
from lastgood.delta_log.actions import TableCommit, parse_commit
from lastgood.delta_log.snapshot import parse_checkpoint, parse_checksum
from lastgood.errors import LastgoodError
from lastgood.mirror.backups import Backup, parse_backup
from lastgood.mirror.copies import compress, decode_copies, decompress, encode_copies
from lastgood.records.files import parse_driver, parse_records
from lastgood.sinks.iceberg.sink import IcebergMetadata, parse_iceberg_metadata
from lastgood.sinks.iceberg.sink import judge_metadata as iceberg_evidence
from lastgood.sources.kafka.facts import KafkaFacts, facts_from_json
from lastgood.sources.kafka.java_properties import parse_jaas, parse_properties
from lastgood.sources.kafka.starting_offsets import parse_starting_offsets

CASES = Path(__file__).parent / "corpus" / "cases"


class Parser(NamedTuple):
    parse: Callable[[bytes], Any]
    seeds: str | None = None
    """Which real files to begin with, beside `MORE_SEEDS`."""


def parse_offset_line(raw: bytes) -> Any:
    return parse_source_offset(raw.decode("utf-8", "replace"))


def parse_path(raw: bytes) -> Any:
    return classify(raw.decode("utf-8", "surrogateescape"))


def parse_mirror(raw: bytes) -> Any:
    return list(decode_copies(decompress(raw)))


def parse_facts(raw: bytes) -> Any:
    value = read_json(raw.decode("utf-8", "replace"))
    return value if isinstance(value, Damage) else facts_from_json(value)


PARSERS = {
    "query": Parser(parse_query_metadata, "checkpoint/metadata"),
    "offsets": Parser(parse_offset_entry, "checkpoint/offsets/*"),
    "offset-line": Parser(parse_offset_line, "checkpoint/offsets/*"),
    "commits": Parser(parse_commit_entry, "checkpoint/commits/*"),
    "source-log": Parser(parse_source_log_entry, "checkpoint/sources/*/*"),
    "sink-log": Parser(parse_sink_log_entry, "spark_metadata/*"),
    "initial-offset": Parser(parse_initial_offset, "checkpoint/sources/0/0"),
    "source-entry": Parser(parse_source_entry, "checkpoint/sources/*/*"),
    "operator-metadata": Parser(parse_operator_metadata, "checkpoint/state/*/_metadata/**/*"),
    "state-schema": Parser(parse_state_schema, "checkpoint/state/**/*schema"),
    "state-schema-v3": Parser(parse_state_schema, "checkpoint/state/*/_stateSchema/*/*"),
    "snapshot": Parser(parse_snapshot, "checkpoint/state/*/*/*.zip"),
    "snapshot-metadata": Parser(parse_snapshot_metadata, "checkpoint/state/*/_metadata/metadata"),
    "lineage": Parser(parse_lineage, "checkpoint/state/*/*/*_*.changelog"),
    "hadoop-checksum": Parser(parse_hadoop_checksum, "checkpoint/**/.*.crc"),
    "spark-checksum": Parser(parse_spark_checksum, "checkpoint/state/*/*/[0-9]*.crc"),
    "path": Parser(parse_path, "checkpoint/metadata"),
    "mirror": Parser(parse_mirror),
    "backup": Parser(parse_backup),
    "delta-commit": Parser(lambda raw: parse_commit(7, raw)),
    "delta-checksum": Parser(lambda raw: parse_checksum(7, raw, "x")),
    "delta-checkpoint": Parser(lambda raw: parse_checkpoint(7, "7.checkpoint.x.json", raw)),
    "iceberg-metadata": Parser(parse_iceberg_metadata),
    "records": Parser(parse_records),
    "driver": Parser(parse_driver),
    "properties": Parser(parse_properties),
    "jaas": Parser(lambda raw: parse_jaas(raw.decode("utf-8", "replace"))),
    "kafka-facts": Parser(parse_facts),
    "starting-offsets": Parser(lambda raw: parse_starting_offsets(raw, "orders", "orders.json")),
}
RAISING = ("properties", "jaas", "kafka-facts", "starting-offsets")
"""Parsers of what a person wrote: they refuse it with one of our errors."""
MORE_SEEDS: dict[str, list[bytes]] = {
    "offset-line": [
        b'{"m.b":{"0":14},"m.a":{"0":14,"1":14}}',
        b'{"sourceVersion":1,"reservoirId":"x","reservoirVersion":4,"index":-1,"isStartingVersion":false}',
        b'{"version":1,"snapshot_id":-1,"position":-1,"scan_all_files":false}',
        b'{"0":{"value":4,"runTimeMs":5}}',
        b'{"offset":30,"timestamp":1700000003000}',
        b"-1",
        b"-",
    ],
    "snapshot-metadata": [
        b'v1\n{"sstFiles":[{"localFileName":"8.sst","dfsSstFileName":"8-x.sst","sizeBytes":9}],"numKeys":1}',
    ],
    "path": [
        b"offsets/7",
        b"commits/.7.68ed4850-d346-4756-94d9-8f64625f261a.tmp",
        b"state/0/0/.8_68ed4850-d346-4756-94d9-8f64625f261a.changelog.crc.crc",
        b"state/0/_stateSchema/default/0_68ed4850-d346-4756-94d9-8f64625f261a",
        b"sources/orders/9.compact",
    ],
}
_COPIES = [
    Copy("0dcd0ea6-5866-4db8-bdb7-960f2e49c827", "offsets/7", 1_795_220_516_284, 1_795_220_516_000, b"v1\n{}\n-"),
    Copy(None, "sources/0/0", 1_795_220_516_285, None, b"\0\xff"),
]
_DELTA = [
    {"commitInfo": {"timestamp": 1_795_220_516_284, "operation": "STREAMING UPDATE",
                    "operationParameters": {"outputMode": "Append", "queryId": "0dcd0ea6", "epochId": "6"},
                    "operationMetrics": {"numOutputRows": "25"}, "txnId": "1"}},
    {"txn": {"appId": "0dcd0ea6", "version": 6, "lastUpdated": 1_795_220_516_284}},
    {"metaData": {"id": "t", "format": {"provider": "parquet"}, "schemaString": "{}", "partitionColumns": [],
                  "configuration": {"delta.setTransactionRetentionDuration": "interval 7 days"}}},
    {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}},
    {"add": {"path": "part-0.parquet", "size": 9, "modificationTime": 1, "dataChange": True, "stats": "{}"}},
]  # fmt: skip
_ICEBERG = {
    "format-version": 2, "table-uuid": "u", "location": "s3://b/t", "current-snapshot-id": 2,
    "refs": {"main": {"snapshot-id": 2, "type": "branch"}},
    "snapshots": [
        {"snapshot-id": number, "parent-snapshot-id": number - 1, "timestamp-ms": 1_795_220_516_284,
         "summary": {"operation": "append", "spark.sql.streaming.queryId": "0dcd0ea6",
                     "spark.sql.streaming.epochId": str(number), "added-records": "5"}}
        for number in (1, 2)
    ],
}  # fmt: skip
_FACTS = {
    "bootstrap": "broker:9092", "captured_at_ms": 1_795_219_992_261,
    "topics": {"exp": {"topic_id": "qOKSs+ibS8GEoOp3IjzH7w", "config": {"retention.ms": "-1"},
                       "partitions": {"0": {"earliest": 20, "latest": 25}, "1": {"earliest": 0, "latest": 25}}}},
}  # fmt: skip
_RECORD = {"format_version": 1, "kind": "progress", "recorded_at_ms": 1, "batch_id": 7, "sources": [{"end": "{}"}]}
_DRIVER = {
    "format_version": 1, "pid": 7, "host": "vm", "process_started_at_ms": 5, "beat_at_ms": 6, "exited_at_ms": None,
    "python": "3.9.18", "queries": [{"query_id": "q", "run_id": "r", "query_name": None, "checkpoint": "file:/chk"}],
    "is_classic": True, "recorded": 1, "dropped": 2, "trouble": None,
}  # fmt: skip


def _lines(*values: object) -> bytes:
    return b"\n".join(json.dumps(value).encode() for value in values)


MORE_SEEDS |= {
    "mirror": [encode_copies(_COPIES), compress(encode_copies(_COPIES)) + compress(encode_copies(_COPIES[:1]))],
    "backup": [
        _lines(
            {
                "id": "20261121-0312-7f3a",
                "at_ms": 1_795_220_516_284,
                "query_id": None,
                "last_planned": 7,
                "last_committed": 6,
                "files": 9,
                "size": 900,
                "kept": False,
            }
        )
    ],
    "delta-commit": [_lines(*_DELTA), _lines(*_DELTA[:2])],
    "delta-checksum": [
        _lines(
            {
                "txnId": "x",
                "setTransactions": [_DELTA[1]["txn"]],
                "metadata": _DELTA[2]["metaData"],
                "protocol": {"minReaderVersion": 1, "minWriterVersion": 2},
            }
        )
    ],
    "delta-checkpoint": [_lines(*_DELTA)],
    "iceberg-metadata": [_lines(_ICEBERG), gzip.compress(_lines(_ICEBERG), mtime=0)],
    "records": [_lines(_RECORD, {"format_version": 1, "kind": "terminated", "recorded_at_ms": 1}) + b"\n"],
    "driver": [_lines(_DRIVER)],
    "properties": [b"# x\nsasl.mechanism=PLAIN\nssl.key\\ password : \\u00e4b\\\n   c\n", b"a=1\r\nb 2\rc"],
    "jaas": [b'x.Plain required username="alice" /* c */ password=\'a"s\\101\' // d\n e="f";'],
    "kafka-facts": [_lines(_FACTS)],
    "starting-offsets": [_lines({"query": "orders", "recovery": "r", "starting_offsets": {"orders": {"0": 41}}})],
}
TOKENS = [
    *(b"", b"\0", b"\n", b"\r", b"\r\n", b" ", b"v1", b"v2", b"v3", b"v99", b"v-1"),
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b"\\u", b"\\ud800", b":", b",", b'"value":', b'"0":', b'{"logOffset":5}'),
    *(b"-", b"0", b"-1", b"1e999", b"NaN", b"null", b"true", b"9" * 30, b"9" * 5000, b"[" * 3000, b'{"a":' * 3000),
    *(b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xef\xbb\xbf", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80\0\0\0"),
    *(b"LZ4Block", b"PK\x03\x04", b"PK\x05\x06", b"crc\0", b".crc", b".tmp", b"/", b"\xd9\xa3"),
]


def seeds_of(name: str) -> list[bytes]:
    """Contents to begin with, small ones first."""
    pattern = PARSERS[name].seeds
    files = [path for path in CASES.glob(f"*/{pattern}") if path.is_file()] if pattern else []
    contents = {path.read_bytes() for path in files if path.stat().st_size < 20_000}
    return [*sorted(contents, key=lambda raw: (len(raw), raw))[:60], *MORE_SEEDS.get(name, [])]


def survives(name: str, raw: bytes) -> None:
    """Parse `raw`: there is a value that gives these bytes back, a Damage that can be shown, or one of our errors."""
    refused = LastgoodError if name in RAISING else ()
    try:
        value = PARSERS[name].parse(raw)
    except refused:
        return
    if isinstance(value, Damage):
        assert len(value.found) <= 80
        assert str(value).isprintable()
        return
    if hasattr(value, "to_bytes") and name not in ("snapshot", "lineage"):
        assert value.to_bytes() == raw
    look_at(value)


def look_at(value: Any) -> None:
    """Ask a value for everything it can tell."""
    if isinstance(value, OffsetEntry):
        again = parse_offset_entry(value.to_bytes())
        assert again == value
        assert all(line.offset.to_text() is not None for line in value.sources)
        changed = value.with_source_line(value.sources[-1].source_id, "5")
        if value.metadata:
            assert value.metadata.control is None or value.metadata.control.operation is not None
            assert changed.with_watermark(7).with_conf({"a": "b"}).batch_watermark_ms == 7
            assert value.metadata.spark_versions is None or value.conf
        assert changed.to_bytes()
    elif isinstance(value, CommitEntry):
        assert value.with_watermark(7).next_batch_watermark_ms == 7
        assert value.state_unique_ids is None or value.version > 1
        assert value.sinks is not None
    elif isinstance(value, FileLogEntry):
        assert sum(1 for _ in value) <= value.raw.count(b"\n") + value.raw.count(b"\r")
    elif isinstance(value, QueryMetadata):
        assert value.query_id
    elif isinstance(value, Backup):
        assert parse_backup(_lines(value.to_json())) == value
        assert value.at_ms + value.size < float("inf")
        assert value.id == f"{value.id}"
    elif isinstance(value, TableCommit):
        assert (value.query_id, value.row_count, value.restored_version, value.by_app) is not None
    elif isinstance(value, IcebergMetadata):
        evidence = iceberg_evidence(value, "0dcd0ea6", location="s3://b/t")
        assert len(evidence.batches) <= len(value.snapshots)
    elif isinstance(value, KafkaFacts):
        assert facts_from_json(value.to_json()) == value
        settings = ((topic, key) for topic in value.topics.values() for key in topic.config)
        assert all(isinstance(topic.config_number(key), int | None) for topic, key in settings)
