"""Every file beside a checkpoint, edited at random, under every verb: nothing that is not of the lake changes.

Run alone, `LASTGOOD_SEED=N` repeats it; it says which edit it was.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from hostile.attacker import INCIDENT, Attacker, Listener, Told, call, signed, writing
from hostile.test_trust_hosts import reading
from hostile.test_trust_plans import OTHER, STAGES, finishing, parsed, taking_back

from lastgood.errors import LastgoodError
from lastgood.journal.lease import LeasePace, take_lease
from lastgood.recovery import applying as apply
from lastgood.testing.checkpoints import QUERY_ID

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease of which nobody gives a sign of life is waited for a minute."""
    pace = LeasePace(0.3, beat_seconds=0.1, look_seconds=0.05)
    monkeypatch.setattr(apply, "take_lease", functools.partial(take_lease, pace=pace))


@pytest.fixture
def lake(attacker: Attacker, plan: Told, victim: Path, tmp_path: Path) -> Path:
    """All that can lie beside a checkpoint: recoveries that are open and closed, an incident, a backup, notes."""
    assert call("backup", "create", attacker.checkpoint).code == 0
    attacker.place({**plan, "recovery": OTHER}, *STAGES[:4], listings={})
    attacker.place(parsed(writing(plan, victim / "home/.profile", b"evil")), "begun", "applying")
    attempt = {"at_ms": 1, "did": "stop", "because": "so", "seconds": 1.0, "file": str(victim / "home/.profile")}
    attacker.incident(attempts=[attempt])
    attacker.lease(1, holder={"pid": 1, "host": "elsewhere"}, recovery=plan["recovery"], beat=1)
    for name, told in (
        ("attempts", {"planned": 7, "committed": 6, "failures": 2, "told_ms": 1}),
        ("topics", {"query_id": QUERY_ID, "topics": {"orders": "x"}}),
    ):
        (attacker.work / f"{name}.json").write_text(json.dumps(told))
    saved = tmp_path / "saved"
    shutil.copytree(tmp_path / "lake", saved, symlinks=True)
    return saved


def strings(victim: Path, listener: Listener) -> list[Any]:
    """What an attacker would have somebody's machine read as a path, a host, a command or a word."""
    return [
        str(victim / "home/.ssh/authorized_keys"),
        str(victim / "chk"),
        str(victim / "table"),
        "../../victim/home/.profile",
        "offsets/../../../victim/home/7",
        f"hdfs://{listener.host}/x",
        f"webhdfs://{listener.host}/x",
        f"postgresql://me@{listener.host}/db",
        listener.host,
        "--driver-is-dead",
        "closed",
        "",
        -1,
        10**18,
        None,
        True,
        [],
        {},
    ]


def edited(content: bytes, values: list[Any], chance: random.Random, *, is_plan: bool) -> bytes:
    """The file with something else in it: a field of its JSON, or any bytes."""
    try:
        told = json.loads(content)
    except ValueError:
        told = None
    if not isinstance(told, dict) or chance.random() < 0.1:
        cut = chance.randrange(len(content) + 1)
        return chance.choice((b"", content[:cut], content[:cut] + chance.randbytes(9) + content[cut:]))
    for _ in range(chance.randint(1, 3)):
        put(told, chance.choice(values), chance)
    return signed(told) if is_plan else json.dumps(told).encode()


def put(told: Any, value: Any, chance: random.Random) -> None:
    """Put a value at some place of an object, however deep."""
    keys = list(told) if isinstance(told, dict) else list(range(len(told)))
    while keys:
        key = chance.choice(keys)
        inner = told[key]
        if not (isinstance(inner, dict | list) and inner and chance.random() < 0.8):
            told[key] = value
            return
        told, keys = inner, list(inner) if isinstance(inner, dict) else list(range(len(inner)))


@pytest.mark.parametrize(
    "rounds", [40, *(pytest.param(400, marks=pytest.mark.proof, id=f"400-{number}") for number in range(5))]
)
def test_no_edit_of_what_lies_in_the_lake_reaches_anything_else(
    lake: Path, attacker: Attacker, plan: Told, victim: Path, listener: Listener, rounds: int, request: Any
) -> None:
    chance = random.Random(f"{SEED}/{request.node.name}")
    values = strings(victim, listener)
    paths = sorted(path.relative_to(lake) for path in lake.rglob("*") if path.is_file())
    for number in range(rounds):
        shutil.rmtree(attacker.checkpoint.parent)
        shutil.copytree(lake, attacker.checkpoint.parent, symlinks=True)
        beside = [path for path in paths if path.parts[0] != "chk"]
        for path in chance.sample(beside, chance.randint(1, 3)):
            file = attacker.checkpoint.parent / path
            file.write_bytes(edited(file.read_bytes(), values, chance, is_plan=path.name == "plan.json"))
        room = attacker.work / "recoveries" / chance.choice((plan["recovery"], OTHER))
        verbs = {**finishing(attacker, room), **reading(attacker, room)}
        verb = chance.choice(sorted(verbs))
        try:
            told = call(*verbs[verb])
        except LastgoodError as error:  # pragma: no cover - main turns each into an answer
            pytest.fail(f"{number}: {verb}: {error}")
        assert told.code < 128, (number, verb, told)
        assert told.code != 4, (number, verb, told)
        assert not listener.seen, (number, verb)
        assert (victim / "home/.ssh/authorized_keys").read_text() == "ssh-ed25519 AAAA mine\n", (number, verb)


def test_each_verb_leaves_the_victim_alone_beside_a_lake_full_of_lies(
    lake: Path, attacker: Attacker, plan: Told, victim: Path, listener: Listener
) -> None:
    """Once each, with all lies at a time."""
    del lake, listener
    forged = parsed(writing(taking_back(plan, victim / "table", QUERY_ID), victim / "home/.profile", b"evil"))
    attacker.seal(forged)
    for stage in ("begun", "applying", "applied", "undoing", "taking_back"):
        room = attacker.place(forged, *STAGES[: STAGES.index(stage) + 1], seal=forged["seal"], listings={})
        for verb, words in {**finishing(attacker, room), **reading(attacker, room)}.items():
            told = call(*words)
            assert told.code < 128, (stage, verb)
            assert told.code != 4, (stage, verb, told)
    assert INCIDENT in call("report", INCIDENT, "--checkpoint", attacker.checkpoint).out
