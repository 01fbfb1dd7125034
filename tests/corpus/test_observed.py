"""What real Spark did with damaged checkpoints, kept: the prediction says the same without it.

`observed/VERSION.tar.xz` holds checkpoints as they were before a start, and what that start did; the conformance tests
made them.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.diagnosis.engine import Report, diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.observe.state_checksums import find_unsound_state
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Outcome, Restart, SinkCalled
from lastgood.query.prediction.skipping import list_versions_loaded
from lastgood.query.prediction.spark_version import parse_spark_version
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.opening import open_sink
from lastgood.sources.kafka.facts import facts_from_json
from lastgood.storage.reading import open_storage, parse_location

OBSERVED = Path(__file__).parent / "observed"
NOW_MS = 1_795_268_668_614
NTH = 4
"""Of each version, one case in so many; all of them under `proof`."""


@pytest.mark.parametrize(
    "archive", sorted(OBSERVED.glob("*.tar.xz")), ids=lambda path: path.name.removesuffix(".tar.xz")
)
@pytest.mark.parametrize("nth", [NTH, pytest.param(1, marks=pytest.mark.proof)])
def test_prediction_is_what_spark_did_and_a_finding_says_why(archive: Path, nth: int, tmp_path: Path) -> None:
    with lzma.open(archive) as packed, tarfile.open(fileobj=packed) as tar:
        cases = (member for member in tar if int(member.name.partition("/")[0]) % nth == 0)
        tar.extractall(tmp_path, cases, filter="data")
    assert len([*tmp_path.iterdir()]) > 80 // nth
    wrong = {}
    for case in tmp_path.iterdir():
        seen = json.loads((case / "observation.json").read_text())
        report = diagnosed(case, seen)
        differences = [*compare(seen, report.restart), *unexplained(report)]
        if differences:
            wrong[case.name] = (seen["flavour"], seen["edits"], differences)
    assert wrong == {}


def diagnosed(case: Path, seen: dict[str, Any]) -> Report:
    location = parse_location(str(case / "checkpoint"))
    checkpoint = read_checkpoint(open_storage(location), location)
    sinks: tuple[SinkEvidence, ...] = ()
    if (case / "sink").exists() and isinstance(checkpoint.query, QueryMetadata):
        prefix = "delta:" if (case / "sink/_delta_log").exists() else ""
        sinks = (open_sink(f"{prefix}{case / 'sink'}").evidence(checkpoint.query.query_id, now_ms=NOW_MS),)
    kafka = case / "kafka.json"
    facts = facts_from_json(json.loads(kafka.read_text())) if kafka.exists() else None
    unsound = find_unsound_state(open_storage(location), location, checkpoint, list_versions_loaded(checkpoint, sinks))
    lossless = seen["fail_on_data_loss"]
    observed = Observation(checkpoint, sinks=sinks, kafka=facts, fail_on_data_loss=lossless, unsound=unsound)
    return diagnose(observed, parse_spark_version(seen["spark"]))


def unexplained(report: Report) -> list[str]:
    """Of what keeps Spark from going on: what no finding tells of, or where none says what to type next."""
    bad = [finding for finding in report.findings if finding.severity > Severity.INFO]
    dumb = [f"{finding.condition.name} has no next command" for finding in bad if finding.next is None]
    is_told = report.restart.stop is None or any(finding.severity is Severity.ERROR for finding in bad)
    return dumb if is_told else [*dumb, f"no finding tells of {report.restart.error}"]


def compare(seen: dict[str, Any], restart: Restart) -> list[str]:
    """In what the prediction differs from what was seen."""
    planned, after = seen["before"]["offsets"], seen["after"]
    committed = sorted(map(int, seen["committed"]))
    if committed:
        newest = max(planned, default=None)
        actual = Outcome.RERUNS if committed[0] == newest else Outcome.RESUMES if planned else Outcome.STARTS
        wanted: dict[str, object] = {"outcome": actual, "batch": committed[0], "error": None}
        found: dict[str, object] = {"outcome": restart.outcome, "batch": restart.batch, "error": restart.error}
        return [f"{key}: {found[key]}, not {wanted[key]}" for key in wanted if found[key] != wanted[key]]
    if seen["ended"] == "finished":
        return [] if restart.outcome in (Outcome.RESUMES, Outcome.STARTS) else [f"{restart.outcome}, not nothing"]
    called = bool(seen["executed"] if seen["called"] is None else seen["called"])
    orphans = [batch for batch in after["offsets"] if batch not in planned and batch not in after["commits"]]
    differences = []
    if restart.outcome not in (Outcome.FAILS, Outcome.FAILS_AFTER_SINK):
        differences.append(f"{restart.outcome}, not a failure")
    if restart.error is None or restart.error not in "\n".join([seen["text"] or "", *seen["messages"]]):
        differences.append(f"error {restart.error!r}")
    if (restart.sink_called is SinkCalled.YES and not called) or (restart.sink_called is SinkCalled.NO and called):
        differences.append(f"sink called: {called}")
    if restart.outcome is Outcome.FAILS_AFTER_SINK and not called:
        differences.append("the sink was not called")
    if restart.leaves_orphan != bool(orphans):
        differences.append(f"orphans: {orphans}")
    if seen["executed"] and restart.batch not in (None, seen["executed"][0]):
        differences.append(f"batch {restart.batch}, not {seen['executed'][0]}")
    return differences
