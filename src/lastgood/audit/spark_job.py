"""The Spark job that compares source and sink: started, followed, and its answer read."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import lastgood.spark
from lastgood.errors import LastgoodError, Retry, UsageError
from lastgood.frozen import dataclass
from lastgood.lab.jars import fetch_jars
from lastgood.lab.spark import find_default_spark, submit
from lastgood.notes import read_json
from lastgood.process.child import Child
from lastgood.process.driver import prepare_launch
from lastgood.process.java import find_java
from lastgood.process.marked import follow
from lastgood.process.told import place_log
from lastgood.spark.audit import (
    MARK,
    Audit,
    AuditSpec,
)

_JOB = Path(lastgood.spark.__file__).parent / "audit_job.py"
_ANSWER_BYTES_MAX = 256 * 1024 * 1024
_LOCAL_CONF = {"spark.master": "local[*]", "spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "32"}


class SinkUnreadableError(LastgoodError):
    """The sink is not there, or Spark cannot read it as what it is said to be."""

    condition = "SINK_UNREADABLE"
    exit_code = 65
    retry = Retry.AFTER_CHANGE


class AuditFailedError(LastgoodError):
    """The Spark job that compares source and sink failed."""

    condition = "AUDIT_FAILED"
    exit_code = 66
    retry = Retry.LATER


class ColumnMissingError(UsageError):
    """The sink has no such column."""

    condition = "SINK_COLUMN_MISSING"


class ExpressionInvalidError(UsageError):
    """Spark does not understand an SQL expression."""

    condition = "SQL_INVALID"


@dataclass(frozen=True, slots=True)
class SparkSubmit:
    """How the job gets to Spark."""

    command: tuple[str, ...] = ()
    """Such as `spark-submit --master yarn`, in client deploy mode; empty: the pyspark of this Python, right here."""
    packages: str | None = None
    """Maven coordinates of Kafka's and the table's libraries, where that Spark has them not."""
    jars: str | None = None


def run_audit(
    spec: AuditSpec, *, spark: SparkSubmit | None = None, progress: Callable[[str], None] | None = None
) -> Audit:
    """Let a Spark job make one comparison; changes nothing.

    Args:
        spec: What is compared, as `make_audit_spec` finds it out.
        spark: Where the job runs.
        progress: Is told, in a few words, what is being done.

    Raises:
        UsageError: it names a column or SQL that does not exist (subclasses).
        SinkUnreadableError: the sink cannot be read.
        AuditFailedError: the Spark job failed.
        LastgoodError: Java, Python or JVM parts are not there (subclasses).
    """
    began = time.monotonic()
    result = _run_job(spec, spark or SparkSubmit(), progress or (lambda _: None))
    return Audit.of(result, spec, seconds=time.monotonic() - began)


def _run_job(spec: AuditSpec, spark: SparkSubmit, tell: Callable[[str], None]) -> Mapping[str, Any]:
    """What the job found."""
    log = place_log("verify.log")
    with tempfile.TemporaryDirectory(prefix="lastgood-verify-") as folder:
        question, answer = Path(folder) / "spec.json", Path(folder) / "answer.json"
        question.write_text(json.dumps(spec.to_json()))
        reader, writer = os.pipe()
        with os.fdopen(reader, errors="replace") as lines:
            with os.fdopen(writer, "wb") as output:
                child = _submit(spark, [str(question), str(answer)], output, tell)
            with child, log.open("w") as kept:
                tell("starting Spark")
                last = follow(lines, kept, MARK, lambda told: tell(_name_stage(told)))
                ending = child.wait()
        found = _read_answer(answer, log)
    if "result" in found:
        result: Mapping[str, Any] = found["result"]
        return result
    if "error" in found:
        raise _make_refused_error(found["error"], log)
    raise _make_failed_error(f"the job ended with {ending}: {last}" if last else f"the job ended with {ending}", log)


def _read_answer(answer: Path, log: Path) -> Mapping[str, Any]:
    """What the job wrote down; nothing if it did not come so far."""
    try:
        with answer.open("rb") as stream:
            found = read_json(stream.read(_ANSWER_BYTES_MAX))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _make_failed_error(f"its answer is not understood: {error}", log) from error
    return found if isinstance(found, Mapping) else {}


def _name_stage(told: str) -> str:
    try:
        found = read_json(told)
    except ValueError:  # a line of somebody else's that begins so
        return told.strip()
    if isinstance(found, Mapping) and "stage" in found:
        return str(found["stage"])
    return told.strip()


def _submit(spark: SparkSubmit, arguments: Sequence[str], output: IO[bytes], tell: Callable[[str], None]) -> Child:
    """Start the job on the Spark that is asked for, or on the one of this Python."""
    if spark.command:
        options = (*_make_option("--packages", spark.packages), *_make_option("--jars", spark.jars))
        launch = prepare_launch([*spark.command, *options, str(_JOB), *arguments], os.environ)
        return Child(launch.command, env=launch.env, output=output)
    environment, java = find_default_spark(), find_java(os.environ)
    conf = dict(_LOCAL_CONF)
    if spark.packages is None and spark.jars is None:
        if environment.jar_set is None:
            raise UsageError(
                f"the libraries of Kafka and Delta for Spark {environment.version} are not known",
                expected="their coordinates",
                next="--packages GROUP:ARTIFACT:VERSION,… added to the same command",
            )
        jars = fetch_jars([environment.jar_set], java=java, progress=tell)[environment.jar_set]
        return submit(_JOB, arguments, environment=environment, java=java, jars=jars, conf=conf, output=output)
    if spark.packages is not None:
        conf["spark.jars.packages"] = spark.packages
    if spark.jars is not None:
        conf["spark.jars"] = spark.jars
    return submit(_JOB, arguments, environment=environment, java=java, conf=conf, output=output)


def _make_option(name: str, value: str | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (name, value)


def _make_refused_error(error: Mapping[str, str], log: Path) -> LastgoodError:
    subject, found = error["subject"], error["found"]
    match error["kind"]:
        case "no_such_column":
            return ColumnMissingError(
                "the sink has no such column", found=subject, expected=f"one of {found}", next="--key NAME"
            )
        case "bad_expression":
            return ExpressionInvalidError("Spark does not understand the SQL", subject=subject, found=found)
        case "no_key":
            return UsageError(
                "a key is needed to tell the rows of this sink apart",
                found=f"the columns {found}",
                expected="columns topic, partition and offset, or a key",
                next="--key NAME, or --key 'NAME=SQL over the Kafka record'",
            )
        case "sink_unreadable":
            return SinkUnreadableError("the sink cannot be read", subject=subject, found=found)
    return _make_failed_error(found, log)


def _make_failed_error(found: str, log: Path) -> AuditFailedError:
    return AuditFailedError(
        "the Spark job that compares source and sink failed",
        found=found,
        effect="nothing is known about the sink",
        next=f"see {log}",
    )
