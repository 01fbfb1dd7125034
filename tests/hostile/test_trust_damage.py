"""Every file beside a checkpoint, huge, deep or unreadable, under every verb: told, and nothing else changes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile.attacker import Attacker, Told, call
from hostile.test_trust_fuzz import SEED, _no_waiting, lake
from hostile.test_trust_hosts import reading
from hostile.test_trust_plans import finishing

from lastgood.journal.lease import LeasePace, take_lease
from lastgood.recovery import applying as apply
from lastgood.storage.reading import StorageDeniedError

__all__ = ["_no_waiting", "lake"]

ALL = 10**6
PACE = LeasePace(0.3, beat_seconds=0.1, look_seconds=0.05)
MEGABYTES = 10 * 1024 * 1024


def a_long_list(content: bytes) -> bytes:
    """In the place of each list, or of all."""
    told = json.loads(content)
    return json.dumps({name: [0] * (MEGABYTES // 30) for name in told}).encode()


def long_texts(content: bytes) -> bytes:
    told = json.loads(content)
    return json.dumps({name: "a" * (MEGABYTES // len(told)) for name in told}).encode()


def depth(content: bytes) -> bytes:
    told = json.loads(content)
    inner = "[" * 900 + "]" * 900
    return ("{" + ",".join(f"{json.dumps(name)}:{inner}" for name in told) + "}").encode()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a long list": lambda _: b"[" + b"0," * (MEGABYTES // 2) + b"0]",
    "long lists": a_long_list,
    "long texts": long_texts,
    "depth": depth,
    "more depth": lambda _: b"[" * MEGABYTES,
    "many fields": lambda _: json.dumps({str(number): number for number in range(MEGABYTES // 20)}).encode(),
    "blanks": lambda _: b" " * MEGABYTES,
    "zeros": lambda _: bytes(MEGABYTES),
}


def verbs(attacker: Attacker, room: Path) -> dict[str, tuple[object, ...]]:
    chk = attacker.checkpoint
    return {
        **finishing(attacker, room),
        **reading(attacker, room),
        "restore": ("backup", "restore", chk, "--from", "last"),
        "restore the mirror": ("backup", "restore", chk, "--from", "mirror"),
        "keep": ("backup", "keep", chk, "last"),
        "status of all": ("status", chk.parent),
    }


def files_beside(attacker: Attacker) -> list[Path]:
    return sorted(path.relative_to(attacker.work) for path in attacker.work.rglob("*") if path.is_file())


def lose_for(verb: str, attacker: Attacker) -> None:
    """Only where its logs are lost is a checkpoint restored."""
    for log in ("offsets", "commits") if verb.startswith("restore") else ():
        shutil.rmtree(attacker.checkpoint / log)


def put_back(saved: Path, attacker: Attacker) -> None:
    shutil.rmtree(attacker.checkpoint.parent)
    shutil.copytree(saved, attacker.checkpoint.parent, symlinks=True)


def some(pairs: list[tuple[Path, str]], rounds: int) -> list[tuple[Path, str]]:
    """As many of them, by the seed."""
    return random.Random(SEED).sample(pairs, min(rounds, len(pairs)))


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("rounds", [3, pytest.param(ALL, marks=pytest.mark.proof)])
def test_no_file_beside_a_checkpoint_is_too_large_or_too_deep_for_a_verb(
    lake: Path, attacker: Attacker, plan: Told, damage: str, rounds: int
) -> None:
    room = attacker.work / "recoveries" / plan["recovery"]
    words = verbs(attacker, room)
    pairs = [(path, verb) for path in files_beside(attacker) if path.suffix == ".json" for verb in words]
    for path, verb in some(pairs, rounds):
        put_back(lake, attacker)
        lose_for(verb, attacker)
        file = attacker.work / path
        file.write_bytes(DAMAGES[damage](file.read_bytes()))
        told = call(*words[verb])
        assert told.code < 128, (path, verb, told.err)
        assert told.code != 4, (path, verb, told.err)
        assert "no such option" not in told.err, verb
        assert "Traceback" not in told.err, (path, verb)
        assert len(told.out) + len(told.err) < 100_000, (path, verb, len(told.out), len(told.err))


WITHOUT_RIGHTS = """
import sys
sys.path.insert(0, sys.argv[1])
from hostile.test_trust_damage import unreadable
unreadable(*sys.argv[2:])
"""
"""Loaded anew, since root reads every file whatever its mode: until it has given up that it may."""
_DROP, _READS_ALL = 24, (1, 2)
"""`PR_CAPBSET_DROP`; `CAP_DAC_OVERRIDE` and `CAP_DAC_READ_SEARCH`."""


def unprivileged() -> None:
    """Have modes count for root, too, in the program that is begun next."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in _READS_ALL if os.geteuid() == 0 else ():
        if libc.prctl(_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def unreadable(checkpoint: str, recovery: str, rounds: str) -> None:
    """Take the rights of files and folders in turn, and call the verbs; prints what went wrong."""
    attacker = Attacker(Path(checkpoint))
    top = attacker.checkpoint.parent
    words = verbs(attacker, attacker.work / "recoveries" / recovery)
    saved = top.with_name("whole")
    shutil.copytree(top, saved, symlinks=True)
    apply.take_lease = functools.partial(take_lease, pace=PACE)  # type: ignore[attr-defined]
    paths = sorted(path.relative_to(top) for path in top.rglob("*"))
    denied = 0
    for path, verb in some([(path, verb) for path in paths for verb in words], int(rounds)):
        lose_for(verb, attacker)
        if not (top / path).exists():
            put_back(saved, attacker)
            continue
        before = (top / path).lstat().st_mode
        (top / path).chmod(0)
        try:
            told = call(*words[verb])
        finally:
            with contextlib.suppress(FileNotFoundError):  # the verb has moved it
                (top / path).chmod(before)
        denied += told.code == StorageDeniedError.exit_code
        if told.code == 4 or told.code >= 128 or "Traceback" in told.err or "no such option" in told.err:
            print("wrong", path, verb, told.code, told.err[-500:])
        put_back(saved, attacker)
    print("denied", denied)


@pytest.mark.parametrize("rounds", [60, pytest.param(ALL, marks=pytest.mark.proof)])
def test_no_file_or_folder_that_cannot_be_read_is_a_bug(
    lake: Path, attacker: Attacker, plan: Told, tmp_path: Path, rounds: int
) -> None:
    del lake
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, tests, attacker.checkpoint, plan["recovery"], str(rounds)],
        cwd=tmp_path / "here",
        preexec_fn=unprivileged,
        capture_output=True,
        text=True,
        check=False,
    )
    *wrong, last = done.stdout.splitlines() or [""]
    assert wrong == [], "\n".join(wrong)
    assert done.returncode == 0, done.stderr
    assert int(last.removeprefix("denied ")) > 3, last
