"""What lastgood predicts for a case, and where that differs from what Spark did."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from conformance.brokers import pattern_of
from conformance.cases import Case, Observation
from conformance.edits_of_kafka import read_topic
from conformance.flavours import FLAVOURS
from conformance.inputs import TABLE, log_of_death, query_id_of

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.query.prediction.restart import Outcome, Restart, SinkCalled, StartStage
from lastgood.settings.target import resolve_target

_FAILURES = {Outcome.FAILS, Outcome.FAILS_AFTER_SINK}
_ERROR_OF_PYTHON = re.compile(r"[A-Za-z_][\w.]*(Error|Exception)\b")


def prediction(case: Case, folder: Path) -> Restart:
    """What lastgood says that this Spark will do with the folder of a case, which it has not touched yet."""
    facts, sink = folder / "kafka.json", folder / "sink"
    shows = any((sink / log).is_dir() for log in ("_spark_metadata", "_delta_log"))
    evidence = EvidenceOptions(
        sinks=(str(sink),) if shows else (),
        kafka=str(facts) if facts.exists() else None,
        subscribe_pattern=pattern_of(read_topic(folder)["name"]) if FLAVOURS[case.flavour].is_pattern else None,
        txn_app_id=FLAVOURS[case.flavour].txn_app_id,
    )
    log = _log(folder) if FLAVOURS[case.flavour].kind == "delta" else None
    options = DiagnoseOptions(evidence, spark=case.spark, fail_on_data_loss=case.fail_on_data_loss, log=log)
    return diagnose(resolve_target(str(folder / "checkpoint")), options).restart


def _log(folder: Path) -> str | None:
    """A log that tells where the table is that the query reads; None without an id to tell it of."""
    table, query_id = folder / TABLE, query_id_of(folder / "checkpoint")
    if query_id is None:
        return None
    log = folder / "driver.log"
    log.write_text(log_of_death(query_id, table))
    return str(log)


@dataclass(frozen=True)
class Verdict:
    """What Spark did, in lastgood's words."""

    outcome: Outcome | None
    """None: it neither ended nor got anywhere."""
    batch: int | None
    """The first batch that was run or planned; None if Spark stopped, or found nothing to do, before."""
    leaves_orphan: bool
    sink_called: bool


def verdict(seen: Observation) -> Verdict:
    """What an observation means."""
    planned = sorted(set(seen.after.offsets) - set(seen.before.offsets))
    batch = seen.executed[0] if seen.executed else next(iter(planned), None)
    called = seen.executed if seen.called is None else seen.called
    orphans = set(planned) - set(seen.after.commits)
    return Verdict(_outcome(seen, batch), batch, leaves_orphan=bool(orphans), sink_called=bool(called))


def _outcome(seen: Observation, batch: int | None) -> Outcome | None:
    if seen.ended in {"hangs", "died"}:
        return None
    if batch is None or batch not in seen.committed:
        if seen.ended == "finished":
            return Outcome.RESUMES  # there was nothing to read
        is_old = batch is not None and (batch in seen.before.offsets or batch <= max(seen.before.commits, default=-1))
        return Outcome.FAILS_AFTER_SINK if is_old and batch in seen.returned else Outcome.FAILS
    if batch in seen.before.offsets:
        return Outcome.RERUNS
    return Outcome.RESUMES if seen.before.offsets else Outcome.STARTS


def compare(seen: Observation, restart: Restart) -> list[str]:
    """Where the prediction differs from what Spark did, one line each; empty if nowhere.

    What was said to depend on how the query tracks its progress is judged by how this one does.
    """
    is_asynchronous = bool(FLAVOURS[seen.case.flavour].kept)
    return _compare(seen, restart.if_asynchronous or restart if is_asynchronous else restart)


def _compare(seen: Observation, restart: Restart) -> list[str]:
    was = verdict(seen)
    if (
        seen.ended == "finished"
        and was.batch is None
        and restart.stop is not None
        and restart.stop.stage > StartStage.START
    ):
        return []  # there was nothing to read, so Spark planned no batch that could fail
    if was.outcome is not restart.outcome:
        return [f"outcome: predicted {_told(restart)}, Spark {_did(seen, was)}"]
    found = []
    if was.batch is not None and restart.batch != was.batch:
        found.append(f"batch: predicted {restart.batch}, Spark ran {was.batch}")
    if restart.next_error is not None and restart.next_error not in seen.error_text:
        found.append(f"next_error: predicted {restart.next_error!r}, Spark said {_last_words(seen)!r}")
    if was.outcome not in _FAILURES:
        return found
    if restart.error is None or restart.error not in seen.error_text:
        found.append(f"error: predicted {restart.error!r}, Spark said {_last_words(seen)!r}")
    if restart.leaves_orphan != was.leaves_orphan:
        found.append(f"leaves_orphan: predicted {restart.leaves_orphan}, Spark {was.leaves_orphan}")
    if restart.sink_called is not SinkCalled.MAYBE and (restart.sink_called is SinkCalled.YES) != was.sink_called:
        found.append(f"sink_called: predicted {restart.sink_called.value}, Spark {was.sink_called}")
    return found


def _told(restart: Restart) -> str:
    return f"{restart.outcome.value} {restart.batch} ({restart.error or restart.because})"


def _did(seen: Observation, was: Verdict) -> str:
    outcome = seen.ended if was.outcome is None else was.outcome.value
    return f"{outcome} {was.batch}" + (f" ({_last_words(seen)})" if seen.chain else "")


def _last_words(seen: Observation) -> str:
    return " <- ".join(_innermost(link.message)[:200] for link in reversed(seen.chain) if link.message.strip())


def _innermost(message: str) -> str:
    """The first line, or the last cause or error where a Python function stands between Spark and itself."""
    lines = message.strip().splitlines()
    causes = [line for line in lines if line.lstrip().startswith(("Caused by: ", ": "))]  # the second is py4j's
    errors = [line for line in lines if _ERROR_OF_PYTHON.match(line)] if "Traceback" in lines[0] else []
    return (causes or errors or lines[:1])[-1].strip()
