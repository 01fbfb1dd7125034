"""The queries whose checkpoints are damaged: small, honest ones, one of each kind.

Imported on both sides: by the tests, which know the input, and by `driver.py`, which runs inside whatever Spark is
judged. So nothing but the standard library is needed to import it.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "id long, k long, t timestamp"
RECORDS_PER_FILE = 10
FIRST_EVENT = 1_760_000_000
"""Seconds since the epoch of the first record; each file is a minute of records."""
FIRST_MODIFIED = 1_790_000_000
_STREAMING = "spark.sql.streaming."
_STATE_FORMAT = f"{_STREAMING}stateStore.checkpointFormatVersion"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
WATERMARK_SECONDS = 60
WINDOW_SECONDS = 120

Query = Callable[[Any, Path, Mapping[str, str]], Any]
"""Session, folder of the case, options of the source -> what is written, with the columns `key` and `n`."""


@dataclass(frozen=True)
class Flavour:
    """One kind of query."""

    name: str
    query: Query
    sink: str = "foreachBatch"
    txn_app_id: str | None = None
    """Where a foreachBatch function writes the table: its constant `txnAppId`, with the batch as `txnVersion`."""
    conf: Mapping[str, str] = field(default_factory=dict)
    versions: tuple[str, ...] = ("3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0")
    batches: int = 7
    """How many batches of input its healthy checkpoint has read."""
    inputs: tuple[str, ...] = ("input",)
    mode: str = "append"
    kind: str = "files"
    """Of its source: files, rate, kafka or delta."""
    is_pattern: bool = False
    """Whether a topic of Kafka is subscribed by a pattern."""
    is_endless: bool = False
    """Whether it is stopped from outside after some batches, because its trigger knows no end."""
    kept: tuple[int, ...] = ()
    """The batches that both logs hold, where progress is tracked asynchronously: the same ones each time."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the sink."""
    is_chosen: bool = True
    """Whether random damage is tried on it; else only what a test names."""

    @property
    def state_format(self) -> str:
        """The checkpoint format of its state."""
        return self.conf.get(_STATE_FORMAT, "1")

    @property
    def is_stateful(self) -> bool:
        return self.query in {
            _counted,
            _deduplicated,
            _joined,
            _windowed,
            _deduplicated_topic,
            _limited,
            _totalled,
            _deduplicated_total,
        }


def _files(spark: Any, folder: Path) -> Any:
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))


def _ids(frame: Any) -> Any:
    return frame.selectExpr("cast(id as string) as key", "1L as n")


def _stateless(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    return _ids(_files(spark, folder / "input"))


def _counted(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    counted = _files(spark, folder / "input").groupBy("k").count()
    return counted.selectExpr("cast(k as string) as key", "count as n")


def _limited(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    return _ids(_files(spark, folder / "input").limit(1_000_000))


def _totalled(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    return _files(spark, folder / "input").groupBy().count().selectExpr("'all' as key", "count as n")


def _deduplicated_total(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    rows = _files(spark, folder / "input").dropDuplicates(["id"])
    return rows.groupBy().count().selectExpr("'all' as key", "count as n")


def _deduplicated(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    rows = _files(spark, folder / "input").withWatermark("t", f"{WATERMARK_SECONDS} seconds")
    return _ids(rows.dropDuplicates(["id", "t"]))


def _joined(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    late = f"{WATERMARK_SECONDS} seconds"
    # Never null: else Spark 3.5 refuses to begin with a batch that has no data on one side, since the schema of the
    # state would then be another one. No checkpoint tells that of a query.
    left = _files(spark, folder / "input").selectExpr("coalesce(id, -1L) as id", "t")
    right = _files(spark, folder / "input-right").selectExpr("coalesce(id, -1L) as right_id", "t as right_t")
    left, right = left.withWatermark("t", late), right.withWatermark("right_t", late)
    return _ids(left.join(right, (left.id == right.right_id) & (left.t == right.right_t)))


def _windowed(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    from pyspark.sql import functions

    rows = _files(spark, folder / "input").withWatermark("t", f"{WATERMARK_SECONDS} seconds")
    counted = rows.groupBy(functions.window("t", f"{WINDOW_SECONDS} seconds")).count()
    return counted.selectExpr("cast(unix_timestamp(window.start) as string) as key", "count as n")


def _rate(spark: Any, _: Path, __: Mapping[str, str]) -> Any:
    reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", RECORDS_PER_FILE)
    reader = reader.option("startTimestamp", FIRST_EVENT * 1000).option("advanceMillisPerBatch", 1000)
    return reader.load().selectExpr("cast(value as string) as key", "1L as n")


def _kafka(spark: Any, _: Path, options: Mapping[str, str]) -> Any:
    reader = spark.readStream.format("kafka").options(**options)
    return reader.load().selectExpr("cast(value as string) as key", "1L as n")


def _deduplicated_topic(spark: Any, folder: Path, options: Mapping[str, str]) -> Any:
    return _kafka(spark, folder, options).dropDuplicates(["key"])


def _table(spark: Any, folder: Path, _: Mapping[str, str]) -> Any:
    return _ids(spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(str(folder / "table")))


def _rocksdb(**conf: str) -> dict[str, str]:
    return {f"{_STREAMING}stateStore.providerClass": _ROCKSDB, **conf}


_CHANGELOG = {f"{_STREAMING}stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
_SMALL_RETENTION = {f"{_STREAMING}minBatchesToRetain": "3"}
_SOURCE_COMPACTION = {
    f"{_STREAMING}fileSource.log.compactInterval": "3",
    f"{_STREAMING}fileSource.log.cleanupDelay": "0",
}
_SINK_COMPACTION = {f"{_STREAMING}fileSink.log.compactInterval": "3", f"{_STREAMING}fileSink.log.cleanupDelay": "0"}
_FORMAT_V2 = {_STATE_FORMAT: "2"}
_ONLY_DATA = {f"{_STREAMING}noDataMicroBatches.enabled": "false"}
_ASYNC_INTERVAL = "asyncProgressTrackingCheckpointIntervalMs"
_ASYNC = {"asyncProgressTrackingEnabled": "true", _ASYNC_INTERVAL: "700"}
WRITE_ALL = {_ASYNC_INTERVAL: "0"}
"""Makes a query that tracks its progress asynchronously write down that of each batch."""

_FOUR = {"spark.sql.shuffle.partitions": "4"}
_NOT_4_0 = ("4.1.4", "4.2.0", "4.3.0")
_SINGLE = (
    Flavour("limit-hdfs", _limited, conf=_FOUR, is_chosen=False),
    Flavour("limit-rocksdb", _limited, conf=_rocksdb(**_FOUR), is_chosen=False),
    Flavour(
        "limit-rocksdb-v2",
        _limited,
        conf=_rocksdb(**_FOUR, **_CHANGELOG, **_FORMAT_V2),
        versions=_NOT_4_0,
        is_chosen=False,
    ),
    Flavour("total-hdfs", _totalled, mode="update", conf=_FOUR, is_chosen=False),
    Flavour("total-rocksdb", _totalled, mode="update", conf=_rocksdb(**_FOUR, **_CHANGELOG), is_chosen=False),
    Flavour(
        "total-rocksdb-v2",
        _totalled,
        mode="update",
        conf=_rocksdb(**_FOUR, **_CHANGELOG, **_FORMAT_V2),
        versions=_NOT_4_0,
        is_chosen=False,
    ),
    Flavour("dedup-total-hdfs", _deduplicated_total, mode="update", conf=_FOUR, is_chosen=False),
)
"""With an operator that Spark runs in one partition, whatever number is pinned; 4.0 commits none of it by ids."""

FLAVOURS = {
    flavour.name: flavour
    for flavour in (
        Flavour("files", _stateless),
        Flavour("files-compacted", _stateless, batches=12),
        Flavour("files-retain", _stateless, conf={**_SMALL_RETENTION, **_SOURCE_COMPACTION}, batches=9),
        Flavour(
            "files-offsets-v2",
            _stateless,
            conf={f"{_STREAMING}offsetLog.formatVersion": "2"},
            versions=("4.2.0", "4.3.0"),
        ),
        Flavour("file-sink", _stateless, sink="parquet"),
        Flavour("file-sink-compacted", _stateless, sink="parquet", conf={**_SINK_COMPACTION, **_SOURCE_COMPACTION}),
        *_SINGLE,
        Flavour("agg-hdfs", _counted, mode="update"),
        Flavour("agg-hdfs-retain", _counted, mode="update", conf=_SMALL_RETENTION, batches=9),
        Flavour("agg-rocksdb", _counted, mode="update", conf=_rocksdb()),
        Flavour("agg-rocksdb-changelog", _counted, mode="update", conf=_rocksdb(**_CHANGELOG)),
        Flavour(
            "agg-rocksdb-v2",
            _counted,
            mode="update",
            conf=_rocksdb(**_CHANGELOG, **_FORMAT_V2),
            versions=("4.0.5", "4.1.4", "4.2.0", "4.3.0"),
        ),
        Flavour("dedup", _deduplicated),
        Flavour("join", _joined, inputs=("input", "input-right")),
        Flavour("window-append", _windowed),
        Flavour("rate-micro-batch", _rate, kind="rate", inputs=(), batches=6),
        Flavour("file-delta", _stateless, sink="delta", versions=("4.2.0",)),
        Flavour("dedup-file-sink", _deduplicated, sink="parquet"),
        Flavour("dedup-delta", _deduplicated, sink="delta", conf=_ONLY_DATA, versions=("4.2.0",)),
        Flavour(
            "dedup-delta-v2",
            _deduplicated,
            sink="delta",
            conf=_rocksdb(**_CHANGELOG, **_FORMAT_V2, **_ONLY_DATA),
            versions=("4.2.0",),
        ),
        Flavour("kafka", _kafka, kind="kafka", inputs=(), versions=("4.2.0",), batches=4),
        Flavour(
            "async-progress",
            _rate,
            sink="noop",
            kind="rate",
            inputs=(),
            is_endless=True,
            kept=(0, 4, 7, 11, 14),
            options=_ASYNC,
        ),
        Flavour("delta", _table, kind="delta", inputs=(), versions=("4.2.0",)),
        Flavour("kafka-pattern", _kafka, kind="kafka", inputs=(), versions=("4.2.0",), batches=4, is_pattern=True),
        Flavour("kafka-dedup", _deduplicated_topic, kind="kafka", inputs=(), versions=("4.2.0",), batches=4),
        Flavour("kafka-delta", _kafka, sink="delta", kind="kafka", inputs=(), versions=("4.2.0",), batches=4),
        Flavour(
            "kafka-txn",
            _kafka,
            sink="delta",
            txn_app_id="orders-etl",
            kind="kafka",
            inputs=(),
            versions=("4.2.0",),
            batches=4,
        ),
    )
}


def records(flavour: Flavour, number: int) -> list[dict[str, Any]]:
    """What file `number` holds; for deduplication half of the file before as well."""
    again = _new_records(number - 1)[5:] if flavour.query is _deduplicated and number else []
    return again + _new_records(number)


def _new_records(number: int) -> list[dict[str, Any]]:
    times = [_event_time(number, n) for n in range(RECORDS_PER_FILE)]
    return [{"id": number * RECORDS_PER_FILE + n, "k": n % 5, "t": _timestamp(times[n])} for n in range(len(times))]


def _event_time(number: int, n: int) -> int:
    return FIRST_EVENT + number * 60 + n


def _timestamp(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


def add_files(flavour: Flavour, folder: Path, first: int, last: int) -> None:
    """Write the input files `first`..`last - 1` into each input folder of a case, a second apart."""
    for name, number in itertools.product(flavour.inputs, range(first, last)):
        path = folder / name / f"f{number:03}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f"_{path.name}")  # a query that runs would list it before it is whole
        hidden.write_text("".join(json.dumps(record) + "\n" for record in records(flavour, number)))
        os.utime(hidden, (FIRST_MODIFIED + number, FIRST_MODIFIED + number))
        hidden.rename(path)


def truth(flavour: Flavour, files: int) -> Counter[str]:
    """What the sink shows, as key -> n, once the first `files` pieces of input are in it exactly once."""
    numbered = list(itertools.product(range(files), range(RECORDS_PER_FILE)))
    if flavour.query is _counted:
        return Counter(str(n % 5) for _, n in numbered)
    if flavour.query in {_totalled, _deduplicated_total}:
        return Counter({"all": len(numbered)})
    if flavour.query is _windowed:
        closed = _event_time(files - 1, RECORDS_PER_FILE - 1) - WATERMARK_SECONDS - WINDOW_SECONDS
        starts = [_event_time(number, n) // WINDOW_SECONDS * WINDOW_SECONDS for number, n in numbered]
        return Counter(str(start) for start in starts if start <= closed)
    return Counter(str(number * RECORDS_PER_FILE + n) for number, n in numbered)
