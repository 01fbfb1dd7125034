"""The Spark job of a load: started, followed, and its end told."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lastgood.spark
from lastgood.errors import ExtraMissingError, LastgoodError, Retry, UsageError
from lastgood.failures.driver_log import read_driver_log
from lastgood.failures.lack import TRANSIENT, explain_lack
from lastgood.frozen import dataclass
from lastgood.lab.jars import fetch_jars
from lastgood.lab.s3a import is_on_s3, make_s3a_conf
from lastgood.lab.spark import QUICK_COMPILER, SPARKS_WITH_JARS, SparkEnvironment, find_default_spark, submit
from lastgood.load.begun import read_end
from lastgood.load.going_on import make_table_error
from lastgood.load.others import make_other_load_error
from lastgood.load.specification import LoadFormat, LoadNotComparableError, LoadSpec, TableTakenError
from lastgood.notes import read_json
from lastgood.process.java import Java, find_java
from lastgood.process.told import find_last_line, follow, place_log
from lastgood.sinks.kind import OwnRows
from lastgood.spark.load_session import is_of_release
from lastgood.storage.reading import Location, Storage, parse_location
from lastgood.values import JsonValue

_JOB = Path(lastgood.spark.__file__).parent / "load_main.py"
SPARKS_OF_LOADS = ("4.2", "4.3")
"""The Sparks of which it was shown that a load gives the rows that their own readers give."""
SPARKS_OF_DELTA_LOADS = ("4.2",)
"""Those of them for which there is a Delta."""
_CONF = {
    "spark.master": "local[*]",
    "spark.driver.memory": "2g",
}
_JAVA_OPTIONS = "-XX:+UseParallelGC"  # not those of a small session: it works for as long as there is something left
_PARSED_FEW = 64 * 1024 * 1024
"""Bytes; of more it pays that Java finds out how Spark makes rows of them quickly, though it begins the later."""
_POSTGRESQL, _DRIVER = "jdbc:postgresql:", "postgresql"
"""Of which database the driver comes by itself, and in which set of JVM parts."""
_S3A = "s3a"
"""The set of JVM parts with which Spark reaches S3."""
_CLASS_PATH = "spark.driver.extraClassPath"
"""Java looks for the driver of a database here alone, if its class is not named."""


class LoadFailedError(LastgoodError):
    """The Spark job of a load ended with an error; what was loaded so far stays, and the same command goes on."""

    condition = "LOAD_FAILED"
    exit_code = 93
    retry = Retry.AFTER_CHANGE


class LoadInterruptedError(LoadFailedError):
    """The Spark job of a load ended, since a service did not answer or a process was lost; the same command goes on."""

    condition = "LOAD_INTERRUPTED"
    exit_code = 97
    retry = Retry.LATER


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSink(JsonValue):
    """Where the rows go."""

    kind: str
    """As the table of sinks names it."""
    format: str
    """As Spark names it."""
    location: str
    widening: Mapping[str, str]
    """Options of its writer for a load that has got columns since it began."""
    marking: tuple[str, str] | None
    """Options of its writer for who writes, and as which batch; None: it knows none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadQuestion:
    """What the job is asked."""

    spec: LoadSpec
    checkpoint: str
    chunk: int
    """Bytes; of a table rows."""
    sink: LoadSink | None
    """None: to the program that asks."""
    quarantine: LoadSink | None = None
    """Where records go that are not what the schema says; None: as the mode says."""
    evolves: bool
    """Whether it may get some now."""
    lease: int | None = None
    """By which other machines know who works on it; None where only this one reaches it."""
    parsed: int | None = None
    """Bytes of which Spark has to make rows, as far as that can be told."""
    jars: tuple[Path, ...] = ()
    """JVM parts of the user's, such as the driver of a database."""
    own: OwnRows | None = None
    """Its rows in the table, where they are to be compared with its files and nothing is to be loaded."""

    @property
    def uses_delta(self) -> bool:
        """Whether a table that Spark reads or writes is one of Delta."""
        sinks = filter(None, (self.sink, self.quarantine))
        return LoadFormat.DELTA.value in {self.spec.form.value, *(each.format for each in sinks)}

    def list_places(self) -> list[Location]:
        """Where Spark itself reads or writes; our own source, which reads the other files, gets to them without it."""
        tables = filter(None, (self.sink, self.quarantine))
        places = [self.checkpoint, *(each.location for each in tables)]
        if self.spec.is_read_by_spark:
            places += [each.location for each in self.spec.files]
        return list(map(parse_location, places))

    def to_question(self) -> dict[str, Any]:
        """What it reads."""
        own = {} if self.own is None else {"own": self.own.to_json()}
        sink = {} if self.sink is None else {"sink": self.sink.to_json()}
        quarantine = {} if self.quarantine is None else {"quarantine": self.quarantine.to_json()}
        return {
            **own,
            **sink,
            **quarantine,
            "spec": self.spec.to_json(),
            "checkpoint": self.checkpoint,
            "chunk": self.chunk,
            "evolves": self.evolves,
            "lease": self.lease,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress(JsonValue):
    """Where a load stands."""

    done: int
    """Bytes of all files that are read and committed; of a table rows."""
    size: int
    """Bytes of all files; of a table rows, as they were counted."""
    rows: int
    """Rows of this run so far."""
    chunks: int
    """Chunks of this run so far."""
    unit: str
    """Of `done` and `size`: `bytes`, `rows` or `versions`."""
    seconds: float
    """Since this run began to load."""
    per_second: float | None
    """So much of `done` came in a second of them; None before its first chunk."""
    seconds_left: float | None
    """How long the rest takes at this rate; None before its first chunk."""


@dataclass(slots=True)
class Follower:
    """Makes progress of what the job tells."""

    storage: Storage
    checkpoint: Location
    spec: LoadSpec
    heard: Sequence[Callable[[LoadProgress], None]]
    """Who is told of it."""
    check: Callable[[], None]
    """Raises an error if the load is not ours any more."""
    begun: int = 0
    """What was read and committed before."""
    clock: Callable[[], float] = time.monotonic
    size: int = 0
    """Of all that is loaded, as the job has found it when it began."""
    rows: int = 0
    chunks: int = 0
    began_at: float | None = None

    def take(self, told: Mapping[str, Any]) -> None:
        """Pass on where it begins, and that a chunk is committed.

        Raises:
            CheckpointHeldError: another machine has gone on with the load.
        """
        self.check()
        if "began" in told:
            self.size = told["began"]["size"]
            self.began_at = self.clock()
            self._tell_progress(self.begun)
        if "chunk" in told:
            self.rows += told["chunk"]["rows"]
            self.chunks += 1
            end = read_end(self.storage, self.checkpoint, told["chunk"]["batch"])
            self._tell_progress(self.spec.count_bytes_before(end.file, end.position))

    def _tell_progress(self, done: int) -> None:
        now = self.clock()
        seconds = now - (self.began_at or now)
        per_second = seconds_left = None
        if done > self.begun and seconds > 0:
            per_second = (done - self.begun) / seconds
            seconds_left = max(0, self.size - done) / per_second
        progress = LoadProgress(
            done=done,
            size=self.size,
            rows=self.rows,
            chunks=self.chunks,
            unit=self.spec.unit,
            seconds=round(seconds, 1),
            per_second=_show_rounded(per_second),
            seconds_left=_show_rounded(seconds_left),
        )
        for hear in self.heard:
            hear(progress)


def _show_rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


RunLoad = Callable[[LoadQuestion, Callable[[Mapping[str, Any]], None], Callable[[str], None]], None]
"""As `run_load`."""


def run_load(question: LoadQuestion, tell: Callable[[Mapping[str, Any]], None], say: Callable[[str], None]) -> None:
    """Let the job load what is not loaded yet.

    Args:
        question: What it is asked.
        tell: Gets what it tells: `{"began": …}` once, `{"chunk": …}` for each that is committed, `{"compared": …}`.
        say: Is told, in a few words, what takes time.

    Raises:
        UsageError: Spark does not take the schema.
        TableTakenError: the table is that of another query as well, which it cannot be.
        LoadNotComparableError: what was loaded cannot be compared.
        LoadFailedError: the job ended with an error.
        ExtraMissingError, JavaMissingError: a part is not there, or too old.
        StorageError: its log cannot be written (subclasses).
        LastgoodError: JVM parts cannot be had (subclasses).
    """
    environment, java = find_default_spark(), find_java(os.environ)
    if not is_of_release(environment.version, SPARKS_OF_LOADS):
        wanted = " or ".join(SPARKS_OF_LOADS)
        raise ExtraMissingError(extra="spark", module=f"pyspark {wanted}", needed_for="lastgood load")
    jars, conf = _collect_parts(question, environment, java, say)
    log = place_log("load.log")
    refused: list[Mapping[str, str]] = []

    def take(line: str) -> None:
        told = read_json(line)
        if "error" in told:
            refused.append(told["error"])
        else:
            tell(told)

    with tempfile.TemporaryDirectory(prefix="lastgood-load-") as folder:
        file, told = Path(folder) / "question.json", Path(folder) / "told.jsonl"
        file.write_text(json.dumps(question.to_question()))
        told.touch()
        with log.open("wb") as output:
            say("starting Spark")
            words = [str(file), str(told)]
            child = submit(
                _JOB,
                words,
                environment=environment,
                java=java,
                jars=jars,
                conf=conf,
                java_options=choose_java_options(question.parsed),
                output=output,
            )
        with child:
            ending = follow(child, told, take)
    if not ending.is_success:
        otherwise = {"kind": "failed", "found": f"the job ended with {ending}: {find_last_line(log)}"}
        error = refused[-1] if refused else otherwise
        if error["kind"] == "failed":
            error = _explain_lack(log) or error
        raise make_load_error(error, f"see {log}; the same command goes on from there", question.spec.table)


def _collect_parts(
    question: LoadQuestion, environment: SparkEnvironment, java: Java, say: Callable[[str], None]
) -> tuple[tuple[Path, ...], Mapping[str, str]]:
    """The JVM parts that the job needs, and the settings of its Spark."""
    jars: tuple[Path, ...] = ()
    conf = dict(_CONF)
    if question.uses_delta:
        if environment.jar_set is None:
            raise UsageError(
                "Delta is not known here for this Spark",
                found=f"pyspark {environment.version}",
                expected=f"pyspark {' or '.join(SPARKS_WITH_JARS)}",
                next=f"pip install pyspark=={SPARKS_WITH_JARS[-1]}",
            )
        jars = fetch_jars([environment.jar_set], java=java, progress=say)[environment.jar_set]
    if any(map(is_on_s3, question.list_places())):
        jars += fetch_jars([_S3A], java=java, progress=say)[_S3A]
        conf.update(make_s3a_conf(os.environ))
    drivers = list(question.jars)
    if question.spec.files[0].location.startswith(_POSTGRESQL):
        drivers += fetch_jars([_DRIVER], java=java, progress=say)[_DRIVER]
    if drivers:
        conf[_CLASS_PATH] = os.pathsep.join(map(str, [*jars, *drivers]))
    return jars, conf


def choose_java_options(parsed: int | None) -> str:
    """How the JVM compiles: once, where it begins the sooner by that, and has little to make rows of."""
    if parsed is None or parsed > _PARSED_FEW:
        return _JAVA_OPTIONS
    return f"{_JAVA_OPTIONS} {QUICK_COMPILER}"


def _explain_lack(log: Path) -> Mapping[str, str] | None:
    """What means did not suffice, by the log of the driver, which has every cause of an error."""
    with log.open("rb") as stream:
        return explain_lack(read_driver_log(stream).failure)


def make_load_error(error: Mapping[str, str], then: str, table: str | None = None) -> LastgoodError:
    """The error for what the job of a load has told.

    Args:
        error: Its `kind`, and what was `found`.
        then: What is to be done.
        table: Into which it loads; None: a program takes the rows.
    """
    kind, found = error["kind"], error["found"]
    if kind == "taken":
        return TableTakenError(
            "the table is not of this load alone",
            found=found,
            expected="a folder of its own, empty or absent when the load begins",
            effect="nothing was loaded",
            next="--to with another folder; a Delta table takes several loads",
        )
    if kind == "loaded":
        return make_other_load_error(found)
    if kind == "rows":
        return make_table_error(found)
    if kind == "compare":
        return LoadNotComparableError(found, "a table with the columns that were loaded")
    if kind in _REFUSED:
        sentence, told = _REFUSED[kind]
        return UsageError(sentence, found=found, **told)
    ended = LoadInterruptedError if kind == TRANSIENT else LoadFailedError
    return ended(
        "the load ended before everything was loaded",
        subject=table,
        found=found,
        effect="what was loaded so far stays",
        next=then,
    )


_REFUSED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "schema": ("Spark does not take the schema", {"expected": "DDL, such as 'id BIGINT, at TIMESTAMP'"}),
    "columns": (
        "a file has other columns than the load",
        {
            "expected": "files with the same columns, of types that a load reads",
            "next": "--evolve added to the same command, where there are more than before",
        },
    ),
    "widened": (
        "the table that is read has other columns than the load",
        {"expected": "those with which it began", "next": "--evolve added to the same command"},
    ),
    "count": (
        "how many rows a chunk had cannot be told",
        {"expected": "a table whose log has its last versions", "next": "--verify added to the same command"},
    ),
    "evolve": (
        "the columns of a load can only get more",
        {"expected": "those that it has, and others behind them"},
    ),
    "order": (
        "the table cannot be read by this column",
        {"expected": "one with a value in each row, of whole numbers or dates; if no database, of decimals, texts"},
    ),
    "apart": (
        "a column for corrupt records and a table for them contradict each other",
        {"expected": "--quarantine, or a schema with that column"},
    ),
    "header": (
        "the first line of a file is no header, but a record",
        {
            "expected": "names, since header=true is said",
            "effect": "nothing of it was loaded",
            "next": "--option header=false; if these are names, the same ones in --schema",
        },
    ),
    "mismatch": (
        "the records are not what the schema says",
        {
            "expected": "columns of the types that the files have, of CSV in their order",
            "effect": "nothing was written",
            "next": "--schema as the files are; with _corrupt_record STRING in it they are loaded as they are",
        },
    ),
}
"""What is wrong with what was asked for, by what the job tells: the sentence, and what else is said."""
