"""Verbs in a process of their own that may take only so much memory and so many steps, as if on a small machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LASTGOOD = Path(sys.executable).parent / "lastgood"
MEMORY_BYTES = 3 * 1024**3
"""Of address space, most of which are libraries and the stacks of threads that are never touched."""
RESIDENT_KIB = 700 * 1024
"""A healthy checkpoint takes a fifth of it."""
STEPS_SECONDS = 60
"""Of the processor, not of the clock: a machine under load does not use them up."""
HANGS_SECONDS = 300

_LAUNCHER = """
import os, resource, subprocess, sys
used, memory, seconds, *words = sys.argv[1:]
def limit():
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
child = subprocess.Popen(words, preexec_fn=limit)
_, status, usage = os.wait4(child.pid, 0)
child.returncode = status
with open(used, "w") as file:
    print(status, usage.ru_maxrss, file=file)
"""
"""Begins the verb from a small process: Linux counts what the one took that began another as taken by that."""

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


def bounded(words: Sequence[str], folder: Path, *, memory: int = MEMORY_BYTES) -> Said:
    """Run a verb; `folder` is where it is and what it takes for its home."""
    out, err, used = folder / "said.out", folder / "said.err", folder / "said.used"
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    limits = [str(memory), str(STEPS_SECONDS)]
    with out.open("wb") as told, err.open("wb") as complained:
        subprocess.run(
            [sys.executable, "-I", "-S", "-c", _LAUNCHER, used, *limits, LASTGOOD, *words],
            check=True,
            env=env,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=told,
            stderr=complained,
        )
    status, resident_kib = map(int, used.read_text().split())
    return Said(os.waitstatus_to_exitcode(status), out.read_text(), err.read_text(), resident_kib)


def arguments(verb: Sequence[str], target: Path | str) -> list[str]:
    """A verb of `READING`, with its target in its place."""
    words = 2 if verb[0] == "backup" else 1
    return [*verb[:words], str(target), *verb[words:], "--format=json"]
