"""`after_outage`: what `recover` and `run` do where a query was down for longer."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.failures.ending import Cause
from lastgood.journal.incidents import find_last_incident
from lastgood.ladder.rungs import CommandStanding
from lastgood.operations.recover import recover
from lastgood.recovery.applying import undo
from lastgood.recovery.decision import Decision
from lastgood.recovery.outage import find_outage
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.config import Config
from lastgood.settings.policy import Policy
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.supervise.care import PersonNeededError
from lastgood.supervise.events import Ended, Event, Repaired
from lastgood.supervise.heal import Healer
from lastgood.testing.checkpoints import CheckpointBuilder

HOUR_SECONDS = 3600
BATCHES = 7
LAG = 'after_outage = "1h"\noutage_start = "stable_lag"\nstable_lag = 3\n'
SINK = 'after_outage = "1h"\noutage_start = "at_sink"\n'
PERSON = 'after_outage = "1h"\n'
COSTS = 'accept = ["duplicates"]\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    """Seven batches are committed, and the file sink has them."""
    built = CheckpointBuilder(tmp_path / "chk")
    built.run(BATCHES)
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(BATCHES):
        (log / str(number)).write_bytes(b"v1")
    return built


def down_for(query: CheckpointBuilder, hours: float) -> None:
    then = time.time() - hours * HOUR_SECONDS
    for commit in (query.folder / "commits").iterdir():
        os.utime(commit, (then, then))


def configure(query: CheckpointBuilder, policy: str, *, is_sink_named: bool = True) -> None:
    sink = 'sink = "file:sink"\n' if is_sink_named else ""
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{query.folder}"\n{sink}driver_check = ["true"]\n'
        f"[pipeline.orders.policy]\n{policy}"
    )


def called(*, observe: bool = False, go_on: bool = False) -> Decision:
    return recover(resolve_target("orders"), observe=observe, go_on=go_on)


def carried_out(decision: Decision) -> str | None:
    return None if decision.recovery is None else decision.recovery.plan.goal


@pytest.mark.parametrize("policy", ["", LAG])
def test_query_that_was_not_down_for_long_or_of_which_nobody_says_anything_is_started(
    query: CheckpointBuilder, policy: str
) -> None:
    configure(query, policy)
    down_for(query, 0.9 if policy else 1000)
    found = called()
    assert (found.verdict.value, carried_out(found)) == ("start", None)


def test_query_goes_back_to_stable_offsets_once(query: CheckpointBuilder) -> None:
    configure(query, LAG + COSTS)
    down_for(query, 2)
    assert carried_out(called()) == "reposition"
    for _ in range(3):
        found = called()
        assert (found.verdict.value, carried_out(found)) == ("start", None)


def test_price_that_nobody_has_accepted_calls_a_person_with_the_plan(query: CheckpointBuilder) -> None:
    configure(query, LAG)
    down_for(query, 3.4)
    found = called()
    assert found.verdict.value == "person"
    assert found.because == (
        "the query was down for 3 h 24 min, and after_outage is 1 h: nobody has accepted duplicates"
    )
    assert found.file is not None
    assert found.next is not None
    assert "--goal reposition" in found.next


def test_query_begins_where_its_sink_says(query: CheckpointBuilder) -> None:
    configure(query, SINK)
    down_for(query, 2)
    query.plan()
    found = called()
    assert carried_out(found) == "fresh"
    assert found.plan is not None
    assert found.plan.guarantee.value == "exactly_once"


def test_sink_that_does_not_tell_calls_a_person(query: CheckpointBuilder) -> None:
    configure(query, SINK, is_sink_named=False)
    down_for(query, 2)
    found = called()
    assert found.verdict.value == "person"
    assert found.because.endswith("the sinks do not name the one batch that all of them show")
    assert found.next == "lastgood recover orders --go-on"


def test_person_is_called_until_one_has_looked(query: CheckpointBuilder) -> None:
    configure(query, PERSON)
    down_for(query, 49)
    for _ in range(2):
        found = called()
        assert (found.verdict.value, found.verdict.exit_code) == ("person", 3)
        assert found.because == "the query was down for 2 d 1 h, and after_outage is 1 h"
        assert found.next == "lastgood recover orders --go-on"
    told = find_last_incident(LocalStorage(), parse_location(str(query.folder)))
    assert told is not None
    assert told.outcome == "person"
    assert called(go_on=True).verdict.value == "start"


def test_repair_by_hand_answers_the_outage_also_if_it_is_taken_back(query: CheckpointBuilder) -> None:
    configure(query, PERSON)
    down_for(query, 2)
    query.plan()
    made = recover(resolve_target("orders"), PlanOptions("replan")).recovery
    assert made is not None
    assert called().verdict.value == "start"
    undo(made.id, target=resolve_target("orders"))
    assert called().verdict.value == "start"


def test_observing_tells_and_changes_nothing(query: CheckpointBuilder) -> None:
    configure(query, LAG + COSTS)
    down_for(query, 2)
    before = (query.folder / "offsets/6").read_bytes()
    found = called(observe=True)
    assert found.plan is not None
    assert (found.verdict.value, found.plan.goal, carried_out(found)) == ("start", "reposition", None)
    assert (query.folder / "offsets/6").read_bytes() == before


def test_query_without_a_commit_has_no_age(tmp_path: Path) -> None:
    built = CheckpointBuilder(tmp_path / "new")
    built.plan()
    configure(built, PERSON, is_sink_named=False)
    assert called().verdict.value == "start"


class Timeless(LocalStorage):
    """A storage that tells no times."""

    def stat(self, location):  # type: ignore[no-untyped-def]
        found = super().stat(location)
        return None if found is None else found._replace(modified_ms=None)


def test_commit_whose_time_nobody_tells_is_no_outage_and_that_is_said(
    query: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lastgood.recovery.outage.open_storage", lambda _: Timeless())
    told: list[str] = []
    policy = Policy(after_outage_seconds=1)
    assert find_outage(parse_location(str(query.folder)), policy, now_ms=2 * 10**12, tell=told.append) is None
    assert told == ["nobody tells when batch 6 was committed: after_outage is left out of account"]


def test_going_on_means_nothing_beside_another_goal(query: CheckpointBuilder) -> None:
    configure(query, PERSON)
    with pytest.raises(UsageError):
        recover(resolve_target("orders"), PlanOptions("replan"), go_on=True)


def healer(told: list[Event], *, go_on: bool = False) -> Healer:
    pipeline = Config(Path("lastgood.toml")).pipelines()["orders"]
    target = resolve_target("orders")
    return Healer(pipeline, {parse_location(target.checkpoint): target}, tell=told.append, go_on=go_on)


def test_run_goes_back_to_stable_offsets_once(query: CheckpointBuilder) -> None:
    configure(query, LAG + COSTS)
    down_for(query, 2)
    told: list[Event] = []
    made = healer(told)
    for _ in range(2):
        assert made.before_start(CommandStanding()) is None
    made.close()
    told = [event for event in told if event.name != "repairing"]
    assert [event.goal if isinstance(event, Repaired) else event.name for event in told] == ["reposition", "diagnosed"]


def test_run_calls_a_person_unless_one_has_looked(query: CheckpointBuilder) -> None:
    configure(query, PERSON)
    down_for(query, 2)
    made = healer([])
    with pytest.raises(PersonNeededError) as raised:
        made.before_start(CommandStanding())
    made.close()
    assert raised.value.next == "lastgood run orders --go-on"
    looked = healer([], go_on=True)
    assert looked.before_start(CommandStanding()) is None
    looked.close()


def test_run_does_not_take_the_time_in_which_the_command_ran_for_an_outage(query: CheckpointBuilder) -> None:
    configure(query, PERSON)
    made = healer([])
    assert made.before_start(CommandStanding()) is None
    down_for(query, 9)  # it ran all the time, and had nothing to commit
    ended = Ended(at=time.time(), exit_code=1, signal=None, seconds=1.0, error=None, failure=None, positions={})
    made.note_failure(ended, Cause())
    assert made.before_start(CommandStanding(failures=1, cause=Cause())) is None
    made.close()
