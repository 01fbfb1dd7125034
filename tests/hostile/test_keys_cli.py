"""With a key, nothing that an attacker puts beside a checkpoint is carried out, finished, taken back or restored.

He can write, rename and delete whatever lies in CHECKPOINT and CHECKPOINT.lastgood; he has no key of ours.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import forked
import pytest
from deltalake import DeltaTable
from hostile.attacker import call
from hostile.conftest import table
from typed import call as call_typed

from lastgood.journal.lease import Holder, LeasePace, take_lease
from lastgood.operations import key as key_operation
from lastgood.settings import keys as module
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.facts import KafkaFacts, PartitionFacts, TopicFacts
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder
from lastgood.testing.storage import FaultyWriter

LASTGOOD = [sys.executable, "-c", "from lastgood.cli.main import main; main()"]
KILLED = Path(__file__).parents[1] / "repair" / "killed_apply.py"
DEAD = "--driver-is-dead"
REPLAN = ("--goal", "replan", "--accept", "duplicates")


class Machine:
    """A machine with a home of its own, and perhaps a key."""

    def __init__(self, home: Path, key: Path | None) -> None:
        home.mkdir(exist_ok=True)
        self.home = home
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            **{f"XDG_{name}_HOME": str(home / name.lower()) for name in ("STATE", "CONFIG", "CACHE", "DATA")},
        }
        if key is not None:
            folder = home / "config" / "lastgood"
            folder.mkdir(parents=True)
            shutil.copy(key, folder / "key")

    def run(self, *words: object, command: list[str] | None = None) -> subprocess.CompletedProcess[str]:
        if command is None:
            return call_typed(*words, env=self.env, cwd=self.home)
        typed = [*command, *map(str, words)]
        return subprocess.run(
            typed, cwd=self.home, env=self.env, capture_output=True, text=True, timeout=120, check=False
        )

    def answer(self, *words: object, code: int = 0) -> dict[str, Any]:
        done = self.run(*words, "--format", "json")
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    def refused(self, *words: object, code: int) -> dict[str, Any]:
        error: dict[str, Any] = self.answer(*words, code=code)["error"]
        return error


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A file of keys."""
    done = Machine(tmp_path / "maker", None).run("key", "create", tmp_path / "keys")
    assert done.returncode == 0, done.stderr
    return tmp_path / "keys"


@pytest.fixture
def ours(tmp_path: Path, keys: Path) -> Machine:
    return Machine(tmp_path / "ours", keys)


@pytest.fixture
def keyless(tmp_path: Path) -> Machine:
    """A machine without a key: what it writes is what an attacker can write."""
    return Machine(tmp_path / "keyless", None)


@pytest.fixture
def foreign(tmp_path: Path) -> Machine:
    """A machine with another key."""
    Machine(tmp_path / "maker2", None).run("key", "create", tmp_path / "other_keys")
    return Machine(tmp_path / "foreign", tmp_path / "other_keys")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Seven batches are committed, an eighth is planned."""
    return built(tmp_path / "lake" / "chk")


def built(folder: Path) -> Path:
    query = CheckpointBuilder(folder)
    query.run(7)
    query.plan()
    return folder


def work(checkpoint: Path) -> Path:
    return checkpoint.with_name(checkpoint.name + ".lastgood")


def files(*folders: Path) -> Mapping[str, bytes]:
    """All that lies in the lake, but leases, which come and go."""
    found = (file for folder in folders for file in folder.rglob("*") if file.is_file() and "leases" not in file.parts)
    return {str(file): file.read_bytes() for file in found}


def lake(checkpoint: Path) -> Mapping[str, bytes]:
    return files(checkpoint, work(checkpoint))


def logs(checkpoint: Path) -> Mapping[str, bytes]:
    """The checkpoint, and what is kept to put back; not incidents, which every call writes."""
    return files(checkpoint, work(checkpoint) / "recoveries")


def planned(machine: Machine, checkpoint: Path, *more: object) -> Path:
    machine.answer("plan", checkpoint, *REPLAN, *more, "-o", machine.home / "plan.json")
    return machine.home / "plan.json"


def killed(machine: Machine, subject: Path, when: str = "begin", *more: str) -> None:
    done = machine.run(KILLED, subject, when, *more, command=[sys.executable])
    assert done.returncode == -signal.SIGKILL, done.stderr


def recovery(checkpoint: Path) -> Path:
    (folder,) = (work(checkpoint) / "recoveries").iterdir()
    return folder


def edited(file: Path, **fields: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def resealed(told: dict[str, Any]) -> dict[str, Any]:
    """A plan whose plain checksum fits again, as anybody can make it."""
    bare = {name: value for name, value in told.items() if name not in ("checksum", "signature")}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":"))
    signature = {"signature": told["signature"]} if "signature" in told else {}
    return {**bare, "checksum": hashlib.sha256(text.encode()).hexdigest(), **signature}


def test_what_is_signed_is_carried_out_and_taken_back(ours: Machine, checkpoint: Path) -> None:
    before = files(checkpoint)
    plan = planned(ours, checkpoint)
    assert set(json.loads(plan.read_text())["signature"]) == {"format", "key", "place", "hmac"}
    done = ours.answer("apply", plan, DEAD)
    assert files(checkpoint) != before
    notes = sorted(file.name for file in recovery(checkpoint).glob("*.json"))
    assert notes == ["applied.json", "applying.json", "begun.json", "closed.json", "plan.json"]
    assert all("signature" in json.loads(file.read_text()) for file in recovery(checkpoint).glob("*.json"))
    assert ours.answer("report", done["recovery"], "--checkpoint", checkpoint)["recoveries"][0]["signature"] == "signed"
    ours.answer("undo", "last", "--checkpoint", checkpoint, DEAD)
    assert files(checkpoint) == before


def test_of_eight_machines_with_the_key_one_applies_and_the_others_are_told_who_does(
    keys: Path, ours: Machine, checkpoint: Path, tmp_path: Path
) -> None:
    plan = planned(ours, checkpoint)
    machines = [Machine(tmp_path / f"machine-{number}", keys) for number in range(8)]
    words = ("apply", plan, DEAD, "--format", "json")
    racing = [forked.begin(*words, env=each.env, cwd=each.home) for each in machines]
    told = [json.loads(each.end().stdout) for each in racing]
    states = [each.get("state") or each["error"]["condition"] for each in told]
    assert states.count("applied") == 1, states
    assert set(states) <= {"applied", "already applied", "CHECKPOINT_HELD", "LEASE_HELD"}
    assert all(each["error"]["found"] for each in told if "error" in each)
    stages = list((work(checkpoint) / "recoveries").glob("*/*.json"))
    assert stages
    assert all("signature" in json.loads(each.read_bytes()) for each in stages)
    assert machines[0].answer("undo", "last", "--checkpoint", checkpoint, DEAD)["state"] == "undone"


def test_a_plan_of_anybody_else_is_not_carried_out(
    ours: Machine, keyless: Machine, foreign: Machine, checkpoint: Path
) -> None:
    unsigned, other = planned(keyless, checkpoint), planned(foreign, checkpoint)
    before = lake(checkpoint)
    missing = ours.refused("apply", unsigned, DEAD, code=80)
    assert (missing["condition"], missing["found"]) == ("SIGNATURE_MISSING", "no signature")
    wrong = ours.refused("apply", other, DEAD, code=81)
    assert wrong["condition"] == "SIGNATURE_WRONG"
    assert wrong["found"].startswith("a signature by key ")
    assert lake(checkpoint) == before


def test_a_signed_plan_that_was_changed_is_not_carried_out(ours: Machine, checkpoint: Path) -> None:
    plan = planned(ours, checkpoint)
    told = json.loads(plan.read_text())
    before = lake(checkpoint)
    for name, value in (("seal", ["offsets/3"]), ("steps", []), ("evidence", ["--sink", "/x"]), ("checkpoint", "/x")):
        plan.write_text(json.dumps(resealed({**told, name: value})))
        done = ours.run("apply", plan, DEAD, "--format", "json")
        assert done.returncode == 81, (name, done.stdout)
        assert "Traceback" not in done.stderr
    plan.write_text(json.dumps(resealed({**told, "made_at_ms": 7})))
    assert ours.refused("apply", plan, DEAD, code=81)["found"] == "a signature that does not fit"
    assert lake(checkpoint) == before


def test_a_repair_that_an_attacker_begun_is_not_finished(ours: Machine, keyless: Machine, checkpoint: Path) -> None:
    killed(keyless, planned(keyless, checkpoint))
    before = logs(checkpoint)
    told = ours.answer("recover", checkpoint, DEAD, code=3)
    assert told["error"]["condition"] == "SIGNATURE_MISSING"
    assert ours.refused("apply", recovery(checkpoint) / "plan.json", DEAD, code=80)
    assert ours.refused("undo", "last", "--checkpoint", checkpoint, DEAD, code=80)
    assert logs(checkpoint) == before
    shown = ours.answer("status", checkpoint, code=1)
    assert shown["grade"] == "sealed"
    by_hand = ours.answer("report", recovery(checkpoint).name, "--checkpoint", checkpoint)
    assert by_hand["recoveries"][0]["signature"] == "unsigned"


def test_diagnose_and_status_say_that_an_open_repair_is_not_signed_in_the_words_of_recover(
    ours: Machine, keyless: Machine, foreign: Machine, checkpoint: Path
) -> None:
    killed(keyless, planned(keyless, checkpoint))
    error = ours.answer("recover", checkpoint, DEAD, code=3)["error"]
    for machine, because in ((ours, "no signature"), (foreign, "no signature"), (keyless, None)):
        for verb in ("diagnose", "status"):
            told = machine.answer(verb, checkpoint, code=1)
            (found,) = [each for each in told["findings"] if each["condition"] == "SEALED_BY_LASTGOOD"]
            evidence = found["evidence"]
            if because is None:
                assert (evidence["refused"], found["next"]) == (None, evidence["finish"])
                assert "lastgood apply" in found["next"]
                continue
            assert evidence["refused"] == f"{error['sentence']} ({because})"
            assert (evidence["finish"], evidence["undo"]) == (None, None)
            assert evidence["refused"] in found["effect"]
            assert found["next"] == error["next"]
            if verb == "status":
                assert (told["next"], told["undo"]) == (error["next"], None)
    assert "not carried out" in ours.run("diagnose", checkpoint).stdout
    assert ours.answer("key", "sign", checkpoint, "--yes")["left"] == []
    assert "finish" in json.dumps(ours.answer("status", checkpoint, code=1))
    assert "lastgood apply" in ours.answer("status", checkpoint, code=1)["next"]


def test_the_keys_are_read_once_for_a_command(ours: Machine, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a key that is exchanged meanwhile would have one half of a repair signed by another one than the other."""
    killed(ours, planned(ours, checkpoint))
    for name, value in ours.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ours.home)
    read: list[Path] = []
    before = module.read_key_file
    monkeypatch.setattr(module, "read_key_file", lambda file: read.append(file) or before(file))
    for words in (["recover", checkpoint, DEAD], ["undo", "last", "--checkpoint", checkpoint, DEAD]):
        read.clear()
        told = call(*words)
        assert told.code == 0, told
        assert len(read) == 1, (words, read)


def test_a_supervisor_calls_a_person_and_starts_nothing_on_a_foreign_repair(
    ours: Machine, keyless: Machine, checkpoint: Path
) -> None:
    killed(keyless, planned(keyless, checkpoint))
    before = files(checkpoint)
    done = ours.run("run", "--checkpoint", checkpoint, "--", "touch", "started")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "a key is configured, and this is not signed" in done.stdout + done.stderr
    assert not (ours.home / "started").exists()
    assert files(checkpoint) == before


@pytest.mark.parametrize("note", ["begun", "closed", "undoing", "taking_back"])
def test_a_stage_that_an_attacker_notes_down_is_refused(note: str, ours: Machine, checkpoint: Path) -> None:
    plan = planned(ours, checkpoint)
    killed(ours, plan)
    told = {"at_ms": 1, "lease": 1, "proof": "it has ended", "seal": []} if note != "closed" else {}
    (recovery(checkpoint) / f"{note}.json").write_text(json.dumps(told))
    before = logs(checkpoint)
    for words in (("apply", plan), ("undo", "last", "--checkpoint", checkpoint)):
        assert ours.refused(*words, DEAD, code=80)["condition"] == "SIGNATURE_MISSING"
    assert ours.answer("recover", checkpoint, DEAD, code=3)["error"]["condition"] == "SIGNATURE_MISSING"
    assert logs(checkpoint) == before


def test_signed_stages_that_change_places_are_refused(ours: Machine, checkpoint: Path) -> None:
    plan = planned(ours, checkpoint)
    killed(ours, plan)
    folder = recovery(checkpoint)
    shutil.copy(folder / "applying.json", folder / "closed.json")
    before = logs(checkpoint)
    assert ours.refused("apply", plan, DEAD, code=81)["condition"] == "SIGNATURE_WRONG"
    assert ours.answer("recover", checkpoint, DEAD, code=3)["error"]["condition"] == "SIGNATURE_WRONG"
    assert logs(checkpoint) == before


def test_the_proof_of_death_cannot_be_changed(ours: Machine, checkpoint: Path) -> None:
    killed(ours, planned(ours, checkpoint))
    edited(recovery(checkpoint) / "begun.json", proof="the moon is full")
    before = logs(checkpoint)
    told = ours.answer("recover", checkpoint, code=3)
    assert told["error"]["condition"] == "SIGNATURE_WRONG"
    assert logs(checkpoint) == before


def test_a_signed_recovery_is_not_finished_at_another_checkpoint(
    ours: Machine, checkpoint: Path, tmp_path: Path
) -> None:
    killed(ours, planned(ours, checkpoint))
    other = built(tmp_path / "lake" / "other")
    shutil.copytree(work(checkpoint) / "recoveries", work(other) / "recoveries")
    before = (logs(checkpoint), logs(other))
    told = ours.answer("recover", other, DEAD, code=3)
    assert told["error"]["condition"] == "SIGNATURE_WRONG"
    assert told["error"]["found"] == f"a signature for file://{checkpoint}"
    assert ours.refused("undo", "last", "--checkpoint", other, DEAD, code=81)
    assert (logs(checkpoint), logs(other)) == before


def test_a_signed_recovery_under_another_id_is_refused(ours: Machine, checkpoint: Path) -> None:
    killed(ours, planned(ours, checkpoint))
    recovery(checkpoint).rename(recovery(checkpoint).with_name("20991231-235959-0000"))
    before = logs(checkpoint)
    assert ours.answer("recover", checkpoint, DEAD, code=3)["error"]["condition"] == "SIGNATURE_WRONG"
    assert ours.refused("undo", "last", "--checkpoint", checkpoint, DEAD, code=81)
    assert logs(checkpoint) == before


def test_an_old_plan_that_is_put_back_does_nothing_anew(ours: Machine, checkpoint: Path) -> None:
    """A signature tells whose word it is, not when it was said; the world has to be as it was when it was said."""
    plan = planned(ours, checkpoint)
    ours.answer("apply", plan, DEAD)
    after = files(checkpoint)
    for note in ("closed", "applied", "applying", "begun"):
        (recovery(checkpoint) / f"{note}.json").unlink()
        done = ours.run("apply", plan, DEAD, "--format", "json")
        assert done.returncode in (0, 52, 59), done.stdout
        assert files(checkpoint) == after


def test_unsigned_recoveries_of_the_past_do_not_count_until_a_person_signs_them(
    ours: Machine, keyless: Machine, checkpoint: Path
) -> None:
    keyless.answer("apply", planned(keyless, checkpoint), DEAD)
    keyless.answer("backup", "create", checkpoint)
    assert ours.refused("plan", checkpoint, code=80)["condition"] == "SIGNATURE_MISSING"
    asked = ours.answer("key", "sign", checkpoint, code=1)
    assert (asked["signed"], {each["what"] for each in asked["files"]}) == (False, {"plan", "stage", "backup"})
    before = lake(checkpoint)
    assert ours.run("key", "sign", checkpoint).returncode == 2
    assert lake(checkpoint) == before
    assert ours.answer("key", "sign", checkpoint, "--yes")["left"] == []
    ours.answer("plan", checkpoint)
    ours.answer("undo", "last", "--checkpoint", checkpoint, DEAD)


def test_nobody_signs_a_plan_of_another_place_by_mistake(
    ours: Machine, keyless: Machine, checkpoint: Path, tmp_path: Path
) -> None:
    killed(keyless, planned(keyless, checkpoint))
    other = built(tmp_path / "lake" / "other")
    shutil.copytree(work(checkpoint) / "recoveries", work(other) / "recoveries")
    told = ours.answer("key", "sign", other, "--yes", code=1)
    assert told["left"] == [str(recovery(other) / "plan.json")]
    assert ours.refused("undo", "last", "--checkpoint", other, DEAD, code=80)


def test_nobody_signs_beside_a_repair_that_goes_on(
    ours: Machine, keyless: Machine, checkpoint: Path, tmp_path: Path
) -> None:
    """What it notes down, or takes back, would be written over by what a person was shown before."""
    keyless.answer("apply", planned(keyless, checkpoint), DEAD)
    folder = parse_location(str(work(checkpoint)))
    with take_lease(
        LocalWriter(),
        folder,
        "20261121-160058-7f3a",
        holder=Holder.make_own(),
        clock=time.monotonic,
        wait=time.sleep,
        now_ms=lambda: 0,
        pace=LeasePace(beat_seconds=0.1),
    ):
        before = files(recovery(checkpoint))
        assert ours.refused("key", "sign", checkpoint, "--yes", code=53)["condition"] == "LEASE_HELD"
        assert files(recovery(checkpoint)) == before
    assert ours.answer("key", "sign", checkpoint, "--yes")["left"] == []


def test_nobody_signs_over_what_was_changed_since_it_was_looked_at(
    ours: Machine, keyless: Machine, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not while the files before it are signed, each of which takes a moment on a store far away."""
    keyless.answer("recover", checkpoint)
    keyless.answer("apply", planned(keyless, checkpoint), DEAD)
    counted, gone = work(checkpoint) / "attempts.json", recovery(checkpoint) / "closed.json"

    def between(_: int) -> None:
        counted.write_text(json.dumps({"failures": 7}))
        gone.unlink(missing_ok=True)

    signing = [False]
    real = key_operation.open_writable
    monkeypatch.setattr(
        key_operation, "open_writable", lambda place: FaultyWriter(real(place), between=between if signing[0] else None)
    )
    for name, value in ours.env.items():
        monkeypatch.setenv(name, value)
    shown = key_operation.list_to_sign(resolve_target(str(checkpoint)))
    signing[0] = True
    told: list[str] = []
    key_operation.sign(shown, tell=told.append)
    assert json.loads(counted.read_text()) == {"failures": 7}
    assert not gone.exists()
    assert sum("was changed meanwhile, and is left as it is" in line for line in told) == 2


# A repair begun on one machine is finished on another with the key.


@pytest.mark.parametrize("verb", ["apply", "undo"])
@pytest.mark.parametrize("when", ["begin", "4", "8"])
def test_killed_anywhere_it_is_finished_with_the_key_and_by_nobody_else(
    when: str, verb: str, ours: Machine, foreign: Machine, keys: Path, checkpoint: Path, tmp_path: Path
) -> None:
    before = files(checkpoint)
    plan = planned(ours, checkpoint)
    done = ours.run(KILLED, plan, when, command=[sys.executable])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    at_kill = logs(checkpoint)
    if (work(checkpoint) / "recoveries").exists() and list(recovery(checkpoint).glob("[!p]*.json")):
        told = foreign.refused("undo", "last", "--checkpoint", checkpoint, DEAD, code=81)
        assert told["condition"] == "SIGNATURE_WRONG"
        assert logs(checkpoint) == at_kill
    another = Machine(tmp_path / "another", keys)
    if verb == "apply":
        assert another.answer("apply", plan, DEAD)["state"] in ("applied", "already applied")
        assert files(checkpoint) != before
        assert b"" not in files(checkpoint).values()
    elif (work(checkpoint) / "recoveries").exists():
        another.answer("undo", "last", "--checkpoint", checkpoint, DEAD)
        assert files(checkpoint) == before


def test_a_proof_that_is_signed_counts_on_another_machine(
    ours: Machine, keys: Path, checkpoint: Path, tmp_path: Path
) -> None:
    killed(ours, planned(ours, checkpoint))
    another = Machine(tmp_path / "another", keys)
    assert another.answer("recover", checkpoint)["decision"] == "start"
    assert b"" not in files(checkpoint).values()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """The table that the query writes; its plan makes the old writer fail."""
    table(tmp_path / "orders", QUERY_ID, 7)
    return tmp_path / "orders"


@pytest.mark.parametrize("verb", ["recover", "apply", "undo"])
def test_a_signed_repair_needs_no_sink_to_be_named_again_on_another_machine(
    verb: str, ours: Machine, keys: Path, checkpoint: Path, orders: Path, tmp_path: Path
) -> None:
    before = files(checkpoint)
    killed(ours, planned(ours, checkpoint, "--sink", orders))
    words: Mapping[str, tuple[object, ...]] = {
        "recover": ("recover", checkpoint),
        "apply": ("apply", recovery(checkpoint) / "plan.json"),
        "undo": ("undo", "last", "--checkpoint", checkpoint),
    }
    told = Machine(tmp_path / "another", keys).answer(*words[verb])
    assert told["state"] == ("undone" if verb == "undo" else "applied")
    assert (files(checkpoint) == before) == (verb == "undo")


def test_without_the_key_the_same_repair_is_not_believed(
    ours: Machine, keyless: Machine, checkpoint: Path, orders: Path
) -> None:
    killed(ours, planned(ours, checkpoint, "--sink", orders))
    before = logs(checkpoint)
    assert keyless.answer("recover", checkpoint, DEAD, code=3)["error"]["condition"] == "SINK_NOT_NAMED"
    told = keyless.answer("recover", checkpoint, "--sink", orders, code=3)
    assert told["error"]["condition"] == "DRIVER_NOT_PROVEN_DEAD"
    assert logs(checkpoint) == before


def test_a_signed_plan_that_nobody_has_begun_is_not_begun_by_the_lake(
    ours: Machine, keys: Path, checkpoint: Path, orders: Path, tmp_path: Path
) -> None:
    """Somebody has made it and decided against it; the attacker has got the file, and puts it beside the checkpoint."""
    plan = planned(ours, checkpoint, "--sink", orders)
    room = work(checkpoint) / "recoveries" / json.loads(plan.read_text())["recovery"]
    room.mkdir(parents=True)
    shutil.copy(plan, room / "plan.json")
    another = Machine(tmp_path / "another", keys)
    version = DeltaTable(orders).version()
    for machine in (ours, another):
        told = machine.refused("apply", room / "plan.json", DEAD, code=2)
        assert told["condition"] == "SINK_NOT_NAMED"
    (room / "begun.json").write_text(json.dumps({"at_ms": 1, "lease": 1, "proof": "it has ended"}))
    for machine in (ours, another):
        assert machine.answer("recover", checkpoint, DEAD, code=3)["error"]["condition"] == "SIGNATURE_MISSING"
    assert DeltaTable(orders).version() == version


def test_a_signed_plan_given_by_hand_was_named_where_it_was_signed(
    ours: Machine, keys: Path, keyless: Machine, checkpoint: Path, orders: Path, tmp_path: Path
) -> None:
    plan = planned(ours, checkpoint, "--sink", orders)
    assert keyless.refused("apply", plan, DEAD, code=2)["condition"] == "PLAN_NOT_ALLOWED"
    assert Machine(tmp_path / "another", keys).answer("apply", plan, DEAD)["state"] == "applied"


def test_a_rotated_key_goes_on_with_what_the_old_one_has_begun(ours: Machine, checkpoint: Path) -> None:
    killed(ours, planned(ours, checkpoint))
    (old,) = (each["id"] for each in ours.answer("key", "list")["keys"])
    ours.answer("key", "rotate")
    ours.answer("apply", recovery(checkpoint) / "plan.json", DEAD)
    told = ours.answer("key", "sign", checkpoint, "--yes")
    assert {each["by"] for each in told["files"] if each["to_sign"]} == {old}
    ours.answer("key", "remove", old)
    ours.answer("undo", "last", "--checkpoint", checkpoint, DEAD)


# Backups.


def test_a_backup_is_restored_only_as_it_was_signed(
    ours: Machine, keyless: Machine, foreign: Machine, checkpoint: Path
) -> None:
    good = ours.answer("backup", "create", checkpoint)["id"]
    whole = files(checkpoint)
    backups = work(checkpoint) / "backups"
    others = [machine.answer("backup", "create", checkpoint)["id"] for machine in (keyless, foreign)]
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    for each, code in zip(others, (80, 81), strict=True):
        ours.refused("backup", "restore", checkpoint, "--from", each, code=code)
        ours.refused("backup", "keep", checkpoint, each, code=code)
    content = backups / f"{good}.jsonl.gz"
    raw = content.read_bytes()
    content.write_bytes(gzip.compress(gzip.decompress(raw).replace(b"metadata", b"metadatb", 1)))
    ours.refused("backup", "restore", checkpoint, "--from", good, code=41)
    line = gzip.decompress(raw).replace(b"1795220516284", b"1795220516285")
    assert line != gzip.decompress(raw)
    content.write_bytes(gzip.compress(line))
    assert ours.refused("backup", "restore", checkpoint, "--from", good, code=41)["found"] == "another content"
    facts = backups / f"{good}.json"
    told = facts.read_text()
    edited(facts, kept=True)
    ours.refused("backup", "restore", checkpoint, "--from", good, code=81)
    facts.write_text(told)
    assert files(checkpoint) == {}
    content.write_bytes(raw)
    ours.answer("backup", "restore", checkpoint, "--from", good)
    assert files(checkpoint) == whole


def test_a_signed_backup_of_another_checkpoint_or_another_day_is_refused(
    ours: Machine, checkpoint: Path, tmp_path: Path
) -> None:
    good = ours.answer("backup", "create", checkpoint)["id"]
    other = tmp_path / "lake" / "other"
    shutil.copytree(work(checkpoint), work(other))
    ours.refused("backup", "restore", other, "--from", good, code=81)
    assert not other.exists()


def test_a_mirror_which_nobody_signs_is_restored_by_a_persons_word_only(ours: Machine, checkpoint: Path) -> None:
    ours.answer("backup", "create", checkpoint)
    shutil.rmtree(checkpoint)
    error = ours.refused("backup", "restore", checkpoint, code=80)
    assert error["next"].startswith(f"lastgood backup restore {checkpoint} --from last")
    assert not checkpoint.exists()
    ours.answer("backup", "restore", checkpoint, "--unsigned-mirror")


# Incidents, and what is counted.


def test_words_of_an_attacker_do_not_get_our_signature(ours: Machine, keyless: Machine, checkpoint: Path) -> None:
    shutil.rmtree(checkpoint / "commits")
    keyless.answer("recover", checkpoint, "--goal", "replan", code=3)
    (theirs,) = (work(checkpoint) / "incidents").iterdir()
    before = theirs.read_bytes()
    ours.run("recover", checkpoint, "--goal", "replan", "--format", "json")
    assert theirs.read_bytes() == before
    assert ours.answer("report", theirs.stem, "--checkpoint", checkpoint)["signature"] == "unsigned"
    shown = ours.run("report", theirs.stem, "--checkpoint", checkpoint).stdout
    assert "is not signed by a key of this machine: it carries no signature" in shown
    (newest,) = set((work(checkpoint) / "incidents").iterdir()) - {theirs}
    assert ours.answer("report", newest.stem, "--checkpoint", checkpoint)["signature"] == "signed"


def test_attempts_that_an_attacker_counts_do_not_count(ours: Machine, checkpoint: Path) -> None:
    ours.answer("recover", checkpoint)
    tally = work(checkpoint) / "attempts.json"
    assert "signature" in json.loads(tally.read_text())
    edited(tally, failures=99)
    told = ours.answer("recover", checkpoint)
    assert told["failed"] is None
    assert "signature" in json.loads(tally.read_text())


# Files of the machine that has begun a repair are not those of the one that finishes it.


def facts(machine: Machine) -> Path:
    """What Kafka holds, written down on a machine; the query has read all of it up to its plan."""
    topic = TopicFacts("id", {number: PartitionFacts(0, 1000) for number in range(8)})
    (machine.home / "facts.json").write_text(json.dumps(KafkaFacts("broker:9092", 1, {"orders": topic}).to_json()))
    return machine.home / "facts.json"


def client(machine: Machine) -> Path:
    (machine.home / "client.properties").write_text("bootstrap.servers=127.0.0.1:1\n")
    return machine.home / "client.properties"


@pytest.mark.parametrize(("option", "file"), [("--kafka", facts), ("--kafka-config", client)])
def test_a_repair_goes_by_the_files_of_the_machine_that_finishes_it(
    option: str,
    file: Callable[[Machine], Path],
    ours: Machine,
    foreign: Machine,
    keyless: Machine,
    keys: Path,
    checkpoint: Path,
) -> None:
    there = file(ours)
    killed(ours, planned(ours, checkpoint, option, there))
    there.unlink()
    before = logs(checkpoint)
    another = Machine(keys.with_name("another"), keys)
    told = another.answer("recover", checkpoint, code=3)
    assert (told["error"]["condition"], told["error"]["found"]) == ("FILE_NOT_NAMED", f"{option} {there}")
    assert option in told["error"]["expected"]
    assert f"{option} FILE" in told["next"]
    assert another.refused("apply", recovery(checkpoint) / "plan.json", code=2)["condition"] == "FILE_NOT_NAMED"
    assert foreign.refused("apply", recovery(checkpoint) / "plan.json", DEAD, code=81)["condition"] == "SIGNATURE_WRONG"
    unsigned = keyless.answer("recover", checkpoint, code=3)
    assert unsigned["error"]["condition"] == "DRIVER_NOT_PROVEN_DEAD"
    assert logs(checkpoint) == before
    assert another.answer("recover", checkpoint, option, file(another))["decision"] == "start"
    assert b"" not in files(checkpoint).values()


def test_what_is_taken_back_needs_no_file_of_the_first_machine(
    ours: Machine, keys: Path, checkpoint: Path, tmp_path: Path
) -> None:
    before = files(checkpoint)
    there = facts(ours)
    killed(ours, planned(ours, checkpoint, "--kafka", there))
    there.unlink()
    Machine(tmp_path / "another", keys).answer("undo", "last", "--checkpoint", checkpoint)
    assert files(checkpoint) == before


def test_the_configuration_of_the_second_machine_names_its_file(
    ours: Machine, keys: Path, checkpoint: Path, tmp_path: Path
) -> None:
    there = client(ours)
    killed(ours, planned(ours, checkpoint, "--kafka-config", there))
    there.unlink()
    another = Machine(tmp_path / "another", keys)
    client(another)
    (another.home / "lastgood.toml").write_text(
        f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{checkpoint}"\n'
        '[pipeline.orders.kafka]\nbootstrap = "127.0.0.1:1"\nconfig = "client.properties"\n'
    )
    assert another.answer("recover", checkpoint)["decision"] == "start"
    assert b"" not in files(checkpoint).values()
