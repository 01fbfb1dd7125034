#!/usr/bin/env python3
"""Whether no process of this machine has all of these words in its command line.

    local_process.py org.apache.spark.deploy.SparkSubmit orders.py

Exit code 0: there is none, the driver is dead. 1: there is one. 2: nobody can tell.
It asks this machine alone, and what started it does not count: that may name the application too.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

DEAD, ALIVE, UNKNOWN = 0, 1, 2
INIT = "1"


def command_line(process: Path) -> list[str]:
    """The arguments of a process; none if it has ended."""
    try:
        content = (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return content.decode(errors="replace").split("\0")


def parent(process: Path) -> str:
    """The id of what started it."""
    _, _, behind_the_name = (process / "stat").read_text(errors="replace").rpartition(")")
    return behind_the_name.split()[1]


def ancestors(processes: Path, pid: str) -> set[str]:
    """The process, what started it, and so on."""
    found = {pid}
    while (pid := parent(processes / pid)) not in found | {"0"}:
        found.add(pid)
    return found


def check(words: Sequence[str], processes: Path = Path("/proc"), own: int | None = None) -> tuple[int, str]:
    """Exit code, and why.

    Raises:
        OSError: processes are hidden.
    """
    if not (processes / INIT / "cmdline").read_bytes():
        raise PermissionError(f"{processes} does not show the processes of others")
    asking = ancestors(processes, str(own or os.getpid()))
    for process in processes.iterdir():
        if process.name.isdigit() and process.name not in asking:
            arguments = command_line(process)
            if all(any(word in argument for argument in arguments) for word in words):
                return ALIVE, f"process {process.name} is alive: {' '.join(arguments)[:120]}"
    return DEAD, f"no process has {' '.join(words)} in its command line"


def main() -> int:
    """Ask, and say why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="+", metavar="WORD", help="has to be in some argument of the driver")
    try:
        code, because = check(parser.parse_args().words)
    except (OSError, IndexError) as error:
        code, because = UNKNOWN, f"unknown: {error}"
    print(because)
    return code


if __name__ == "__main__":
    sys.exit(main())
