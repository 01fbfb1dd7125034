"""`status` and `inspect` on real checkpoints with their real tables and what the broker said: what Spark then did."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import ABSENT, CORPUS

from lastgood.diagnosis.grade import Grade
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import gather
from lastgood.observe.query_status import Status
from lastgood.observe.surroundings import look_around, make_reading
from lastgood.operations.inspect import inspect_batches
from lastgood.operations.status import list_statuses_below, status
from lastgood.query.kafka import Losing, judge_exposure
from lastgood.query.sinks import Agreement
from lastgood.settings.target import resolve_target

pytestmark = pytest.mark.skipif(not CORPUS.is_dir(), reason=ABSENT)

CASES = {
    "4.2-kafka-delta-ahead": (Grade.LOSING, Losing.UNKNOWN, Agreement.AHEAD),
    "4.2-kafka-expired": (Grade.LOSING, Losing.YES, Agreement.AGREES),
    "4.2-kafka-first-batch-failed": (Grade.IN_FLIGHT, Losing.UNKNOWN, Agreement.AGREES),
    "4.2-kafka-healthy": (Grade.HEALTHY, Losing.UNKNOWN, Agreement.AGREES),
    "4.2-kafka-multi-topic": (Grade.IN_FLIGHT, Losing.UNKNOWN, Agreement.AGREES),
    "4.2-kafka-orphan": (Grade.IN_FLIGHT, Losing.UNKNOWN, Agreement.AGREES),
    "4.2-kafka-partitions-added": (Grade.HEALTHY, Losing.UNKNOWN, Agreement.AGREES),
    "4.2-kafka-recreated-larger": (Grade.LOSING, Losing.YES, Agreement.AGREES),
    "4.2-kafka-window-healthy": (Grade.HEALTHY, Losing.UNKNOWN, Agreement.AGREES),
}
"""Losing is unknown where nobody asked the broker by time, and so nobody knows whether the topic is still the same."""


def options(case: str) -> EvidenceOptions:
    return EvidenceOptions(sinks=(str(CORPUS / case / "sink"),), kafka=str(CORPUS / case / "kafka.json"))


def look(case: str) -> Status:
    return status(resolve_target(str(CORPUS / case / "checkpoint")), options=options(case))


def restart(case: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CORPUS / case / "about.json").read_text())["restart"]
    return found


def test_every_case_with_a_broker_has_its_row() -> None:
    assert sorted(CASES) == sorted(path.name for path in CORPUS.glob("4.2-kafka-*"))


@pytest.mark.parametrize("case", CASES)
def test_status_says_whether_data_is_being_lost_and_how_the_sink_stands(case: str) -> None:
    found = look(case)
    assert found.exposure is not None
    assert (found.grade, found.exposure.losing, found.sinks[0].agreement) == CASES[case]


@pytest.mark.parametrize("case", CASES)
def test_what_the_sink_would_drop_is_what_spark_dropped(case: str) -> None:
    found = look(case).sinks[0]
    skipped = [line.partition("epoch ")[2].partition(",")[0] for line in restart(case).get("delta_skips", [])]
    first, last = found.would_drop or (0, -1)
    assert {int(each) for each in skipped} <= set(range(first, last + 1))
    assert (found.would_drop is not None) == bool(skipped)


@pytest.mark.parametrize("case", CASES)
def test_every_committed_batch_is_in_the_version_of_its_number(case: str) -> None:
    """One query alone wrote each of these tables, one version for a batch."""
    rows = inspect_batches(
        resolve_target(str(CORPUS / case / "checkpoint")), limit=None, options=options(case)
    ).to_json()["batches"]
    differences = {row["batch"]: row["sinks"][0]["difference"] for row in rows if row["sinks"][0]["difference"]}
    assert differences == ({4: "in the sink only", 3: "in the sink only"} if "delta-ahead" in case else {})
    for row in rows:
        if row["committed"]:
            assert (row["sinks"][0]["shown"], row["sinks"][0]["version"]) == ("live", row["batch"])


def test_the_expired_range_is_the_one_that_spark_then_missed() -> None:
    found = look("4.2-kafka-expired")
    assert found.exposure is not None
    assert found.exposure.lost == {"exp": {0: ((15, 20),)}}
    assert found.exposure.lost_after_ms == 1_795_219_986_905
    standing = find_offsets_after(
        resolve_target(str(CORPUS / "4.2-kafka-expired" / "checkpoint")), options=options("4.2-kafka-expired")
    )
    assert standing.expired == found.exposure.lost


def test_partitions_that_were_added_are_named_at_their_beginning() -> None:
    case = "4.2-kafka-partitions-added"
    found = look(case)
    assert found.exposure is not None
    assert found.exposure.added == {"add": {2: ((0, 6),), 3: ((0, 6),)}}
    standing = find_offsets_after(resolve_target(str(CORPUS / case / "checkpoint")), options=options(case))
    assert standing.starting_offsets() == {"add": {"0": 15, "1": 15, "2": -2, "3": -2}}


def test_a_topic_that_was_made_anew_is_known_by_its_id() -> None:
    case = CORPUS / "4.2-kafka-recreated-larger"
    evidence = gather(resolve_target(str(case / "checkpoint")), batches=2)
    facts = look_around(evidence, options(case.name), now_ms=0).seen.kafka
    assert facts is not None
    recorded = json.loads((case / "kafka.json").read_text())["topic_id_when_the_checkpoint_was_written"]
    found = judge_exposure(make_reading(evidence), facts, now_ms=0, noted_ids={"reclarger": recorded})
    assert found.losing is Losing.YES


def test_of_a_folder_each_query_is_held_against_its_own_table(tmp_path: Path) -> None:
    for case in CASES:
        shutil.copytree(CORPUS / case / "checkpoint", tmp_path / case)
    tables = tuple(str(CORPUS / case / "sink") for case in CASES)
    found = {
        each.location.name: each
        for each in list_statuses_below(resolve_target(str(tmp_path)), options=EvidenceOptions(sinks=tables))
    }
    assert found.keys() == CASES.keys()
    for case, each in found.items():
        assert [sink.evidence.location for sink in each.sinks] == (
            [str(CORPUS / case / "sink")] if "first-batch" not in case else []
        )
        assert [sink.agreement for sink in each.sinks] in ([CASES[case][2]], [])
