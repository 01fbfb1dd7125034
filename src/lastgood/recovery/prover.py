"""`plan --prove`: a plan is carried out on a copy of the logs, and real Spark shows what it does then."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import lastgood.spark
from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import (
    COMMITS,
    METADATA,
    OFFSETS,
    SOURCES,
    HadoopChecksumFile,
    LogFile,
    SparkChecksumFile,
    classify,
)
from lastgood.checkpoint.offsets import SourceLine
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import SourceOffset
from lastgood.errors import ExtraMissingError
from lastgood.failures.classify import classify_causes
from lastgood.failures.failure_class import FailureClass
from lastgood.frozen import dataclass
from lastgood.lab.jars import fetch_jars
from lastgood.lab.spark import JAVA_OPTIONS, SparkEnvironment, find_default_spark, make_quick_conf, submit
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import OpenQuery
from lastgood.planning.plan import Plan
from lastgood.planning.proof import Proof
from lastgood.planning.proving import Expected, expect_first_batch, find_contradiction, make_disproved_error
from lastgood.process.child import CommandEnd
from lastgood.process.java import Java, find_java
from lastgood.process.told import place_log
from lastgood.query.prediction.restart import Outcome
from lastgood.records.record import ChainedException
from lastgood.recovery.stubs import JVM_PARTS, NoStubError, Stub, make_stubs
from lastgood.redaction import redact_told
from lastgood.steps.shown import show_after
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.parallel import open_threads
from lastgood.storage.reading import Storage

Tell = Callable[[str], None]

_JOB = Path(lastgood.spark.__file__).parent / "proof_job.py"
_BATCH_SECONDS = 60
"""How long Spark may take to plan the batch: a broker that is gone is asked for three minutes."""
_JOB_SECONDS = 180.0
_ENTRIES = 200
"""How many entries of a log are copied: Spark looks at the newest two."""
_NOT_THE_PLANS = (FailureClass.TRANSIENT, FailureClass.RESOURCES, FailureClass.STOPPED_ON_PURPOSE)


@dataclass(frozen=True, slots=True)
class Prover:
    """A Spark on this machine. Make one with `Prover.here`."""

    environment: SparkEnvironment
    java: Java

    @classmethod
    def here(cls) -> Prover:
        """The installed pyspark, and the Java that it would run on.

        Raises:
            ExtraMissingError: there is no pyspark.
            JavaMissingError: there is no Java for it.
        """
        if find_spec("pyspark") is None:
            raise ExtraMissingError(extra="spark", module="pyspark", needed_for="plan --prove")
        return cls(find_default_spark(), find_java(os.environ))

    def prove(self, plan: Plan, found: OpenQuery, tell: Tell = lambda _: None) -> Plan:
        """The plan with its proof, or with the reason why there is none. Nothing is written but to a temporary folder.

        Args:
            plan: What is tried.
            found: What was seen of the query as it was made.
            tell: Is told, in a few words, what takes time.

        Raises:
            PlanDisprovedError: Spark did something else than the plan promises.
            JarsUnavailableError: the JVM parts for Kafka or Delta cannot be had.
            StorageError: the checkpoint cannot be read (subclasses).
        """
        then = show_after(found.storage, found.location, plan.steps)
        checkpoint = read_checkpoint(then, found.location, batches=BATCHES)
        try:
            sources = make_stubs(checkpoint, found, fail_on_data_loss=bool(plan.options.get("fail_on_data_loss", True)))
            told = self._tried(then, checkpoint, found, sources, tell)
        except NoStubError as error:
            return replace(plan, proof=Proof(is_proven=False, spark=self.environment.version, because=str(error)))
        return replace(plan, proof=_judge(plan, checkpoint, found, told))

    def _tried(
        self, then: Storage, checkpoint: Checkpoint, found: OpenQuery, sources: tuple[Stub, ...], tell: Tell
    ) -> Mapping[str, Any]:
        """What Spark did."""
        jars: tuple[Path, ...] = ()
        if any(source.format in JVM_PARTS for source in sources):
            jar_set = self.environment.jar_set
            if jar_set is None:
                raise NoStubError(f"the parts of Kafka and Delta for Spark {self.environment.version} are not known")
            jars = fetch_jars([jar_set], java=self.java, progress=tell)[jar_set]
        log = place_log("prove.log")
        with tempfile.TemporaryDirectory(prefix="lastgood-proof-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            tell("copying the logs")
            _copy(then, found, folder / "checkpoint")
            question, answer = folder / "spec.json", folder / "answer.json"
            told = [asdict(source) for source in sources]
            spec = {"checkpoint": str(folder / "checkpoint"), "sources": told, "seconds": _BATCH_SECONDS}
            question.write_text(json.dumps(spec))
            tell(f"starting Spark {self.environment.version} on the copy")
            ending = self._run([str(question), str(answer)], jars, _make_conf(checkpoint, folder), log)
            if not answer.exists():
                how = f"ended with {ending}" if ending else f"gave no answer within {_JOB_SECONDS:g} s"
                raise NoStubError(f"Spark {self.environment.version} {how}; see {log}")
            answered: Mapping[str, Any] = json.loads(answer.read_text())
            return answered

    def _run(
        self, arguments: list[str], jars: tuple[Path, ...], conf: Mapping[str, str], log: Path
    ) -> CommandEnd | None:
        folder = Path(arguments[0]).parent
        quick = make_quick_conf(self.environment, self.java, jars)[JAVA_OPTIONS]
        kept_here = f"-XX:-UsePerfData -Djava.io.tmpdir={folder}"
        with (
            log.open("wb") as output,
            submit(
                _JOB,
                arguments,
                environment=self.environment,
                java=self.java,
                jars=jars,
                conf={**conf, JAVA_OPTIONS: f"{quick} {kept_here}"},
                env={"TMPDIR": str(folder)},
                cwd=folder,
                output=output,
            ) as child,
        ):
            return child.wait(_JOB_SECONDS)


def _make_conf(checkpoint: Checkpoint, folder: Path) -> dict[str, str]:
    """Settings beside those of a small session: what the logs ask for, and a place for all that Spark writes."""
    conf = {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    commits = checkpoint.commits.entries.values()
    if any(isinstance(entry, CommitEntry) and entry.version > 1 for entry in commits):
        conf["spark.sql.streaming.stateStore.checkpointFormatVersion"] = "2"  # else 4.0 and 4.1 read no such entry
    newest = checkpoint.newest_offsets
    if newest is not None and newest.version > 1:
        conf["spark.sql.streaming.offsetLog.formatVersion"] = str(newest.version)
    return conf


def _copy(then: Storage, found: OpenQuery, folder: Path) -> None:
    """Copy the logs as the plan leaves them; not the state, which may be large, and which the stub has not."""
    paths = list(_list_paths(then, found))
    with open_threads(then) as pool:
        contents = pool.map(lambda path: then.read(found.location / path, limit=LOG_BYTES_MAX), paths)
        for path, content in zip(paths, contents, strict=True):
            if content is not None:
                file = folder / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
    folder.mkdir(exist_ok=True)


def _list_paths(then: Storage, found: OpenQuery) -> Iterator[str]:
    """Every file that Spark looks at; beside a file of an object store nobody looks at a `.crc`."""
    for path in (METADATA, f".{METADATA}.crc"):
        if found.seen.is_local or path == METADATA:
            yield path
    for log in (OFFSETS, COMMITS, SOURCES):
        paths = (f"{log}/{entry.name}" for entry in then.walk(found.location / log) or ())
        batches = {path: batch for path in paths if (batch := _parse_batch(path)) is not None}
        newest = max(batches.values(), default=0)
        for path, batch in batches.items():
            is_seen = found.seen.is_local or not path.endswith(".crc")
            if is_seen and (log == SOURCES or batch > newest - _ENTRIES):
                yield path


def _parse_batch(path: str) -> int | None:
    """The batch of an entry of a log, or of its checksum; None for any other file: its name may lead anywhere."""
    file = classify(path)
    if isinstance(file, HadoopChecksumFile | SparkChecksumFile):
        file = file.of
    return file.name.batch_id if isinstance(file, LogFile) else None


def _judge(plan: Plan, checkpoint: Checkpoint, found: OpenQuery, told: Mapping[str, Any]) -> Proof:
    """Whether Spark did what was promised."""
    spark, wanted = told["spark"], expect_first_batch(plan.promise, checkpoint)
    unproven = Proof(is_proven=False, spark=spark)
    if told["ended"] == "hangs":
        return replace(unproven, because=f"Spark {spark} planned no batch within {_BATCH_SECONDS} s")
    if told["ended"] == "failed":
        failure = classify_causes([ChainedException(**cause) for cause in told["causes"]])
        what = f"{failure.condition or failure.class_name}: {redact_told(failure.message)}"
        if failure.cls in _NOT_THE_PLANS:
            return replace(unproven, because=f"Spark {spark} could not try it: {what}")
        raise make_disproved_error(plan, spark, f"{what} ({failure.because})")
    is_rerun = plan.promise.outcome == Outcome.RERUNS.value
    if told["batch"] is None:
        seen = told.get("idle_at")
        if is_rerun or seen not in (None, wanted.batch):
            raise make_disproved_error(
                plan, spark, f"nothing: it took batch {seen} for the next one, and found nothing to read"
            )
        return Proof(is_proven=True, spark=spark, leaves_open=tuple(_list_left_open(plan, found, spark, wanted)))
    reads = [(_parse_offset(start), _parse_offset(end)) for start, end in told["sources"]]
    wrong = find_contradiction(wanted, told["batch"], reads)
    if wrong:
        raise make_disproved_error(plan, spark, wrong)
    return Proof(
        is_proven=True,
        spark=spark,
        batch=told["batch"],
        reads=tuple(wanted.reads()),
        leaves_open=tuple(_list_left_open(plan, found, spark, wanted, reads)),
    )


def _parse_offset(text: str | None) -> SourceOffset | None:
    return None if text is None else SourceLine("", text).offset


def _list_left_open(
    plan: Plan,
    found: OpenQuery,
    spark: str,
    wanted: Expected,
    reads: Sequence[tuple[SourceOffset | None, SourceOffset | None]] = (),
) -> Iterator[str]:
    """What the stub cannot know, and what Spark did not tell."""
    if found.seen.is_stateful:
        yield "the state: the stub keeps none"
    if plan.promise.outcome == Outcome.STARTS.value and (None in wanted.starts or not wanted.starts):
        yield "where the application begins: that is its own option, and no log tells it"
    elif wanted.batch == 0 and [start for start, _ in reads].count(None) > wanted.starts.count(None):
        yield "where batch 0 begins: the source has written it down, and Spark does not tell"
    if not spark.startswith(plan.promise.spark):
        yield f"what Spark {plan.promise.spark} does, for which the plan was made: Spark {spark} is installed"
    yield "the application itself: its sink, its transformations, its limits for one batch"
