"""How bad a diagnosis looks at a glance. Pure: it goes by the findings and by the judge, and judges nothing itself."""

from __future__ import annotations

import enum

from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.records import OF_RECORDS, may_be_lost
from lastgood.diagnosis.rules_kafka_broker import list_suspicions
from lastgood.diagnosis.rules_seal import SEALED_BY_LASTGOOD
from lastgood.query.missing import list_missing, list_taken
from lastgood.query.observation import make_views
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.source_replay import list_unasked_sources
from lastgood.query.presumed import drop_presumed


class Grade(enum.IntEnum):
    """How bad it looks, from the files and from whoever was asked; worse is larger."""

    HEALTHY = 0
    """Every planned batch is committed, and a restart goes on."""
    IN_FLIGHT = 1
    """One batch is planned and not committed: it is running, or the query died in it and a restart runs it again."""
    EMPTY = 2
    """No batch has been planned yet."""
    DOUBTFUL = 3
    """No error, and records are lost or may be: no plan is called at least once."""
    UNREADABLE = 4
    """The storage does not let us look, or does not answer. From here on somebody has to act."""
    DAMAGED = 5
    """An error in the checkpoint itself: something that a restart reads is missing, damaged or not what it was."""
    SEALED = 6
    """A repair of lastgood was begun, and neither finished nor taken back: no driver can start."""
    LOSING = 7
    """An error between the query and a source or a sink: records are lost or doubled, or would be."""


def choose_grade(report: Report) -> Grade:
    """The grade of a checkpoint that could be read."""
    errors = [finding.condition for finding in report.findings if finding.severity is Severity.ERROR]
    if SEALED_BY_LASTGOOD in errors:  # first of all: what else is found may be of the repair that is half done
        return Grade.SEALED
    if any(condition in OF_RECORDS for condition in errors):
        return Grade.LOSING
    if errors or report.restart.outcome in (Outcome.FAILS, Outcome.FAILS_AFTER_SINK):
        return Grade.DAMAGED
    if _may_have_lost(report):
        return Grade.DOUBTFUL
    if report.position.planned is None:
        return Grade.EMPTY
    return Grade.HEALTHY if report.position.orphan is None else Grade.IN_FLIGHT


def _may_have_lost(report: Report) -> bool:
    """Whether the planner takes records for lost, or perhaps lost, by what stands here as a warning."""
    if any(map(may_be_lost, report.findings)):
        return True
    if any(each.is_strong and each.costs for each in list_suspicions(report.observed, report.restart)):
        return True
    if any(each.is_lost_with_driver for each in list_unasked_sources(report.observed)):
        return True
    is_left = report.observed.left is not None  # then nothing goes on from here
    views = make_views(drop_presumed(report.observed))
    return not is_left and any(True for _ in (*list_missing(views), *list_taken(views)))
