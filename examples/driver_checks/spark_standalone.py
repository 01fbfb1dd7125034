#!/usr/bin/env python3
"""Whether a standalone cluster says that the driver it ran is dead (`--deploy-mode cluster`).

    spark_standalone.py --main-class com.example.Orders http://master1:8080 http://master2:8080

Exit code 0: the master that is in charge knows drivers of this class, and all have ended. 1: one is alive.
2: nobody can tell: no master in charge answers, it knows no such driver (it forgets them when it is started again), or
the worker of one was lost, whose machine may be running it still.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import urllib.request
from collections.abc import Collection, Sequence
from typing import Any

DEAD, ALIVE, UNKNOWN = 0, 1, 2
SECONDS = 10
SEEN_TO_END = {"FINISHED", "FAILED", "KILLED"}
"""What a worker reports of a driver that it has seen end; the master alone calls one ERROR whose worker is gone."""


def state_of(master: str) -> dict[str, Any] | None:
    """What the page of a master tells; None if there is no sense in it."""
    request = urllib.request.Request(f"{master.rstrip('/')}/json/", headers={"Cache-Control": "no-cache"})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            told = json.load(answer)
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(f"{master}: {error!r}")
        return None
    return told if isinstance(told, dict) else None


def check(told: Sequence[dict[str, Any] | None], main_class: str, known_dead: Collection[str]) -> tuple[int, str]:
    """Exit code, and why; by what each master tells.

    Raises:
        KeyError, TypeError: an answer is none of a master.
    """
    in_charge = [each for each in told if each is not None and each["status"] == "ALIVE"]
    if len(in_charge) != 1:
        return UNKNOWN, f"unknown: {len(in_charge)} of {len(told)} masters say that they are in charge"
    ours = {
        kind: [driver for driver in in_charge[0][kind] if driver["mainclass"] == main_class]
        for kind in ("activedrivers", "completeddrivers")
    }
    for driver in ours["activedrivers"]:
        return ALIVE, f"{driver['id']} is {driver['state']} on {driver['worker']}"
    for driver in ours["completeddrivers"]:
        if driver["state"] not in SEEN_TO_END and driver["id"] not in known_dead:
            return UNKNOWN, f"unknown: {driver['id']} is {driver['state']}, its worker {driver['worker']} may be lost"
    if not ours["completeddrivers"]:
        return UNKNOWN, f"unknown: the master knows no driver of the class {main_class}"
    return DEAD, f"all {len(ours['completeddrivers'])} drivers of {main_class} have ended"


def main() -> int:
    """Ask, and say why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("masters", nargs="+", metavar="URL", help="the page of every master")
    parser.add_argument("--main-class", required=True, metavar="CLASS", help="as in spark-submit --class")
    parser.add_argument(
        "--known-dead", action="append", default=[], metavar="ID", help="a driver on a lost worker that you saw dead"
    )
    asked = parser.parse_args()
    try:
        code, because = check([state_of(each) for each in asked.masters], asked.main_class, asked.known_dead)
    except (KeyError, TypeError) as error:
        code, because = UNKNOWN, f"unknown: this is no answer of a master ({error!r})"
    print(because)
    return code


if __name__ == "__main__":
    sys.exit(main())
