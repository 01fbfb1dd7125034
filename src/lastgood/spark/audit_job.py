"""Compares what Kafka holds with what a sink holds: a PySpark script for any spark-submit, complete in itself.

    spark-submit audit_job.py SPEC [RESULT]

SPEC is the JSON object that `audit.AuditSpec` makes, or a file with it. The answer, `{"result": …}` or
`{"error": …}`, goes to the file RESULT, else to standard output, as one line that begins with the SPEC's `mark`;
stages of the work, `{"stage": …}`, always go there.
Needs pyspark 3.5 or later and Python 3.9 or later; imports nothing of lastgood.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

MAX_RANGES = 100
"""Offset ranges told per topic partition."""
MAX_SAMPLES = 10

_EARLIEST, _LATEST = -2, -1  # as in Spark's startingOffsets and endingOffsets
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_PLACE = {"record_topic": "topic", "record_partition": "partition", "record_offset": "offset"}
_VERDICTS = ("lost", "duplicated", "changed", "unmatched", "unprovable", "aborted_in_sink")

Offsets = dict[tuple[str, int], int]


class RefusedError(Exception):
    """The comparison that is asked for cannot be made."""

    def __init__(self, kind: str, subject: str, found: str) -> None:
        super().__init__(kind, subject, found)
        self.answer = {"kind": kind, "subject": subject, "found": found}


class AuditedTable:
    """The table to be checked, as it was at one instant."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any], topics: Sequence[str]) -> None:
        self.version: int | None = None
        reader, location = spec["reader"], spec["location"]
        try:
            if reader is None:
                self.rows = spark.read.table(location)
            elif reader["has_versions"]:
                # Such a DataFrame sees later commits; the version makes every pass read the same rows.
                quoted = location.replace("`", "``")
                history = spark.sql(f"DESCRIBE HISTORY {reader['format']}.`{quoted}` LIMIT 1")
                self.version = history.select("version").collect()[0][0]
                self.rows = spark.read.format(reader["format"]).option("versionAsOf", self.version).load(location)
            else:
                self.rows = spark.read.format(reader["format"]).load(location)
        except (AnalysisException, Py4JJavaError) as error:
            raise RefusedError("sink_unreadable", f"{spec['kind']}:{location}", take_first_line(error)) from error
        types = {name.lower(): kind for name, kind in self.rows.dtypes}
        self._topic = sf.col("topic") if types.get("topic") == "string" else None
        if self._topic is None and len(topics) == 1:
            self._topic = sf.lit(topics[0])
        numbered = types.get("partition") in _INTEGERS and types.get("offset") in _INTEGERS
        self.has_position = numbered and self._topic is not None
        """True if each row says from which record it was made."""

    def type_of(self, name: str) -> str:
        """The SQL type of a column."""
        try:
            return self.rows.select(sf.col(name)).schema.fields[0].dataType.simpleString()
        except (AnalysisException, ParseException) as error:
            raise RefusedError("no_such_column", name, ", ".join(self.rows.columns)) from error

    def position(self) -> list[Column]:
        """Topic, partition and offset of the record that a row was made from; none if rows do not say it."""
        if self._topic is None or not self.has_position:
            return []
        values = (self._topic, sf.col("partition").cast("int"), sf.col("offset").cast("long"))
        return [value.alias(alias) for alias, value in zip(_PLACE, values)]  # noqa: B905 - Python 3.9 has no strict


class AuditedSource:
    """The Kafka records that the query has read."""

    def __init__(self, spark: SparkSession, options: dict[str, str], ranges: list[dict[str, Any]]) -> None:
        self._spark = spark
        self._options = options
        self._ranges = ranges
        self.topics = sorted({each["topic"] for each in ranges})
        self.offsets = sum(each["end"] - each["begin"] for each in ranges)

    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        """First and next offset of each topic partition, over all sources of the query."""
        bounds: dict[tuple[str, int], tuple[int, int]] = {}
        for each in self._ranges:
            place = (each["topic"], each["partition"])
            begin, end = bounds.get(place, (each["begin"], each["end"]))
            bounds[place] = (min(begin, each["begin"]), max(end, each["end"]))
        return bounds

    def records(self, isolation_level: str) -> DataFrame:
        """The records of the ranges that are compared."""
        options = {"kafka.isolation.level": isolation_level, "failOnDataLoss": "true"}
        served = [each for each in self._ranges if each["begin"] < each["end"]]
        parts = []
        for source in sorted({each["source"] for each in served}):
            ranges = [each for each in served if each["source"] == source]
            begin = {(each["topic"], each["partition"]): each["begin"] for each in ranges}
            end = {(each["topic"], each["partition"]): each["end"] for each in ranges}
            parts.append(self._read(begin, end, options))
        return reduce(DataFrame.unionByName, parts)

    def records_outside(self) -> DataFrame:
        """What else Kafka serves of these partitions: `is_after` (0 or 1) what is compared, or before it."""
        bounds = self.bounds()
        first = {place: begin for place, (begin, _) in bounds.items()}
        next_ = {place: end for place, (_, end) in bounds.items()}
        options = {"failOnDataLoss": "false"}
        before = self._read(dict.fromkeys(bounds, _EARLIEST), first, options)
        after = self._read(next_, dict.fromkeys(bounds, _LATEST), options)
        return before.withColumn("is_after", sf.lit(0)).unionByName(after.withColumn("is_after", sf.lit(1)))

    def _read(self, begin: Offsets, end: Offsets, options: dict[str, str]) -> DataFrame:
        assigned: dict[str, list[int]] = {}
        for topic, partition in begin:
            assigned.setdefault(topic, []).append(partition)
        return (
            self._spark.read.format("kafka")
            .options(**self._options, **options)
            .option("assign", json.dumps(assigned))
            .option("startingOffsets", _group_by_topic(begin))
            .option("endingOffsets", _group_by_topic(end))
            .option("includeHeaders", "true")
            .option("minPartitions", 2 * self._spark.sparkContext.defaultParallelism)
            .load()
        )


def _group_by_topic(offsets: Offsets) -> str:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(nested)


class Columns:
    """What is compared: keys `key_0`, … and values `value_0`, …, the same on both sides."""

    def __init__(self, sink: AuditedTable, source: AuditedSource, spec: dict[str, Any]) -> None:
        keys = spec["keys"] or _choose_default_keys(sink)
        entries = {f"key_{index}": each for index, each in enumerate(keys)}
        self.keys = {alias: each["name"] for alias, each in entries.items()}
        """Alias → name in the sink."""
        entries.update({f"value_{index}": each for index, each in enumerate(spec["compare"])})
        self.all = list(entries)
        types = {alias: sink.type_of(each["name"]) for alias, each in entries.items()}
        self._of_row = [*[sf.col(each["name"]).alias(alias) for alias, each in entries.items()], *sink.position()]
        records = source.records("read_uncommitted")
        self._of_record = [sf.col(name).alias(alias) for alias, name in _PLACE.items()]
        for alias, each in entries.items():
            expression = each["expression"] or make_own_expression(each["name"])
            _refuse_bad_sql(expression, lambda sql: records.select(sf.expr(sql)))
            # The sink's type decides; what cannot be converted is NULL, as in from_json.
            self._of_record.append(sf.expr(f"try_cast(({expression}) AS {types[alias]})").alias(alias))
        kept = sf.lit(1)
        if spec["where"]:
            _refuse_bad_sql(spec["where"], records.where)
            kept = sf.when(sf.expr(spec["where"]), 1).otherwise(0)
        self._of_record.append(kept.alias("kept"))
        expressions = {each["expression"] or each["name"].lower() for each in keys}
        needed = {"partition", "offset"} | ({"topic"} if len(source.topics) > 1 else set())
        self.is_position = needed <= expressions
        """True if the key is the place of a record, which no other record can have."""

    def of_records(self, records: DataFrame, *more: str) -> DataFrame:
        """Keys and values of Kafka records, with their place and whether the query keeps them (0 or 1)."""
        return records.select(*self._of_record, *more)

    def of_rows(self, rows: DataFrame) -> DataFrame:
        """Keys and values of rows of the sink, with their place where they have one."""
        return rows.select(*self._of_row)


def _choose_default_keys(sink: AuditedTable) -> list[dict[str, Any]]:
    if not sink.has_position:
        raise RefusedError("no_key", "", ", ".join(sink.rows.columns))
    present = {name.lower() for name in sink.rows.columns}
    return [{"name": name, "expression": None} for name in _PLACE.values() if name in present]


def make_own_expression(name: str) -> str:
    """SQL for what a column of this name most likely holds: the record's own field, or one of its JSON value."""
    if name.lower() in (*_PLACE.values(), "timestamp"):
        return name
    plain = name.replace("`", "")
    if re.fullmatch(r"[\w.]+", plain):
        path = f"$.{plain}"
    else:
        path = f"$['{plain}']"
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"get_json_object(CAST(value AS STRING), '{escaped}')"


def _refuse_bad_sql(expression: str, use: Callable[[str], DataFrame]) -> None:
    try:
        use(expression)
    except (AnalysisException, ParseException) as error:
        raise RefusedError("bad_expression", expression, take_first_line(error)) from error


class KeyComparison:
    """Source against sink, by counting keys on both sides: no row ever comes to the driver."""

    def __init__(self, spark: SparkSession, spec: dict[str, Any], say: Callable[[str], None]) -> None:
        self._say = say
        say("reading the sink")
        self.source = AuditedSource(spark, spec["kafka"], spec["ranges"])
        self.sink = AuditedTable(spark, spec["sink"], self.source.topics)
        self.columns = Columns(self.sink, self.source, spec)
        self._level: str = spec["isolation_level"] or "read_uncommitted"
        self._may_read_both = spec["isolation_level"] is None
        self._both = False
        self._compacted: list[str] = spec["compacted"]
        self._unserved: bool = spec["unserved"]
        self._rows, self._outside = self._rows_within(spark)

    def _rows_within(self, spark: SparkSession) -> tuple[DataFrame, dict[str, int]]:
        """The rows to compare, and how many others there are of offsets before and after the ranges."""
        rows = self.columns.of_rows(self.sink.rows)
        if not self.sink.has_position:
            return rows, {"before": 0, "after": 0}
        bounds = [(*place, *ends) for place, ends in self.source.bounds().items()]
        known = spark.createDataFrame(bounds, "topic string, partition int, first_offset long, next_offset long")
        here = sf.expr("record_topic = topic AND record_partition = partition")
        zone = "CASE WHEN record_offset < first_offset THEN 'before' WHEN record_offset >= next_offset THEN 'after' END"
        zoned = rows.join(sf.broadcast(known), here, "left").withColumn("zone", sf.expr(zone))
        counted = {row["zone"]: row["count"] for row in zoned.groupBy("zone").count().collect()}
        within = zoned.where("zone IS NULL").select(*rows.columns)
        return within, {side: counted.get(side, 0) for side in ("before", "after")}

    def _by_key(self) -> DataFrame:
        """One row per key with counts and verdict.

        The counts are `read` (records), `kept` (records that must be in the sink), `allowed` (these and the
        aborted ones) and `rows`; a row agrees with a record if keys and values are the same.
        """
        counts = ("read", "kept", "allowed", "rows")
        keys, groups = list(self.columns.keys), self.columns.all

        def side(of: DataFrame, **expressions: str) -> DataFrame:
            return of.select(*groups, *[sf.expr(expressions.get(name, "0")).alias(name) for name in counts])

        if self._both:
            records = side(self._records("read_uncommitted"), read="1", allowed="kept")
            records = records.union(side(self._records("read_committed"), kept="kept"))
        else:
            records = side(self._records(self._level), read="1", allowed="kept", kept="kept")
        both_sides = records.union(side(self._rows, rows="1"))
        # One shuffle by key serves both aggregations.
        by_group = both_sides.repartition(*keys).groupBy(*groups).agg(*_make_sums(counts))
        agreed = by_group.withColumn("agreed", sf.expr("least(rows, kept)"))
        agreed = agreed.withColumn("agreed_aborted", sf.expr("least(rows - agreed, greatest(allowed - kept, 0))"))
        by_key = agreed.groupBy(*keys).agg(*_make_sums((*counts, "agreed", "agreed_aborted")))
        return _add_verdict(by_key, surplus_is_provable=self.columns.is_position or not self._compacted)

    def _records(self, level: str) -> DataFrame:
        return self.columns.of_records(self.source.records(level))

    def run(self) -> dict[str, Any]:
        """The whole answer."""
        self._say("reading the source and comparing")
        totals = self._totals()
        if self._may_read_both and totals["read"] != self.source.offsets:
            # Offsets without a record: transactions or compaction. Aborted records can be told from others
            # only by reading the topic both ways.
            self._say("reading the source again, without aborted records")
            self._both = True
            totals = self._totals()
        sink_rows = totals["rows"] + sum(self._outside.values())
        places, unknown, not_verifiable = self._locate(totals)
        kinds = {**{kind: totals[kind] for kind in ("lost", "duplicated", "changed")}, "unknown": unknown}
        nowhere: dict[str, Any] = {"partitions": [], "samples": []}
        isolation_level = "both" if self._both else self._level
        return {
            "isolation_level": isolation_level,
            "keys": list(self.columns.keys.values()),
            "sink_version": self.sink.version,
            "sink_rows": sink_rows,
            "source_records": totals["kept"],
            "aborted": {"records": totals["allowed"] - totals["kept"], "in_sink": totals["aborted_in_sink"]},
            **{kind: {"total": total, **nowhere, **places.get(kind, {})} for kind, total in kinds.items()},
            "outside": self._outside,
            "not_verifiable": totals["unprovable"] + not_verifiable,
        }

    def _totals(self) -> dict[str, int]:
        names = ("read", "kept", "allowed", "rows", *_VERDICTS)
        row = self._by_key().agg(*_make_sums(names)).collect()[0]
        return {name: row[name] or 0 for name in names}

    def _locate(self, totals: dict[str, int]) -> tuple[dict[str, Any], int, int]:
        """Where the differences are; how many rows without a record are unknown, and not verifiable."""
        unmatched, not_verifiable = totals["unmatched"], 0
        if unmatched and not self.sink.has_position and (self._compacted or self._unserved):
            # Their records may be among those that Kafka no longer has, and nothing can tell.
            unmatched, not_verifiable = 0, unmatched
        if not (totals["lost"] or totals["duplicated"] or totals["changed"] or unmatched):
            return {}, 0, not_verifiable
        self._say("locating the differences")
        at_fault = "lost + duplicated + changed" + (" + unmatched" if unmatched else "")
        faults = self._by_key().where(f"{at_fault} > 0").select(*self.columns.keys, *_VERDICTS).persist()
        found = self._of_source(faults.where("unmatched = 0"))
        unknown = 0
        if unmatched:
            strangers = self._strangers(faults.where("unmatched > 0")).persist()
            counted = {
                row["kind"]: row["weight"] for row in strangers.groupBy("kind").agg(*_make_sums(["weight"])).collect()
            }
            unknown, not_verifiable = counted.get("unknown", 0), counted.get("not_verifiable", 0)
            self._outside = {side: count + counted.get(side, 0) for side, count in self._outside.items()}
            found = found.unionByName(strangers.where("kind = 'unknown'"))
        kinds = [kind for kind in ("lost", "duplicated", "changed") if totals[kind]] + ["unknown"] * bool(unknown)
        return _collect_places(found.persist(), kinds, self.columns), unknown, not_verifiable

    def _of_source(self, faults: DataFrame) -> DataFrame:
        """One row per record that is lost, changed or duplicated: kind, weight, keys and place."""
        keys, groups, place = list(self.columns.keys), self.columns.all, list(_PLACE)
        number_in_group = sf.row_number().over(Window.partitionBy(*groups).orderBy(*place))
        number_in_key = sf.row_number().over(Window.partitionBy(*keys).orderBy(*place))

        def at_fault(level: str) -> DataFrame:
            return _join(self._records(level).where("kept = 1"), faults, keys, "inner").persist()

        records = at_fault("read_committed" if self._both else self._level)
        rows = _join(self._rows, faults, keys, "left_semi").groupBy(*groups).agg(sf.count("*").alias("rows"))
        missing = _join(records.withColumn("number", number_in_group), rows, groups, "left")
        # Of several records with one key, the later ones are called lost.
        missing = missing.where("number > coalesce(rows, 0)").withColumn("number", number_in_key)
        kind = sf.expr("if(number <= changed, 'changed', 'lost')").alias("kind")
        missing = missing.select(kind, sf.lit(1).cast("long").alias("weight"), *keys, *place)
        firsts = (at_fault("read_uncommitted") if self._both else records).withColumn("number", number_in_key)
        duplicated = firsts.where("number = 1 AND duplicated > 0")
        weight = sf.col("duplicated").alias("weight")
        return missing.unionByName(duplicated.select(sf.lit("duplicated").alias("kind"), weight, *keys, *place))

    def _strangers(self, unmatched: DataFrame) -> DataFrame:
        """The rows whose key no record in the ranges has: kind, weight, keys and, if known, place."""
        keys = list(self.columns.keys)
        if self.sink.has_position:
            topics = ", ".join(f"'{topic}'" for topic in self._compacted)
            if topics:
                kind = f"if(record_topic IN ({topics}), 'not_verifiable', 'unknown')"
            else:
                kind = "'unknown'"
            rows = _join(self._rows, unmatched, keys, "left_semi")
            return rows.select(sf.expr(kind).alias("kind"), sf.lit(1).cast("long").alias("weight"), *keys, *_PLACE)
        elsewhere = self.columns.of_records(self.source.records_outside(), "is_after")
        served = _join(elsewhere, unmatched, keys, "left_semi").groupBy(*keys).agg(sf.max("is_after").alias("is_after"))
        kind = "CASE is_after WHEN 1 THEN 'after' WHEN 0 THEN 'before' ELSE 'unknown' END"
        nowhere = [f"CAST(NULL AS {of}) AS {name}" for name, of in zip(_PLACE, ("string", "int", "long"))]  # noqa: B905 - Python 3.9 has no strict
        joined = _join(unmatched, served, keys, "left")
        return joined.selectExpr(f"{kind} AS kind", "unmatched AS weight", *keys, *nowhere)


def _add_verdict(by_key: DataFrame, *, surplus_is_provable: bool) -> DataFrame:
    """Judge the records (`missing`) and rows (`strange`) of a key that agree with nothing on the other side.

    Strange rows are, in this order: changed, as many as records are missing; rows of aborted records; one row
    too many, or unmatched if the key has no record at all. On a compacted topic a row too many may be that of
    an earlier record, unless the key is the record's place.
    """
    over = "surplus - unmatched"
    if surplus_is_provable:
        duplicated, unprovable = (over, "0")
    else:
        duplicated, unprovable = ("0", over)
    steps = {
        "missing": "kept - agreed",
        "strange": "rows - agreed - agreed_aborted",
        "changed": "least(strange, missing)",
        "lost": "missing - changed",
        "also_aborted": "least(strange - changed, greatest(allowed - kept - agreed_aborted, 0))",
        "aborted_in_sink": "agreed_aborted + also_aborted",
        "surplus": "strange - changed - also_aborted",
        "unmatched": "if(allowed = 0, surplus, 0)",
        "duplicated": duplicated,
        "unprovable": unprovable,
    }
    for name, expression in steps.items():
        by_key = by_key.withColumn(name, sf.expr(expression).cast("long"))
    return by_key


def _collect_places(found: DataFrame, kinds: Sequence[str], columns: Columns) -> dict[str, Any]:
    """Per kind: totals and offset ranges of each topic partition, and some keys."""
    by_partition = ["kind", "record_topic", "record_partition"]
    window = Window.partitionBy(*by_partition)
    placed = found.where("record_offset IS NOT NULL")
    totals = placed.groupBy(*by_partition).agg(*_make_sums(["weight"])).orderBy(*by_partition).collect()
    numbered = placed.select(*by_partition, "record_offset").distinct()
    # Offsets without a gap between them have the same distance to their number.
    distance = sf.col("record_offset") - sf.row_number().over(window.orderBy("record_offset"))
    islands = (
        numbered.withColumn("island", distance)
        .groupBy(*by_partition, "island")
        .agg(sf.min("record_offset").alias("begin"), (sf.max("record_offset") + 1).alias("end"))
        .withColumn("islands", sf.count("*").over(window))
        .withColumn("number", sf.row_number().over(window.orderBy("begin")))
    )
    ranges: dict[Any, list[Any]] = {}
    for row in islands.where(sf.col("number") <= MAX_RANGES).orderBy("begin").collect():
        ranges.setdefault(tuple(row[name] for name in by_partition), []).append(row)
    places: dict[str, Any] = {}
    for kind in kinds:
        places[kind] = {"partitions": [], "samples": _collect_samples(found.where(sf.col("kind") == kind), columns)}
    for row in totals:
        first, *_ = here = ranges[tuple(row[name] for name in by_partition)]
        places[row["kind"]]["partitions"].append(
            {
                "topic": row["record_topic"],
                "partition": row["record_partition"],
                "total": row["weight"],
                "ranges": [[each["begin"], each["end"]] for each in here],
                "ranges_left_out": first["islands"] - len(here),
            }
        )
    return places


def _collect_samples(found: DataFrame, columns: Columns) -> list[dict[str, Any]]:
    """The keys of the first few, with the place of the record where it is known."""
    named = [sf.col(alias).alias(name) for alias, name in columns.keys.items()]
    as_json = sf.to_json(sf.struct(*named), {"ignoreNullFields": "false"}).alias("key")
    first = found.orderBy(*_PLACE, *columns.keys).limit(MAX_SAMPLES).select(as_json, *_PLACE)
    return [
        {"key": json.loads(row["key"]), **{name: row[alias] for alias, name in _PLACE.items()}}
        for row in first.collect()
    ]


def _make_sums(names: Iterable[str]) -> list[Column]:
    return [sf.sum(name).alias(name) for name in names]


def _join(left: DataFrame, right: DataFrame, columns: Sequence[str], how: str) -> DataFrame:
    """Join by columns that both have; NULL equals NULL, and those of the left stay."""
    renamed = right
    for name in columns:
        renamed = renamed.withColumnRenamed(name, f"right_{name}")
    equal = sf.expr(" AND ".join(f"{name} <=> right_{name}" for name in columns))
    return left.join(renamed, equal, how).drop(*[f"right_{name}" for name in columns])


def take_first_line(error: Exception) -> str:
    """What Spark says in its first line; of a Java exception, the innermost."""
    text = str(error)
    if isinstance(error, Py4JJavaError):
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        text = str(cause.toString())
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)


def open_session(reader: dict[str, Any] | None) -> SparkSession:
    """The session that spark-submit has prepared, able to read what is to be read."""
    builder = SparkSession.builder.appName("lastgood verify")
    conf = SparkConf()
    if reader is not None and reader["extension"] is not None:
        extensions = [name for name in (conf.get("spark.sql.extensions", "") or "").split(",") if name]
        wanted = dict.fromkeys([*extensions, reader["extension"]])
        builder = builder.config("spark.sql.extensions", ",".join(wanted))
    catalog = "spark.sql.catalog.spark_catalog"
    if reader is not None and reader["catalog"] is not None and not conf.contains(catalog):
        builder = builder.config(catalog, reader["catalog"])
    return builder.getOrCreate()


def answer(spec: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """The answer to SPEC; `say` is told the stages of the work."""
    try:
        return {"result": KeyComparison(open_session(spec["sink"]["reader"]), spec, say).run()}
    except RefusedError as error:
        return {"error": error.answer}
    except (PySparkException, Py4JError) as error:
        return {"error": {"kind": "failed", "subject": "", "found": take_first_line(error)}}


def main(arguments: Sequence[str]) -> int:
    """Run the job; return its exit code."""
    given = arguments[0]
    spec = json.loads(given if given.startswith("{") else Path(given).read_text(encoding="utf-8"))

    def tell(message: dict[str, Any]) -> None:
        print(spec["mark"] + json.dumps(message), flush=True)  # noqa: T201 - a script, this is its output

    answered = answer(spec, lambda stage: tell({"stage": stage}))
    if len(arguments) > 1:
        Path(arguments[1]).write_text(json.dumps(answered), encoding="utf-8")
    else:
        tell(answered)
    return 0 if "result" in answered else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
