"""How much of a mirror is read before a start: what can be needed, however long the query has been running."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.survey import add_repair_facts, survey
from lastgood.operations.backup import create
from lastgood.planning.repairs.lost import RETAINED
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder

BATCHES, KEPT = 400, 100
OLDEST = BATCHES - KEPT - 1


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    """Its logs hold the newest batches, and its mirror all that it ever had."""
    made = CheckpointBuilder(tmp_path / "chk")
    made.run(BATCHES)
    create(resolve_target(str(made.folder)))
    made.purge(KEPT)
    return made


def mirrored(query: CheckpointBuilder, sink: int | None = None) -> tuple[int, set[str]]:
    """The oldest plan that is known of the mirror, and what else but plans and commits; a file sink holds batches."""
    sinks: tuple[str, ...] = ()
    if sink is not None:
        log = query.folder.parent / "sink/_spark_metadata"
        log.mkdir(parents=True)
        for number in range(sink + 1):
            (log / str(number)).write_bytes(b"v1")
        sinks = (f"file:{log.parent}",)
    seen = survey(resolve_target(str(query.folder)), evidence=EvidenceOptions(sinks=sinks))
    found = add_repair_facts(seen).seen.repair.mirror
    plans = [int(path.rpartition("/")[2]) for path in found if path.startswith("offsets/")]
    return min(plans), {path for path in found if not path.startswith(("offsets/", "commits/"))}


def test_of_whole_logs_it_is_what_they_list_and_as_much_again(query: CheckpointBuilder) -> None:
    assert mirrored(query) == (OLDEST - RETAINED, {"metadata", "sources/0/0"})


def test_a_damaged_plan_is_found_in_it(query: CheckpointBuilder) -> None:
    damaged = query.folder / f"offsets/{BATCHES - 2}"
    whole = damaged.read_bytes()
    damaged.write_bytes(b"v1")
    assert mirrored(query)[0] == OLDEST - RETAINED
    plan = make_plan(resolve_target(str(query.folder)), PlanOptions())
    assert whole in [getattr(step, "after", None) for step in plan.steps]


def test_of_a_log_that_is_lost_it_is_all(query: CheckpointBuilder) -> None:
    for file in (query.folder / "commits").iterdir():
        file.unlink()
    assert mirrored(query)[0] == 0


def test_where_a_sink_is_further_behind_than_that_it_is_all(query: CheckpointBuilder) -> None:
    assert mirrored(query, sink=OLDEST - RETAINED - 1)[0] == 0


def test_where_a_sink_is_in_reach_it_is_not(query: CheckpointBuilder) -> None:
    assert mirrored(query, sink=OLDEST - RETAINED)[0] == OLDEST - RETAINED


def test_an_older_batch_is_read_when_it_is_asked_for(query: CheckpointBuilder) -> None:
    evidence = survey(resolve_target(str(query.folder)), evidence=EvidenceOptions())
    assert 7 not in evidence.records()
    assert evidence.with_batches([7]).records()[7].is_committed
