"""What repairs print can be typed as it stands, and does what was said; nothing that was said is forgotten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from printed import Answer, Printed, parsed, require_same, run

from lastgood.journal.holding import HoldReason, locate_lock_file
from lastgood.journal.plan_file import parse_plan
from lastgood.planning.plan import ASKED
from lastgood.recovery.hold import hold_checkpoint
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import CheckpointBuilder, KafkaInput

DEAD = "--driver-is-dead"
CONFIG = '[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "chk"\n'


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches of a topic are committed, an eighth is planned."""
    query = CheckpointBuilder(tmp_path / "chk", KafkaInput("orders", 2, 5))
    query.run(7)
    query.plan()
    return tmp_path / "chk"


@pytest.fixture
def kafka(tmp_path: Path) -> list[str]:
    partitions = {str(each): {"earliest": 0, "latest": 99} for each in range(2)}
    facts = {"bootstrap": "b:9092", "captured_at_ms": 1, "topics": {"orders": {"partitions": partitions}}}
    (tmp_path / "kafka.json").write_text(json.dumps(facts))
    return ["--kafka", str(tmp_path / "kafka.json"), "--topic", "orders"]


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


def the(answer: Answer, verb: str) -> Printed:
    (found,) = {each.line for each in answer.printed() if each.verb == verb}
    return parsed(found)


def same(answer: Answer, verb: str) -> Printed:
    import shlex

    printed = the(answer, verb)
    require_same(answer, parsed(shlex.join(["lastgood", *answer.words])), printed)
    return printed


def test_from_a_plan_to_its_undo_by_what_is_printed_alone(checkpoint: Path, kafka: list[str]) -> None:
    before = files(checkpoint)
    planned = run("plan", str(checkpoint), "--goal", "replan", *kafka, "--spark", "4.0", "--fail-on-data-loss", "false")
    assert "Needs     --accept" in planned.out
    assert "Or        " in planned.out
    accepting = [each for each in planned.printed() if "--accept" in each.words]
    accepted = run(*accepting[0].words)
    applied = run(*the(accepted, "apply").words)
    assert (applied.code, files(checkpoint) == before) == (0, False), applied.out
    for form in ("json", "text"):
        told = run("report", "last", "--checkpoint", str(checkpoint), *kafka, "--format", form)
        assert same(told, "undo").words == the(applied, "undo").words
    undone = run(*the(applied, "undo").words)
    assert (undone.code, files(checkpoint)) == (0, before), undone.out


def test_status_names_the_report_of_the_last_incident(checkpoint: Path, kafka: list[str]) -> None:
    assert run("recover", str(checkpoint), "--goal", "replan", *kafka).code == 3
    for form in ("json", "text"):
        told = run("status", str(checkpoint), *kafka, "--format", form)
        assert run(*same(told, "report").words).code == 0


def test_recover_says_its_own_command_with_all_that_was_said(
    checkpoint: Path, kafka: list[str], tmp_path: Path
) -> None:
    (tmp_path / "other.toml").write_text(CONFIG + "[pipeline.orders.policy]\nmax_attempts = 3\n")
    said = ["--goal", "reposition", "--stable-lag", "2", "--spark", "4.0", "--fail-on-data-loss", "false", *kafka]
    words = ["recover", str(checkpoint), *said, "--policy", "other.toml", "-o", "saved.json"]
    again = same(run(*words), "recover")
    assert (again.options["stable_lag"], str(again.options["output"])) == (2, "saved.json")
    assert again.options["driver_is_dead"]
    assert run(*again.words).code == 0
    observed = run(*words[:-4], "--observe", DEAD, "--policy", "other.toml")
    assert observed.code == 0


def test_a_stale_plan_names_the_plan_that_was_asked_for(checkpoint: Path, kafka: list[str]) -> None:
    place = ["--goal", "reposition", "--stable-lag", "2", "--accept", "duplicates"]
    assert run("plan", str(checkpoint), *place, *kafka, "-o", "plan.json").code == 0
    (checkpoint / "offsets" / "9").write_bytes((checkpoint / "offsets" / "7").read_bytes())
    refused = run("apply", "plan.json", DEAD, "--format", "json")
    assert refused.said["error"]["condition"] == "PLAN_STALE"
    again = the(refused, "plan")
    for word in (*place, *kafka):
        assert word in again.words


def test_a_plan_without_a_price_accepted_names_all_of_it(checkpoint: Path, kafka: list[str]) -> None:
    run("plan", str(checkpoint), "--goal", "reposition", "--stable-lag", "2", *kafka, "-o", "plan.json")
    refused = run("apply", "plan.json", DEAD, "--format", "json")
    again = the(refused, "plan")
    assert {"--stable-lag", "--accept", "duplicates", *kafka} <= set(again.words)
    assert run(*again.words, "-o", "more.json").code == 0
    assert not parse_plan(Path("more.json").read_bytes(), "more.json").needs


def test_a_plan_of_an_older_lastgood_still_names_its_goal(checkpoint: Path) -> None:
    run("plan", str(checkpoint), "--goal", "replan", "-o", "plan.json")
    plan = parse_plan(Path("plan.json").read_bytes(), "plan.json")
    assert isinstance(plan.options, dict)
    assert plan.options.pop(ASKED) == ["--goal", "replan"]
    assert plan.make_plan_command() == f"lastgood plan {checkpoint} --goal replan"


def test_where_a_driver_check_knows_nobody_has_to_say_it(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "lastgood.toml").write_text(f'{CONFIG}driver_check = ["true"]\n')
    planned = run("plan", "orders", "--goal", "replan", "--accept", "duplicates")
    assert DEAD not in planned.out
    assert "First see that" not in planned.out
    applied = run(*the(planned, "apply").words)
    assert (applied.code, DEAD in applied.out) == (0, False)
    assert run(*the(applied, "undo").words).code == 0
    assert checkpoint.exists()


def test_a_pipeline_goes_by_its_name_so_that_its_secrets_stay_where_they_are(checkpoint: Path, tmp_path: Path) -> None:
    sink = "sqlite:///fence.db"
    (tmp_path / "lastgood.toml").write_text(f'{CONFIG}sink = "{sink}"\ntopics = ["orders"]\n')
    found = run("diagnose", "orders", "--format", "json")
    commands = [each for each in found.printed() if each.verb != "explain"]
    assert commands
    for each in commands:
        assert each.words[1] == "orders" or "orders" in each.words
        assert sink not in each.line
    other = run("diagnose", "orders", "--kafka", "b:1", "--format", "json")
    assert all("--kafka" in each.words for each in other.printed() if each.verb in ("status", "inspect", "plan"))
    run("diagnose", "orders", "--save", "orders.bundle")
    for each in run("diagnose", "orders.bundle", "--format", "json").printed():
        assert str(checkpoint) in each.words or each.verb == "explain"
    assert checkpoint.exists()


def test_no_password_is_printed(checkpoint: Path) -> None:
    secret = "hid/d@n"
    sink = f"postgresql://me:{secret}@127.0.0.1:1/fences?password=hidden"
    for verb in (["status"], ["diagnose"], ["plan"], ["plan", "--goal", "replan"], ["recover", "--goal", "replan"]):
        for form in ("json", "text"):
            answer = run(verb[0], str(checkpoint), *verb[1:], "--sink", sink, "--format", form)
            assert "hid" not in answer.out
            assert "d@n" not in answer.out


@pytest.mark.parametrize("work", HoldReason)
def test_who_holds_a_checkpoint_is_called_what_it_is(checkpoint: Path, work: HoldReason) -> None:
    run("plan", str(checkpoint), "--goal", "replan", "--accept", "duplicates", "-o", "plan.json")
    with hold_checkpoint(str(checkpoint), locate_lock_file(parse_location(str(checkpoint))), work):
        refused = run("apply", "plan.json", DEAD, "--format", "json").said["error"]
    assert refused["condition"] == "CHECKPOINT_HELD"
    words = {
        HoldReason.RUN: "lastgood run",
        HoldReason.APPLY: "lastgood apply or recover",
        HoldReason.UNDO: "lastgood undo",
        HoldReason.REBUILD: "lastgood rebuild",
        HoldReason.LOAD: "lastgood load",
    }
    assert words[work] in refused["sentence"]


def test_a_batch_too_large_for_its_means_is_to_be_planned_anew(checkpoint: Path, kafka: list[str]) -> None:
    Path("driver.log").write_text(
        "26/11/21 12:39:27 ERROR MicroBatchExecution: Query [id = x, runId = y] terminated with error\n"
        "java.lang.OutOfMemoryError: Java heap space\n\tat x.Y.z(Y:1)\n"
    )
    found = run("diagnose", str(checkpoint), *kafka, "--log", "driver.log", "--format", "json").said["findings"]
    by_name = {each["condition"]: each for each in found}
    anew = parsed(by_name["FAILURE_RESOURCES"]["next"])
    assert anew.words[:2] == ["plan", str(checkpoint)]
    assert set(kafka) | {"replan"} <= set(anew.words)
    assert "--goal replan" in by_name["ORPHAN_BATCH"]["effect"]


def test_verify_says_again_what_was_said() -> None:
    refused = run("verify", "chk", "--key", "id", "--where", "a > 'b'", "--kafka", "b:1", "--format", "json")
    assert parsed(refused.said["error"]["next"]).options | {"data": True} == {
        **parsed("lastgood verify chk --data --key id --kafka b:1 --where 'a > '\\''b'\\'''").options
    }
    submit = "spark-submit --conf spark.hadoop.fs.s3a.secret.key=hidden"
    assert "hidden" not in run("verify", "chk", "--key", "id", "--spark-submit", submit).out
    lacking = run("verify", "chk", "--data", "--key", "id", "--kafka", "b:1", "--format", "json")
    assert lacking.said["error"]["next"] == "lastgood verify chk --data --kafka b:1 --key id --sink TABLE"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_refusal_names_the_other_ways_and_each_can_be_typed(
    checkpoint: Path, kafka: list[str], tmp_path: Path, form: str
) -> None:
    (checkpoint / "offsets/7").unlink()
    facts = json.loads((tmp_path / "kafka.json").read_text())
    facts["topics"]["orders"]["partitions"]["0"]["earliest"] = 50  # what is to be read next has expired
    (tmp_path / "kafka.json").write_text(json.dumps(facts))
    refused = run("plan", str(checkpoint), *kafka, "--spark", "4.0", "--format", form)
    assert refused.code == 57, refused.out
    if form == "json":
        ways = refused.said["error"]["alternatives"]
        assert [each["goal"] for each in ways if each["guarantee"] is not None]
    others = [each for each in refused.printed() if each.verb == "plan"]
    assert others
    asked = parsed(" ".join(["lastgood", *refused.words]))
    for printed in others:
        require_same(refused, asked, printed)
        assert run(*printed.words).code in (0, 1, 3, 57), printed.line


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_open_repair_names_one_command_to_finish_it_and_one_to_take_it_back(
    checkpoint: Path, kafka: list[str], form: str
) -> None:
    planned = run("plan", str(checkpoint), "--goal", "replan", "--accept", "duplicates", "-o", "plan.json", *kafka)
    plan = parse_plan(Path("plan.json").read_bytes(), "plan")
    folder = checkpoint.with_name("chk.lastgood") / "recoveries" / plan.recovery
    folder.mkdir(parents=True)
    (folder / "plan.json").write_bytes(Path("plan.json").read_bytes())
    (folder / "begun.json").write_text("{}")
    assert planned.code == 0
    refused = run("plan", str(checkpoint), *kafka, "--format", form)
    assert refused.code == 49
    finish, back = (the(refused, verb) for verb in ("apply", "undo"))
    if form == "json":
        error = refused.said["error"]
        assert error["next"] == finish.line
        assert error["alternatives"] == [{"because": "take it back", "command": back.line}]
    assert run(*back.words, DEAD).code == 0
