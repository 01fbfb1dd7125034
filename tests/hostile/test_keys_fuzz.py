"""A lake whose notes a key of this machine has signed, edited at random: nothing of it is carried out any more.

Run alone, `LASTGOOD_SEED=N` repeats it; it says which edit it was.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
from hostile.attacker import INCIDENT, Attacker, Listener, Told, call, tree
from hostile.test_trust_damage import lose_for, put_back
from hostile.test_trust_fuzz import SEED, _no_waiting, edited, strings
from hostile.test_trust_plans import OTHER, STAGES, finishing

from lastgood.signing import format_keys, make_key

__all__ = ["_no_waiting"]


@pytest.fixture
def signed_lake(attacker: Attacker, plan: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interrupted repair, one that is closed, a backup, an incident and a count of failures: all signed."""
    assert call("backup", "create", attacker.checkpoint).code == 0
    attacker.place({**plan, "recovery": OTHER}, *STAGES[:4], listings={})
    attacker.place(plan, "begun", "applying", listings={})
    attacker.incident()
    monkeypatch.setenv("LASTGOOD_KEY", format_keys([make_key()]))
    told = call("key", "sign", attacker.checkpoint, "--yes")
    assert told.code == 0, told
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "lake", saved, symlinks=True)
    return saved


def verbs(attacker: Attacker, room: Path, backup: str) -> dict[str, tuple[object, ...]]:
    """All that would change a checkpoint or put something back."""
    chk = attacker.checkpoint
    return {
        **finishing(attacker, room),
        "restore": ("backup", "restore", chk, "--from", backup),
    }


def read(content: bytes) -> object:
    """What a file tells: an edit of its white space changes nothing."""
    try:
        return json.loads(content)
    except ValueError:
        return content


@pytest.mark.parametrize("rounds", [25, pytest.param(400, marks=pytest.mark.proof)])
def test_nothing_signed_that_was_edited_is_carried_out(
    signed_lake: Path, attacker: Attacker, plan: Told, victim: Path, listener: Listener, rounds: int
) -> None:
    chance = random.Random(f"{SEED}/{rounds}")
    values = strings(victim, listener)
    room = attacker.work / "recoveries" / plan["recovery"]
    files = sorted(path.relative_to(signed_lake) for path in signed_lake.rglob("*") if path.is_file())
    of_repair = [path for path in files if plan["recovery"] in path.parts and path.suffix == ".json"]
    of_backups = [path for path in files if "backups" in path.parts]
    assert of_repair
    assert of_backups
    restored = {}
    for backup in {path.name.partition(".")[0] for path in of_backups}:
        put_back(signed_lake, attacker)
        lose_for("restore", attacker)
        told = call(*verbs(attacker, room, backup)["restore"])
        restored[backup] = tree(attacker.checkpoint) if told.code == 0 else None
    for number in range(rounds):
        verb = chance.choice(sorted(verbs(attacker, room, "")))
        put_back(signed_lake, attacker)
        lose_for(verb, attacker)
        path = chance.choice(of_backups if verb == "restore" else of_repair)
        file = attacker.checkpoint.parent / path
        content = file.read_bytes()
        while read(file.read_bytes()) == read(content):
            file.write_bytes(edited(content, values, chance, is_plan=path.name == "plan.json"))
        before = tree(attacker.checkpoint)
        backup = path.name.partition(".")[0]
        told = call(*verbs(attacker, room, backup)[verb])
        if told.code == 0 and path.suffix == ".gz":
            # Its checksum is over the copies, not over the bytes that nobody needs for them.
            assert tree(attacker.checkpoint) == restored[backup], (number, verb, path)
            continue
        assert told.code not in (0, 4), (number, verb, path, told)
        assert tree(attacker.checkpoint) == before, (number, verb, path)
    assert INCIDENT in call("report", INCIDENT, "--checkpoint", attacker.checkpoint).out
