"""`plan`, `apply` and `undo`, as they are typed."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
import pytest
from typed import call

from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = [sys.executable, "-c", "from lastgood.cli.main import main; main()"]
DEAD = "--driver-is-dead"
VIA = ("--via", "app-config", "--start-file", "start.json", "--takes-any-number")


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
    return call(*words)


def answer(*words: object, code: int = 0) -> dict[str, Any]:
    done = run(*words, "--format", "json")
    assert done.returncode == code, done.stdout + done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def replan(checkpoint: Path) -> Path:
    answer("plan", checkpoint, "--goal", "replan", "--accept", "duplicates", "-o", "plan.json")
    return Path("plan.json")


def test_plain_restart_has_no_steps_and_needs_no_proof(checkpoint: Path) -> None:
    before = files(checkpoint)
    planned = answer("plan", checkpoint, "-o", "plan.json")
    assert (planned["goal"], planned["steps"], planned["needs"], planned["from_batch"]) == ("resume", [], [], 7)
    done = run("apply", "plan.json")
    assert (done.returncode, done.stdout) == (0, "Nothing has to be changed: start the application.\n")
    assert files(checkpoint) == before


def test_plan_is_applied_once_and_taken_back_byte_for_byte(checkpoint: Path) -> None:
    before = files(checkpoint)
    plan = replan(checkpoint)
    assert files(checkpoint) == before
    first = answer("apply", plan, DEAD)
    assert (first["state"], first["undo"].split()[:2]) == ("applied", ["lastgood", "undo"])
    after = files(checkpoint)
    assert after != before
    assert answer("apply", plan)["state"] == "already applied"
    assert answer("undo", first["recovery"], DEAD)["state"] == "undone"
    assert files(checkpoint) == before
    assert answer("undo", "last", "--checkpoint", checkpoint, DEAD)["state"] == "already undone"
    assert answer("apply", plan, DEAD, code=52)["error"]["condition"] == "PLAN_STALE"


def test_plan_says_what_it_costs_and_where_it_is_saved(checkpoint: Path) -> None:
    done = run("plan", checkpoint, "--goal", "replan")
    assert done.returncode == 0, done.stderr
    assert "Guarantee at least once" in done.stdout
    assert "Needs     --accept duplicates" in done.stdout
    assert done.stdout.endswith("Nothing has been changed.\n")
    saved = next(Path().glob("plan-*.json"))
    again = f"plan {checkpoint} --goal replan --accept duplicates -o {saved}"
    assert f"Accept what it costs with: lastgood {again}" in done.stdout
    refused = answer("apply", saved, DEAD, code=51)["error"]
    assert (refused["condition"], refused["expected"]) == ("WAIVER_NEEDED", "--accept duplicates")
    assert f"Carry it out with: lastgood apply {saved}" in run(*again.split()).stdout


def test_nothing_is_done_without_a_proof_of_death(checkpoint: Path, tmp_path: Path) -> None:
    before, plan = files(checkpoint), replan(checkpoint)
    assert answer("apply", plan, code=54)["error"]["condition"] == "DRIVER_NOT_PROVEN_DEAD"
    config = '[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "chk"\ndriver_check = ["{}"]\n'
    (tmp_path / "lastgood.toml").write_text(config.format("false"))
    assert answer("apply", plan, code=54)["error"]["found"] == "exit code 1"
    assert files(checkpoint) == before
    (tmp_path / "lastgood.toml").write_text(config.format("true"))
    assert answer("apply", plan)["state"] == "applied"


@pytest.mark.parametrize(
    ("words", "code", "condition"),
    [
        (("apply", "nothing.json"), 2, "USAGE"),
        (("apply", "notes.txt"), 50, "PLAN_INVALID"),
        (("apply", "chk/offsets/3"), 23, "PLAN_NOT_OF_THIS_PLACE"),
        (("undo", "20261121-160058-7f3a"), 56, "RECOVERY_UNKNOWN"),
        (("undo", "last"), 2, "USAGE"),
        (("undo", "last", "--checkpoint", "chk"), 56, "RECOVERY_UNKNOWN"),
        (("plan", "nothing"), 20, "CHECKPOINT_MISSING"),
        (("plan", "chk", "--goal", "reposition"), 2, "USAGE"),
        (("plan", "chk", "--goal", "reposition", "--earliest", "--latest"), 2, "USAGE"),
        (("plan", "chk", "--goal", "reposition", "--stable-lag", "99"), 21, "BATCH_UNKNOWN"),
        (("plan", "chk", "--goal", "reposition", "--at", "{}x"), 2, "STARTING_OFFSETS_INVALID"),
        (("plan", "chk", "--goal", "reposition", "--earliest", "--only", "orders/9"), 2, "USAGE"),
        (("plan", "chk", "--goal", "reposition", "--latest"), 2, "USAGE"),
        (("plan", "chk", "--accept", "everything"), 2, "USAGE"),
        (("plan", "chk", "--stable-lag", "3"), 2, "USAGE"),
        (("plan", "chk", "-o", "no/such/folder/plan.json"), 2, "USAGE"),
    ],
)
def test_bad_input_gets_a_clear_error_and_nothing_is_done(
    checkpoint: Path, words: tuple[str, ...], code: int, condition: str
) -> None:
    Path("notes.txt").write_text("no plan\n")
    before = files(checkpoint)
    assert answer(*words, code=code)["error"]["condition"] == condition
    assert files(checkpoint) == before


def test_plan_edited_by_hand_is_refused(checkpoint: Path) -> None:
    plan = replan(checkpoint)
    plan.write_text(plan.read_text().replace('"replan"', '"resume"'))
    assert answer("apply", plan, DEAD, code=50)["error"]["condition"] == "PLAN_INVALID"


def test_plan_for_a_checkpoint_that_has_moved_is_refused(checkpoint: Path) -> None:
    plan = replan(checkpoint)
    (checkpoint / "commits/7").write_bytes((checkpoint / "commits/6").read_bytes())
    before = files(checkpoint)
    assert answer("apply", plan, DEAD, code=52)["error"]["condition"] == "PLAN_STALE"
    assert files(checkpoint) == before


@pytest.mark.parametrize(
    ("logs", "first"),
    [((), 35), (("commits/6", "offsets/7"), 30), (("commits", "offsets"), 0)],
    ids=["planned anew", "run again", "batch 0"],
)
def test_plan_is_stale_once_records_expire_of_which_spark_would_say_nothing(
    tmp_path: Path, logs: tuple[str, ...], first: int
) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint).run(7)
    for path in logs:
        gone = checkpoint / path
        for file in gone.iterdir() if gone.is_dir() else [gone]:
            file.unlink(missing_ok=True)
    words = ("--kafka", serving(first), "--fail-on-data-loss", "false")
    planned = answer("plan", checkpoint, *words, "-o", "plan.json")
    assert (planned["steps"], planned["options"]["left_out"]) == ([], [])
    assert run("apply", "plan.json").returncode == 0
    serving(first + 2)
    stale = answer("apply", "plan.json", code=52)["error"]
    assert (stale["condition"], stale["found"]) == ("PLAN_STALE", f"orders-0 {first}..{first + 2} expired")
    again = answer("plan", checkpoint, *words, "-o", "again.json")
    assert (again["guarantee"], again["options"]["left_out"]) == ("lossy", [stale["found"]])
    assert answer("apply", "plan.json", code=52)["error"]["expected"] == "all that the first batch is to read"


def serving(earliest: int) -> str:
    """A file of facts: what Kafka has of the topic."""
    parts = {"0": {"earliest": earliest, "latest": 60}, "1": {"earliest": 0, "latest": 60}}
    told = {"bootstrap": "broker:9092", "captured_at_ms": 1, "topics": {"orders": {"partitions": parts}}}
    Path("kafka.json").write_text(json.dumps(told))
    return "kafka.json"


@pytest.mark.parametrize("chosen", [("--stable-lag", "3"), ("--batch", "5")], ids=["stable lag", "batch"])
@pytest.mark.parametrize("goal", [("reposition",), ("fresh", *VIA)], ids=["in place", "via app-config"])
def test_start_after_an_older_batch_leaves_out_nothing_that_was_to_be_read_again(
    tmp_path: Path, chosen: tuple[str, ...], goal: tuple[str, ...]
) -> None:
    """Batch 5 ended at 30; somebody has gone back to 25 since, and batch 8 reads up to 30 again."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(7)
    query.plan()
    back = ("--goal", "reposition", "--stable-lag", 3, "--accept", "duplicates")
    answer("plan", tmp_path / "chk", *back, "-o", "back.json")
    answer("apply", "back.json", DEAD)
    query.commit()
    query.plan(-10)
    planned = answer("plan", tmp_path / "chk", "--goal", *goal, "--kafka", serving(0), *chosen, "-o", "plan.json")
    (source,) = planned["sources"]
    assert (planned["guarantee"], planned["needs"], source["lost"]) == ("at_least_once", ["duplicates"], {})
    assert source["reread"] == {"orders": {"0": [[25, 30]], "1": [[25, 30]]}}
    assert "or lower where the query went back since" in json.dumps(planned)


def test_start_after_an_older_batch_of_a_lost_checkpoint_goes_by_all_plans_of_the_mirror(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(5)
    query.plan(-10)
    query.commit()
    query.run(2)
    answer("backup", "create", tmp_path / "chk")
    shutil.rmtree(tmp_path / "chk")
    words = ("--goal", "fresh", "--kafka", serving(0), "--stable-lag", 3, "-o", "plan.json")
    planned = answer("plan", tmp_path / "chk", *words)
    assert planned["options"]["offsets"] == {"0": {"orders": {"0": 15, "1": 15}}}  # batch 4 ended at 25


def test_topic_that_the_query_does_not_read_any_more_is_no_place_to_start_at(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    older = tmp_path / "chk/offsets/1"
    older.write_text(older.read_text().replace('{"orders"', '{"former":{"0":7},"orders"'))
    words = ("--goal", "reposition", "--batch", 1, "--kafka", serving(0))
    planned = answer("plan", tmp_path / "chk", *words)
    assert (planned["guarantee"], list(planned["sources"][0]["reread"])) == ("at_least_once", ["orders"])


def test_undo_is_refused_once_the_query_has_gone_on(checkpoint: Path) -> None:
    recovery = answer("apply", replan(checkpoint), DEAD)["recovery"]
    newest = max(int(each.name) for each in (checkpoint / "offsets").iterdir() if each.name.isdecimal())
    (checkpoint / f"offsets/{newest + 1}").write_bytes((checkpoint / "offsets/6").read_bytes())
    before = files(checkpoint)
    assert answer("undo", recovery, DEAD, code=55)["error"]["condition"] == "UNDO_REFUSED"
    assert files(checkpoint) == before


def test_seal_of_a_repair_that_was_killed_is_named_and_the_repair_finished(checkpoint: Path) -> None:
    plan = replan(checkpoint)
    whole = _killed_while_sealed(checkpoint, plan)
    found = answer("diagnose", checkpoint, code=1)
    sealed = next(each for each in found["findings"] if each["condition"] == "SEALED_BY_LASTGOOD")
    assert sealed["next"].startswith("lastgood apply ")
    assert all(each["condition"] != "OFFSET_LOG_DAMAGED" for each in found["findings"])
    assert answer("plan", checkpoint, code=49)["error"]["condition"] == "RECOVERY_OPEN"
    # What was noted down of the driver lies in the lake: it has to be proven once more.
    assert answer("apply", plan, code=54)["error"]["condition"] == "DRIVER_NOT_PROVEN_DEAD"
    assert answer("apply", plan, DEAD)["state"] == "applied"
    assert set(files(checkpoint)) == whole


@pytest.mark.parametrize("way", ["next", "undo"])
def test_status_shows_a_sealed_checkpoint_as_ours_with_the_commands_that_go_on(checkpoint: Path, way: str) -> None:
    before, plan = set(files(checkpoint)), replan(checkpoint)
    whole = _killed_while_sealed(checkpoint, plan)
    plan.unlink()  # it is kept beside the checkpoint
    found = answer("status", checkpoint, code=1)
    assert (found["grade"], found["findings"][0]["condition"]) == ("sealed", "SEALED_BY_LASTGOOD")
    shown = run("status", checkpoint).stdout
    assert f"  next         {found['next']}\n  or           {found['undo']}\n" in shown
    assert "in flight" not in shown
    table = run("status", checkpoint.parent).stdout
    assert f"chk: SEALED_BY_LASTGOOD offsets/8: {found['findings'][0]['effect']}\n" in table
    assert f"  next         {found['next']}\n  or           {found['undo']}\n" in table
    below = answer("status", checkpoint.parent, code=1)["checkpoints"]
    assert [(each["grade"], each["next"], each["undo"]) for each in below] == [("sealed", found["next"], found["undo"])]
    answer(*shlex.split(found[way])[1:])
    assert set(files(checkpoint)) == (whole if way == "next" else before)
    assert answer("status", checkpoint)["grade"] in ("healthy", "in_flight")


def _killed_while_sealed(checkpoint: Path, plan: Path) -> set[str]:
    """Kill `apply` by -9 while the seal stands; returns the files that a whole one leaves."""
    script = Path(__file__).parents[1] / "repair" / "killed_apply.py"
    done = subprocess.run(
        [sys.executable, str(script), str(plan), "begin"], capture_output=True, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return {path for path in files(checkpoint) if path not in ("offsets/8", "commits/7")}


def test_of_eight_that_apply_at_once_one_wins_and_the_others_are_told_who_holds_it(checkpoint: Path) -> None:
    plan = replan(checkpoint)
    racing = [forked.begin("apply", plan, DEAD, "--format", "json") for _ in range(8)]
    told = [json.loads(each.end().stdout) for each in racing]
    states = [each.get("state") or each["error"]["condition"] for each in told]
    assert states.count("applied") == 1
    assert set(states) <= {"applied", "already applied", "CHECKPOINT_HELD", "LEASE_HELD"}
    held = [each["error"]["found"] for each in told if "error" in each]
    assert all(found for found in held)


def test_help_teaches(checkpoint: Path) -> None:
    del checkpoint
    for verb in ("plan", "apply", "undo"):
        done = run(verb, "--help")
        assert done.returncode == 0
        assert "Exit codes:" in done.stdout
