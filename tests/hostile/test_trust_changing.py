"""A lake that changes while a verb looks at it, or repairs it: all else stays as it is, and there is no traceback.

Run alone, `LASTGOOD_SEED=N` repeats what is changed, and in which order; at which instant is up to the machine.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import threading
from pathlib import Path

import pytest
from hostile.attacker import Attacker, Listener, Told, call, tree
from hostile.test_trust_damage import verbs
from hostile.test_trust_fuzz import SEED, _no_waiting, edited, lake, strings

__all__ = ["_no_waiting", "lake"]

CHANGES = ("link", "folder", "pipe", "empty", "hole", "second name", "gone", "edited", "back", "back", "back")
STILL_SECONDS = 0.02
"""At most between two changes."""


class Changing:
    """Changes one file or folder of a lake after the other, until it is left. A context manager."""

    def __init__(self, whole: Path, top: Path, victim: Path, listener: Listener, seed: str) -> None:
        """Change what lies below `top`, as it lies below `whole` when nothing is changed."""
        self._whole = whole
        self._top = top
        self._victim = victim
        self._chance = random.Random(seed)
        self._values = strings(victim, listener)
        self._paths = sorted(path.relative_to(whole) for path in whole.rglob("*"))
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._trash = 0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(STILL_SECONDS * self._chance.random()):
            with contextlib.suppress(OSError):  # the verb was quicker
                self._change(self._choose(), self._chance.choice(CHANGES))

    def _choose(self) -> Path:
        """One of the files, or the first folder above it that is none any more: nothing is changed behind a link."""
        path = self._chance.choice(self._paths)
        above = [self._top / each for each in [*reversed(path.parents)][1:]]
        broken = [each for each in above if each.is_symlink() or not each.is_dir()]
        return broken[0] if broken else self._top / path

    def _change(self, file: Path, change: str) -> None:
        if file.is_symlink() or not file.is_dir():
            file.unlink(missing_ok=True)
        else:
            self._trash += 1
            file.rename(self._top.with_name(f"trash{self._trash}"))
        match change:
            case "link":
                file.symlink_to(self._chance.choice((self._victim / "chk", self._victim / "chk/offsets/7")))
            case "folder":
                file.mkdir()
            case "pipe":
                os.mkfifo(file)
            case "empty":
                file.touch()
            case "hole":
                with file.open("wb") as stream:
                    stream.truncate(2**32)
            case "second name":
                os.link(self._victim / "home/.ssh/authorized_keys", file)
            case "edited" | "back":
                self._put_back(file, is_edited=change == "edited")

    def _put_back(self, file: Path, *, is_edited: bool) -> None:
        whole = self._whole / file.relative_to(self._top)
        if whole.is_dir():
            shutil.copytree(whole, file, symlinks=True)
            return
        content = whole.read_bytes()
        if is_edited:
            content = edited(content, self._values, self._chance, is_plan=file.name == "plan.json")
        file.write_bytes(content)


@pytest.mark.parametrize("has_repairs", [True, False])
@pytest.mark.parametrize("rounds", [10, pytest.param(300, marks=pytest.mark.proof)])
def test_no_change_at_any_instant_leads_a_verb_elsewhere(
    lake: Path, attacker: Attacker, plan: Told, victim: Path, listener: Listener, rounds: int, has_repairs: bool
) -> None:
    """Where a repair is open most verbs only tell of it: so half of the lakes have none."""
    if not has_repairs:
        shutil.rmtree(lake / "chk.lastgood/recoveries")
    chk, top = attacker.checkpoint, attacker.checkpoint.parent
    again = ("recover", chk, "--driver-is-dead", "--accept", "duplicates", "--goal")
    words = {
        **verbs(attacker, attacker.work / "recoveries" / plan["recovery"]),
        "create": ("backup", "create", chk),
        "repair": (*again, "replan"),
        "go back": (*again, "reposition", "--batch", "3"),
    }
    chance = random.Random(f"{SEED}/{rounds}/{has_repairs}")
    before = tree(victim)
    for number in range(rounds):
        shutil.rmtree(top)
        shutil.copytree(lake, top, symlinks=True)
        verb = chance.choice(sorted(words))
        with Changing(lake, top, victim, listener, f"{SEED}/{number}"):
            told = call(*words[verb])
        assert told.code < 128, (number, verb, told)
        assert told.code != 4, (number, verb, told)
        assert "Traceback" not in told.err, (number, verb)
        assert tree(victim) == before, (number, verb)
