"""Where scenes of failure play: a real broker, a topic of flights, and an application that lastgood supervises.

Example::

    with open_stage(Path("work"), tell=print) as stage:
        stage.send(20_000)
        mark = stage.application.start(Policy(), limit=1_000)
        stage.application.kill_in_a_batch(random.Random(7))
        stage.application.await_event(Recovered, mark)
        stage.settle()
        stage.application.stop()
        assert count(stage).is_as_said
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lastgood.checkpoint.initial import InitialOffset, parse_initial_offset
from lastgood.checkpoint.layout import OFFSETS, SOURCES
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.demo.application import Application, DemoFailedError
from lastgood.demo.events import SceneStep
from lastgood.frozen import dataclass
from lastgood.journal.incident import Incident
from lastgood.journal.incidents import find_last_incident
from lastgood.lab.class_archive import make_class_archive
from lastgood.lab.examples import locate_flights
from lastgood.lab.jars import fetch_jars
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import find_default_spark, make_small_conf, submit_command
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.positions import StartChoice
from lastgood.operations.recover import recover
from lastgood.planning.plan import Plan
from lastgood.planning.price import Waiver
from lastgood.process.child import Child
from lastgood.process.java import Java, find_java
from lastgood.recovery.decision import Decision
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.config import ConfiguredQuery, Kafka, Pipeline
from lastgood.settings.target import Target
from lastgood.sources.kafka.ranges import Ranges, find_planned_ranges
from lastgood.storage.reading import open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.supervise.class_archives import CLASSES_JOB
from lastgood.supervise.events import Event

TOPIC = "flights"
PARTITIONS = 3
FLIGHTS_MAX = 336_776
"""So many there are."""

_APPLICATION = "flights_to_delta.py"
_START, _OPTIONS = "start.sh", "options"
_OFFSET_COLUMNS = "partition,offset"
# Exit code 0: no process of this machine runs the application on this checkpoint.
_IS_DEAD = """
import os, psutil, sys
words = set(sys.argv[1:])
found = [each.pid for each in psutil.process_iter(["cmdline"]) if words <= set(each.info["cmdline"] or ())]
sys.exit(f"alive: {found}" if found != [os.getpid()] else 0)
"""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a stage is built of."""

    java: Java
    jars: Mapping[str, tuple[Path, ...]]
    """JVM parts by the names of their sets, `spark` and `broker`."""
    conf: Mapping[str, str]
    """Spark's settings."""


def set_up(tell: Callable[[Event], None] = lambda _: None) -> Parts:
    """See that all is there that a stage needs; what is missing is made or downloaded, once, which takes minutes.

    Raises:
        JavaMissingError, JarsUnavailableError, ExtraMissingError: it cannot be had.
    """

    def progress(text: str) -> None:
        tell(_make_step(text))

    spark, java = find_default_spark(), find_java(os.environ)
    jars = fetch_jars(["spark", "broker"], java=java, progress=progress)
    archive = make_class_archive(CLASSES_JOB, environment=spark, java=java, jars=jars["spark"], progress=progress)
    return Parts(java, jars, make_small_conf(jars["spark"], archive=archive))


@contextlib.contextmanager
def open_stage(
    folder: Path,
    *,
    tell: Callable[[Event], None] = lambda _: None,
    conf: Mapping[str, str] | None = None,
    parts: Parts | None = None,
) -> Iterator[DemoStage]:
    """A stage with a broker that runs, a topic without records, and an application that was never started.

    Args:
        folder: For all that it writes; empty, or not there yet.
        tell: Gets each event of the supervisor, and `Step` and `Killed`.
        conf: Spark's settings beside and above those of the parts.
        parts: What `set_up` gave; it is called if None.

    Raises:
        JavaMissingError, JarsUnavailableError, ExtraMissingError: as `set_up`.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    parts = parts or set_up(tell)
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(folder / "kafka", java=parts.java, jars=parts.jars["broker"]))
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        tell(_make_step(f"Kafka answers at {broker.bootstrap}, topic {TOPIC} with {PARTITIONS} partitions"))
        pipeline = _make_pipeline(folder, broker, parts.java, {**parts.conf, **(conf or {})})
        application = Application(pipeline, options=folder / _OPTIONS, log=folder / "flights.log", tell=tell)
        stack.callback(application.close)
        stage = DemoStage(folder, broker, application)
        stack.callback(stage.close)
        yield stage


def _make_pipeline(folder: Path, broker: KafkaBroker, java: Java, conf: Mapping[str, str]) -> Pipeline:
    """The flights application as it stands among the examples, and what a `lastgood.toml` would say of it."""
    spark = find_default_spark()
    checkpoint, table = str(folder / "checkpoint"), str(folder / "table")
    arguments = ["--bootstrap-servers", broker.bootstrap, "--topic", TOPIC, "--trigger", "200 milliseconds"]
    arguments += ["--table", table, "--checkpoint", checkpoint]
    application = locate_flights() / _APPLICATION
    command = submit_command(application, arguments, environment=spark, conf=conf)
    start = folder / _START
    start.write_text(f"exec {shlex.join(command)} $(cat {shlex.quote(str(folder / _OPTIONS))})\n")
    query = ConfiguredQuery(
        name=TOPIC,
        checkpoint=checkpoint,
        sink=f"delta:{table}",
        topics=(TOPIC,),
        offset_columns=_OFFSET_COLUMNS,
    )
    return Pipeline(
        name=TOPIC,
        command=("sh", str(start)),
        queries=(query,),
        env={
            "JAVA_HOME": str(java.home),
            "PYSPARK_PYTHON": str(spark.python),
            "SPARK_HOME": str(spark.home),
            "SPARK_CONF_DIR": str(spark.home / "conf"),  # not that of the shell
        },
        kafka=Kafka(bootstrap=broker.bootstrap),
        driver_check=(sys.executable, "-I", "-c", _IS_DEAD, str(application), checkpoint),
    )


class DemoStage:
    """What scenes are made of; `open_stage` gives it. All methods belong to one thread."""

    def __init__(self, folder: Path, broker: KafkaBroker, application: Application) -> None:
        """Know the parts."""
        self.folder = folder
        self.broker = broker
        """To be stopped, killed and started again as one likes."""
        self.application = application
        self.sent = 0
        """How many flights were ever sent to the topic, or are on their way."""
        self._sending: Child | None = None

    @property
    def checkpoint(self) -> Path:
        """The checkpoint of the query."""
        return self.folder / "checkpoint"

    @property
    def mirror(self) -> Path:
        """What lastgood keeps beside it."""
        return self.folder / f"checkpoint{WORK_SUFFIX}"

    @property
    def table(self) -> Path:
        """The Delta table."""
        return self.folder / "table"

    @property
    def evidence(self) -> EvidenceOptions:
        """Where lastgood looks."""
        return EvidenceOptions(sinks=(f"delta:{self.table}",), kafka=self.broker.bootstrap, topics=(TOPIC,))

    def send(self, count: int, *, rate: float = 0.0) -> None:
        """Begin to send the next flights of the year to the topic, once those before are there.

        Args:
            count: How many.
            rate: How many a second; 0: as fast as it goes.

        Raises:
            DemoFailedError: there are not so many, or those before could not be sent.
        """
        self.await_sent()
        if self.sent + count > FLIGHTS_MAX:
            raise DemoFailedError(
                "there are no more flights", found=f"{self.sent + count:,}", expected=f"{FLIGHTS_MAX:,}"
            )
        self._sending = self._producer(TOPIC, self.sent + 1, count, rate)
        self.sent += count

    def await_sent(self) -> None:
        """Wait until Kafka has acknowledged all that was to be sent.

        Raises:
            DemoFailedError: it did not.
        """
        producer, self._sending = self._sending, None
        if producer is not None:
            self._await_end(producer)

    def send_again(self, topic: str) -> None:
        """Send every flight that was ever sent to another topic, which then holds the same records at the same offsets.

        A flight goes to the partition of its carrier, and one producer keeps the order.

        Raises:
            DemoFailedError: they do not end at the same offsets.
        """
        self.await_sent()
        self.broker.create_topic(topic, partitions=PARTITIONS)
        self._await_end(self._producer(topic, 1, self.sent, 0.0))
        found, expected = self.broker.latest_offsets(topic), self.broker.latest_offsets(TOPIC)
        if found != expected:
            raise DemoFailedError("the archive is none", subject=topic, found=str(found), expected=str(expected))

    def settle(self) -> None:
        """Wait until all that was to be sent is in Kafka, and in a committed batch."""
        self.await_sent()
        latest = self.broker.latest_offsets(TOPIC)

        def is_read() -> bool | None:
            with contextlib.suppress(DemoFailedError, FileNotFoundError):  # under a repair's seal nothing is a plan
                return self.committed() == latest or None
            return None

        self.application.await_that("the last batch to commit", is_read)

    def committed(self) -> dict[int, int]:
        """Partition → first offset that no committed batch has read; empty without one."""
        batch = self.application.progress.committed
        if batch is None:
            return {}
        return self.end_of(batch)

    def end_of(self, batch: int) -> dict[int, int]:
        """Partition → first offset after a planned batch.

        Raises:
            DemoFailedError: its plan cannot be read.
        """
        entry = parse_offset_entry((self.checkpoint / OFFSETS / str(batch)).read_bytes())
        return self._of(entry.sources[0].offset if isinstance(entry, OffsetEntry) else entry, batch)

    def read_by(self, batch: int) -> Ranges:
        """What a planned batch reads."""
        if batch > 0:
            start = self.end_of(batch - 1)
        else:
            initial = parse_initial_offset((self.checkpoint / SOURCES / "0" / "0").read_bytes())
            start = self._of(initial.offset if isinstance(initial, InitialOffset) else initial, batch)
        return find_planned_ranges({TOPIC: start}, {TOPIC: self.end_of(batch)})

    def lose_checkpoint(self, *, mirror_too: bool = False) -> None:
        """Delete the checkpoint, as somebody does who wants to begin afresh; also all that lastgood keeps beside it."""
        shutil.rmtree(self.checkpoint)  # safe: of the demo's own query, in a work folder that was empty at first
        if mirror_too:
            shutil.rmtree(self.mirror)  # safe: it copies that query's logs, and nothing else

    def expire(self, before: Mapping[int, int]) -> Ranges:
        """Let Kafka delete all records below these offsets, by partition; what of it no committed batch has read."""
        self.broker.delete_records(TOPIC, before)
        unread = {each: offset for each, offset in self.committed().items() if each in before}
        return find_planned_ranges({TOPIC: unread}, {TOPIC: before})

    def plan(self, goal: str = "resume", where: StartChoice | None = None) -> Plan:
        """What `lastgood plan` says; nothing is changed.

        Raises:
            LastgoodError: as `make_plan`.
        """
        return make_plan(Target(str(self.checkpoint)), PlanOptions(goal, where or StartChoice(), self.evidence))

    def recover(self, goal: str, where: StartChoice | None = None, *, accept: tuple[Waiver, ...] = ()) -> Decision:
        """What somebody does with `lastgood recover` before the start; the driver is dead, since we have ended it.

        Raises:
            DemoFailedError: the application runs.
            LastgoodError: as `recover`.
        """
        if self.application.is_running:
            raise DemoFailedError("the application runs", expected="a stop before the repair")
        options = PlanOptions(goal, where or StartChoice(), self.evidence, accept)
        return recover(Target(str(self.checkpoint)), options, driver_is_dead=True)

    def incident(self) -> Incident:
        """What lastgood has written down last of a failure, and of what it did about it.

        Raises:
            DemoFailedError: nothing.
        """
        location = parse_location(str(self.checkpoint))
        found = find_last_incident(open_storage(location), location)
        if found is None:
            raise DemoFailedError("lastgood has written nothing down", subject=str(self.mirror))
        return found

    def close(self) -> None:
        """End what still sends."""
        producer, self._sending = self._sending, None
        if producer is not None:
            producer.stop()

    def _of(self, offset: object, batch: int) -> dict[int, int]:
        if not isinstance(offset, KafkaOffset):
            raise DemoFailedError(f"batch {batch} of the checkpoint cannot be read", found=str(offset))
        return dict(offset.topics[TOPIC])

    def _producer(self, topic: str, first: int, count: int, rate: float) -> Child:
        command = [sys.executable, str(locate_flights() / "produce.py"), "--bootstrap-servers", self.broker.bootstrap]
        command += ["--topic", topic, "--rate", str(rate), "--start", str(first), "--limit", str(count)]
        with self._log.open("ab") as log:
            return Child(command, output=log)

    @property
    def _log(self) -> Path:
        return self.folder / "producer.log"

    def _await_end(self, producer: Child) -> None:
        with producer:
            ending = self.application.await_that("the producer to finish", lambda: producer.ending)
        if not ending.is_success:
            raise DemoFailedError(
                "the producer failed", subject=str(self._log), found=str(ending), expected="exit code 0"
            )


def _make_step(sentence: str) -> SceneStep:
    return SceneStep(at=time.time(), sentence=sentence)
