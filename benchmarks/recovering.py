"""What `lastgood run` itself takes between an end and the next start: `python benchmarks/recovering.py`

Prints one JSON object; exit code 1 if over budget. A real broker and a Delta table are asked before each start, of a
query whose mirror holds ten thousand batches. Then two real drivers are killed in turns, again and again: one is
restarted at once by hand and one by `run`, to the first new batch; who has no turn stands still (SIGSTOP).
"""

from __future__ import annotations

import contextlib
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

import pyarrow as pa
from confluent_kafka import Producer
from deltalake import CommitProperties, Transaction, write_deltalake
from figures import Figure, print_figures

from lastgood.errors import LastgoodError
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
from lastgood.supervise.loop import Supervisor
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder

BATCHES = 10_000
RESTARTS = 20
KILLS = 17
BUDGET_SECONDS = 0.25
BUDGET_RATIO = 1.05
POLICY = Policy(max_attempts=RESTARTS, same_batch=10**6, backoff_seconds=0.0, restart_within_seconds=1e9)
APP = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
writer = rows.writeStream.format("noop").option("checkpointLocation", sys.argv[1])
writer.trigger(processingTime="100 milliseconds").start().awaitTermination()
"""


def between(folder: Path, broker: KafkaBroker, code: str) -> list[float]:
    """Seconds from each end of a command to its next start."""
    query = CheckpointBuilder(folder / "chk")
    query.run(BATCHES)
    query.plan()
    mirror(folder / "chk")
    query.purge()
    rows = pa.table({"id": pa.array([1])})
    marks = [Transaction(app_id=QUERY_ID, version=BATCHES - 1)]
    write_deltalake(folder / "table", rows, commit_properties=CommitProperties(app_transactions=marks))
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


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    storage = open_writable(location)
    writer = MirrorWriter(
        location, storage=storage, folder=locate_mirror(location), target=storage, writer="b", now_ms=lambda: 1
    )
    writer.look()


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
def stopped(pid: int) -> Iterator[None]:
    """The process group of a command stands still."""
    group = os.getpgid(pid)
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


def await_batches(watch: LogWatch) -> None:
    """Wait until it has committed some more."""
    newest = watch.look().committed or 0
    while (watch.look().committed or 0) <= newest + 5:
        time.sleep(0.01)


def back(watch: LogWatch, fail: Callable[[], None]) -> float:
    """Seconds from a failure to the first new batch."""
    await_batches(watch)
    began = time.perf_counter()
    fail()
    newest = watch.look().committed or 0
    while (watch.look().committed or 0) <= newest:
        time.sleep(0.01)
    return time.perf_counter() - began


def to_first_batch(folder: Path) -> list[Figure]:
    spark = find_default_spark()
    (folder / "conf").mkdir(parents=True)
    (folder / "conf/spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in make_small_conf().items())
    )
    (folder / "app.py").write_text(APP)
    env = {"PYSPARK_PYTHON": str(spark.python), "SPARK_HOME": str(spark.home), "SPARK_CONF_DIR": str(folder / "conf")}

    def command(checkpoint: str) -> list[str]:
        return submit_command(folder / "app.py", [str(folder / checkpoint)], environment=spark, conf={})

    by_hand = ByHand(command("hand"), {**os.environ, **env})
    query = ConfiguredQuery(name="rows", checkpoint=str(folder / "run"))
    pipeline = Pipeline(name="benchmark", command=tuple(command("run")), queries=(query,), env=env)
    supervisors: list[Supervisor] = []
    prepared = replace(prepare(pipeline), log=folder / "app.log")
    thread = threading.Thread(
        target=lambda: supervise(prepared, tell=lambda _: None, on_supervisor=supervisors.append), daemon=True
    )
    (run_watch,) = prepared.watches.values()
    hand_watch = LogWatch(parse_location(str(folder / "hand")))
    times: dict[str, list[float]] = {"hand": [], "run": []}

    def supervised_pid() -> int:
        child = supervisors[0].child
        assert child is not None
        return child.pid

    try:
        thread.start()
        await_batches(run_watch)
        for _ in range(KILLS):
            with stopped(supervised_pid()):
                times["hand"].append(back(hand_watch, by_hand.restart))
            with stopped(by_hand.pid):
                times["run"].append(back(run_watch, lambda: os.kill(supervised_pid(), signal.SIGKILL)))
    finally:
        by_hand.kill()
        if supervisors:
            supervisors[0].stop()
            thread.join()
    hand, supervised = statistics.median(times["hand"]), statistics.median(times["run"])
    return [
        Figure("failure to first new batch, restarted by hand at once", hand, "s"),
        Figure("failure to first new batch, lastgood run", supervised, "s"),
        Figure("failure to first new batch, run / by hand", supervised / hand, "ratio", BUDGET_RATIO),
    ]


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="lastgood-benchmark-") as folder:
        figures = [*restarting(Path(folder) / "restarts"), *to_first_batch(Path(folder) / "drivers")]
    return print_figures(figures)


if __name__ == "__main__":
    sys.exit(main())
