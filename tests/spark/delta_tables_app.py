"""Makes Delta tables of every form, and says what Delta itself reads of one; called by `RunningSpark.call`."""

from delta_forms import FORMS
from py4j.protocol import Py4JJavaError


def delta_log(spark, path):
    logs = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    logs.clearCache()
    return logs.forTable(spark._jsparkSession, path)


def append(spark, path, batch, app_id):
    rows = spark.range(10 * batch, 10 * batch + 10, 1, 2).selectExpr("id", "CAST(id % 2 AS STRING) AS v")
    writer = rows.write.format("delta").mode("append").option("txnAppId", app_id).option("txnVersion", batch)
    writer.option("mergeSchema", "true").save(path)


def make(spark, command):
    """A table of a form."""
    form, path = FORMS[command["form"]], command["path"]
    table = f"delta.`{path}`"
    properties = ", ".join(f"'{name}' = '{value}'" for name, value in form.get("properties", {}).items())
    told = f"TBLPROPERTIES ({properties})" if properties else ""
    columns = form.get("columns", "id BIGINT, v STRING")
    spark.sql(f"CREATE TABLE {table} ({columns}) USING delta {form.get('more', '')} {told}")
    if "before" in form:
        spark.sql(form["before"].format(table))
    for batch in range(5):
        append(spark, path, batch, "q" if batch else "old")
    for name, value in form.get("conf", {}).items():
        spark.conf.set(name, value)
    delta_log(spark, path).checkpoint()
    for name in form.get("conf", {}):
        spark.conf.unset(name)
    append(spark, path, 5, "q")
    append(spark, path, 5, "other")
    if "after" in form:
        spark.sql(form["after"].format(table)).collect()
    return {}


def ask(spark, command):
    """What Delta reads of a table: its newest version, and the transactions in it; or why it cannot be read."""
    try:
        snapshot = delta_log(spark, command["path"]).unsafeVolatileSnapshot()
        iterator, found = snapshot.transactions().iterator(), {}
        while iterator.hasNext():
            pair = iterator.next()
            found[pair._1()] = pair._2()
        protocol = snapshot.protocol()
        versions = [protocol.minReaderVersion(), protocol.minWriterVersion()]
        return {
            "version": snapshot.version(),
            "transactions": found,
            "table_id": snapshot.metadata().id(),
            "protocol": versions,
        }
    except Py4JJavaError as error:
        return {"error": str(error.java_exception)}
