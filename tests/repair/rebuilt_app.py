"""Runs inside Spark: one query of each kind that keeps state, which knows nothing of lastgood.

`start` is called by `RunningSpark.call`; as a program it is the same application, started as its user starts it.
"""

from __future__ import annotations

import json
import re
import sys
import time

DELAY = "5 minutes"
FIELDS = "t timestamp, k int, side string, v long"


def read(spark, told):
    """Events of a folder, a file a batch, or of a topic; a few of them come too late."""
    if "input" in told:
        frame = spark.readStream.schema(FIELDS).option("maxFilesPerTrigger", 1).json(told["input"])
    else:
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", told["bootstrap"])
        reader = reader.option("subscribe", told["topic"]).option("startingOffsets", "earliest")
        lines = reader.option("maxOffsetsPerTrigger", told["limit"]).load().selectExpr("cast(value as string) as line")
        frame = lines.selectExpr(f"from_json(line, '{FIELDS}') as event").select("event.*")
    return frame.where(told.get("where", "true")).withWatermark("t", told.get("delay", DELAY))


def join(spark, told, how):
    left = read(spark, told).where("side = 'a'").selectExpr("t as at", "k as ak", "v as av")
    right = read(spark, told).where("side = 'b'").selectExpr("t as bt", "k as bk", "v as bv")
    within = "ak = bk and bt between at - interval 4 minutes and at + interval 4 minutes"
    from pyspark.sql import functions

    return left.join(right, functions.expr(within), how)


def follow(key, frames, state):
    """Depends on the order of batches, and has timeouts."""
    import pandas

    if state.hasTimedOut:
        (value,) = state.get
        state.remove()
        yield pandas.DataFrame({"k": [key[0]], "n": [value]})
        return
    value, newest = (state.get[0] if state.exists else 0) * 31 % 10007, 0
    for frame in frames:
        value += int(frame.v.sum())
        newest = max(newest, int(frame.t.max().timestamp() * 1000))
    state.update((value,))
    state.setTimeoutTimestamp(max(newest, state.getCurrentWatermarkMs()) + 60_000)


def find_patience(key):
    """Half of the keys are waited for as long as it takes: however slow a machine is, some state is left at the end."""
    return 1_500 if key[0] % 2 else 3_600_000


def follow_by_clock(key, frames, state):
    """Has timeouts by the time of the machine, which a plan holds."""
    import pandas

    if state.hasTimedOut:
        (value,) = state.get
        state.remove()
        yield pandas.DataFrame({"k": [key[0]], "n": [value]})
        return
    value = (state.get[0] if state.exists else 0) + sum(int(frame.v.sum()) for frame in frames)
    state.update((value,))
    state.setTimeoutDuration(find_patience(key))


def make_processor(time_mode):
    """Several kinds of state, and timers; its base class is of Spark 4 and later."""
    import pandas
    from pyspark.sql.streaming import StatefulProcessor

    class Following(StatefulProcessor):
        def init(self, handle):
            self.handle = handle
            lives = None if time_mode == "EventTime" else 2_000
            self.total = handle.getValueState("total", "n long", lives)
            self.sides = handle.getMapState("sides", "side string", "n long")

        def handleInputRows(self, key, rows, timerValues):  # noqa: N802, N803 - Spark calls them so
            total = self.total.get()[0] if self.total.exists() else 0
            for frame in rows:
                total = total * 31 % 10007 + int(frame.v.sum())
                for side, values in frame.groupby("side").v:
                    before = self.sides.getValue((side,))[0] if self.sides.containsKey((side,)) else 0
                    self.sides.updateValue((side,), (before + int(values.sum()),))
            self.total.update((total,))
            if time_mode == "EventTime":
                self.handle.registerTimer(timerValues.getCurrentWatermarkInMs() + 90_000)
            else:
                self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + find_patience(key))
            yield pandas.DataFrame({"k": [key[0]], "n": [total]})

        def handleExpiredTimer(self, key, timerValues, expiredTimerInfo):  # noqa: N802, N803
            told = sum(value[0] for value in self.sides.values())
            self.total.clear()
            self.sides.clear()
            yield pandas.DataFrame({"k": [key[0]], "n": [-told]})

        def close(self):
            pass

    return Following()


def process(frame, time_mode):
    processor = make_processor(time_mode)
    return frame.groupBy("k").transformWithStateInPandas(processor, "k int, n long", "Append", time_mode)


def query(spark, told):
    from pyspark.sql import functions

    if "libraries" in told:  # of a Spark that has none: pandas and Arrow, for its workers too
        sys.path.append(told["libraries"])
        spark.sparkContext.environment["PYTHONPATH"] = told["libraries"]
    kind = told["kind"]
    if kind in ("inner", "leftOuter", "rightOuter", "fullOuter"):
        return join(spark, told, kind)
    return KINDS[kind](read(spark, told), functions)


def sessions(frame, functions, gap="90 seconds", told="count(*)"):
    counted = frame.groupBy(functions.session_window("t", gap), "k").agg(functions.expr(told).alias("n"))
    return counted.selectExpr("session_window.start", "k", "n")


def chain(frame, functions):
    windows = frame.dropDuplicates(["k", "t"]).groupBy(functions.window("t", "3 minutes"), "k")
    return windows.agg(functions.count("*").alias("n")).selectExpr("window.start", "k", "n")


def follow_keys(frame, _):
    return frame.groupBy("k").applyInPandasWithState(follow, "k int, n long", "n long", "append", "EventTimeTimeout")


KINDS = {
    "distinct within": lambda frame, _: frame.dropDuplicatesWithinWatermark(["k"]),
    "distinct": lambda frame, _: frame.dropDuplicates(["k", "side"]),
    "sessions": sessions,
    "means of sessions": lambda frame, functions: sessions(frame, functions, told="cast(avg(v) as long)"),
    "longer sessions": lambda frame, functions: sessions(frame, functions, "2 minutes"),
    "chain": chain,
    "function": follow_keys,
    "function by the clock": lambda frame, _: frame.groupBy("k").applyInPandasWithState(
        follow_by_clock, "k int, n long", "n long", "append", "ProcessingTimeTimeout"
    ),
    "processor": lambda frame, _: process(frame, "EventTime"),
    "processor by the clock": lambda frame, _: process(frame, "ProcessingTime"),
    "totals": lambda frame, functions: frame.groupBy("k").agg(functions.sum("v").alias("n")),
}


def application(spark, told):
    if told.get("beside"):
        rate = spark.readStream.format("rate").load().writeStream.format("noop")
        assert rate.option("checkpointLocation", told["beside"]).start().isActive
    writer = query(spark, told).writeStream.option("checkpointLocation", told["checkpoint"])
    writer = writer.outputMode(told["mode"]).trigger(**told.get("trigger", {"availableNow": True}))
    if told["sink"] == "foreachBatch":
        return writer.foreachBatch(lambda batch, _: batch.write.mode("append").parquet(told["table"])).start()
    if told["sink"] == "delta":
        return writer.format("delta").start(told["table"])
    return writer.start(told["table"], "parquet")


def stop_after(query, newest):
    """Stop it some time after it has read a file: as long as timers wait, one by the clock never ends by itself."""
    while query.isActive and find_newest_file(query) < newest:
        time.sleep(0.1)
    time.sleep(1)
    if query.isActive:
        query.stop()
    query.awaitTermination()


def find_newest_file(query):
    """Its number; each Spark tells an offset in another form."""
    found = re.search(r"\d+", str(query.lastProgress and query.lastProgress["sources"][0]["endOffset"]))
    return int(found[0]) if found else -1


def start(spark, told):
    for name, value in told["conf"].items():
        spark.conf.set(name, value)
    try:
        query = application(spark, told)
        if "stop_after" in told:
            stop_after(query, told["stop_after"])
        else:
            query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": str(error)[:4000]}
    return {"error": None}


def rebuild(spark, told):
    """What a person does in a notebook: the state made anew by this very session, and brought."""
    import lastgood
    import lastgood.spark

    def begin():
        spark.readStream.format("rate").load().writeStream.format(
            "noop"
        ).start()  # without a checkpoint: it is left out
        application(spark, told).awaitTermination()

    for name, value in told["conf"].items():
        spark.conf.set(name, value)
    try:
        plan = lastgood.spark.rebuild(begin, told["checkpoint"], sink=told["table"])
    except lastgood.LastgoodError as error:
        return {"error": str(error)}
    finally:
        running = [each.id for each in spark.streams.active]
    assert not running
    lastgood.apply(plan, driver_is_dead=True)
    return {"error": None, "guarantee": plan.guarantee.value}


def kept(spark, told):
    """What it keeps as state after a batch, by Spark's own reader."""
    for name, value in told["conf"].items():
        spark.conf.set(name, value)
    found = []
    for options in told["read"]:
        reader = spark.read.format("statestore").options(batchId=told["batch"], **options)
        found += reader.load(told["checkpoint"]).selectExpr("to_json(struct(*))").collect()
    return {"rows": sorted(row[0] for row in found)}


def rows(spark, told):
    """Every row that was written; read file by file, since rows of another query lie in none."""
    form = "delta" if told["sink"] == "delta" else "parquet"
    frame = spark.read.format(form).load(told["table"])
    return {"rows": sorted(json.dumps(row.asDict(), default=str, sort_keys=True) for row in frame.collect())}


if __name__ == "__main__":
    from pyspark.sql import SparkSession

    found = start(SparkSession.builder.getOrCreate(), json.loads(sys.argv[1]))
    if found["error"]:
        sys.exit(found["error"])
