"""State that is kept while a query runs: now and then, told once, and given up at the end of the run."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest
from reading import CASES

from lastgood.mirror.backups import OF_RUN_MAX, Backup
from lastgood.operations.backup import create, find_backups, keep
from lastgood.recovery.backing_up import keep_state
from lastgood.recovery.restoring import restore
from lastgood.settings.target import Target, resolve_target
from lastgood.storage.reading import Location
from lastgood.storage.writing import LocalWriter
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.state_mirroring import keep_state_mirrored
from lastgood.testing.checkpoints import CheckpointBuilder

CASE = "4.2-agg-nokey-rocksdb-ckptv2"


@pytest.fixture
def target(tmp_path: Path) -> Target:
    shutil.copytree(CASES / CASE / "checkpoint", tmp_path / "chk")
    return resolve_target(str(tmp_path / "chk"))


def keep_now(target: Target, after: int | None = None) -> Backup | None:
    return keep_state(target, after=after, tell=lambda _: None, may_go_on=lambda: True)


def test_what_is_kept_supersedes_what_was_kept_before_and_nothing_of_a_person(target: Target) -> None:
    persons, _ = create(target)
    made = [keep_now(target) for _ in range(OF_RUN_MAX + 1)]
    assert made[0] is not None
    keep(target, made[-1].id)
    made += [keep_now(target) for _ in range(OF_RUN_MAX)]
    ids = [each.id for each in made if each is not None and each.by_run and each.state is not None]
    assert len(ids) == len(made)
    assert {each.id for each in find_backups(target)[0]} == {persons.id, *ids[-OF_RUN_MAX - 1 :]}


def test_as_long_as_nothing_is_committed_nothing_is_kept_again(target: Target) -> None:
    made = keep_now(target)
    assert made is not None
    assert made.state is not None
    assert keep_now(target, after=made.state.batch) is None


def test_query_without_state_is_left_alone(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    assert keep_now(resolve_target(str(tmp_path / "chk"))) is None
    assert not (tmp_path / "chk.lastgood").exists()


def run_until(target: Target, is_told: int) -> list[Event]:
    """What the thread tells until it has told so much."""
    told: list[Event] = []
    enough = threading.Event()

    def tell(event: Event) -> None:
        told.append(event)
        if len(told) == is_told:
            enough.set()

    with keep_state_mirrored([target], 0.01, tell):
        assert enough.wait(30)
    return told


def test_state_that_cannot_be_kept_is_told_once_and_stops_nothing(target: Target) -> None:
    shutil.rmtree(f"{target.location.path}/state/0/0")
    (told,) = run_until(target, 1)
    assert isinstance(told, Noticed)
    assert told.condition == "STATE_NOT_KEPT"
    assert told.sentence.endswith("; it is tried again")
    assert find_backups(target) == ([], [])


def test_what_it_costs_is_told_before_and_once(target: Target) -> None:
    told: list[Event] = []
    with keep_state_mirrored([target], 0.01, told.append):
        while not find_backups(target)[0]:
            time.sleep(0.01)
    (event,) = told
    assert isinstance(event, Noticed)
    assert (event.condition, "bytes, as of batch" in event.sentence) == ("STATE_KEPT", True)
    shutil.rmtree(target.location.path)
    restored = restore(target)
    assert restored.state_batch == restored.last_committed


def test_end_of_the_run_does_not_wait_for_all_files(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    copying, stopped = threading.Event(), threading.Event()
    copied: list[Location] = []

    class Slow(LocalWriter):
        def copy(self, source: Location, target: Location) -> None:
            copying.set()
            assert stopped.wait(30)
            copied.append(source)
            super().copy(source, target)

    monkeypatch.setattr("lastgood.recovery.backing_up.open_writable", lambda _: Slow())
    with keep_state_mirrored([target], 0.01, lambda _: None):
        assert copying.wait(30)
        threading.Timer(0.2, stopped.set).start()
    assert len(copied) == 1
    assert find_backups(target) == ([], [])


def test_nothing_is_kept_where_nobody_asked(target: Target) -> None:
    with keep_state_mirrored([target], None, lambda _: None):
        assert not [each for each in threading.enumerate() if each.name.startswith("state-")]
