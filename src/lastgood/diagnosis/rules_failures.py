"""What the log of a driver says about the end of a query. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.rules_state import make_recompute_command, make_way_back
from lastgood.errors import format_command_line
from lastgood.failures.classify import Failure
from lastgood.failures.failure_class import FailureClass
from lastgood.failures.of_checkpoint import STATE_SCHEMA
from lastgood.query.observation import Observation


def _make_condition(cls: FailureClass, severity: Severity, title: str, story: str) -> Condition:
    return Condition(f"FAILURE_{cls.name}", severity, title, story)


_BY_CLASS = {
    FailureClass.TRANSIENT: _make_condition(
        FailureClass.TRANSIENT,
        Severity.WARNING,
        "the query failed of something that passes",
        """\
A broker, a storage or the network did not answer in time. Nothing is wrong with the checkpoint: the same start can work
in a while. If it goes on, look at the service that is named.""",
    ),
    FailureClass.CONCURRENT_RUN: _make_condition(
        FailureClass.CONCURRENT_RUN,
        Severity.ERROR,
        "another driver works on the checkpoint",
        """\
Two drivers wrote the same log, and the one that came second was ended. Where the sink does not go by batch numbers, the
batch in flight may have been written by both.

The same message comes from commits that are ahead of offsets, and a similar one from a left-over `.crc`: then there is
no second driver, and the other findings say so. Else find the other one and stop it before this one is started.""",
    ),
    FailureClass.LOG_DAMAGED: _make_condition(
        FailureClass.LOG_DAMAGED,
        Severity.ERROR,
        "a file of the checkpoint's logs stopped the query",
        """\
An entry of the offset log, the commit log, a source's or a sink's log, or `metadata` is missing or cannot be read.
Starting again does not help. The other findings name the file and what is wrong with it now.""",
    ),
    FailureClass.STATE_DAMAGED: _make_condition(
        FailureClass.STATE_DAMAGED,
        Severity.ERROR,
        "a state store could not be loaded",
        """\
A task could not load its part of the state. Starting again does not help unless the storage was to blame. The other
findings name the files that are missing or damaged now.""",
    ),
    FailureClass.CODE_INCOMPATIBLE: _make_condition(
        FailureClass.CODE_INCOMPATIBLE,
        Severity.ERROR,
        "the code does not go with the checkpoint",
        """\
The application or its settings were changed in a way that the checkpoint does not allow: other sources, another schema
of the state, other operators. The code before the change goes on from here; the new code needs its state made anew
(`lastgood plan CHECKPOINT --goal recompute` for windows, `lastgood rebuild CHECKPOINT --new-code -- COMMAND` for any
other query), or a checkpoint of its own.""",
    ),
    FailureClass.POISON_DATA: _make_condition(
        FailureClass.POISON_DATA,
        Severity.ERROR,
        "user code failed on the data of the batch",
        """\
A function of the application, or an expression, raised an error on what the batch holds. The batch stays planned, so
every start fails in the same way until the code copes with the record, or the record's range is left out.""",
    ),
    FailureClass.SOURCE_EXPIRED: _make_condition(
        FailureClass.SOURCE_EXPIRED,
        Severity.ERROR,
        "what was to be read is no longer there",
        """\
The source has deleted records or files that the batch was to read. The failure leaves the plan behind, which fails at
every start even after the cause is gone: the plan has to go first, then it can be judged what is lost.""",
    ),
    FailureClass.SOURCE_RECREATED: _make_condition(
        FailureClass.SOURCE_RECREATED,
        Severity.ERROR,
        "the source is another one of the same name, or gone",
        """\
A topic or table was deleted, and perhaps created again. The position of the query means nothing in the new one. The
failure may leave a plan behind that fails at every start.""",
    ),
    FailureClass.RESOURCES: _make_condition(
        FailureClass.RESOURCES,
        Severity.ERROR,
        "memory, disk or slots did not suffice",
        """\
The batch is planned and runs again with the same range: smaller limits do not make it smaller. Give it more, or have it
planned anew with today's limits: `lastgood plan TARGET --goal replan` says what that costs.""",
    ),
    FailureClass.STOPPED_ON_PURPOSE: _make_condition(
        FailureClass.STOPPED_ON_PURPOSE,
        Severity.INFO,
        "somebody ended the query",
        """\
A signal, `stop()`, or the end of the driver. Nothing is wrong: the next start goes on from the newest committed batch,
and runs the batch that was in flight again.""",
    ),
    FailureClass.UNKNOWN: _make_condition(
        FailureClass.UNKNOWN,
        Severity.WARNING,
        "the query failed of something that no rule knows",
        """\
None of the exceptions in the log is one that lastgood can judge. Read the innermost one; the checkpoint itself is
judged by the other findings.""",
    ),
}
CONDITIONS = tuple(_BY_CLASS[cls] for cls in FailureClass)


def find_failures(failures: Sequence[Failure], query_id: str | None, observed: Observation) -> Iterator[Finding]:
    """Findings about the failures of a query that a log tells of; those of other queries are left out.

    Args:
        failures: As `failures.show_failure` has them.
        query_id: Of the query; None: nobody knows.
        observed: What was found.
    """
    for failure in failures:
        if query_id is not None and failure.query_id not in (None, query_id):
            continue
        effect = f"{failure.because[:1].upper()}{failure.because[1:]}."
        yield Finding(
            _BY_CLASS[failure.cls],
            _name_subject(failure),
            effect,
            _collect_evidence(failure),
            _choose_command(failure, observed),
        )


def _choose_command(failure: Failure, observed: Observation) -> str:
    """What to type where another goal than the first one mends it; else the other findings say what is wrong now."""
    orphan = observed.checkpoint.orphan
    is_orphan = orphan is not None and failure.batch_id in (None, orphan)
    if failure.cls is FailureClass.RESOURCES and is_orphan:
        return observed.command("plan", "--goal", "replan")
    if failure.cls is FailureClass.STATE_DAMAGED:
        command = make_way_back(observed)
    else:
        command = make_recompute_command(observed) if failure.rule == STATE_SCHEMA else None
    if command is not None:
        return command
    return format_command_line("explain", _BY_CLASS[failure.cls].name)


def _name_subject(failure: Failure) -> str:
    if failure.batch_id is not None:
        return f"batch {failure.batch_id}"
    if failure.query_name or failure.query_id:
        return f"query {failure.query_name or failure.query_id}"
    return "driver"


def _collect_evidence(failure: Failure) -> dict[str, Any]:
    code, offsets = failure.user_code, failure.offsets
    told: dict[str, Any] = {
        "exception": failure.condition or failure.class_name,
        "message": failure.message or None,
        "file": failure.checkpoint_file,
        "offsets": [f"{each.topic}-{each.partition}: {each.start} to {each.end}" for each in offsets] or None,
        "code": None,
        "log_lines": None,
    }
    if code:
        told["code"] = f"{code.file}:{code.line}"
    if failure.lines:
        told["log_lines"] = list(failure.lines)
    return {name: value for name, value in told.items() if value is not None}
