"""The answer to "what would Spark do": values only. Pure."""

from __future__ import annotations

import enum

from lastgood.frozen import dataclass
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.values import JsonValue, make_form


class Outcome(enum.Enum):
    """What Spark does when it is started on a checkpoint as it stands."""

    STARTS = "starts"
    """Begins at batch 0: there is nothing to resume."""
    RESUMES = "resumes"
    """Plans a new batch; nothing runs twice."""
    RERUNS = "reruns"
    """Runs the newest planned batch again, with its recorded ranges."""
    FAILS = "fails"
    """Stops with an error and commits no batch."""
    FAILS_AFTER_SINK = "fails_after_sink"
    """Sends an old batch through the sink again and only then stops."""


class SinkCalled(enum.Enum):
    """Whether the sink, or the user's function, was called before the query stopped."""

    NO = "no"
    MAYBE = "maybe"
    """The failure is in a task: user code may have run."""
    YES = "yes"


class StartStage(enum.IntEnum):
    """How far a start gets before an error stops it."""

    START = 0
    """No batch was planned: within `start()`, or while the logs are read."""
    PLANNED = 1
    """The batch stands in the offset log, and its sink was not called."""
    TASK = 2
    """In a task of the batch."""
    SINK = 3
    """When the sink notes down what it has written."""
    COMMIT = 4
    """When the batch is to be committed, after its sink."""


@dataclass(frozen=True, slots=True)
class Stop:
    """An error that ends the query."""

    stage: StartStage
    error: str
    """A literal part of Spark's message."""
    subject: str
    """The file, partition or table that causes it."""
    because: str
    """One line for a person."""


class StoppedError(Exception):
    """Ends the walk through a start; it never leaves the prediction."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.error)
        self.stop = stop


@dataclass(frozen=True, slots=True)
class Restart(JsonValue):
    """What Spark of one version will do."""

    json = make_form(
        "spark outcome batch error next_error leaves_orphan sink_called because subject=stop.subject unknowns",
        texts="spark",
    )
    """The object `restart` of `diagnose --format json`."""

    spark: SparkVersion
    outcome: Outcome
    batch: int | None
    """The first batch that it runs or tries to run; None if it stops before it knows one."""
    because: str
    """One line for a person."""
    stop: Stop | None = None
    """What ends the query; None unless it fails."""
    next_stop: Stop | None = None
    """What ends the query at the batch after the first: the first is skipped by a sink and makes no state for it, or
    Kafka no longer serves what it is to read."""
    leaves_orphan: bool = False
    """Whether a new batch will have been planned before it fails: that plan outlives its cause."""
    sink_called: SinkCalled = SinkCalled.NO
    unknowns: tuple[str, ...] = ()
    """What could not be known and may change the answer; one line each."""
    if_asynchronous: Restart | None = None
    """What it will do if the query tracks its progress asynchronously, where no file tells; also told as an unknown."""

    @property
    def error(self) -> str | None:
        """A literal part of Spark's message."""
        return self.stop.error if self.stop else None

    @property
    def next_error(self) -> str | None:
        """The same for the batch after it."""
        return self.next_stop.error if self.next_stop else None
