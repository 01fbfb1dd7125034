"""`status` is never milder than `diagnose`: of every real checkpoint, alone and of many, and of what lost a piece."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from shared_corpus import ABSENT, CORPUS

from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.grade import Grade
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.observe.open_query import CheckpointMissingError
from lastgood.observe.query_status import Status
from lastgood.operations.diagnose import diagnose
from lastgood.operations.status import list_statuses_below, status
from lastgood.planning.price import Guarantee
from lastgood.query.kafka import Losing
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target

CASES = Path(__file__).parent / "cases"
ALL = [path for root in (CASES, CORPUS) for path in sorted(root.glob("*/checkpoint"))]
PIECES = ("metadata", "offsets", "commits", "sources", "state")
LOST = [
    *((piece,) for piece in PIECES),
    ("metadata", "commits"),
    ("metadata", "offsets"),
    ("metadata", "offsets", "commits"),
    ("metadata", "commits", "sources", "state"),
    ("metadata", "offsets", "sources", "state"),
]


def name(case: Path) -> str:
    return f"{case.parents[1].name}-{case.parent.name}"


def options(case: Path) -> EvidenceOptions:
    """With the sink and the facts of the broker where the case has them."""
    sink, kafka = case.parent / "sink", case.parent / "kafka.json"
    return EvidenceOptions(sinks=(str(sink),) if sink.is_dir() else (), kafka=str(kafka) if kafka.is_file() else None)


def told(findings: Iterable[Finding]) -> list[tuple[str, str, Severity]]:
    return [(each.condition.name, each.subject, each.severity) for each in findings if each.severity > Severity.INFO]


def require_agreement(found: Status, target: str, asked: EvidenceOptions) -> None:
    """What both verbs say of one checkpoint."""
    report = diagnose(resolve_target(target), DiagnoseOptions(asked))
    assert told(found.findings) == told(report.findings)
    assert (found.grade >= Grade.UNREADABLE) == (report.worst is Severity.ERROR)
    assert found.last_good == report.position.last_good
    require_same_way(found, report)
    if found.grade < Grade.UNREADABLE:
        assert report.restart.stop is None


def require_same_way(found: Status, report: Report) -> None:
    """What to type next is what the worst finding says, whichever that is."""
    worst = [each for each in report.findings if each.severity is report.worst and each.severity > Severity.INFO]
    told = [each.next for each in worst if each.next is not None]
    if told and told[0] != found.asked.command("status"):
        assert found.next == told[0]
    elif worst:
        assert found.next == found.asked.command("diagnose")
    else:
        assert found.next in (found.asked.command("inspect"), found.asked.command("diagnose"))


def asked_ways(case: Path) -> list[EvidenceOptions]:
    """By its files alone, and with whoever can tell more of it."""
    asked = options(case)
    by_pattern = [replace(asked, subscribe_pattern="[a-z]+")] if asked.kafka is not None else []
    return [EvidenceOptions(), asked, *by_pattern] if asked != EvidenceOptions() else [asked]


@pytest.mark.parametrize("case", ALL, ids=name)
def test_status_says_what_diagnose_knows(case: Path) -> None:
    for asked in asked_ways(case):
        found = status(resolve_target(str(case)), options=asked)
        require_agreement(found, str(case), asked)
        if found.exposure is not None and found.exposure.losing is Losing.YES:
            assert found.grade is Grade.LOSING


@pytest.mark.parametrize("root", [CASES, CORPUS], ids=["cases", "corpus"])
def test_so_it_does_of_a_folder_of_many(root: Path) -> None:
    if not root.is_dir():
        pytest.skip(ABSENT)
    for found in list_statuses_below(resolve_target(str(root))):
        require_agreement(found, str(found.location), EvidenceOptions())


@pytest.mark.parametrize("case", sorted(CASES.glob("*/checkpoint")), ids=name)
def test_a_checkpoint_that_lost_a_piece_is_still_found(case: Path, tmp_path: Path) -> None:
    for number, lost in enumerate(LOST):
        left = shutil.copytree(case, tmp_path / f"chk{number}" / "query")
        for piece in lost:
            shutil.rmtree(left / piece, ignore_errors=True)
            (left / piece).unlink(missing_ok=True)
        below = list_statuses_below(resolve_target(str(left.parent)))
        try:
            diagnose(resolve_target(str(left)))
        except CheckpointMissingError:
            assert below == []
            with pytest.raises(CheckpointMissingError):
                status(resolve_target(str(left)))
            continue
        assert [each.location.name for each in below] == ["query"], lost
        require_agreement(below[0], str(left), EvidenceOptions())
        require_agreement(status(resolve_target(str(left))), str(left), EvidenceOptions())


@pytest.mark.parametrize("case", ALL, ids=name)
def test_nothing_is_called_sound_whose_best_plan_to_go_on_is_lossy(case: Path) -> None:
    found = status(resolve_target(str(case)), options=options(case))
    if found.grade >= Grade.DOUBTFUL:
        return
    plan = make_plan(resolve_target(str(case)), PlanOptions(evidence=options(case)))
    assert plan.guarantee is not Guarantee.LOSSY, plan.rests_on
