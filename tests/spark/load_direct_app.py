"""Runs inside Spark: tables into which the tasks of a load write. Called by `RunningSpark.call`."""

from __future__ import annotations

COLUMNS = "id bigint, at timestamp, name string, amount double, day date, price decimal(10,2), code decimal(30,0)"


def load(spark, told):
    """Load, and tell what the table has; `sql` runs before, `meanwhile` after the first chunk."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    for each in told.get("sql", []):
        spark.sql(each)
    meanwhile = list(told.get("meanwhile", []))

    def interfere(progress):
        while meanwhile:
            spark.sql(meanwhile.pop(0))

    asked = {"schema": COLUMNS, **told.get("more", {})}
    try:
        loaded = lastgood.spark.load(told["file"], f"delta:{told['to']}", tell=interfere, **asked)
        answer = {"loaded": loaded.to_json()}
    except LastgoodError as error:
        answer = {"error": error.to_json()}
    rows = spark.read.format("delta").load(told["to"])
    files = [each.rpartition("/")[2] for each in rows.inputFiles()]
    return {**answer, "ids": sorted(row.id for row in rows.select("id").collect()), "files": files}


def ask_each(spark, told):
    """What a table and the same rows without statistics say to questions; those whose answers differ."""
    table = spark.read.format("delta").load(told["to"])
    plain = spark.read.schema(COLUMNS).csv(told["file"]).cache()
    asked = [f"count_if({each})" for each in told["conditions"]]
    asked += [f"{end}({name})" for name in plain.columns for end in ("min", "max")]
    expected = plain.selectExpr(*asked).collect()[0]
    found = [table.where(each).count() for each in told["conditions"]]
    found += table.selectExpr(*asked[len(found) :]).collect()[0]
    return {"differing": [str(each) for each in zip(asked, found, expected, strict=True) if each[1] != each[2]]}


def read_days(spark, told):
    """As Spark's own reader finds them, which has to know the calendar of days before 1582."""
    rows = spark.read.parquet(*told["files"]).orderBy("id").collect()
    return {"days": [str(row.day) for row in rows]}
