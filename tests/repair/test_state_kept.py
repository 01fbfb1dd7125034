"""State that backups have kept: a lost checkpoint comes back with it, and what is missing since then is made anew."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest
from repair.test_rebuild import BATCHES, BEFORE, FORMATS, KINDS, Harmed, _own_state, harmed

import lastgood
from lastgood.operations.backup import create, find_backups
from lastgood.recovery.restoring import Restored, restore
from lastgood.settings.target import resolve_target
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.state_mirroring import keep_state_mirrored

__all__ = ["_own_state", "harmed"]
pytestmark = [pytest.mark.spark, pytest.mark.proof]
SAMPLE = [*((kind, "hdfs") for kind in KINDS), *(("leftOuter", form) for form in FORMATS if form != "hdfs")]


def keep(query: Harmed, *, state: bool) -> None:
    create(resolve_target(str(query.checkpoint)), state=state)


def lose_and_restore(query: Harmed, source: str) -> Restored:
    shutil.rmtree(query.checkpoint)
    return restore(resolve_target(str(query.checkpoint)), source=source)


def find_committed(query: Harmed) -> int:
    return max(int(each.name) for each in (query.checkpoint / "commits").iterdir() if each.name.isdecimal())


def go_on(query: Harmed, numbers: range) -> None:
    query.feed(numbers)
    assert query.start() is None
    assert query.start("-never-harmed") is None


@pytest.mark.parametrize(("kind", "form"), SAMPLE)
@pytest.mark.parametrize("source", ["mirror", "last"])
def test_lost_checkpoint_comes_back_with_its_state(harmed: Any, kind: str, form: str, source: str) -> None:
    query = harmed(kind, "parquet" if kind != "totals" else "foreachBatch", form)
    keep(query, state=True)
    newest = find_committed(query)
    restored = lose_and_restore(query, source)
    assert (restored.state_batch, restored.last_committed, restored.absent) == (newest, newest, ())
    query.finish()


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_missing_since_it_was_kept_is_made_anew(harmed: Any, form: str) -> None:
    query = harmed("leftOuter", "parquet", form)
    keep(query, state=True)
    kept = find_committed(query)
    go_on(query, range(BEFORE, BATCHES - 1))
    keep(query, state=False)
    newest = find_committed(query)
    restored = lose_and_restore(query, "mirror")
    assert (restored.state_batch, restored.last_committed) == (kept, newest)
    assert kept < newest
    assert restored.absent
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    go_on(query, range(BATCHES - 1, BATCHES + 1))
    assert query.rows() == query.rows("-never-harmed")
    assert len(list((query.folder / "chk.lastgood/state").iterdir())) == 1


@pytest.mark.parametrize("form", FORMATS)
def test_state_that_is_kept_while_the_query_runs_comes_back(harmed: Any, form: str) -> None:
    query = harmed("leftOuter", "parquet", form)
    told: list[Event] = []
    with keep_state_mirrored([resolve_target(str(query.checkpoint))], 0.05, told.append):
        go_on(query, range(BEFORE, BATCHES - 1))
        while not find_backups(resolve_target(str(query.checkpoint)))[0]:
            time.sleep(0.05)
    assert "STATE_KEPT" in [each.condition for each in told if isinstance(each, Noticed)]
    create(resolve_target(str(query.checkpoint)))
    restored = lose_and_restore(query, "mirror")
    assert restored.state_batch is not None
    if restored.absent:
        assert restored.state_batch < find_committed(query)
        lastgood.apply(query.rebuild(), driver_is_dead=True)
    go_on(query, range(BATCHES - 1, BATCHES + 1))
    assert query.rows() == query.rows("-never-harmed")


@pytest.mark.parametrize("form", FORMATS)
def test_later_backup_copies_what_is_new(harmed: Any, form: str) -> None:
    query = harmed("leftOuter", "parquet", form)
    first, _ = create(resolve_target(str(query.checkpoint)), state=True)
    go_on(query, range(BEFORE, BATCHES - 1))
    then, _ = create(resolve_target(str(query.checkpoint)), state=True)
    assert first.state is not None
    assert then.state is not None
    assert first.state.batch < then.state.batch == find_committed(query)
    assert 0 < then.state.copied < then.state.size
    restored = lose_and_restore(query, "last")
    assert (restored.state_batch, restored.absent) == (then.state.batch, ())
    go_on(query, range(BATCHES - 1, BATCHES + 1))
    assert query.rows() == query.rows("-never-harmed")
