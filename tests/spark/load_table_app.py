"""Runs inside Spark: tables that are loaded by an ordered column. Called by `RunningSpark.call`."""

from __future__ import annotations

TYPES = {
    "int": "CAST(id AS INT)",
    "bigint": "id * 4000000000",
    "decimal": "CAST(id / 8 AS DECIMAL(20,3))",
    "date": "date_add(DATE'1899-12-30', CAST(id AS INT))",
    "timestamp": "timestamp_micros(id * 1000003 - 5000000000)",
    "timestamp_ntz": "CAST(timestamp_micros(id * 7200000001) AS TIMESTAMP_NTZ)",
    "string": "concat(CASE WHEN id % 3 = 0 THEN 'ä' WHEN id % 3 = 1 THEN 'Z' ELSE 'a\\n ''' END, CAST(id AS STRING))",
}
"""Columns with an order, made of a number."""


def make_rows(spark, ids, order):
    """Rows with ties and gaps."""
    return spark.createDataFrame([(each,) for each in ids], "id bigint").selectExpr(
        f"{order} AS at", "id", "'a' AS name"
    )


def load_each_type(spark, told):
    """Which ids a table has after a load of rows that are ordered by each type of column, in two calls."""
    import lastgood.spark

    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")  # its clock is turned back at one minute past
    found = {}
    for kind, order in TYPES.items():
        place, to = f"{told['folder']}/{kind}", f"{told['folder']}/{kind}-loaded"
        first = [each for each in range(0, 300, 3) for _ in range(each % 4 + 1)]
        make_rows(spark, first, order).write.parquet(place)
        loaded = lastgood.spark.load(place, f"delta:{to}", order_by="AT", chunk_rows=60)
        found[kind] = {"chunks": loaded.chunks}
        if kind != "string":  # of which later ones are not behind
            make_rows(spark, range(300, 340), order).write.mode("append").parquet(place)
        lastgood.spark.load(place, f"delta:{to}", order_by="AT", chunk_rows=60)
        there, read = spark.read.format("delta").load(to), spark.read.parquet(place)
        found[kind]["lost"] = read.exceptAll(there).count()
        found[kind]["surplus"] = there.exceptAll(read).count()
        found[kind]["rows"] = there.count()
    return found


def load(spark, told):
    """Load, and tell what is in the table."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    if "sql" in told:
        for each in told["sql"]:
            spark.sql(each)
    try:
        loaded = lastgood.spark.load(told["table"], f"delta:{told['to']}", **told["more"])
        rows = spark.read.format("delta").load(told["to"]).collect()
        return {"loaded": loaded.to_json(), "rows": sorted(list(each) for each in rows)}
    except LastgoodError as error:
        return {"error": error.to_json()}


def take_frame(spark, told):
    """Take the chunks of a DataFrame; the second one is left once."""
    import lastgood.spark
    from lastgood.errors import LastgoodError

    def take(leaves, rows):
        frame = spark.createDataFrame([(each, f"n{each}") for each in rows], "name_id int, name string")
        seen = []
        for chunk in lastgood.spark.chunks(
            frame, name="to-erp", order_by="name_id", chunk_rows=40, checkpoint=told["checkpoint"]
        ):
            ids = sorted(each[0] for each in chunk.rows.collect())
            seen.append({"key": chunk.key, "is_again": chunk.is_again, "ids": ids, "count": chunk.count})
            if len(seen) == leaves:
                break
        return seen

    def change_meanwhile():
        """A row comes while the chunks behind it are taken, where rows were read."""
        spark.createDataFrame([(each,) for each in range(100)], "id int").write.format("delta").save(told["table"])
        frame = spark.read.format("delta").load(told["table"])
        taken = lastgood.spark.chunks(
            frame, name="late", order_by="id", chunk_rows=50, checkpoint=told["checkpoint"] + "-late"
        )
        next(taken)
        spark.createDataFrame([(3,)], "id int").write.format("delta").mode("append").save(told["table"])
        try:
            return len(list(taken))
        except LastgoodError as error:
            return error.condition

    rows = [each for each in range(100) for _ in range(2)]
    answer = {"left": take(2, rows), "rest": take(None, rows), "none": take(None, rows)}
    answer["more"] = take(None, [*rows, 100, 101])
    try:
        take(None, [*rows, 5, 100, 101])
    except LastgoodError as error:
        answer["error"] = error.to_json()
    answer["meanwhile"] = change_meanwhile()
    return answer
