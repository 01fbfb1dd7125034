#!/usr/bin/env python3
"""Whether YARN says that the driver it ran is dead (`--deploy-mode cluster`, `--conf spark.yarn.tags=orders`).

    yarn_application.py --tag orders http://rm1:8088 http://rm2:8088
    yarn_application.py --tag orders --fetch 'curl --negotiate -u : -fsSL --max-time 20' https://rm1:8090

Exit code 0: YARN knows applications of this tag, and all have ended. 1: one is alive.
2: nobody can tell: no resource manager answers, it knows none of this tag, or the driver of one was on a node that
YARN has lost, whose machine may be running it still.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shlex
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection, Sequence
from typing import Any

DEAD, ALIVE, UNKNOWN = 0, 1, 2
SECONDS = 25
ENDED_BY_ITSELF = "FINISHED"
ENDED_BY_YARN = {"FAILED", "KILLED"}
NODE_REPORTS = {"RUNNING", "UNHEALTHY", "DECOMMISSIONING"}
"""States of nodes that tell YARN which containers they have."""

Ask = Callable[[str], Any]
"""Path below `/ws/v1/cluster/` → what the resource manager answers."""


def asking(urls: Sequence[str], fetch: Sequence[str]) -> Ask:
    """Asks the first resource manager that answers; one that is not in charge sends us to the one that is."""

    def ask(path: str) -> Any:
        for url in urls:
            try:
                return json.loads(content(f"{url.rstrip('/')}/ws/v1/cluster/{path}", fetch))
            except (OSError, ValueError, http.client.HTTPException, subprocess.SubprocessError) as error:
                print(f"{url}: {error!r}")
        raise ConnectionError("no resource manager answers")

    return ask


def content(url: str, fetch: Sequence[str]) -> bytes:
    """What stands there, by our own means or by a command that prints it, and fails where it cannot."""
    if fetch:
        done = subprocess.run(
            [*fetch, url], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=SECONDS
        )
        return done.stdout
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:
        told: bytes = answer.read()
    return told


def check(ask: Ask, tag: str, known_dead: Collection[str]) -> tuple[int, str]:
    """Exit code, and why.

    Raises:
        ConnectionError: nobody answers.
        KeyError, TypeError: an answer is none of a resource manager.
    """
    found = ask(f"apps?applicationTags={urllib.parse.quote(tag)}")["apps"] or {}
    tagged = [each for each in found.get("app", []) if tag.lower() in each["applicationTags"].lower().split(",")]
    if not tagged:
        return UNKNOWN, f"unknown: YARN knows no application with the tag {tag}"
    for each in tagged:
        if each["state"] != ENDED_BY_ITSELF and each["state"] not in ENDED_BY_YARN:
            return ALIVE, f"{each['id']} is {each['state']}"
    for each in tagged:
        if each["state"] in ENDED_BY_YARN and each["id"] not in known_dead:
            silent = silent_nodes(ask, each["id"])
            if silent:
                return UNKNOWN, f"unknown: {each['id']} is {each['state']}, and YARN has lost {' '.join(silent)}"
    return DEAD, f"all {len(tagged)} applications with the tag {tag} have ended"


def silent_nodes(ask: Ask, application: str) -> list[str]:
    """The nodes on which its drivers were, and that do not report to YARN any more."""
    attempts = ask(f"apps/{application}/appattempts")["appAttempts"] or {}
    used = {each["nodeId"] for each in attempts.get("appAttempt", []) if each["nodeId"]}
    reporting = {each["id"] for each in ask("nodes")["nodes"]["node"] if each["state"] in NODE_REPORTS}
    return sorted(used - reporting)


def main() -> int:
    """Ask, and say why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("managers", nargs="+", metavar="URL", help="the page of every resource manager")
    parser.add_argument("--tag", required=True, help="one that no other application has")
    parser.add_argument(
        "--fetch",
        type=shlex.split,
        default=[],
        metavar="COMMAND",
        help="prints what stands at a URL, as Kerberos needs",
    )
    parser.add_argument(
        "--known-dead",
        action="append",
        default=[],
        metavar="ID",
        help="an application on a lost node that you saw dead",
    )
    asked = parser.parse_args()
    try:
        code, because = check(asking(asked.managers, asked.fetch), asked.tag, asked.known_dead)
    except ConnectionError as error:
        code, because = UNKNOWN, f"unknown: {error}"
    except (AttributeError, KeyError, TypeError) as error:
        code, because = UNKNOWN, f"unknown: this is no answer of a resource manager ({error!r})"
    print(because)
    return code


if __name__ == "__main__":
    sys.exit(main())
