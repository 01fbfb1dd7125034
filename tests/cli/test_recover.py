"""`recover`, as a scheduler calls it before the application."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from foreign import KINESIS, Lines
from typed import call

from lastgood.journal.holding import locate_lock_file
from lastgood.lab.ports import find_free_port
from lastgood.operations.backup import create
from lastgood.recovery.hold import hold_checkpoint
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.storage.services import make_impatient
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = [sys.executable, "-c", "from lastgood.cli.main import main; main()"]
DEAD = "--driver-is-dead"
REPLAN = ("--goal", "replan")
SINK = ("--sink", "file:sink")

Damaged = tuple[Path, dict[str, bytes]]
"""A checkpoint, and its files as they were before the damage."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, an eighth is planned."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    return tmp_path / "chk"


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return call("recover", *words)


def answer(*words: object, code: int = 0) -> dict[str, Any]:
    done = run(*words, "--format", "json")
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.fixture
def damaged(tmp_path: Path) -> Damaged:
    """Seven batches are committed, and `SINK` has them; the newest plan is cut off, and the mirror has it."""
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint).run(7)
    create(resolve_target(str(checkpoint)))
    before = files(checkpoint)
    (checkpoint / "offsets/6").write_bytes(b"v1\n{")
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(7):
        (log / str(number)).write_bytes(b"v1")
    return checkpoint, before


def test_plain_restart_is_told_at_once_and_needs_nothing(checkpoint: Path) -> None:
    before = files(checkpoint)
    told = answer(checkpoint)
    assert (told["decision"], told["steps"], told["from_batch"], told["error"]) == ("start", [], 7, None)
    assert files(checkpoint) == before


def test_first_start_names_where_nothing_was_found(tmp_path: Path) -> None:
    done = run(tmp_path / "typo")
    assert done.returncode == 0
    assert f"a first start: no batch was ever planned at {tmp_path}/typo, and no sink was named" in done.stdout


@pytest.mark.parametrize("has_begun", [False, True], ids=["nothing", "metadata"])
def test_start_of_which_nobody_can_tell_that_it_is_the_first_is_warned_of(tmp_path: Path, *, has_begun: bool) -> None:
    if has_begun:  # a start that failed before its first batch
        CheckpointBuilder(tmp_path / "chk")
    told = answer("./chk")
    assert (told["decision"], told["warning"]["condition"]) == ("start", "FIRST_START_UNPROVEN")
    assert told["warning"]["severity"] == "warning"
    assert "--sink LOCATION" in told["warning"]["evidence"]["name"]
    shown = run("./chk")
    assert shown.returncode == 0
    text = " ".join(shown.stdout.split())
    assert "Warning: Whether the query has ever run nobody can tell: no sink was named." in text
    assert "Name what can tell (--sink LOCATION, --kafka SERVERS, --topic NAME), or say --first-start." in text
    assert answer("./chk", "--first-start")["warning"] is None
    assert "Warning" not in run("./chk", "--first-start").stdout


def test_sink_that_tells_leaves_nothing_to_warn_of(tmp_path: Path, checkpoint: Path) -> None:
    assert answer("./new", "--sink", "delta:no-table")["warning"] is None
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/part-0").write_text("rows of somebody")
    told = answer("./new", "--sink", "texts")
    assert told["warning"]["evidence"]["silent"] == [str(tmp_path / "texts")]
    assert answer(checkpoint)["warning"] is None


@pytest.fixture
def _forgets_s3() -> Iterator[None]:
    """No access to S3 that another test of this process was given, with its credentials, and none for the next ones."""
    filesystem = make_impatient(fsspec.get_filesystem_class("s3"), "s3")
    filesystem.clear_instance_cache()
    yield
    filesystem.clear_instance_cache()


@pytest.mark.usefixtures("_forgets_s3")
def test_lost_checkpoint_waits_for_a_sink_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ENDPOINT_URL": "http://127.0.0.1:9", "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    told = answer("./lost", "--sink", "s3a://lake/table", code=75)
    assert told["decision"] == "later"
    assert "nobody can tell whether this is a first start: s3a://lake/table" in told["because"]


def test_sink_that_is_not_there_is_named_at_a_first_start(tmp_path: Path) -> None:
    told = answer(tmp_path / "chk", "--sink", f"delta:{tmp_path}/typo")
    assert told["because"].endswith(f"; nothing is at {tmp_path}/typo")


def test_what_more_could_be_done_is_told_with_the_command_that_looks_for_a_way(checkpoint: Path) -> None:
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\ndriver_check = ["true"]\n'
        'policy = { same_batch = 1, accept = ["duplicates"], via = "app-config", start_file = "start.json" }\n'
    )
    for _ in range(2):
        answer("orders")
    done = run("orders")
    way_on = "lastgood plan orders --goal fresh --stable-lag 3 --accept duplicates"
    assert "more could be done than a restart: the query would begin at batch 0" in done.stdout
    assert f"go by numbers; {way_on}\n" in done.stdout
    assert call(*shlex.split(way_on)[1:]).returncode == 0


def test_word_of_a_person_overrules_no_sink(tmp_path: Path) -> None:
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").write_bytes(b"v1")
    told = answer("./lost", *SINK, "--first-start", code=3)
    assert "a sink holds batches" in told["because"]


def test_name_is_no_first_start_where_its_configuration_is_not(checkpoint: Path) -> None:
    error = answer("orders", code=2)["error"]
    assert (error["condition"], error["found"]) == ("USAGE", "no lastgood.toml here")
    assert error["expected"] == "./orders for a folder that is not there yet"


def test_what_costs_nothing_is_carried_out(damaged: Damaged) -> None:
    checkpoint, before = damaged
    told = answer(checkpoint, *SINK, DEAD)
    assert (told["decision"], told["state"]) == ("start", "applied")
    assert files(checkpoint) == before
    assert answer(checkpoint)["steps"] == []


def test_what_nobody_accepted_waits_for_a_person_with_the_plan_saved(checkpoint: Path) -> None:
    before = files(checkpoint)
    told = answer(checkpoint, *REPLAN, DEAD, code=3)
    assert (told["decision"], told["needs"]) == ("person", ["duplicates"])
    assert json.loads(Path(told["file"]).read_bytes())["recovery"] == told["recovery"]
    assert files(checkpoint) == before
    assert told["file"] in run(checkpoint, *REPLAN, DEAD, "-o", told["file"]).stdout


@pytest.mark.parametrize("target", ["orders", "chk"])
def test_what_the_policy_accepts_is_carried_out(checkpoint: Path, target: str) -> None:
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\ndriver_check = ["true"]\n'
        'policy = { accept = ["duplicates"] }\n'
    )
    told = answer(target, *REPLAN)
    assert (told["decision"], told["state"], told["accepted"]) == ("start", "applied", ["duplicates"])


def test_command_that_accepts_the_price_carries_the_plan_out(checkpoint: Path) -> None:
    config = f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\ndriver_check = ["true"]\n'
    Path("lastgood.toml").write_text(config)
    assert answer("orders", *REPLAN, code=3)["next"].endswith("--goal replan --accept duplicates")  # it is looked
    Path("lastgood.toml").unlink()
    told = answer(checkpoint, *REPLAN, code=3)
    assert told["next"].endswith(f"--goal replan --accept duplicates {DEAD}")
    assert (
        "First see that the application has ended. Allow it with: lastgood recover" in run(checkpoint, *REPLAN).stdout
    )
    done = call(*shlex.split(told["next"])[1:])
    assert (done.returncode, "Start the application now" in done.stdout) == (0, True)


def test_policy_that_accepts_what_there_is_not_is_a_clear_error(checkpoint: Path) -> None:
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\npolicy = {{ accept = ["everything"] }}\n'
    )
    error = answer("orders", code=2)["error"]
    assert "pipeline.orders.policy.accept" in error["subject"]
    assert "duplicates, loss" in error["expected"]


def test_driver_that_may_be_alive_is_left_to_a_person(damaged: Damaged) -> None:
    checkpoint, _ = damaged
    before = files(checkpoint)
    told = answer(checkpoint, *SINK, code=3)
    assert (told["decision"], told["error"]["condition"]) == ("person", "DRIVER_NOT_PROVEN_DEAD")
    assert Path(told["file"]).exists()
    assert files(checkpoint) == before


@pytest.mark.parametrize("words", [(), REPLAN])
def test_observe_changes_nothing_and_always_exits_with_0(checkpoint: Path, words: tuple[str, ...]) -> None:
    before = files(checkpoint)
    answer(checkpoint, *words, "--observe", DEAD)
    assert files(checkpoint) == before


def test_observe_says_what_would_be_done(damaged: Damaged) -> None:
    checkpoint, _ = damaged
    before = files(checkpoint)
    told = answer(checkpoint, *SINK, "--observe", DEAD)
    assert (told["decision"], told["because"]) == ("start", "the plan would be carried out")
    assert files(checkpoint) == before


def test_repair_that_was_interrupted_is_finished(damaged: Damaged) -> None:
    checkpoint, before = damaged
    damage = (checkpoint / "offsets/6").read_bytes()
    told = answer(checkpoint, *SINK, DEAD)
    folder = Path(f"{checkpoint}.lastgood/recoveries/{told['recovery']}")
    for stage in ("applied", "closed"):
        (folder / f"{stage}.json").unlink()
    (checkpoint / "offsets/6").write_bytes(damage)
    (checkpoint / "offsets/7").write_bytes(b"")
    assert "would be finished" in answer(checkpoint, "--observe")["because"]
    unproven = answer(checkpoint, code=3)
    assert (unproven["decision"], unproven["error"]["condition"]) == ("person", "DRIVER_NOT_PROVEN_DEAD")
    assert unproven["next"] == f"lastgood recover {checkpoint} {DEAD}"
    again = answer(checkpoint, DEAD)
    assert (again["decision"], again["recovery"]) == ("start", told["recovery"])
    assert files(checkpoint) == before


def interrupted(damaged: Damaged, *stages: str) -> tuple[str, Path]:
    """A recovery and its folder, of which only these stages are left: the checkpoint is damaged as it was before."""
    checkpoint, _ = damaged
    damage = (checkpoint / "offsets/6").read_bytes()
    recovery = answer(checkpoint, *SINK, DEAD)["recovery"]
    folder = Path(f"{checkpoint}.lastgood/recoveries/{recovery}")
    for note in folder.glob("*.json"):
        if note.stem not in ("plan", *stages):
            note.unlink()
    (checkpoint / "offsets/6").write_bytes(damage)
    return recovery, folder


def test_repair_that_was_sealed_is_taken_back_and_planned_anew_where_a_sink_has_moved(damaged: Damaged) -> None:
    checkpoint, before = damaged
    recovery, folder = interrupted(damaged, "begun")
    (checkpoint / "offsets/7").write_bytes(b"")  # its seal
    (checkpoint.parent / "sink/_spark_metadata/6").unlink()
    told = run(checkpoint, *SINK, DEAD, "--accept", "duplicates")
    assert f"recovery {recovery} was interrupted and cannot be finished: it is taken back" in told.stdout
    assert told.returncode == 0
    assert (folder / "taken_back.json").exists()
    assert not (checkpoint / "offsets/7").exists()
    assert files(checkpoint).items() <= before.items()


def test_repair_that_was_sealed_is_planned_anew_where_a_file_has_changed(damaged: Damaged) -> None:
    checkpoint, before = damaged
    recovery, _ = interrupted(damaged, "begun")
    (checkpoint / "offsets/6").write_bytes(b"v1\n{}")
    assert answer(checkpoint, *SINK, DEAD, code=75)["error"]["condition"] == "PLAN_STALE"
    again = answer(checkpoint, *SINK, DEAD)
    assert (again["decision"], again["state"]) == ("start", "applied")
    assert again["recovery"] != recovery
    assert files(checkpoint) == before


def test_undo_that_was_interrupted_is_finished_and_what_is_right_planned_anew(damaged: Damaged) -> None:
    checkpoint, before = damaged
    recovery, folder = interrupted(damaged, "begun", "applying", "applied", "closed")
    (checkpoint / "offsets/6").write_bytes(before["offsets/6"])
    (folder / "undoing.json").write_bytes((folder / "begun.json").read_bytes())
    assert "would be taken back first" in answer(checkpoint, *SINK, "--observe")["because"]
    again = answer(checkpoint, *SINK, DEAD)
    assert (again["decision"], again["state"]) == ("start", "applied")
    assert again["recovery"] != recovery
    assert files(checkpoint) == before


def test_damaged_note_of_a_recovery_is_named(damaged: Damaged) -> None:
    checkpoint, _ = damaged
    _, folder = interrupted(damaged, "begun", "applying", "applied", "closed")
    (folder / "undoing.json").write_bytes(b"{")
    before = files(checkpoint)
    error = answer(checkpoint, *SINK, DEAD, code=50)["error"]
    assert error["condition"] == "PLAN_INVALID"
    assert error["subject"].endswith("undoing.json")
    assert files(checkpoint) == before


def test_first_start_is_told_from_a_lost_checkpoint(damaged: Damaged, tmp_path: Path) -> None:
    checkpoint, _ = damaged
    assert answer(tmp_path / "nothing")["decision"] == "start"
    shutil.rmtree(checkpoint)
    lost = answer(checkpoint, DEAD, code=3)
    assert (lost["decision"], lost["needs"]) == ("person", ["duplicates"])  # the mirror may lack the newest batch
    assert answer(checkpoint, DEAD, "--accept", "duplicates")["state"] == "applied"
    assert (checkpoint / "commits/6").exists()


def test_checkpoint_that_is_gone_is_no_first_start_where_the_sink_holds_batches(tmp_path: Path) -> None:
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    (log / "0").write_bytes(b"v1")
    told = answer(tmp_path / "nothing", "--sink", f"file:{tmp_path / 'sink'}", code=3)
    assert (told["decision"], told["error"]["condition"]) == ("person", "CHECKPOINT_MISSING")
    assert "--goal fresh" in told["error"]["next"]


def test_somebody_else_at_work_is_a_reason_to_try_later(damaged: Damaged) -> None:
    checkpoint, _ = damaged
    with hold_checkpoint(str(checkpoint), locate_lock_file(parse_location(str(checkpoint)))):
        told = answer(checkpoint, *SINK, DEAD, code=75)
    assert told["decision"] == "later"


def test_help_teaches() -> None:
    shown = run("--help").stdout
    assert "spark-submit" in shown
    assert "75" in shown


@pytest.fixture
def of_kinesis(tmp_path: Path) -> Path:
    """Three batches are committed, and stand in the log of a file sink."""
    CheckpointBuilder(tmp_path / "chk", Lines(KINESIS)).run(3)
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_bytes(b"v1")
    return tmp_path / "chk"


def test_a_source_that_cannot_be_asked_is_started_and_not_called_exact(of_kinesis: Path) -> None:
    told = answer(of_kinesis, *SINK, "--observe")
    assert (told["guarantee"], told["steps"]) == ("at_least_once", [])
    assert "source 0 (Kinesis)" in told["rests_on"][-1]


def test_a_persons_word_for_it_counts_from_the_command_line_and_from_the_configuration(
    of_kinesis: Path, tmp_path: Path
) -> None:
    told = answer(of_kinesis, *SINK, "--source-replays", "--observe")
    assert told["guarantee"] == "exactly_once"
    assert "as --source-replays says" in told["rests_on"][-1]
    assert "--source-replays" in told["evidence"]
    (tmp_path / "lastgood.toml").write_text(
        '[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "chk"\nsink = "file:sink"\nsource_replays = true\n'
    )
    assert answer("orders", "--observe")["guarantee"] == "exactly_once"


def test_batch_that_fails_call_after_call_is_told_counted_and_left_to_a_person(checkpoint: Path) -> None:
    Path("lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\n'
        "policy = { same_batch = 1, max_attempts = 1 }\n"
    )
    assert answer("orders")["failed"] is None
    told = answer("orders")["failed"]
    assert (told["batch"], told["times"]) == (7, 1)
    done = run("orders")
    assert done.returncode == 3
    assert "batch 7 failed 2 times in a row without a new committed batch, and nobody has accepted duplicates" in (
        done.stdout
    )
    assert "Allow it with: lastgood recover orders --goal replan --accept duplicates --driver-is-dead" in done.stdout
    assert answer("orders", "--go-on")["failed"] is None
    assert answer("orders", "--observe")["failed"]["times"] == 1


def test_table_without_any_mark_is_a_question_to_a_person_and_not_one_for_later(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"n": [1]}))
    asked = answer(tmp_path / "chk", "--sink", table, code=3)
    assert (asked["decision"], asked["error"]["condition"]) == ("person", "CHECKPOINT_MISSING")
    assert asked["because"].startswith(f"there is no checkpoint, and {table} does not tell whether the query has run")
    assert "it holds no mark of any query" in asked["because"]
    assert asked["next"] == f"lastgood recover {tmp_path / 'chk'} --first-start --sink {table}"
    told = answer(*shlex.split(asked["next"])[2:])
    assert (told["decision"], told["warning"]) == ("start", None)


def test_table_whose_log_is_damaged_is_no_question_for_later_either(tmp_path: Path) -> None:
    table = tmp_path / "table"
    write_deltalake(table, pa.table({"n": [1]}))
    (table / "_delta_log/00000000000000000000.json").write_text("{")
    asked = answer(tmp_path / "chk", "--sink", table, code=3)
    assert "damaged" in asked["because"]


def test_table_that_cannot_be_asked_now_is_asked_later(tmp_path: Path) -> None:
    told = answer(tmp_path / "chk", "--sink", f"delta:webhdfs://127.0.0.1:{find_free_port()}/table", code=75)
    assert told["decision"] == "later"


@pytest.fixture
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a checkpoint was, with nothing beside it; a ledger knows its seven batches."""
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint).run(7)
    made = call("backup", "create", checkpoint, "--ledger", "ledger.db")
    assert made.returncode == 0, made.stderr
    shutil.rmtree(checkpoint)
    shutil.rmtree(tmp_path / "chk.lastgood")
    monkeypatch.setenv("LASTGOOD_LEDGER", "ledger.db")
    return checkpoint


@pytest.mark.parametrize("is_there", ["missing", "empty", "metadata"])
def test_checkpoint_of_which_a_ledger_knows_batches_is_lost_and_no_first_start(remembered: Path, is_there: str) -> None:
    if is_there == "empty":
        remembered.mkdir()
    if is_there == "metadata":  # somebody has started the application on it, and it failed before its first batch
        CheckpointBuilder(remembered)
    for words in ((), ("--first-start",), ("--sink", "delta:no-table")):
        told = answer(remembered, *words, code=3)
        assert told["decision"] == "person"
        assert "the ledger" in told["because"]
    for verb in ("status", "diagnose"):
        done = call(verb, remembered, "--format", "json")
        told = json.loads(done.stdout)
        lost = next(each for each in told["findings"] if each["condition"] == "CHECKPOINT_LOST")
        assert lost["evidence"]["remembered"] == [0, 6]
        assert done.returncode == call(verb, remembered).returncode != 0
    refused = call("plan", remembered, "--format", "json")
    assert refused.returncode != 0
    assert "knows batches" in refused.stdout + refused.stderr


def test_way_on_from_what_a_ledger_knows_can_be_gone(remembered: Path) -> None:
    told = answer(remembered, code=3)
    done = call(*shlex.split(told["next"])[1:], "--accept", "loss", "-o", "plan.json")
    assert done.returncode == 0, done.stderr
    assert "it starts at the end of batch 6" in done.stdout
    assert call("apply", "plan.json", DEAD).returncode == 0
    # It is begun anew on purpose, and no batch of it is lost.
    assert answer(remembered)["decision"] == "start"
    assert "CHECKPOINT_LOST" not in call("diagnose", remembered).stdout


def test_ledger_that_does_not_answer_holds_no_first_start_up_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LASTGOOD_LEDGER", str(tmp_path / "none.db"))
    assert "ledger" not in answer(tmp_path / "new")["warning"]["effect"]  # it is made with the first batch
    Path("ledger.db").write_bytes(b"no database at all, and long enough to be one" * 100)
    monkeypatch.setenv("LASTGOOD_LEDGER", str(tmp_path / "ledger.db"))
    told = answer(tmp_path / "new")
    assert (told["decision"], told["warning"]["condition"]) == ("start", "FIRST_START_UNPROVEN")
    assert f"the ledger sqlite:///{tmp_path}/ledger.db does not either" in told["warning"]["effect"]
    CheckpointBuilder(tmp_path / "begun")
    assert "the ledger" in call("diagnose", tmp_path / "begun").stdout
