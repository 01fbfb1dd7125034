"""What a recovery took away is not put back by a later one, though the mirror still has it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lastgood.journal.endings import find_endings
from lastgood.journal.room import locate_recoveries
from lastgood.mirror.backups import BackupMissingError
from lastgood.observe.positions import StartChoice
from lastgood.operations.backup import create
from lastgood.planning.plan import Plan, PlanInvalidError
from lastgood.planning.price import Waiver
from lastgood.recovery.applying import apply_plan, undo
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.recovery.restoring import restore
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.start_files import StartFile, StartForm
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

ACCEPTED = (Waiver.DUPLICATES, Waiver.LOSS)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A query of eight committed batches, and a ninth that is planned; the mirror has seen all of it."""
    builder = CheckpointBuilder(tmp_path / "chk")
    builder.run(8)
    builder.plan()
    create(resolve_target(str(builder.folder)))
    return builder.folder


def planned(folder: Path, goal: str = "resume", where: StartChoice | None = None, via: StartFile | None = None) -> Plan:
    options = PlanOptions(goal, where or StartChoice(), accept=ACCEPTED, via=via, takes_any_number=via is not None)
    return make_plan(resolve_target(str(folder)), options)


def done(folder: Path, goal: str = "resume", where: StartChoice | None = None, via: StartFile | None = None) -> Plan:
    plan = planned(folder, goal, where, via)
    apply_plan(plan, driver_is_dead=True)
    return plan


def lose(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).unlink()


REPOSITION = {"goal": "reposition", "where": StartChoice(stable_lag=3)}


@pytest.mark.parametrize("again", [False, True], ids=["not mirrored since", "mirrored since"])
@pytest.mark.parametrize("way", [{"goal": "replan"}, REPOSITION], ids=["replan", "reposition"])
def test_batch_that_a_recovery_took_away_is_not_put_back(folder: Path, way: dict[str, object], again: bool) -> None:
    done(folder, **way)  # type: ignore[arg-type]
    if again:
        create(resolve_target(str(folder)))
    found = planned(folder)
    assert [step.do for step in found.steps] == []
    assert not any("mirror" in line for line in found.rests_on)


def test_batches_after_a_query_that_was_set_back_are_not_put_back(folder: Path) -> None:
    lose(folder, "offsets/8", "commits/7", "offsets/7")
    done(folder, "reposition", StartChoice(batch=4))
    create(resolve_target(str(folder)))
    assert planned(folder).steps == ()


def test_checkpoint_that_is_lost_after_it_was_set_back_comes_back_as_it_was_set(folder: Path) -> None:
    done(folder, "reposition", StartChoice(batch=4))
    kept = {path: (folder / path).read_bytes() for path in ("offsets/7", "offsets/8", "commits/7")}
    shutil.rmtree(folder)
    done(folder)
    assert {path: (folder / path).read_bytes() for path in kept} == kept
    shutil.rmtree(folder)
    restore(resolve_target(str(folder)))
    assert {path: (folder / path).read_bytes() for path in kept} == kept
    assert not (folder / "commits/8").exists()  # batch 8 runs once more, without a row


def test_what_the_query_did_after_a_recovery_is_put_back(folder: Path) -> None:
    done(folder, "replan")
    newest = max(int(path.name) for path in (folder / "offsets").iterdir() if path.name.isdecimal())
    for log in ("offsets", "commits"):
        text = (folder / log / str(newest - 1)).read_text()
        (folder / log / str(newest)).write_text(text)
        (folder / log / str(newest + 1)).write_text(text.replace('"batchTimestampMs":1', '"batchTimestampMs":2'))
    create(resolve_target(str(folder)))
    lose(folder, f"offsets/{newest + 1}", f"commits/{newest + 1}")
    done(folder)
    assert (folder / f"commits/{newest + 1}").exists()


def test_plan_is_the_same_after_it_was_taken_back(folder: Path) -> None:
    lose(folder, "offsets/8", "commits/7", "offsets/7")
    first = done(folder)
    assert {"offsets/7", "offsets/8", "commits/7"} == {step.path for step in first.steps}
    create(resolve_target(str(folder)))
    undo(first.recovery, target=resolve_target(str(folder)), driver_is_dead=True)
    again = planned(folder)
    assert (again.steps, again.promise) == (first.steps, first.promise)


def test_seed_that_was_taken_back_is_not_put_back(folder: Path) -> None:
    first = done(folder, "fresh", StartChoice(batch=4))
    create(resolve_target(str(folder)))
    undo(first.recovery, target=resolve_target(str(folder)), driver_is_dead=True)
    found = planned(folder)
    assert (found.steps, found.promise.batch) == ((), 8)


def test_checkpoint_that_was_left_behind_stays_so(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    file.write_text("")
    done(folder, "fresh", StartChoice(batch=4), via=StartFile(str(file), StartForm.PROPERTIES, "starting"))
    found = planned(folder)
    assert (found.steps, found.promise.outcome) == ((), "starts")
    shutil.rmtree(folder)
    again = planned(folder)
    assert (again.steps, again.promise.outcome) == ((), "starts")
    with pytest.raises(BackupMissingError):
        restore(resolve_target(str(folder)))


def test_recovery_whose_plan_cannot_be_read_is_told(folder: Path) -> None:
    plan = done(folder, "replan")
    location = parse_location(str(folder))
    file = locate_recoveries(location) / f"{plan.recovery}/plan.json"
    Path(str(file)).write_text("{}")
    with pytest.raises(PlanInvalidError):
        find_endings(LocalStorage(), location)


def test_recovery_that_was_given_up_before_it_began_says_nothing(folder: Path) -> None:
    plan = done(folder, "replan")
    location = parse_location(str(folder))
    room = Path(str(locate_recoveries(location) / plan.recovery))
    for stage in ("begun", "applying", "applied", "closed"):
        (room / f"{stage}.json").unlink()
    assert find_endings(LocalStorage(), location) == []
