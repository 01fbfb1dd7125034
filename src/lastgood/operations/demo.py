"""`demo`: the main job on real input, killed in the middle of a batch, and every record counted at the end."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import LastgoodError
from lastgood.lab.examples import flights_folder
from lastgood.lab.jars import fetch_jars
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import default_spark, small_conf, submit_command
from lastgood.operations.run import prepare, supervise
from lastgood.operations.verify import verify_data
from lastgood.process.child import Child
from lastgood.process.java import find_java
from lastgood.spark.audit import Audit
from lastgood.supervise.config import Pipeline, Query
from lastgood.supervise.events import Ended, Event, Recovered, Started
from lastgood.supervise.loop import Progress, Supervisor

TOPIC = "flights"
PARTITIONS = 3
PATIENCE_SECONDS = 180.0
"""How long any one thing may take before the demo says that it failed."""
_POLL_SECONDS = 0.01
_BATCH_SECONDS = 1.2
"""About how long a batch takes here: a kill comes at a random instant of it."""

_BATCHES_PER_LIFE = 8
"""A driver is killed in its second to fourth batch, now and then a little later."""

_T = TypeVar("_T")


class DemoFailedError(LastgoodError):
    """The demo did not get as far as its audit."""

    condition = "DEMO_FAILED"
    exit_code = 79


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(Event):
    """Something that the demo itself did."""

    name: ClassVar[str] = "step"
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Killed(Event):
    """The driver was killed with SIGKILL."""

    name: ClassVar[str] = "killed"
    number: int
    pid: int
    batch: int


@dataclass(frozen=True, slots=True)
class Failure:
    """One kill, and what followed; times are seconds after it."""

    at: float
    """Unix time in seconds."""
    batch: int
    """Planned and not committed when the driver died."""
    detected_seconds: float
    restarted_seconds: float
    first_batch_seconds: float
    reread_offsets: int
    """Offsets of the batch that was run again."""


@dataclass(frozen=True, slots=True)
class Demo:
    """What the demo showed."""

    failures: tuple[Failure, ...]
    audit: Audit
    flights: int
    seconds: float
    folder: Path
    bootstrap: str

    @property
    def is_exact(self) -> bool:
        """True if every flight is in the table once."""
        return self.audit.is_exact and self.audit.source_records == self.flights

    def to_json(self) -> dict[str, Any]:
        """The object that `--format json` ends with."""
        return {
            "exact": self.is_exact,
            "flights": self.flights,
            "seconds": round(self.seconds, 1),
            "failures": [asdict(failure) for failure in self.failures],
            "audit": self.audit.to_json(),
            "folder": str(self.folder),
            "kafka": self.bootstrap,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is to happen."""

    flights: int = 100_000
    rate: int = 2_000
    """Flights a second."""
    kills: int = 3
    seed: int = 0
    """Decides the instants of the kills."""

    @property
    def batch_offsets(self) -> int:
        """`maxOffsetsPerTrigger`: so small that there are batches left for each kill to come into."""
        return max(1, self.flights // (_BATCHES_PER_LIFE * (self.kills + 1)))


def demo(
    script: Script,
    *,
    tell: Callable[[Event], None],
    folder: Path | None = None,
    keep: Callable[[Demo], None] | None = None,
) -> Demo:
    """Stream flights through Kafka and Spark into a Delta table, kill the driver again and again, count.

    Args:
        script: What is to happen.
        tell: Gets each event of the supervisor, and `Step` and `Killed`.
        folder: Work folder; by default a temporary one that is removed at the end.
        keep: Called with the result while broker and application still run.

    Raises:
        JavaMissingError, JarsUnavailableError, ExtraMissingError: what the demo needs is not there.
        DemoFailedError: something took too long, or ended that should not.
    """
    began = time.monotonic()
    with _work_folder(folder) as work, _stage(script, work, tell) as stage:
        failures = [stage.kill_in_a_batch(number + 1) for number in range(script.kills)]
        stage.await_all_committed()
        tell(_step("all flights are committed; counting them"))
        result = Demo(
            tuple(failures), stage.audit(), script.flights, time.monotonic() - began, work, stage.broker.bootstrap
        )
        if keep is not None:
            keep(result)
    return result


@contextlib.contextmanager
def _work_folder(given: Path | None) -> Iterator[Path]:
    """The folder that was given, else one that is removed at the end, unless its logs tell what failed."""
    work = given or Path(tempfile.mkdtemp(prefix="lastgood-demo-"))
    work.mkdir(parents=True, exist_ok=True)
    try:
        yield work
    except LastgoodError as error:
        with contextlib.suppress(OSError):  # what has begun leaves logs that tell why it failed
            work.rmdir()
        if isinstance(error, DemoFailedError):
            error.subject = error.subject or str(work)
        raise
    except KeyboardInterrupt:
        if given is None:
            shutil.rmtree(work)
        raise
    if given is None:
        shutil.rmtree(work)


@contextlib.contextmanager
def _stage(script: Script, work: Path, tell: Callable[[Event], None]) -> Iterator[_Stage]:
    """Broker, producer and supervised application; all end with the block."""
    default_spark()
    java = find_java(os.environ)
    jars = fetch_jars(["spark", "broker"], java=java, progress=lambda text: tell(_step(text)))
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(work / "kafka", java=java, jars=jars["broker"]))
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        tell(_step(f"Kafka answers at {broker.bootstrap}, topic {TOPIC} with {PARTITIONS} partitions"))
        stage = _Stage(script, work, broker, _application(script, work, broker, jars["spark"]), tell)
        stack.enter_context(stage.running())
        yield stage


def _application(script: Script, work: Path, broker: KafkaBroker, jars: tuple[Path, ...]) -> Pipeline:
    spark = default_spark()
    arguments = [
        *("--bootstrap-servers", broker.bootstrap, "--topic", TOPIC),
        *("--table", str(work / "table"), "--checkpoint", str(work / "checkpoint")),
        *("--max-offsets-per-trigger", str(script.batch_offsets), "--trigger", "0 seconds"),
    ]
    conf = work / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in small_conf(jars).items()))
    command = submit_command(flights_folder() / "flights_to_delta.py", arguments, environment=spark, conf={})
    return Pipeline(
        name="flights",
        command=tuple(command),
        queries=(Query(name="flights", checkpoint=str(work / "checkpoint"), sink=f"delta:{work / 'table'}"),),
        env={"PYSPARK_PYTHON": str(spark.python), "SPARK_HOME": str(spark.home), "SPARK_CONF_DIR": str(conf)},
    )


class _Stage:
    """The demo while it runs. The supervisor has a thread of its own; all else belongs to the caller's."""

    def __init__(
        self, script: Script, work: Path, broker: KafkaBroker, pipeline: Pipeline, tell: Callable[[Event], None]
    ) -> None:
        self.broker = broker
        self._script = script
        self._work = work
        self._tell = tell
        self._prepared = replace(prepare(pipeline), log=work / "flights.log")
        (self._watch,) = self._prepared.watches.values()
        self._random = random.Random(script.seed)  # noqa: S311 - instants, not secrets
        self._events: list[Event] = []
        self._supervisor: Supervisor | None = None
        self._failed: LastgoodError | None = None
        self._producer: Child | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Producer and supervised application, until the end of the block."""
        thread = threading.Thread(target=self._supervise, name="supervisor")
        with self._produce() as self._producer:
            thread.start()
            try:
                yield
            finally:
                if self._supervisor is not None:
                    self._supervisor.stop(signal.SIGTERM)
                thread.join()

    def kill_in_a_batch(self, number: int) -> Failure:
        """Kill the driver with SIGKILL in the middle of a batch, and follow it until it is back."""
        supervisor = self._await("a supervisor", lambda: self._supervisor)
        begin = self._watch.look().committed
        ahead = self._random.randint(1, 3)
        self._await("batches to commit", lambda: _committed_since(begin, self._watch.look()) >= ahead or None)
        seen = len(self._events)
        batch, killed_at = self._kill(supervisor, number)
        recovered = self._await_event(seen, Recovered)
        return Failure(
            at=killed_at,
            batch=batch,
            detected_seconds=round(self._await_event(seen, Ended).at - killed_at, 2),
            restarted_seconds=round(self._await_event(seen, Started).at - killed_at, 2),
            first_batch_seconds=round(recovered.at - killed_at, 2),
            reread_offsets=self._offsets_of(batch) if recovered.rerun else 0,
        )

    def _kill(self, supervisor: Supervisor, number: int) -> tuple[int, float]:
        """Find the driver inside a batch and kill it; again, should the batch commit just before the signal."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self._check()
            batch, child = _in_flight(self._watch.look()), supervisor.child
            if batch is None or child is None:
                time.sleep(_POLL_SECONDS)
                continue
            time.sleep(self._random.uniform(0, _BATCH_SECONDS))
            if _in_flight(self._watch.look()) != batch:
                continue
            killed_at = time.time()
            os.kill(child.pid, signal.SIGKILL)
            self._tell(Killed(at=killed_at, number=number, pid=child.pid, batch=batch))
            child.wait()
            if _in_flight(self._watch.look()) == batch:
                return batch, killed_at
            self._tell(_step(f"batch {batch} was committed just before: once more"))
        raise _too_long("a batch to kill the driver in")

    def await_all_committed(self) -> None:
        """Wait until every flight has been produced and its batch is committed."""
        producer = self._producer
        if producer is None:
            raise _too_long("a producer")
        ending = self._await("the producer to finish", lambda: producer.ending)
        if not ending.is_success:
            raise DemoFailedError(
                "the producer failed",
                subject=str(self._work / "producer.log"),
                found=str(ending),
                expected="exit code 0",
            )
        latest = self.broker.latest_offsets(TOPIC)
        self._await("the last batch to commit", lambda: self._committed_offsets() == latest or None)

    def audit(self) -> Audit:
        """Compare every record of the topic with the table."""
        return verify_data(
            str(self._work / "checkpoint"),
            kafka=self.broker.bootstrap,
            sink=f"delta:{self._work / 'table'}",
            keys=["id"],
            compare=["partition", "offset"],
            progress=lambda text: self._tell(_step(text)),
        )

    def _supervise(self) -> None:
        try:
            supervise(self._prepared, tell=self._note, on_supervisor=self._take)
        except LastgoodError as error:
            self._failed = error

    def _take(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor

    def _note(self, event: Event) -> None:
        self._events.append(event)
        self._tell(event)

    def _produce(self) -> Child:
        script = self._script
        command = [sys.executable, str(flights_folder() / "produce.py"), "--bootstrap-servers", self.broker.bootstrap]
        command += ["--topic", TOPIC, "--rate", str(script.rate), "--limit", str(script.flights)]
        self._tell(_step(f"producing {script.flights:,} flights, {script.rate:,} a second"))
        with (self._work / "producer.log").open("wb") as log:
            return Child(command, output=log)

    def _committed_offsets(self) -> dict[int, int] | None:
        committed = self._watch.look().committed
        return None if committed is None else self._end_offsets(committed)

    def _offsets_of(self, batch: int) -> int:
        before = self._end_offsets(batch - 1) if batch else {}
        return sum(end - before.get(partition, 0) for partition, end in self._end_offsets(batch).items())

    def _end_offsets(self, batch: int) -> dict[int, int]:
        """Partition → first offset after the batch."""
        entry = parse_offset_entry((self._work / "checkpoint" / "offsets" / str(batch)).read_bytes())
        offset = entry.sources[0].offset if isinstance(entry, OffsetEntry) else None
        if not isinstance(offset, KafkaOffset):
            raise DemoFailedError(f"batch {batch} of the checkpoint cannot be read", found=str(entry))
        return dict(offset.topics[TOPIC])

    def _await_event(self, seen: int, kind: type[_T]) -> _T:
        return self._await(
            f"'{kind.__name__.lower()}'",
            lambda: next((event for event in self._events[seen:] if isinstance(event, kind)), None),
        )

    def _await(self, what: str, get: Callable[[], _T | None]) -> _T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if (got := get()) is not None:
                return got
            self._check()
            time.sleep(_POLL_SECONDS)
        raise _too_long(what)

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed


def _in_flight(progress: Progress) -> int | None:
    """The batch that is planned and not committed."""
    planned, committed = progress.planned, progress.committed
    return planned if planned is not None and planned > (-1 if committed is None else committed) else None


def _committed_since(begin: int | None, now: Progress) -> int:
    return (-1 if now.committed is None else now.committed) - (-1 if begin is None else begin)


def _step(sentence: str) -> Step:
    return Step(at=time.time(), sentence=sentence)


def _too_long(what: str) -> DemoFailedError:
    return DemoFailedError(
        f"waited {PATIENCE_SECONDS:.0f} s for {what}",
        effect="nothing was counted",
    )
