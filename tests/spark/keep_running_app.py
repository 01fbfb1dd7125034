"""Runs inside Spark: `lastgood.spark.keep_running`, as a notebook calls it. Called by `RunningSpark.call`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

DEADLINE_SECONDS = 120


def wait(is_so):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Query:
    """Copies lines of files, or counts them, and fails while there is a file that says so."""

    def __init__(self, spark, told):
        self.spark = spark
        self.told = told
        self.folder = Path(told["folder"])
        self.count = 0
        self.input = self.folder / "in"
        self.input.mkdir()
        self.fails = self.folder / "fails"
        self.table = self.folder / "table"
        self.checkpoint = self.folder / "chk"

    def put(self):
        """Four new files of ten lines each."""
        for _ in range(4):
            draft = self.folder / "draft"
            draft.write_text("".join(f"{each}\n" for each in range(self.count, self.count + 10)))
            self.count += 10
            draft.rename(self.input / f"{self.count:06d}.txt")

    def start(self):
        from pyspark.sql import functions

        fails = str(self.fails)

        def check(value):
            if os.path.exists(fails):  # noqa: PTH110 - a worker has as little as possible
                raise ValueError("it does not go on")
            return value

        rows = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.input))
        if self.told["sink"] != "checked":
            rows = rows.select(functions.udf(check, "string", useArrow=False)("value").alias("value"))
        if self.told["sink"] == "file":
            writer = rows.writeStream.format("text")
        else:
            tens = rows.groupBy((functions.col("value").cast("long") % 10).alias("digit")).count()
            if self.told["sink"] == "checked":
                tens = tens.select(functions.udf(check, "long", useArrow=False)("digit").alias("digit"), "count")
            writer = tens.writeStream.format("delta").outputMode("complete")
        return writer.option("checkpointLocation", str(self.checkpoint)).start(str(self.table))

    def find_lines(self):
        """What the table shows: the lines, or how many there are of each digit."""
        with contextlib.suppress(Exception):  # there is none yet
            if self.told["sink"] == "file":
                return sorted(int(row.value) for row in self.spark.read.text(str(self.table)).collect())
            rows = self.spark.read.format("delta").load(str(self.table)).collect()
            return sorted([row.digit, row["count"]] for row in rows)
        return []

    @property
    def wanted(self):
        if self.told["sink"] == "file":
            return list(range(self.count))
        return [[digit, self.count // 10] for digit in range(10)]


def damage(query):
    """The newest plan is cut off, as a full disk leaves it."""
    plans = (each for each in (query.checkpoint / "offsets").iterdir() if each.name.isdecimal())
    newest = max(plans, key=lambda each: int(each.name))
    newest.write_bytes(b"")
    newest.with_name(f".{newest.name}.crc").unlink()


def live(spark, told):
    """It fails as often as asked, comes back each time, and is stopped."""
    import lastgood.spark
    from lastgood.supervise.events import Ended

    query = Query(spark, told)
    events = []

    def hear(event):
        if told["damage"] and isinstance(event, Ended) and event.failure is not None:
            damage(query)
        events.append(event.to_json())

    beside = spark.readStream.format("rate").load().writeStream.format("noop").start()
    before = sys.excepthook, threading.active_count()
    query.put()
    kept = lastgood.spark.keep_running(
        query.start, str(query.checkpoint), sink=f"{told['sink']}:{query.table}", tell=hear
    )
    wait(lambda: query.find_lines() == query.wanted)
    for _ in range(told["failures"]):
        run = kept.query
        query.fails.touch()
        query.put()
        wait(lambda run=run: not run.isActive)
        query.fails.unlink()
        wait(lambda: kept.wait(0.1) or query.find_lines() == query.wanted)
    wait(lambda: sum(each["event"] == "promised" for each in events) == told["failures"])
    kept.stop()
    is_active, is_beside = kept.query.isActive, beside.isActive
    beside.stop()
    is_left = (sys.excepthook, kept.is_supervised, is_active) != (before[0], False, False)
    return {
        "events": events,
        "is_whole": query.find_lines() == query.wanted,
        "is_left": is_left,
        "is_beside": is_beside,
    }


def leave_to_person(spark, told):
    """A query that keeps state fails, before or behind that, and more is needed than a plain restart."""
    import lastgood.spark
    from lastgood.errors import LastgoodError
    from lastgood.supervise.events import Ended

    query = Query(spark, told)
    query.put()
    kept = lastgood.spark.keep_running(
        query.start,
        str(query.checkpoint),
        sink=f"delta:{query.table}",
        tell=lambda event: damage(query) if told["damage"] and isinstance(event, Ended) else None,
    )
    wait(lambda: query.find_lines() == query.wanted)
    query.fails.touch()
    query.put()
    try:
        kept.wait()
    except LastgoodError as error:
        return error.to_json()
    return None


def refuse(spark, told):
    """What it says of a function that is none for it."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    query = Query(spark, {**told, "sink": "file"})
    query.put()
    events = []

    def start_elsewhere():
        query.checkpoint = query.folder / "elsewhere"
        return query.start()

    def fail():
        raise RuntimeError("no such table")

    def start_and_fail():
        # One that is stopped twice within the same batch: its batch would be offered to a person, to be planned anew.
        query.start().processAllAvailable()
        raise RuntimeError("no such table")

    starts = {
        "elsewhere": start_elsewhere,
        "none": lambda: None,
        "fails": fail,
        "fails late": start_and_fail,
        "held": query.start,
        "under run": query.start,
    }
    os.environ.update(told["env"])
    held = contextlib.nullcontext()
    try:
        target = str(query.folder / "chk")
        if told["how"] == "held":
            held = lastgood.spark.keep_running(query.start, target, tell=lambda _: None)
        config = told["config"] and Path(told["config"])
        with held:
            kept = lastgood.spark.keep_running(
                starts[told["how"]],
                "lines" if config else target,
                config=config,
                tell=lambda event: events.append(event.to_json()),
            )
            kept.wait()
    except LastgoodError as error:
        found = error.to_json()
    finally:
        for name in told["env"]:
            del os.environ[name]
        running = len(spark.streams.active)
        for each in spark.streams.active:
            each.stop()
    return {"error": found, "running": running, "events": events}
