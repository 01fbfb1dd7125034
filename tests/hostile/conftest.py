"""A lake in which an attacker writes, and beside it somebody's home and data, which must stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from hostile.attacker import Attacker, Listener, Told, listening, tree

from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.backup import create
from lastgood.planning.price import Waiver
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder

OTHERS_ID = "4f0e60a2-1111-4222-8333-944445555666"
"""Of the victim's query."""


@pytest.fixture(autouse=True)
def _at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs lastgood stands in a folder of his own, which is not the lake."""
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Path]:
    """Home, another query and its table: not of the lake, and none of it may change."""
    folder = tmp_path / "victim"
    keys = folder / "home/.ssh/authorized_keys"
    keys.parent.mkdir(parents=True)
    keys.write_text("ssh-ed25519 AAAA mine\n")
    (folder / "home/client.properties").write_text("security.protocol=PLAINTEXT\nclient.id=mine\n")
    other = CheckpointBuilder(folder / "chk", query_id=OTHERS_ID)
    other.run(7)
    other.plan()
    table(folder / "table", OTHERS_ID, 7)
    before = tree(folder)
    yield folder
    assert tree(folder) == before, "what is not of the lake was changed"


@pytest.fixture
def listener() -> Iterator[Listener]:
    yield from listening()


@pytest.fixture
def attacker(tmp_path: Path, victim: Path) -> Attacker:
    """At work beside a query of which seven batches are committed, and an eighth is planned; with its mirror."""
    del victim
    (tmp_path / "lake").mkdir()
    query = CheckpointBuilder(tmp_path / "lake/chk")
    query.run(7)
    query.plan()
    create(resolve_target(str(tmp_path / "lake/chk")))
    return Attacker(tmp_path / "lake/chk")


@pytest.fixture
def plan(attacker: Attacker) -> Told:
    """What lastgood itself would plan for it; made where nobody remembers it."""
    return planned(attacker.checkpoint)


def planned(checkpoint: Path, *sinks: Path) -> Told:
    """To plan the newest batch anew."""
    evidence = EvidenceOptions(sinks=tuple(map(str, sinks)))
    return make_plan(
        resolve_target(str(checkpoint)), PlanOptions("replan", evidence=evidence, accept=tuple(Waiver))
    ).to_json()


def table(folder: Path, query_id: str, batches: int) -> None:
    """A Delta table that a query has written."""
    for batch in range(batches):
        write_batch(folder, query_id, batch)


def write_batch(folder: Path, query_id: str, batch: int) -> None:
    """One batch more of a query in a Delta table."""
    rows = pa.table({"offset": pa.array([batch], pa.int64())})
    mark = CommitProperties(app_transactions=[Transaction(query_id, batch, 1_790_000_000_000)])
    write_deltalake(folder, rows, mode="append", commit_properties=mark)
