"""Runs inside Spark: a load, and what Spark's own reader makes of the same files. Called by `RunningSpark.call`."""

from __future__ import annotations

import json


def run(spark, told):
    """The job of a load, in this session; what it has told."""
    from lastgood.spark.load_job import LoadRefusedError
    from lastgood.spark.load_session import choose_job

    spark.conf.set("spark.sql.session.timeZone", told["zone"])
    try:
        choose_job(spark, told["question"], lambda _: None).run()
    except LoadRefusedError as refused:
        return {"error": refused.answer}
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"error": str(error)[:2000]}
    return {"error": None}


def read(spark, told):
    """The rows of the table, and those of Spark's own reader, as texts."""
    spark.conf.set("spark.sql.session.timeZone", told["zone"])
    reader = spark.read.options(**told["options"]).option("mode", told["mode"])
    if told["infers"]:
        reader = reader.option("inferSchema", "true")
    if told["schema"]:
        reader = reader.schema(told["schema"])
    form = {
        "csv": reader.csv,
        "jsonl": reader.json,
        "text": reader.text,
        "parquet": lambda files: reader.parquet(*files),
    }[told["form"]]
    sink = told["question"]["sink"]
    found = {"error": None, "loaded": None}
    try:
        found["expected"] = list_rows(form(told["files"]))
    except Exception as error:  # noqa: BLE001
        found["error"] = str(error)[:2000]
    try:
        found["loaded"] = list_rows(spark.read.format(sink["format"]).load(sink["location"]))
    except Exception as error:  # noqa: BLE001
        found["unreadable"] = str(error)[:2000]
    return found


def list_rows(frame):
    kinds = [kind for _, kind in frame.dtypes]
    return [json.dumps([frame.columns, kinds]), *sorted(repr(row) for row in frame.collect())]


def write(spark, told):
    """A Parquet file, as Spark writes it."""
    for name, value in told["conf"].items():
        spark.conf.set(name, value)
    try:
        spark.sql(told["query"]).coalesce(1).write.mode("overwrite").parquet(told["folder"])
    finally:
        for name in told["conf"]:
            spark.conf.unset(name)


def compare(spark, told):
    """What `load --verify` finds between two sides of rows, each SQL."""
    from lastgood.spark.load_check import compare_rows

    one, other = (spark.sql(told[side]) for side in ("one", "other"))
    return compare_rows(one, other, one.schema)


def start(spark, told):
    """What becomes of an application that registers the source of a load, if it can, and names it."""
    try:
        from lastgood.spark.load_job import add_source

        add_source(spark)
    except ImportError:
        registered = False
    else:
        registered = True
    try:
        spark.readStream.format("lastgood").option("bounds", "[]").load()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        return {"registered": registered, "error": str(error)[:300]}
    return {"registered": registered, "error": None}
