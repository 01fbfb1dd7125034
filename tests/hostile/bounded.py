"""Verbs in a process of their own that may take only so much memory and so many steps, as if on a small machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import forked

MEMORY_BYTES = 3 * 1024**3
"""Of address space, most of which are libraries and the stacks of threads that are never touched."""
RESIDENT_KIB = 700 * 1024
"""A healthy checkpoint takes a fifth of it."""
STEPS_SECONDS = 60
"""Of the processor, not of the clock: a machine under load does not use them up."""

READING = [
    ["status"],
    ["inspect"],
    ["inspect", "--all"],
    ["inspect", "--batch", "1"],
    ["inspect", "--state"],
    ["inspect", "--offset", "orders/0/7"],
    ["inspect", "--time", "2026-11-21T12:00Z"],
    ["offsets"],
    ["offsets", "--stable-lag", "1"],
    ["diagnose"],
    ["verify"],
    ["backup", "list"],
    ["plan"],
]


@dataclass(frozen=True)
class Said:
    """How a verb ended."""

    code: int
    out: str
    err: str
    resident_kib: int

    @property
    def is_bug(self) -> bool:
        return self.code in (4, -9, -24) or "Traceback" in self.err or "MemoryError" in self.err


def bounded(words: Sequence[str], folder: Path) -> Said:
    """Run a verb; `folder` is where it is and what it takes for its home."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    ended = forked.run(*words, env=env, cwd=folder, limits=forked.Limits(MEMORY_BYTES, STEPS_SECONDS))
    return Said(ended.returncode, ended.stdout, ended.stderr, ended.resident_kib)


def arguments(verb: Sequence[str], target: Path | str) -> list[str]:
    """A verb of `READING`, with its target in its place."""
    words = 2 if verb[0] == "backup" else 1
    return [*verb[:words], str(target), *verb[words:], "--format=json"]
