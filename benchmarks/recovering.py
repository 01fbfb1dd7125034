"""How long a query is away: `python benchmarks/recovering.py`; `restarts`, `first` or `session` does one part of it,
and with one of the latter `stateless` or `kafka` one of both queries.

Prints one JSON object; exit code 1 if over budget. First what `lastgood run` itself takes between an end and the next
start: a real broker and a Delta table are asked before each, of a query whose mirror holds ten thousand batches. Then
real drivers are killed in turns, again and again, one that is restarted at once by hand, one under `run`, one with a
class archive, and one with a driver that stands by, to the first new batch; who has no turn stands still (SIGSTOP).
At last the query of a session fails, which is kept running there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from confluent_kafka import Producer
from deltalake import CommitProperties, Transaction, write_deltalake
from figures import Figure, print_figures

from lastgood.errors import LastgoodError
from lastgood.journal.incident import ARCHIVE, COLD, SESSION, STANDBY
from lastgood.lab.jars import fetch_jars
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, make_small_conf, submit_command
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.progress import LogWatch
from lastgood.operations.run import prepare, supervise
from lastgood.process.java import find_java
from lastgood.settings.config import ConfiguredQuery, Kafka, Pipeline
from lastgood.settings.policy import Policy
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise.events import Ended, Event, Repaired, Started
from lastgood.supervise.session_restarts import LEAST_SECONDS
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder

QUERIES = {"stateless", "kafka"}
BATCHES = 10_000
KEPT = 100
"""Batches that Spark leaves in its logs."""
RESTARTS = 20
KILLS = 7
HAND = "hand"
TURNS = (HAND, COLD, ARCHIVE, COLD, HAND, STANDBY)
"""Of one round: the two of which the one should take hardly longer than the other, twice, and each once before it."""
BESIDE = "beside"
"""In session, under `run`, while another query of the driver goes on."""
BUDGET_SECONDS = 0.25
BUDGET_RATIO = 1.05
BUDGET_ARCHIVE = 0.8
BUDGET_STANDBY = 0.15
BUDGET_SESSION = 0.3
OPTIONS = {STANDBY: "standby = true", ARCHIVE: "class_archive = true", BESIDE: "restart_in_session = true"}
LASTGOOD = Path(sys.executable).with_name("lastgood")
POLICY = Policy(max_attempts=RESTARTS, same_batch=10**6, backoff_seconds=0.0, restart_within_seconds=1e9)
STATELESS = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
def start():
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[1])
    return writer.trigger(processingTime="100 milliseconds").start()
"""
STATEFUL = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
def start():
    source = spark.readStream.format("kafka").option("kafka.bootstrap.servers", sys.argv[2])
    rows = source.option("subscribe", "clicks").option("startingOffsets", "earliest")
    counts = rows.option("maxOffsetsPerTrigger", 20).load().groupBy("value").count()
    writer = counts.writeStream.format("delta").outputMode("complete").option("checkpointLocation", sys.argv[1])
    return writer.trigger(processingTime="100 milliseconds").start(sys.argv[1] + "-table")
"""
WAITS = "start().awaitTermination()\n"
# Before the next batch: where state of one that is not committed was written, no query is started again in its session.
IS_BETWEEN = """
def is_between(query):
    status = query.status
    return not status["isTriggerActive"] or status["message"].startswith("Getting offsets")
"""
KEEPS = f"""{IS_BETWEEN}
import pathlib, time
import lastgood.spark
kept = lastgood.spark.keep_running(start, sys.argv[1], first_start=True, tell=lambda event: None)
fails = pathlib.Path(sys.argv[1] + "-fails")
while True:
    if fails.exists() and is_between(kept.query):
        fails.unlink()
        kept.query._jsq.streamingQuery().queryExecutionThread().interrupt()
    time.sleep(0.005)
"""
STAYS = f"""{IS_BETWEEN}
import pathlib, threading, time
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
writer = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[1] + "-other")
other, query = writer.trigger(processingTime="1 second").start(), start()
fails = pathlib.Path(sys.argv[1] + "-fails")
def look():
    while True:
        if fails.exists() and is_between(query):
            fails.unlink()
            query._jsq.streamingQuery().queryExecutionThread().interrupt()
        time.sleep(0.005)
threading.Thread(target=look, daemon=True).start()
spark.streams.awaitAnyTermination()
"""


def between(folder: Path, broker: KafkaBroker, code: str) -> list[float]:
    """Seconds from each end of a command to its next start."""
    query = CheckpointBuilder(folder / "chk")
    query.run(BATCHES - KEPT)
    write_batches(query, folder / "table")
    query.plan(at_ms=int(time.time() * 1000))
    mirror(folder / "chk")
    query.purge()
    (folder / "app.py").write_text(code)
    pipeline = Pipeline(
        name="benchmark",
        command=("env", sys.executable, str(folder / "app.py"), str(folder / "chk")),
        queries=(ConfiguredQuery(name="orders", checkpoint=str(folder / "chk"), sink=f"delta:{folder / 'table'}"),),
        kafka=Kafka(bootstrap=broker.bootstrap),
        policy=POLICY,
        driver_check=("true",),
    )
    events: list[Event] = []
    try:
        supervise(replace(prepare(pipeline), log=folder / "app.log"), tell=events.append)
    except LastgoodError as error:
        repairs = sum(isinstance(each, Repaired) for each in events)
        print(f"{error.condition} after {repairs} repairs: {error.facts()}", file=sys.stderr)
    moments = [each for each in events if isinstance(each, Ended | Started)]
    return [after.at - before.at for before, after in zip(moments[1::2], moments[2::2], strict=False)]


def write_batches(query: CheckpointBuilder, table: Path) -> None:
    """Plan those batches that are still in the logs, write each into the table, and commit it."""
    rows = pa.table({"id": pa.array([1])})
    for _ in range(KEPT):
        number = query.plan(at_ms=int(time.time() * 1000))
        marks = CommitProperties(app_transactions=[Transaction(app_id=QUERY_ID, version=number)])
        write_deltalake(table, rows, mode="append", commit_properties=marks)
        query.commit()


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    storage = open_writable(location)
    writer = MirrorWriter(
        location, storage=storage, folder=locate_mirror(location), target=storage, writer="b", now_ms=lambda: 1
    )
    writer.look()
    writer.settle()  # as `run` does with so many


def fill(broker: KafkaBroker) -> None:
    # Else the broker deletes records as old as these, and the query cannot go on without loss.
    broker.create_topic("orders", partitions=2, config={"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "queue.buffering.max.messages": 1_000_000})
    for number in range(2 * 6 * BATCHES):
        producer.produce("orders", str(number).encode(), partition=number % 2, timestamp=STARTED_MS - 1000)
    producer.flush()


def restarting(folder: Path) -> list[Figure]:
    java = find_java(os.environ)
    jars = fetch_jars(["broker"], java=java, progress=lambda _: None)["broker"]
    damage = (
        "import pathlib, sys\nfile = pathlib.Path(sys.argv[1], 'offsets/10000')\nfile.write_bytes(b'v1')\nsys.exit(1)\n"
    )
    found = []
    with KafkaBroker(folder / "kafka", java=java, jars=jars) as broker:
        fill(broker)
        for name, code in {"a plain restart": "raise SystemExit(1)", "a repair of the newest plan": damage}.items():
            seconds = between(folder / name.replace(" ", "-"), broker, code)
            found += [
                Figure(f"exit to start, {name}, median", statistics.median(seconds), "s", BUDGET_SECONDS),
                Figure(f"exit to start, {name}, worst", max(seconds), "s"),
            ]
    return found


class ByHand:
    """A shell loop, and a person who is very quick."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._command, self._env = command, env
        self.pid = self.start()

    def start(self) -> int:
        self._process = subprocess.Popen(
            self._command, env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.pid = self._process.pid
        return self.pid

    def kill(self) -> None:
        os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def restart(self) -> None:
        self.kill()
        self.start()


@contextlib.contextmanager
def stopped(processes: list[psutil.Process]) -> Iterator[None]:
    """Some processes, and all that they have started, stand still."""
    found = [each for process in processes for each in (process, *process.children(recursive=True))]
    try:
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.suspend()
        yield
    finally:
        for each in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.resume()


def await_batches(watch: LogWatch) -> None:
    """Wait until it has committed some more."""
    newest = watch.look().committed or 0
    while (watch.look().committed or 0) <= newest + 5:
        time.sleep(0.01)


def back(watch: LogWatch, fail: Callable[[], None]) -> float:
    """Seconds from a failure to the first new batch."""
    began = time.perf_counter()
    fail()
    newest = watch.look().committed or 0
    while (watch.look().committed or 0) <= newest:
        time.sleep(0.005)
    return time.perf_counter() - began


class Supervised:
    """A command under `lastgood run`, as a person types it."""

    def __init__(self, folder: Path, command: list[str], env: dict[str, str], *, way: str) -> None:
        config = folder.with_suffix(".toml")
        config.write_text(f"""
[pipeline.{folder.name}]
command = {json.dumps(command)}
{OPTIONS.get(way, "")}
policy = {{ max_attempts = 1000, same_batch = 100000, restart_within = "1000d", backoff = "1ms" }}
[pipeline.{folder.name}.query.rows]
checkpoint = "{folder}"
""")
        self.watch = LogWatch(parse_location(str(folder)))
        self._way = way
        self._events = folder.with_suffix(".events")
        run = [str(LASTGOOD), "run", f"--config={config}", "--format=json", "--first-start"]
        told = {**os.environ, **env, "XDG_STATE_HOME": str(folder.with_suffix(".state"))}
        with self._events.open("wb") as events:
            self._process = subprocess.Popen(run, env=told, stdout=events, stderr=subprocess.STDOUT)

    def await_ready(self) -> None:
        """Wait until it has committed some batches, and until what is to help it is there."""
        await_batches(self.watch)
        while not self._is_ready():
            time.sleep(0.05)

    def _list_events(self) -> list[dict[str, Any]]:
        if self._process.poll() is not None:
            sys.exit(self._events.read_text())
        return [json.loads(line) for line in self._events.read_text().splitlines() if line.startswith("{")]

    def _is_ready(self) -> bool:
        events = self._list_events()
        last = [each for each in events if each["event"] in ("started", "standing_by")][-1]
        is_made = any(each.get("condition") == "CLASS_ARCHIVE_MADE" for each in events)
        if self._way == ARCHIVE:
            return is_made or last.get("way") == ARCHIVE
        return self._way != STANDBY or last["event"] == "standing_by"

    def kill(self) -> None:
        """Kill the driver."""
        pid: int = [each["pid"] for each in self._list_events() if each["event"] == "started"][-1]
        os.kill(pid, signal.SIGKILL)

    @property
    def process(self) -> psutil.Process:
        """What runs all of it."""
        return psutil.Process(self._process.pid)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()


def to_first_batch(folder: Path, name: str, app: str, jars: list[Path], *more: str) -> list[Figure]:
    """Drivers of one application are killed in turns; who has no turn stands still."""
    spark, java = find_default_spark(), find_java(os.environ)
    folder.mkdir(parents=True)
    (folder / "app.py").write_text(app + WAITS)
    env = {
        "PYSPARK_PYTHON": str(spark.python),
        "SPARK_HOME": str(spark.home),
        "JAVA_HOME": str(java.home),
    }

    def command(checkpoint: str) -> list[str]:
        arguments = [str(folder / checkpoint), *more]
        return submit_command(folder / "app.py", arguments, environment=spark, conf=make_small_conf(jars))

    supervised = {}
    for way in (ARCHIVE, COLD, STANDBY):  # the archive is made while nothing else runs
        supervised[way] = Supervised(folder / way, command(way), env, way=way)
        supervised[way].await_ready()
    by_hand = ByHand(command("hand"), {**os.environ, **env})
    hand_watch = LogWatch(parse_location(str(folder / "hand")))
    times: dict[str, list[float]] = {way: [] for way in (HAND, *supervised)}
    try:
        for _ in range(KILLS):
            for way in TURNS:
                for each in supervised.values():  # so that nothing is made ready beside another one's turn
                    each.await_ready()
                await_batches(hand_watch)
                others = [run.process for other, run in supervised.items() if other != way]
                if way == HAND:
                    with stopped(others):
                        took = back(hand_watch, by_hand.restart)
                else:
                    with stopped([*others, psutil.Process(by_hand.pid)]):
                        took = back(supervised[way].watch, supervised[way].kill)
                times[way].append(took)
                print(f"{name}, {way}: {took:.2f} s", file=sys.stderr)  # it takes half an hour
    finally:
        by_hand.kill()
        for each in supervised.values():
            each.stop()
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    return [
        *(Figure(f"{name}: failure to first new batch, {way}", seconds, "s") for way, seconds in medians.items()),
        Figure(f"{name}: run / by hand", medians[COLD] / medians[HAND], "ratio", BUDGET_RATIO),
        Figure(f"{name}: class archive / by hand", medians[ARCHIVE] / medians[HAND], "ratio", BUDGET_ARCHIVE),
        Figure(f"{name}: standby / by hand", medians[STANDBY] / medians[HAND], "ratio", BUDGET_STANDBY),
    ]


def in_session(folder: Path, name: str, app: str, jars: list[Path], *more: str) -> list[Figure]:
    """The query of a session fails, alone or beside another; the same application is restarted by hand, in turns."""
    spark, java = find_default_spark(), find_java(os.environ)
    folder.mkdir(parents=True)
    env = {
        "PYSPARK_PYTHON": str(spark.python),
        "SPARK_HOME": str(spark.home),
        "JAVA_HOME": str(java.home),
    }

    def command(way: str, end: str) -> list[str]:
        file = folder / f"{way}.py"
        file.write_text(app + end)
        return submit_command(file, [str(folder / way), *more], environment=spark, conf=make_small_conf(jars))

    runs = {
        "hand": ByHand(command("hand", WAITS), {**os.environ, **env}),
        SESSION: ByHand(command(SESSION, KEEPS), {**os.environ, **env}),
    }
    beside = Supervised(folder / BESIDE, command(BESIDE, STAYS), env, way=BESIDE)
    watches = {way: LogWatch(parse_location(str(folder / way))) for way in (*runs, BESIDE)}
    fails = {way: (folder / f"{way}-fails").touch for way in watches} | {"hand": runs["hand"].restart}
    times: dict[str, list[float]] = {way: [] for way in watches}
    try:
        for way in [*watches] * KILLS:
            if way == BESIDE:  # one that fails again at once ends its driver
                time.sleep(LEAST_SECONDS)
            await_batches(watches[way])
            others = [psutil.Process(run.pid) for other, run in runs.items() if other != way]
            if way != BESIDE:
                others.append(beside.process)
            with stopped(others):
                times[way].append(back(watches[way], fails[way]))
            print(f"{name}, {way}: {times[way][-1]:.2f} s", file=sys.stderr)
    finally:
        for run in runs.values():
            run.kill()
        beside.stop()
    medians = {way: statistics.median(seconds) for way, seconds in times.items()}
    return [
        Figure(f"{name}: failure to first new batch, in session", medians[SESSION], "s"),
        Figure(f"{name}: in session / by hand", medians[SESSION] / medians[HAND], "ratio", BUDGET_SESSION),
        Figure(f"{name}: failure to first new batch, in session beside another", medians[BESIDE], "s"),
        Figure(
            f"{name}: in session beside another / by hand", medians[BESIDE] / medians[HAND], "ratio", BUDGET_SESSION
        ),
    ]


@contextlib.contextmanager
def produce(broker: KafkaBroker) -> Iterator[None]:
    """Records come in all the time."""
    broker.create_topic("clicks", partitions=2)
    is_done = threading.Event()

    def send() -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        while not is_done.wait(0.02):
            for number in range(4):
                producer.produce("clicks", str(number).encode(), partition=number % 2)
            producer.flush()

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def measure_each(folder: Path, queries: set[str], measure: Callable[..., list[Figure]]) -> list[Figure]:
    """A query without state, and one from Kafka with state into Delta."""
    java = find_java(os.environ)
    sets = fetch_jars(["broker", "spark"], java=java, progress=lambda _: None)
    figures = []
    if "stateless" in queries:
        figures = measure(folder / "stateless", "stateless", STATELESS, [])
    if "kafka" not in queries:
        return figures
    with KafkaBroker(folder / "kafka", java=java, jars=sets["broker"]) as broker, produce(broker):
        jars = list(sets["spark"])
        return figures + measure(folder / "stateful", "Kafka, state, Delta", STATEFUL, jars, broker.bootstrap)


def main() -> int:
    queries = QUERIES & {*sys.argv[1:]} or QUERIES
    parts = {*sys.argv[1:]} - QUERIES or {"restarts", "first", "session"}
    with tempfile.TemporaryDirectory(prefix="lastgood-benchmark-") as name:
        folder = Path(name)
        figures = restarting(folder / "restarts") if "restarts" in parts else []
        if "first" in parts:
            figures += measure_each(folder / "first", queries, to_first_batch)
        if "session" in parts:
            figures += measure_each(folder / "session", queries, in_session)
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main())
