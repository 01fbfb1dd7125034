from __future__ import annotations

import dataclasses

import pytest

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.offsets import OffsetEntry, SourceLine, SparkVersions, parse_offset_entry
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, TextOffset, VoidOffset

METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1795207389479,"conf":{"spark.sql.shuffle.partitions":"2"}}'
V1 = f'v1\n{METADATA}\n{{"logOffset":5}}\n-'.encode()
V2 = (
    b'v2\n{"batchWatermarkMs":7,"batchTimestampMs":9,"conf":{},"sourceMetadataInfo":{},"controlBatchInfo":'
    b'{"operationType":"repartition","operationInfo":{"n":"5"}}}\norders:{"logOffset":0}\n1:-'
)


def entry(raw: bytes) -> OffsetEntry:
    parsed = parse_offset_entry(raw)
    assert isinstance(parsed, OffsetEntry)
    assert parsed.to_bytes() == raw
    return parsed


def test_version_1_holds_metadata_and_one_line_per_source() -> None:
    parsed = entry(V1)
    assert parsed.metadata
    assert (parsed.version, parsed.batch_watermark_ms, parsed.metadata.batch_timestamp_ms) == (1, 0, 1795207389479)
    assert parsed.conf == {"spark.sql.shuffle.partitions": "2"}
    assert parsed.sources == (SourceLine("0", '{"logOffset":5}'), SourceLine("1", "-"))
    assert [line.offset for line in parsed.sources] == [FileOffset(5), VoidOffset()]
    assert parsed.metadata.control is None


def test_version_2_names_its_sources_and_knows_control_batches() -> None:
    parsed = entry(V2)
    assert [line.source_id for line in parsed.sources] == ["orders", "1"]
    assert parsed.source("orders") == SourceLine("orders", '{"logOffset":0}')
    assert parsed.source("0") is None
    assert parsed.metadata
    assert parsed.metadata.control
    assert parsed.metadata.control.operation == "repartition"
    assert parsed.batch_watermark_ms == 7


def test_continuous_mode_writes_an_empty_metadata_line() -> None:
    parsed = entry(b'v1\n\n{"0":{"value":4,"runTimeMs":5}}')
    assert (parsed.metadata, parsed.conf, parsed.batch_watermark_ms) == (None, {}, 0)
    assert dataclasses.replace(parsed, raw=None).to_bytes() == parsed.to_bytes()


@pytest.mark.parametrize(
    "raw",
    [
        V1 + b"\n",
        V1.replace(b"\n", b"\r\n"),
        V1.replace(b'":', b'" : '),
        b"v+1\n{}\n5",
        b'v1\n{"zzz":1}junk\n5',
        b"v1\n{}\n5\n\n",
    ],
)
def test_an_entry_that_a_hand_wrote_comes_back_byte_for_byte(raw: bytes) -> None:
    entry(raw)


def test_absent_and_null_fields_are_what_spark_takes_them_for() -> None:
    parsed = entry(b'v1\n{"batchTimestampMs":null,"conf":{"n":5,"b":true,"none":null}}\n5')
    assert parsed.metadata
    assert (parsed.batch_watermark_ms, parsed.metadata.batch_timestamp_ms) == (0, 0)
    assert parsed.conf == {"n": "5", "b": "true"}
    assert entry(b"v1\n{}\n5").conf == {}


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", Damage(DamageKind.EMPTY)),
        (b"\n", Damage(DamageKind.BAD_VERSION_LINE, "", 1)),
        (b"1\n{}\n5", Damage(DamageKind.BAD_VERSION_LINE, "1", 1)),
        (b"v3\n{}\n5", Damage(DamageKind.VERSION_TOO_NEW, "v3", 1)),
        (b"v1", Damage(DamageKind.VERSION_LINE_ONLY, line=2)),
        (b"v1\n", Damage(DamageKind.VERSION_LINE_ONLY, line=2)),
        (b'v1\n{"batchW', Damage(DamageKind.TRUNCATED, '{"batchW', 2)),
        (b"v1\nnot json\n5", Damage(DamageKind.NOT_JSON, "not json", 2)),
        (b"v1\n{}", Damage(DamageKind.NO_SOURCE_LINES, line=3)),
        (b"v1\n\n", Damage(DamageKind.NO_SOURCE_LINES, line=3)),
        (b'v1\n{}\n{"l', Damage(DamageKind.TRUNCATED, '{"l', 3)),
        (b"v1\n{}\n5\n{x", Damage(DamageKind.NOT_JSON, "{x", 4)),
        (b"v2\n\n0:5", Damage(DamageKind.NO_METADATA, line=2)),
        (b"v2\n{}\n5", Damage(DamageKind.NO_SOURCE_ID, "5", 3)),
        (b'v1\n{"conf":[]}\n5', Damage(DamageKind.UNEXPECTED_JSON, '{"conf":[]}', 2)),
        (b'v1\n{"conf":{"a":[]}}\n5', Damage(DamageKind.UNEXPECTED_JSON, '{"a":[]}', 2)),
        (b'v1\n{"batchWatermarkMs":"5"}\n5', Damage(DamageKind.UNEXPECTED_JSON, '{"batchWatermarkMs":"5"}', 2)),
        (b"v1\n5\n5", Damage(DamageKind.UNEXPECTED_JSON, "5", 2)),
        (b"v1\n{}\n\xff", Damage(DamageKind.NOT_UTF8, "\\xff")),
    ],
)
def test_damage_is_told_apart_as_sparks_own_failures_are(raw: bytes, expected: Damage) -> None:
    assert parse_offset_entry(raw) == expected


def test_a_changed_source_line_leaves_the_other_lines_as_they_were() -> None:
    changed = entry(V1 + b"\n").with_source_line("0", FileOffset(4))
    assert changed.to_bytes() == V1.replace(b'"logOffset":5', b'"logOffset":4')
    named = entry(V2).with_source_line("orders", KafkaOffset({"o": {1: 2, 0: 1}}))
    assert named.to_bytes() == V2.replace(b'{"logOffset":0}', b'{"o":{"0":1,"1":2}}')
    assert entry(V1).with_source_line("1", "as it is").to_bytes() == V1[:-1] + b"as it is"


def test_a_changed_watermark_is_written_in_sparks_own_form() -> None:
    changed = entry(V1.replace(b'":', b'" : ')).with_watermark(123)
    assert changed.to_bytes().splitlines()[1] == METADATA.replace('Ms":0', 'Ms":123').encode()
    assert changed.batch_watermark_ms == 123


def test_pinned_confs_can_be_changed_and_added() -> None:
    changed = entry(V1).with_conf({"spark.sql.shuffle.partitions": "5", "new": "x"})
    assert changed.conf == {"spark.sql.shuffle.partitions": "5", "new": "x"}
    assert parse_offset_entry(changed.to_bytes()) == changed
    assert entry(b"v1\n{}\n5").with_conf({"a": "b"}).to_bytes() == b'v1\n{"conf":{"a":"b"}}\n5'


def test_what_is_not_there_cannot_be_changed() -> None:
    continuous = entry(b'v1\n\n{"0":{"value":4,"runTimeMs":5}}')
    with pytest.raises(KeyError):
        continuous.with_source_line("1", "5")
    with pytest.raises(ValueError, match="continuous"):
        continuous.with_watermark(5)
    with pytest.raises(ValueError, match="continuous"):
        continuous.with_conf({})


def test_a_line_made_by_hand_is_text_if_it_is_nothing_else() -> None:
    assert SourceLine("0", "{x").offset == TextOffset("{x")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ((), None),
        (("spark.sql.shuffle.partitions",), None),
        (("spark.sql.streaming.statefulOperator.useStrictDistribution",), SparkVersions("3.3", "4.0")),  # so did 3.5.3
        (("spark.databricks.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",), SparkVersions("3.5", "4.0")),
        (("spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",), SparkVersions("3.5", "4.0")),
        (("spark.sql.streaming.stateStore.encodingFormat",), SparkVersions("4.0", "4.2")),
        (("spark.sql.streaming.stateStore.rowChecksum.enabled",), SparkVersions("4.2", "4.3")),
        (("spark.sql.streaming.statefulOperator.alwaysNullableOutput.enabled",), SparkVersions("4.3", None)),
    ],
)
def test_the_pinned_confs_tell_which_spark_planned_the_batch(keys: tuple[str, ...], expected: object) -> None:
    metadata = entry(b"v1\n{}\n5").with_conf(dict.fromkeys(keys, "x")).metadata
    assert metadata
    assert metadata.spark_versions == expected


def test_a_range_of_sparks_is_shown_as_a_person_says_it() -> None:
    assert str(SparkVersions("4.0", "4.2")) == "4.0 up to before 4.2"
    assert str(SparkVersions("4.3", None)) == "4.3 or newer"
