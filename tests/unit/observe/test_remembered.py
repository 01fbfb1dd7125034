"""Where a query stood, where only a ledger still knows."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from ledgers import progress

from lastgood.ledger.opening import open_ledger
from lastgood.ledger.schema import LedgerMissingError
from lastgood.observe.ledger import fill_ledger
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import BatchUnknownError, CheckpointMissingError
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


@pytest.fixture
def checkpoint(tmp_path: Path, ledger: str) -> Path:
    """No mirror: the ledger has batches 0 to 9, the checkpoint 6 to 10, of which the last is not committed."""
    folder = tmp_path / "checkpoint"
    query = CheckpointBuilder(folder)
    query.run(10)
    with open_ledger(ledger) as opened:
        fill_ledger(resolve_target(str(folder)), opened)
    query.plan()
    query.purge(retain=4)
    return folder


@pytest.mark.parametrize(
    ("asked", "batch", "offset"),
    [
        ({}, 9, 50),
        ({"batch": 10}, 10, 55),
        ({"batch": 0}, 0, 5),
        ({"stable_lag": 8}, 2, 15),
        ({"time_ms": STARTED_MS + 3500}, 3, 20),
    ],
)
def test_ledger_knows_what_spark_has_purged(
    asked: dict[str, int], batch: int, offset: int, checkpoint: Path, ledger: str
) -> None:
    standing = find_offsets_after(resolve_target(str(checkpoint)), **asked, ledger=ledger)  # type: ignore[arg-type]  # all are numbers
    assert (standing.batch, standing.current, standing.is_committed) == (batch, 10, batch < 10)
    assert standing.time_ms == STARTED_MS + 1000 * batch
    assert standing.starting_offsets() == {"orders": {"0": offset, "1": offset}}


def test_lost_checkpoint_is_answered_from_the_ledger_alone(checkpoint: Path, ledger: str) -> None:
    shutil.rmtree(checkpoint)
    with open_ledger(ledger) as opened:
        told = progress(10, query_id=QUERY_ID, checkpoint=str(checkpoint), trigger_at_ms=STARTED_MS + 9990)
        opened.record([told])
    standing = find_offsets_after(resolve_target(str(checkpoint)), ledger=ledger)
    assert (standing.batch, standing.current, standing.is_committed) == (10, 10, True)
    assert standing.time_ms == STARTED_MS + 9990
    assert find_offsets_after(resolve_target(str(checkpoint)), time_ms=STARTED_MS + 500, ledger=ledger).batch == 0
    with pytest.raises(BatchUnknownError) as unknown:
        find_offsets_after(resolve_target(str(checkpoint)), batch=11, ledger=ledger)
    assert unknown.value.found == "batches 0 to 10"
    with pytest.raises(CheckpointMissingError):
        find_offsets_after(resolve_target(str(checkpoint)))


def test_batch_that_was_never_committed_is_not_where_a_query_stood(tmp_path: Path, ledger: str) -> None:
    query = CheckpointBuilder(tmp_path / "checkpoint")
    query.run(3)
    query.plan()
    with open_ledger(ledger) as opened:
        fill_ledger(resolve_target(str(query.folder)), opened)
    shutil.rmtree(query.folder)
    standing = find_offsets_after(resolve_target(str(query.folder)), ledger=ledger)
    assert (standing.batch, standing.current) == (2, 3)


def test_other_queries_of_a_checkpoint_are_not_mixed_in(checkpoint: Path, ledger: str) -> None:
    shutil.rmtree(checkpoint)
    CheckpointBuilder(checkpoint, query_id="9818c18b-9839-4690-99f7-f5f3cde02c1d", started_ms=STARTED_MS * 2).run(1)
    with pytest.raises(BatchUnknownError):
        find_offsets_after(resolve_target(str(checkpoint)), batch=5, ledger=ledger)
    with open_ledger(ledger) as opened:
        fill_ledger(resolve_target(str(checkpoint)), opened)
    shutil.rmtree(checkpoint)
    assert find_offsets_after(resolve_target(str(checkpoint)), ledger=ledger).current == 0


def test_ledger_that_is_not_there_is_missed_only_if_it_was_named(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = str(tmp_path / "nowhere.db")
    with pytest.raises(LedgerMissingError):
        find_offsets_after(resolve_target(str(checkpoint)), ledger=nowhere)
    monkeypatch.setenv("LASTGOOD_LEDGER", nowhere)
    assert find_offsets_after(resolve_target(str(checkpoint)), batch=7).starting_offsets() == {
        "orders": {"0": 40, "1": 40}
    }
    with pytest.raises(BatchUnknownError) as unknown:
        find_offsets_after(resolve_target(str(checkpoint)), batch=2)
    assert unknown.value.effect == f"the ledger sqlite:///{nowhere} could not be asked: there is no ledger"


def test_ledger_of_the_configuration_is_asked(
    tmp_path: Path, checkpoint: Path, ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lastgood.toml").write_text(
        f'ledger = "ledger.db"\n[pipeline.orders]\ncommand = ["x"]\ncheckpoint = "{checkpoint}"\n'
    )
    monkeypatch.chdir("/")
    assert find_offsets_after(resolve_target("orders", Config(tmp_path / "lastgood.toml")), batch=2).batch == 2
