"""How bad a diagnosis looks at a glance. Pure: it goes by the findings and judges nothing itself."""

from __future__ import annotations

import enum

from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.records import OF_RECORDS
from lastgood.diagnosis.rules_seal import SEALED_BY_LASTGOOD


class Grade(enum.IntEnum):
    """How bad it looks, from the files and from whoever was asked; worse is larger."""

    HEALTHY = 0
    """Every planned batch is committed, and a restart goes on."""
    IN_FLIGHT = 1
    """One batch is planned and not committed: it is running, or the query died in it and a restart runs it again."""
    EMPTY = 2
    """No batch has been planned yet."""
    UNREADABLE = 3
    """The storage does not let us look, or does not answer. From here on somebody has to act."""
    DAMAGED = 4
    """An error in the checkpoint itself: something that a restart reads is missing, damaged or not what it was."""
    SEALED = 5
    """A repair of lastgood was begun, and neither finished nor taken back: no driver can start."""
    LOSING = 6
    """An error between the query and a source or a sink: records are lost or doubled, or would be."""


def choose_grade(report: Report) -> Grade:
    """The grade of a checkpoint that could be read."""
    errors = [finding.condition for finding in report.findings if finding.severity is Severity.ERROR]
    if SEALED_BY_LASTGOOD in errors:  # first of all: what else is found may be of the repair that is half done
        return Grade.SEALED
    if any(condition in OF_RECORDS for condition in errors):
        return Grade.LOSING
    if errors:
        return Grade.DAMAGED
    if report.position.planned is None:
        return Grade.EMPTY
    return Grade.HEALTHY if report.position.orphan is None else Grade.IN_FLIGHT
