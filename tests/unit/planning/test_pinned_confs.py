"""Which confs may change while a state is made anew, and to what."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.errors import UsageError
from lastgood.planning.pinned_confs import (
    CHANGELOG,
    HDFS_BACKED,
    ROCKSDB,
    describe_changes,
    find_unknown,
    list_conf_words,
    list_grounds,
    make_conf,
    parse_conf_words,
    replace_pinned,
)

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CODEC = "spark.sql.streaming.stateStore.compression.codec"


def plan(conf: str = f'{{"{PARTITIONS}":"2","{PROVIDER}":"{HDFS_BACKED}"}}') -> OffsetEntry:
    text = f'v1\n{{"batchWatermarkMs":5,"batchTimestampMs":7,"conf":{conf}}}\n{{"logOffset":1}}'
    found = parse_offset_entry(text.encode())
    assert isinstance(found, OffsetEntry)
    return found


@pytest.mark.parametrize(
    ("said", "conf"),
    [
        ({}, {}),
        ({"shuffle_partitions": 5}, {PARTITIONS: "5"}),
        ({"state_store": "rocksdb"}, {PROVIDER: ROCKSDB}),
        ({"state_store": "hdfs", "shuffle_partitions": 10_000}, {PARTITIONS: "10000", PROVIDER: HDFS_BACKED}),
        ({"changelog": True}, {CHANGELOG: "true"}),
        ({"changelog": False}, {CHANGELOG: "false"}),
        ({"others": [(CODEC, "zstd")]}, {CODEC: "zstd"}),
        ({"others": [(PARTITIONS, "5")], "shuffle_partitions": 5}, {PARTITIONS: "5"}),
    ],
)
def test_what_is_said_is_a_conf_and_its_words_say_it_again(said: Mapping[str, object], conf: dict[str, str]) -> None:
    found = make_conf(**said)  # type: ignore[arg-type]
    assert found == conf
    words = list_conf_words(found)
    assert len(words) == 2 * len(conf)
    assert "--conf" not in words or CODEC in conf


@pytest.mark.parametrize(
    ("said", "subject", "found", "expected"),
    [
        ({"shuffle_partitions": 0}, "--shuffle-partitions", "0", "1 to 10000 partitions"),
        ({"shuffle_partitions": -1}, "--shuffle-partitions", "-1", "1 to 10000 partitions"),
        ({"shuffle_partitions": 1_000_000_000}, "--shuffle-partitions", "1000000000", "1 to 10000 partitions"),
        ({"others": [(PARTITIONS, "05")]}, f"--conf {PARTITIONS}", "05", "1 to 10000 partitions"),
        ({"state_store": "foo"}, "--state-store", "foo", "one of rocksdb, hdfs"),
        ({"others": [(CODEC, "gzip")]}, f"--conf {CODEC}", "gzip", "one of lz4, zstd, snappy, lzf"),
        ({"others": [(PARTITIONS, "five")]}, f"--conf {PARTITIONS}", "five", "1 to 10000 partitions"),
        ({"others": [(PARTITIONS, "\u0665")]}, f"--conf {PARTITIONS}", "\u0665", "1 to 10000 partitions"),
        (
            {"others": [(PROVIDER, "com.acme.Provider")]},
            f"--conf {PROVIDER}",
            "com.acme.Provider",
            f"one of {ROCKSDB}, {HDFS_BACKED}",
        ),
        ({"others": [(PARTITIONS, "4")], "shuffle_partitions": 5}, f"--conf {PARTITIONS}", "4, and 5", None),
    ],
)
def test_what_cannot_be_is_refused_with_what_was_found_and_expected(
    said: Mapping[str, object], subject: str, found: str, expected: str | None
) -> None:
    with pytest.raises(UsageError) as caught:
        make_conf(**said)  # type: ignore[arg-type]
    assert (caught.value.subject, caught.value.found, caught.value.expected) == (subject, found, expected)


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.streaming.multipleWatermarkPolicy",
        "spark.sql.streaming.statefulOperator.useStrictDistribution",
        "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan",
        "spark.sql.session.timeZone",
    ],
)
def test_what_tells_what_is_counted_does_not_change(key: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_conf(others=[(key, "max")])
    assert (caught.value.subject, PARTITIONS in (caught.value.expected or "")) == (f"--conf {key}", True)


def test_conf_is_typed_as_for_spark() -> None:
    assert list(parse_conf_words(["a=b", "c = d=e"])) == [("a", "b"), ("c", "d=e")]
    with pytest.raises(UsageError) as caught:
        list(parse_conf_words(["a"]))
    assert (caught.value.found, caught.value.expected) == ("a", "KEY=VALUE")


def test_plan_pins_what_was_said_and_keeps_all_else() -> None:
    before = plan()
    after = replace_pinned(before, {PARTITIONS: "5", CHANGELOG: "true"})
    assert after.conf == {PARTITIONS: "5", PROVIDER: HDFS_BACKED}
    assert (after.batch_watermark_ms, after.sources) == (before.batch_watermark_ms, before.sources)
    assert after.to_bytes() == before.to_bytes().replace(b'"2"', b'"5"')
    assert replace_pinned(before, {PARTITIONS: "2", CHANGELOG: "true"}) is before


def test_what_changes_is_told_with_what_was() -> None:
    lines = list(list_grounds(plan(), {PARTITIONS: "5", PROVIDER: HDFS_BACKED, CHANGELOG: "true"}))
    assert [line.partition(":")[0] for line in lines] == [
        f"{PARTITIONS}=5 in the log, where it was 2",
        f"{PROVIDER}={HDFS_BACKED}, as the log has it already",
        f"your start of the application with {CHANGELOG}=true, which no log pins",
    ]
    assert describe_changes(plan(), {PARTITIONS: "5", PROVIDER: HDFS_BACKED}) == f"; {PARTITIONS} becomes 5"
    assert describe_changes(plan(), {PARTITIONS: "2", CHANGELOG: "true"}) == ""
    assert "where it did not stand" in next(list_grounds(plan("{}"), {PARTITIONS: "5"}))


def test_conf_that_the_log_does_not_pin_is_not_added_unless_every_spark_pins_it() -> None:
    assert find_unknown(plan(), {CODEC: "zstd"}) == CODEC
    assert find_unknown(plan("{}"), {PARTITIONS: "5", PROVIDER: ROCKSDB, CHANGELOG: "true"}) is None
