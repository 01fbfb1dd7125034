"""Runs inside the Spark that is judged: starts one query after the other, as it is told, and says what Spark did.

Needs nothing but the standard library and the pyspark of its version. Commands and answers are JSON lines over a
loopback connection; the session stays, so that a restart takes a second or two instead of ten.
"""

from __future__ import annotations

import json
import re
import runpy
import socket
import sys
import time
from collections import Counter
from pathlib import Path

from flavours import FLAVOURS
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

_BATCH = re.compile(r"batch = (\d+)")
_BUS_MILLISECONDS = 20_000
_ENDED_SECONDS = 0.1
ENDLESS_BATCHES = 8
"""After so many a query that knows no end is stopped."""


class Calls:
    """A foreachBatch sink: one line a call in a file, written once the rows have been read.

    A call waits as long as there is a file `hold` beside that file.
    """

    def __init__(self, folder):
        self.file = folder / "calls.jsonl"
        self.hold = folder / "hold"
        self.begun = []
        self.finished = []

    def __call__(self, frame, batch_id):
        self.begun.append(batch_id)
        rows = [[row.key, row.n] for row in frame.collect()]
        while self.hold.exists():
            self.hold.with_name("held").touch()
            time.sleep(0.05)
        with self.file.open("a") as file:
            file.write(json.dumps({"batch": batch_id, "rows": rows}) + "\n")
        self.finished.append(batch_id)


def run(spark, command):
    """One start of a query, to its end or for `seconds`; what Spark did, as a JSON object."""
    flavour, folder = FLAVOURS[command["flavour"]], Path(command["folder"])
    session = spark.newSession()
    for key, value in {**flavour.conf, **command.get("conf", {})}.items():
        session.conf.set(key, value)
    sink = folder / "sink"
    sink.mkdir(exist_ok=True)
    calls = Calls(sink)
    began = time.monotonic()
    told = {"chain": [], "text": None, "progress": [], "executions": []}
    try:
        query = start(session, flavour, command, calls)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the result
        told.update(ended="not_started", text=str(error), chain=python_chain(error))
    else:
        if flavour.is_endless:
            let_run(query, command["seconds"])
        told.update(watch(session, query, _ENDED_SECONDS if flavour.is_endless else command["seconds"]))
        if flavour.is_endless and told["ended"] == "hangs":
            told["ended"] = "finished"
    told["calls"] = {"begun": calls.begun, "finished": calls.finished}
    told["seconds"] = round(time.monotonic() - began, 2)
    return told


RUNNING = {}
"""Queries that were begun, by their folder, with their session and their sink."""


def begin(spark, command):
    """Start a query that goes on until something stops it."""
    flavour, folder = FLAVOURS[command["flavour"]], Path(command["folder"])
    session = spark.newSession()
    for key, value in flavour.conf.items():
        session.conf.set(key, value)
    (folder / "sink").mkdir(exist_ok=True)
    calls = Calls(folder / "sink")
    query = start(session, flavour, command, calls, trigger={"processingTime": "0 seconds"})
    RUNNING[str(folder)] = session, query, calls
    return {}


def end(_, command):
    """Wait for the end of a query that was begun; what became of it."""
    session, query, calls = RUNNING.pop(command["folder"])
    told = watch(session, query, command["seconds"])
    return {"text": None, "chain": [], **told, "calls": {"begun": calls.begun, "finished": calls.finished}}


def start(session, flavour, command, calls, trigger=None):
    frame = flavour.query(session, Path(command["folder"]), command.get("options", {}))
    writer = frame.writeStream.outputMode(flavour.mode)
    writer = writer.options(**{**flavour.options, **command.get("sink_options", {})})
    writer = writer.option("checkpointLocation", f"{place(command)}/checkpoint")
    usual = {"processingTime": "200 milliseconds"} if flavour.is_endless else {"availableNow": True}
    writer = writer.trigger(**(trigger or usual))
    if flavour.sink == "foreachBatch":
        return writer.foreachBatch(calls).start()
    if flavour.txn_app_id is not None:
        return writer.foreachBatch(once(flavour.txn_app_id, f"{place(command)}/sink")).start()
    return writer.format(flavour.sink).start(f"{place(command)}/sink")


def once(app_id, table):
    """A foreachBatch function whose writes Delta tells apart by a constant name and the number of the batch."""

    def write(frame, batch_id):
        writer = frame.write.format("delta").mode("append")
        writer.option("txnAppId", app_id).option("txnVersion", batch_id).save(table)

    return write


def place(command):
    """Where checkpoint and sink are: in the folder of the case, or on another storage."""
    return command.get("place", command["folder"])


def let_run(query, seconds):
    """Wait until a query that knows no end has run some batches, or has failed."""
    deadline = time.monotonic() + seconds
    while query.isActive and len(query.recentProgress) < ENDLESS_BATCHES and time.monotonic() < deadline:
        time.sleep(0.1)


def watch(session, query, seconds):
    """Wait for the end of a query; a hung one is stopped, and that it hung is the result."""
    told = {"ended": "finished"}
    try:
        is_over = query.awaitTermination(seconds)
    except StreamingQueryException as error:
        told.update(ended="failed", text=str(error))
    else:
        if not is_over:
            told["ended"] = "hangs"
            query.stop()
    failure = query._jsq.exception()
    if failure.isDefined():
        told["chain"] = chain(failure.get())
    session.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_BUS_MILLISECONDS)
    progress = [json.loads(each.json()) for each in query._jsq.recentProgress()]
    told["progress"] = [{"batch": each["batchId"], "rows": each["numInputRows"]} for each in progress]
    told["executions"] = executions(session, str(query.runId))
    return told


def executions(session, run_id):
    """The batches that went to the sink: Spark runs each as one SQL execution of its own."""
    store = session._jsparkSession.sharedState().statusStore()
    listed = store.executionsList()
    found = []
    for number in range(listed.size()):
        execution = listed.apply(number)
        description = execution.description()
        batch = _BATCH.search(description)
        if run_id not in description or batch is None or execution.rootExecutionId() != execution.executionId():
            continue
        error = execution.errorMessage()
        failed = error.isDefined() and error.get() != ""
        done = execution.completionTime().isDefined() and not failed
        found.append({"batch": int(batch.group(1)), "finished": done})
    return found


def chain(throwable):
    """A Java exception and its causes, outermost first."""
    links = []
    while throwable is not None and len(links) < 20:
        links.append(
            {
                "class": throwable.getClass().getName(),
                "condition": condition(throwable),
                "message": throwable.getMessage(),
            },
        )
        throwable = throwable.getCause()
    return links


def condition(throwable):
    for name in ("getCondition", "getErrorClass"):
        try:
            return getattr(throwable, name)()
        except (Py4JError, TypeError):
            continue
    return None


def python_chain(error):
    origin = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    if origin is not None:
        return chain(origin)
    return [{"class": type(error).__name__, "condition": None, "message": str(error)}]


def content(spark, command):
    """What the sink shows, as key -> n; for an updating query the newest value of each key."""
    flavour, folder = FLAVOURS[command["flavour"]], Path(command["folder"])
    shown = Counter()
    if flavour.sink == "foreachBatch":
        file = folder / "sink" / "calls.jsonl"
        for line in file.read_text().splitlines() if file.exists() else []:
            for key, n in json.loads(line)["rows"]:
                shown[key] = n if flavour.mode == "update" else shown[key] + n
        return {"content": shown}
    if flavour.sink == "noop":
        return {"content": None}
    try:
        rows = spark.read.format(flavour.sink).load(f"{place(command)}/sink").collect()
    except Exception as error:  # noqa: BLE001 - a sink that cannot be read is a result too
        return {"content": None, "unreadable": str(error)[:500]}
    for row in rows:
        shown[row.key] += row.n
    return {"content": shown}


def audit(_, command):
    """What the job of `verify --data` answers, in this session."""
    return runpy.run_path(command["job"])["answer"](command["spec"], lambda _: None)


def bring_libraries(spark, folders):
    """What a script needs that the Python of this Spark has not, for its workers as well."""
    if folders:
        sys.path.extend(each for each in folders if each not in sys.path)
        spark.sparkContext.environment["PYTHONPATH"] = ":".join(folders)


def call(spark, command):
    """What a function of another script answers, in a session of its own."""
    if (beside := str(Path(command["script"]).parent)) not in sys.path:
        sys.path.append(beside)
    bring_libraries(spark, command.get("libraries", ()))
    return runpy.run_path(command["script"])[command["call"]](spark.newSession(), command)


def main(port):
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    verbs = {"run": run, "content": content, "begin": begin, "end": end, "audit": audit, "call": call}
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as lines:
        print(json.dumps({"version": spark.version}), file=lines, flush=True)
        for line in lines:
            command = json.loads(line)
            print(json.dumps(verbs[command["do"]](spark, command)), file=lines, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
