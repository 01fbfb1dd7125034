"""Runs inside Spark: `lastgood.spark.chunks`, as a program uses it. Called by `RunningSpark.call`."""

from __future__ import annotations


def take(spark, told):
    """Take chunks, each with its rows; `leaves` says at the how manieth one the program ends, and how."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    names = ["spark.sql.streaming.minBatchesToRetain", "spark.sql.optimizer.enableCsvExpressionOptimization"]
    before = [spark.conf.get(name) for name in names]
    seen, answer = [], {}
    try:
        for chunk in lastgood.spark.chunks(told["files"], **told["more"]):
            rows = sorted((list(row) for row in chunk.rows.collect()), key=str)
            each = {
                name: getattr(chunk, name) for name in ("number", "key", "count", "is_again", "begin", "end", "size")
            }
            again = chunk.rows.count()
            seen.append({**each, "corrupt": chunk.corrupt, "rows": rows, "counted": again})
            if told.get("out"):
                write_once(told["out"], chunk.key, rows)
            if len(seen) == told.get("leaves"):
                leave(told["how"])
            if told.get("tries_twice"):
                answer["second"] = take(spark, {**told, "tries_twice": False})
    except LeftError:
        answer["left"] = True
    except LastgoodError as error:
        answer["error"] = error.to_json()
    answer["is_idle"] = not spark.streams.active
    return {**answer, "seen": seen, "is_as_before": before == [spark.conf.get(name) for name in names]}


def write_once(folder, key, rows):
    """As a writer does that passes over a key that is there."""
    import json
    from pathlib import Path

    place = Path(folder) / key.replace("/", "-")
    if not place.exists():
        written = place.with_name(f".{place.name}")
        written.write_text(json.dumps(rows))
        written.replace(place)


class LeftError(Exception):
    """As a program ends."""


def leave(how):
    """End as a program does."""
    import os
    import signal

    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise LeftError
