"""A Delta table that cannot be judged by its log: what it does not show is no ground for a promise."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from lastgood.delta_log.listing import name_commit
from lastgood.observe.evidence import EvidenceOptions
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.price import Guarantee
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

CATALOG = {"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}
UNJUDGED = {
    "catalog": {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **CATALOG}},
    "redirected": {"metaData": {"id": "x", "configuration": {"delta.redirectReaderWriter-preview": "{}"}}},
    "malformed": {"txn": {"appId": "another"}},
}


def table(folder: Path, last: int, action: dict[str, object] | None) -> PlanOptions:
    """Batches of the query up to `last`, and a version of somebody else above."""
    for batch_id in range(last + 1):
        mark = CommitProperties(app_transactions=[Transaction(QUERY_ID, batch_id, 1_800_000_000_000)])
        write_deltalake(folder, pa.table({"n": [batch_id]}), mode="append", commit_properties=mark)
    if action is not None:
        (folder / "_delta_log" / name_commit(last + 1)).write_text(json.dumps(action))
    return PlanOptions(evidence=EvidenceOptions(sinks=(f"delta:{folder}",)))


@pytest.mark.parametrize("name", UNJUDGED)
@pytest.mark.parametrize("goal", ["resume", "replan"])
def test_no_plan_writes_under_a_number_up_to_a_mark_that_is_seen(tmp_path: Path, name: str, goal: str) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    options = table(tmp_path / "out", 4, UNJUDGED[name])
    with pytest.raises(RepairRefusedError) as raised:
        make_plan(resolve_target(str(tmp_path / "chk")), replace(options, goal=goal))
    assert raised.value.found == "it skips batches up to 4, and the next new one is 3"


@pytest.mark.parametrize("name", UNJUDGED)
@pytest.mark.parametrize("orphan", [False, True])
def test_restart_is_exact_only_with_a_table_that_can_be_judged(tmp_path: Path, name: str, orphan: bool) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    if orphan:
        query.plan()
    judged = table(tmp_path / "judged", 2, None)
    unjudged = table(tmp_path / "unjudged", 2, UNJUDGED[name])
    assert make_plan(resolve_target(str(tmp_path / "chk")), judged).guarantee is Guarantee.EXACTLY_ONCE
    assert make_plan(resolve_target(str(tmp_path / "chk")), unjudged).guarantee is Guarantee.AT_LEAST_ONCE
