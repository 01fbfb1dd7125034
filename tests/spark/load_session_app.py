"""Runs inside Spark: `lastgood.spark.load`, as a notebook calls it. Called by `RunningSpark.call`."""

from __future__ import annotations


def load(spark, told):
    import lastgood.spark
    from lastgood.errors import LastgoodError

    names = ["spark.sql.streaming.minBatchesToRetain", "spark.sql.optimizer.enableCsvExpressionOptimization"]
    before = [spark.conf.get(name) for name in names]
    seen = []
    try:
        loaded = lastgood.spark.load(
            told["file"], told["to"], tell=lambda progress: seen.append(progress.done), **told["more"]
        )
        answer = {"loaded": loaded.to_json(), "rows": count_rows(spark, *told["to"].split(":"))}
    except LastgoodError as error:
        answer = {"error": error.to_json()}
    return {**answer, "seen": seen, "is_as_before": before == [spark.conf.get(name) for name in names]}


def count_rows(spark, kind, place):
    return spark.read.format({"file": "parquet"}.get(kind, kind)).load(place).count()
