"""`recover` in a loop, as schedulers call it, on a batch that always fails."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from planning import broker

from lastgood.errors import UsageError
from lastgood.journal.attempts_file import locate_attempts_file, read_attempts
from lastgood.journal.incidents import find_last_incident
from lastgood.ladder.tally import parse_tally
from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.recover import recover
from lastgood.operations.status import status
from lastgood.planning.price import Waiver
from lastgood.recovery.applying import Owner, undo
from lastgood.recovery.deciding import decide
from lastgood.recovery.decision import Decision
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder

BATCHES = 7
KNOWN = EvidenceOptions(sinks=("file:sink",))
NOBODY_ASKED = EvidenceOptions()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def query(tmp_path: Path) -> CheckpointBuilder:
    """Seven batches are committed, the file sink has them; an eighth is planned, and always fails."""
    built = CheckpointBuilder(tmp_path / "chk")
    built.run(BATCHES)
    built.plan()
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(BATCHES):
        (log / str(number)).write_bytes(b"v1")
    return built


def call(
    query: CheckpointBuilder,
    evidence: EvidenceOptions = NOBODY_ASKED,
    *accept: Waiver,
    told: list[str] | None = None,
    observe: bool = False,
    go_on: bool = False,
) -> Decision:
    said: list[str] = []
    options = PlanOptions(evidence=evidence, accept=accept)
    return recover(
        resolve_target(str(query.folder)),
        options,
        driver_is_dead=True,
        observe=observe,
        go_on=go_on,
        tell=(said if told is None else told).append,
    )


def calls(query: CheckpointBuilder, times: int, evidence: EvidenceOptions = NOBODY_ASKED, *accept: Waiver) -> list[str]:
    """The goals of what was carried out, else what was decided."""
    made = [call(query, evidence, *accept) for _ in range(times)]
    return [each.verdict.value if each.recovery is None else each.recovery.plan.goal for each in made]


def note(query: CheckpointBuilder) -> Path:
    return Path(locate_attempts_file(parse_location(str(query.folder))).path)


def failures(query: CheckpointBuilder) -> int:
    kept = read_attempts(LocalStorage(), parse_location(str(query.folder)))
    return 0 if kept is None else parse_tally(kept).failures


def plan_again(query: CheckpointBuilder) -> None:
    """The application is started, plans batch 7 as it did before, and fails."""
    (query.folder / "offsets/7").write_bytes((query.folder / "offsets/6").read_bytes())


def test_batch_that_always_fails_is_planned_anew_where_that_is_exact(query: CheckpointBuilder) -> None:
    assert calls(query, 4, KNOWN) == ["start", "start", "start", "replan"]
    assert not (query.folder / "offsets/7").exists()


def test_person_is_called_in_the_end_and_stays_called(query: CheckpointBuilder) -> None:
    assert calls(query, 8) == ["start"] * 6 + ["person"] * 2
    found = call(query)
    assert (
        found.because
        == "batch 7 failed 6 times in a row without a new committed batch, and nobody has accepted duplicates"
    )
    assert found.failed is not None
    assert found.failed.times == 6
    told = find_last_incident(LocalStorage(), parse_location(str(query.folder)))
    assert told is not None
    assert (told.cause_line, len(told.attempts)) == (f"ATTEMPTS_EXHAUSTED: {found.because}", 3)
    assert found.plan is not None
    assert found.plan.goal == "replan"
    assert found.file is not None
    assert found.next is not None
    assert "--goal replan" in found.next
    assert "--accept duplicates" in found.next


def test_policy_that_allows_no_attempt_calls_a_person_at_the_first_failure(query: CheckpointBuilder) -> None:
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{query.folder}"\npolicy = {{ max_attempts = 0 }}\n'
    )
    assert calls(query, 2) == ["start", "person"]
    assert call(query).because == "batch 7 failed once without a new committed batch"


def test_person_who_accepts_the_price_gets_it_at_the_next_call(query: CheckpointBuilder) -> None:
    calls(query, 7)
    assert calls(query, 1, NOBODY_ASKED, Waiver.DUPLICATES) == ["replan"]


def test_batch_that_fails_after_it_was_planned_anew_is_not_planned_anew_for_ever(query: CheckpointBuilder) -> None:
    assert calls(query, 4, KNOWN)[-1] == "replan"
    plan_again(query)
    assert calls(query, 4, KNOWN) == ["start", "start", "person", "person"]
    found = call(query, KNOWN)
    assert found.error is not None
    assert found.error.condition == "ATTEMPTS_EXHAUSTED"
    assert found.next == f"lastgood recover {query.folder} --go-on --driver-is-dead --sink file:sink"


def test_offsets_go_back_where_planning_anew_did_not_help_and_no_sink_tells(query: CheckpointBuilder) -> None:
    both = (Waiver.DUPLICATES, Waiver.LOSS)
    assert calls(query, 4, NOBODY_ASKED, *both)[-1] == "replan"
    plan_again(query)
    assert calls(query, 1, NOBODY_ASKED, *both) == ["reposition"]


def start_until_it_fails(query: CheckpointBuilder, at: int) -> None:
    """What Spark does on the logs as they are: five offsets a batch, until one would read the offset `at`."""
    offsets, commits = query.folder / "offsets", query.folder / "commits"

    def newest(folder: Path) -> int:
        return max(int(each.name) for each in folder.iterdir() if each.name.isdecimal())

    def end(batch: int) -> int:
        ends: dict[str, dict[str, int]] = json.loads((offsets / str(batch)).read_text().splitlines()[-1])
        return ends["orders"]["0"]

    while True:
        batch = newest(commits) + 1
        if newest(offsets) < batch:
            before = (offsets / str(batch - 1)).read_text()
            stood = end(batch - 1)
            (offsets / str(batch)).write_text(before.replace(f":{stood}", f":{stood + 5}"))
        if end(batch) > at >= end(batch - 1):
            return
        (commits / str(batch)).write_bytes((commits / str(batch - 1)).read_bytes())


def test_query_that_fails_at_the_same_record_for_ever_goes_back_once(query: CheckpointBuilder) -> None:
    made: list[str] = []
    for _ in range(30):
        made += calls(query, 1, NOBODY_ASKED, Waiver.DUPLICATES)
        if made[-1] == "person":
            break
        start_until_it_fails(query, at=37)
    assert (made[-1], made.count("reposition")) == ("person", 1)


def test_query_that_got_beyond_what_it_read_before_may_go_back_again(query: CheckpointBuilder) -> None:
    made: list[str] = []
    for at in (37, 52):  # beyond the first record that it failed at, and what had been planned with it
        for _ in range(9):
            made += calls(query, 1, NOBODY_ASKED, Waiver.DUPLICATES)
            start_until_it_fails(query, at)
    assert made.count("reposition") == 2


def test_nothing_more_is_tried_before_what_was_tried_has_failed(query: CheckpointBuilder) -> None:
    both = (Waiver.DUPLICATES, Waiver.LOSS)
    assert calls(query, 4, KNOWN, *both)[-1] == "replan"
    assert calls(query, 3, NOBODY_ASKED, *both) == ["start"] * 3
    assert failures(query) == 3


def test_person_who_has_looked_begins_anew(query: CheckpointBuilder) -> None:
    calls(query, 8)
    assert call(query, go_on=True).verdict.value == "start"
    assert calls(query, 6) == ["start"] * 5 + ["person"]


def test_going_on_means_nothing_beside_another_goal(query: CheckpointBuilder) -> None:
    with pytest.raises(UsageError):
        recover(resolve_target(str(query.folder)), PlanOptions("replan"), go_on=True)


def test_new_committed_batch_begins_anew(query: CheckpointBuilder) -> None:
    calls(query, 5)
    query.commit()
    query.plan()
    assert failures(query) > 0
    assert calls(query, 3) == ["start"] * 3
    assert failures(query) == 2


def test_repair_that_a_person_made_begins_anew(query: CheckpointBuilder) -> None:
    calls(query, 7)
    made = recover(
        resolve_target(str(query.folder)), PlanOptions("replan", evidence=KNOWN), driver_is_dead=True
    ).recovery
    assert made is not None
    undo(made.id, target=resolve_target(str(query.folder)), driver_is_dead=True)
    assert calls(query, 2) == ["start"] * 2
    assert failures(query) == 1


def test_query_without_an_orphan_leaves_nothing_beside_its_checkpoint(query: CheckpointBuilder) -> None:
    query.commit()
    calls(query, 3)
    assert not note(query).exists()


def test_note_of_a_query_that_has_recovered_goes(query: CheckpointBuilder) -> None:
    calls(query, 3)
    query.commit()
    assert calls(query, 1) == ["start"]
    assert not note(query).exists()


def test_observing_counts_nothing_and_tells_what_would_be_done(query: CheckpointBuilder) -> None:
    for _ in range(5):
        call(query, KNOWN, observe=True)
    assert not note(query).exists()
    calls(query, 3, KNOWN)
    before = note(query).read_bytes()
    for _ in range(2):
        found = call(query, KNOWN, observe=True)
        assert (found.because, found.plan is not None and found.plan.goal) == (
            "the plan would be carried out",
            "replan",
        )
    assert note(query).read_bytes() == before
    assert (query.folder / "offsets/7").exists()


def test_supervisor_counts_for_itself(query: CheckpointBuilder) -> None:
    for _ in range(3):
        decide(resolve_target(str(query.folder)), owner=Owner())
    assert not note(query).exists()


@pytest.mark.parametrize("raw", [b"", b"\x00\xff", b"[1", b'{"format": 1, "told_ms": "x"}', b"{" * 200_000])
def test_note_that_is_none_of_ours_is_left_out_of_account_with_a_word(query: CheckpointBuilder, raw: bytes) -> None:
    note(query).parent.mkdir()
    note(query).write_bytes(raw)
    told: list[str] = []
    assert call(query, told=told).verdict.value == "start"
    assert [line for line in told if "attempts.json is not understood" in line]
    told.clear()
    assert call(query, told=told).failed is not None
    assert told == []


def test_note_in_a_lake_that_we_may_not_write_to_stands_in_nobodys_way(query: CheckpointBuilder) -> None:
    note(query).mkdir(parents=True)  # as good as forbidden, also where tests run as root
    told: list[str] = []
    assert call(query, told=told).verdict.value == "start"
    assert any("a failure of it is not counted" in line for line in told)


def test_forged_note_makes_nothing_allowed(query: CheckpointBuilder) -> None:
    calls(query, 2)
    told = json.loads(note(query).read_bytes())
    note(query).write_text(json.dumps({**told, "failures": 10**9, "since_ms": 0, "tried": []}))
    assert call(query).verdict.value == "person"
    assert (query.folder / "offsets/7").exists()


def test_two_calls_at_once_are_one_attempt(query: CheckpointBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    calls(query, 2)
    before = note(query).read_bytes()
    calls(query, 1)
    first = failures(query)
    note(query).write_bytes(before)  # the second has read it before the first wrote
    calls(query, 1)
    assert failures(query) == first == 2


def test_nothing_is_counted_while_kafka_is_silent(query: CheckpointBuilder) -> None:
    silent = replace(broker((0, 99), (0, 99)), unknown="no answer within 9 s")
    Path("facts.json").write_text(json.dumps(silent.to_json()))
    asked = EvidenceOptions(kafka="facts.json")
    assert calls(query, 9, asked) == ["start"] * 9
    assert failures(query) == 0
    assert calls(query, 3) == ["start"] * 3
    assert failures(query) == 3


AWAY = {
    "language": "java",
    "class_name": "org.apache.kafka.common.errors.TimeoutException",
    "message": "Timed out waiting for a node assignment.",
}
POISON = {"language": "java", "condition": "DIVIDE_BY_ZERO", "message": "[DIVIDE_BY_ZERO] Division by zero."}
UNREADABLE = {"language": "java", "class_name": "java.io.IOException", "message": "Cannot read the rules."}
LATE_MS = 2 * 10**12


def recorded(
    query: CheckpointBuilder,
    at_ms: int,
    cause: dict[str, str] | None,
    *,
    kind: str = "terminated",
    query_id: str | None = QUERY_ID,
) -> None:
    """The application has a recorder, which saw why it ended; without a cause it was done."""
    record = {
        "kind": kind,
        "format_version": 1,
        "recorded_at_ms": at_ms,
        "query_id": query_id,
        "failure": None if cause is None else {"message": cause["message"], "causes": [cause]},
    }
    folder = Path(f"{query.folder}.lastgood/records")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{STARTED_MS:013d}-1.000001.jsonl").write_text(json.dumps(record) + "\n")


def test_what_a_recorder_saw_pass_by_itself_is_not_counted(query: CheckpointBuilder) -> None:
    recorded(query, LATE_MS, AWAY)
    assert calls(query, 9) == ["start"] * 9
    assert failures(query) == 0


def test_record_from_before_the_last_start_says_nothing_of_it(query: CheckpointBuilder) -> None:
    recorded(query, 1, AWAY)
    calls(query, 3)
    assert failures(query) == 2


def test_data_that_user_code_fails_on_are_not_planned_anew(query: CheckpointBuilder) -> None:
    recorded(query, LATE_MS, POISON)
    assert calls(query, 7, KNOWN) == ["start"] * 6 + ["person"]


def test_query_that_fails_before_it_plans_a_batch_is_counted_where_a_recorder_saw_it(query: CheckpointBuilder) -> None:
    query.commit()
    recorded(query, LATE_MS, UNREADABLE)
    assert calls(query, 6) == ["start"] * 6
    called = call(query)
    assert (called.verdict.value, called.error is not None) == ("person", True)
    assert called.because.startswith("the query failed 6 times in a row before it had planned a batch, and ")
    assert call(query, go_on=True).verdict.value == "start"
    assert failures(query) == 0


def test_query_without_a_batch_that_ends_well_begins_the_count_anew(query: CheckpointBuilder) -> None:
    query.commit()
    recorded(query, LATE_MS, UNREADABLE)
    calls(query, 3)
    assert failures(query) == 2
    recorded(query, LATE_MS, None)
    calls(query, 1)
    assert failures(query) == 0


def test_end_of_a_driver_for_another_query_is_no_failure_of_an_idle_one(query: CheckpointBuilder) -> None:
    query.commit()
    recorded(query, LATE_MS, UNREADABLE, kind="crashed", query_id=None)
    assert calls(query, 9) == ["start"] * 9
    assert failures(query) == 0


def test_status_tells_what_has_failed_as_long_as_nothing_was_committed(query: CheckpointBuilder) -> None:
    calls(query, 1)
    assert status(resolve_target(str(query.folder))).failed is None
    calls(query, 2)
    found = status(resolve_target(str(query.folder))).to_json()["failed"]
    assert (found["batch"], found["times"]) == (7, 2)
    query.commit()
    assert status(resolve_target(str(query.folder))).failed is None
    note(query).write_bytes(b"{")
    assert status(resolve_target(str(query.folder))).to_json()["failed"] is None


def test_lost_checkpoint_is_judged_as_ever(query: CheckpointBuilder) -> None:
    calls(query, 3)
    shutil.rmtree(query.folder)
    assert call(query).verdict.value == "start"
