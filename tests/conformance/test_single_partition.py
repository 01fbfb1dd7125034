"""Operators that Spark runs in one partition: healthy they are judged healthy, and what is lost of them is missed.

The limit and the aggregation without keys of `docs/why/partitions.md`, with four partitions pinned, on every Spark.
"""

from __future__ import annotations

import pytest
from conformance.cases import Case
from conformance.edits import Edit
from conformance.flavours import FLAVOURS
from conformance.judging import compare, prediction
from plugin_laboratory import OpenLaboratory

from lastgood.diagnosis.findings import Severity
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.operations.diagnose import diagnose
from lastgood.query.prediction.restart import Outcome, Restart
from lastgood.settings.target import resolve_target

pytestmark = pytest.mark.proof

NAMES = [name for name, flavour in FLAVOURS.items() if not flavour.is_chosen]


def tried() -> list[tuple[str, str]]:
    pairs = [(version, name) for version in FLAVOURS["agg-hdfs"].versions for name in NAMES]
    return [(version, name) for version, name in pairs if version in FLAVOURS[name].versions]


def removed(*what: str) -> tuple[Edit, ...]:
    return tuple(Edit("remove_state_folder", {"what": each}) for each in what)


def unknown_of_state(restart: Restart) -> list[str]:
    """What is not known, but for the sink, which nobody was asked about."""
    return [each for each in restart.unknowns if "--sink" not in each]


@pytest.mark.parametrize(("version", "name"), tried())
def test_single_partition_is_all_there_is_to_be(version: str, name: str, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(version, name)
    case = Case(version, name, ())
    with laboratory.damaged(case) as folder:
        options = DiagnoseOptions(EvidenceOptions(), spark=version)
        report = diagnose(resolve_target(str(folder / "checkpoint")), options)
        seen = laboratory.restart(case, folder)
    assert compare(seen, report.restart) == []
    assert (report.restart.outcome, unknown_of_state(report.restart)) == (Outcome.RESUMES, [])
    assert [finding for finding in report.findings if finding.severity is Severity.ERROR] == []
    assert (seen.ended, seen.lost, seen.duplicated) == ("finished", 0, 0)


@pytest.mark.parametrize(("version", "name"), tried())
def test_single_partition_that_is_gone_is_missed(version: str, name: str, open_laboratory: OpenLaboratory) -> None:
    laboratory = open_laboratory(version, name)
    lost = [removed("state/0/0")]
    if name == "dedup-total-hdfs":  # the count is operator 0, and each partition of the other one counts
        lost += [removed("state/1/2"), removed("state/1/0"), removed("state/0")]
    for edits in lost:
        case = Case(version, name, edits)
        with laboratory.damaged(case) as folder:
            restart = prediction(case, folder)
            seen = laboratory.restart(case, folder)
        assert compare(seen, restart) == []
        assert (restart.outcome, restart.leaves_orphan, seen.ended) == (Outcome.FAILS, True, "failed")


@pytest.mark.parametrize("version", FLAVOURS["agg-hdfs"].versions)
def test_where_nothing_tells_of_a_key_spark_goes_on_and_it_is_not_known(
    version: str, open_laboratory: OpenLaboratory
) -> None:
    name = "total-hdfs"
    laboratory = open_laboratory(version, name)
    case = Case(version, name, removed("state/0/0/_metadata"))
    with laboratory.damaged(case) as folder:
        restart = prediction(case, folder)
        seen = laboratory.restart(case, folder)
    assert (restart.outcome, len(unknown_of_state(restart)), seen.ended) == (Outcome.RESUMES, 1, "finished")
