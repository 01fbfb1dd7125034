"""What is carried out all the same: what this machine has planned or begun itself, and what is named on it."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from hostile.attacker import Answer, Attacker, Told, call, tree, writing
from hostile.conftest import planned, table
from hostile.test_trust_plans import parsed, sink

from lastgood.testing.checkpoints import QUERY_ID

DEAD = "--driver-is-dead"


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """The table that the query writes."""
    table(tmp_path / "orders", QUERY_ID, 7)
    return tmp_path / "orders"


@pytest.fixture
def with_sink(attacker: Attacker, orders: Path) -> Told:
    """A plan that fences the table; made on a machine of which this one knows nothing."""
    plan = planned(attacker.checkpoint, orders)
    assert plan["sinks"] == [sink(orders, QUERY_ID)]
    return plan


def apply(*words: object) -> Answer:
    return call("apply", *words, "--format", "json")


def test_own_repair_that_was_interrupted_is_finished_once_the_driver_is_dead(attacker: Attacker, orders: Path) -> None:
    whole, room = interrupted(attacker, orders)
    assert call("recover", attacker.checkpoint, "--format", "json").condition == "DRIVER_NOT_PROVEN_DEAD"
    told = call("recover", attacker.checkpoint, DEAD, "--format", "json")
    assert (told.code, told.json["recovery"], told.json["state"]) == (0, room.name, "applied"), told
    assert tree(attacker.checkpoint).keys() == whole


def interrupted(attacker: Attacker, orders: Path) -> tuple[object, Path]:
    """A repair of this machine, as if it was killed when it was sealed; and what the checkpoint holds after it."""
    assert call("plan", attacker.checkpoint, "--goal", "replan", "--sink", orders, "--accept", "duplicates",
                "-o", "plan.json").code == 0  # fmt: skip
    before = {path: path.read_bytes() for path in attacker.checkpoint.rglob("*") if path.is_file()}
    assert apply("plan.json", DEAD).json["state"] == "applied"
    whole = tree(attacker.checkpoint).keys()
    plan = json.loads(Path("plan.json").read_text())
    room = attacker.work / "recoveries" / plan["recovery"]
    for stage in ("applying", "applied", "closed"):
        (room / f"{stage}.json").unlink()
    for path in attacker.checkpoint.rglob("*"):
        if path.is_file() and path not in before:
            path.unlink()
    for path, content in before.items():
        path.write_bytes(content)
    attacker.seal(plan)
    return whole, room


def test_own_repair_that_somebody_has_changed_is_not_the_own_one_any_more(attacker: Attacker, orders: Path) -> None:
    _, room = interrupted(attacker, orders)
    plan = json.loads((room / "plan.json").read_text())
    attacker.place({**plan, "rests_on": ["something else"]})
    told = call("recover", attacker.checkpoint, DEAD, "--format", "json")
    assert (told.code, told.condition) == (3, "SINK_NOT_NAMED")


@pytest.mark.parametrize("by", ["option", "configuration"])
@pytest.mark.parametrize("verb", ["recover", "apply"])
def test_repair_of_another_machine_is_finished_where_its_sinks_are_named(
    attacker: Attacker, with_sink: Told, orders: Path, by: str, verb: str
) -> None:
    room = attacker.place(with_sink)
    attacker.seal(with_sink)
    words: tuple[object, ...] = ("recover", attacker.checkpoint) if verb == "recover" else ("apply", room / "plan.json")
    words = (*words, DEAD, "--format", "json")
    assert call(*words).condition == "SINK_NOT_NAMED"
    if by == "option":
        words = (*words, "--sink", f"delta:{orders}")
    else:
        configure(attacker.checkpoint, f'sink = "{orders}"')
    told = call(*words)
    assert (told.code, told.json.get("state")) == (0, "applied"), told
    versions = DeltaTable(orders).version()
    assert versions > 6, "it was fenced"
    undone = call("undo", room.name, "--checkpoint", attacker.checkpoint, DEAD, "--format", "json")
    assert undone.json["state"] == "undone", "this machine remembers what was named when it finished the repair"


def configure(checkpoint: Path, *lines: str) -> None:
    query = "\n".join(lines)
    Path("lastgood.toml").write_text(f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\n{query}\n')


def test_plan_by_hand_is_carried_out_and_what_it_touches_elsewhere_is_allowed_first(
    attacker: Attacker, with_sink: Told, orders: Path, tmp_path: Path
) -> None:
    """It came by mail: nobody on this machine has ever named the table or the file."""
    file = tmp_path / "start.json"
    del attacker
    Path("plan.json").write_text(json.dumps(signed_by_hand(writing(with_sink, file, b"{}\n"))))
    told = apply("plan.json", DEAD)
    assert (told.code, told.condition) == (2, "PLAN_NOT_ALLOWED")
    assert told.json["error"]["found"] == f"it writes {file}; it commits to {orders}"
    assert told.json["error"]["next"].endswith(f"--allow-start-file {file} --allow-sink {orders}")
    refused = apply("plan.json", DEAD, "--allow-start-file", file)
    assert refused.condition == "PLAN_NOT_ALLOWED"
    assert refused.json["error"]["next"] == f"lastgood apply plan.json {DEAD} --start-file {file} --allow-sink {orders}"
    assert not file.exists()
    done = apply("plan.json", DEAD, "--allow-start-file", file, "--allow-sink", orders)
    assert done.json["state"] == "applied", done
    assert file.exists()


def signed_by_hand(plan: Told) -> Told:
    from hostile.attacker import signed

    told: Told = json.loads(signed(parsed(plan)))
    return told


def test_plan_that_was_made_here_needs_no_further_word(attacker: Attacker, orders: Path, tmp_path: Path) -> None:
    made = call("plan", attacker.checkpoint, "--goal", "replan", "--sink", orders, "--accept", "duplicates",
                "-o", tmp_path / "p.json", "--format", "json")  # fmt: skip
    assert made.code == 0
    assert apply(tmp_path / "p.json", DEAD).json["state"] == "applied"


def test_plan_that_was_only_made_here_is_not_begun_by_the_lake(attacker: Attacker, orders: Path) -> None:
    """A person has looked at it and not carried it out; somebody puts it into the lake as if it had been begun."""
    call("plan", attacker.checkpoint, "--goal", "replan", "--sink", orders, "--accept", "duplicates", "-o", "plan.json")
    attacker.place(json.loads(Path("plan.json").read_text()))
    told = call("recover", attacker.checkpoint, DEAD, "--format", "json")
    assert (told.code, told.condition) == (3, "SINK_NOT_NAMED")


def test_state_folder_that_is_lost_is_no_dead_end(attacker: Attacker, orders: Path, tmp_path: Path) -> None:
    _, room = interrupted(attacker, orders)
    shutil.rmtree(tmp_path / "state")
    told = call("recover", attacker.checkpoint, DEAD, "--sink", orders, "--format", "json")
    assert (told.code, told.json["recovery"], told.json["state"]) == (0, room.name, "applied")


@pytest.mark.parametrize(("typed", "code"), [("y", 0), ("n", 2)])
def test_person_on_a_terminal_sees_what_a_plan_by_hand_touches_and_is_asked(
    with_sink: Told, orders: Path, typed: str, code: int
) -> None:
    Path("plan.json").write_text(json.dumps(signed_by_hand(with_sink)))
    keyboard, terminal = pty.openpty()
    command = [sys.executable, "-c", "from lastgood.cli.main import main; main()", "apply", "plan.json", DEAD]
    try:
        os.write(keyboard, f"{typed}\n".encode())
        with Path("shown").open("wb") as shown:
            # Only what it reads from and asks on is a terminal.
            done = subprocess.Popen(command, stdin=terminal, stdout=shown, stderr=terminal)
            asked = read_until(keyboard, b"[y/N]")
            done.wait(timeout=120)
    finally:
        os.close(terminal)
        os.close(keyboard)
    assert done.returncode == code
    words = " ".join(asked.decode().split())
    assert "nobody has named here what it touches" in words
    assert f"it commits to {orders}" in words
    assert (DeltaTable(orders).version() > 6) == (typed == "y")


def read_until(descriptor: int, end: bytes) -> bytes:
    found = b""
    while end not in found:
        found += os.read(descriptor, 4096)
    return found
