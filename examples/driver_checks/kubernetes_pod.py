#!/usr/bin/env python3
"""Whether Kubernetes says that the pods that ran the driver are dead.

    kubernetes_pod.py --selector app=orders --namespace streaming
    kubernetes_pod.py --selector spark-role=driver,spark-app-name=orders

Exit code 0: all pods have ended, and their nodes have said so. 1: one is alive, or on its way, or nobody has heard of
its end: a pod on a node that was lost is Running until somebody knows better. 2: nobody can tell: kubectl gives no
answer, or no pod is found.

Asked from a pod, that one has its name in the variable POD_NAME, and does not count. If it has the labels too, it shows
that the selector is right: then no other pod means that the driver is dead. Else `--none-is-dead` is needed for that.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

DEAD, ALIVE, UNKNOWN = 0, 1, 2
SECONDS = 40
REQUEST_TIMEOUT = "20s"
ENDED = {"Succeeded", "Failed"}
CONTAINERS = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")


def pods(kubectl: Sequence[str], selector: str, namespace: str | None) -> list[dict[str, Any]]:
    """All pods with these labels.

    Raises:
        OSError, SubprocessError: no kubectl, or it got no answer.
        ValueError: what it printed is no list of pods.
    """
    where = () if namespace is None else ("--namespace", namespace)
    command = [*kubectl, "get", "pods", "--selector", selector, *where, "--output", "json"]
    done = subprocess.run(
        [*command, "--request-timeout", REQUEST_TIMEOUT],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        timeout=SECONDS,
    )
    told = json.loads(done.stdout)
    found: list[dict[str, Any]] = told["items"]
    return found


def why_alive(pod: dict[str, Any]) -> str | None:
    """What speaks against the death of a pod; None if nothing does."""
    status = pod["status"]
    if status["phase"] not in ENDED:
        leaving = ", and is to be deleted" if "deletionTimestamp" in pod["metadata"] else ""
        return f"is {status['phase']}{leaving}, on node {pod['spec'].get('nodeName')}"
    # A pod that the control plane gave up (its node is gone) is Failed with containers of which nobody saw the end.
    running = [each["name"] for kind in CONTAINERS for each in status.get(kind) or () if "running" in each["state"]]
    return f"is {status['phase']}, but nobody saw its container {running[0]} end" if running else None


def check(found: Sequence[dict[str, Any]], own: str | None, *, none_is_dead: bool) -> tuple[int, str]:
    """Exit code, and why.

    Raises:
        KeyError, TypeError: these are no pods.
    """
    others = [pod for pod in found if pod["metadata"]["name"] != own]
    for pod in others:
        because = why_alive(pod)
        if because is not None:
            return ALIVE, f"pod {pod['metadata']['name']} {because}"
    if not found and not none_is_dead:
        return UNKNOWN, "unknown: no pod is found"
    return DEAD, f"{len(others)} pods have ended" if others else "there is no other pod"


def main() -> int:
    """Ask, and say why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--selector", required=True, metavar="LABELS", help="of the pods with the driver, and no others"
    )
    parser.add_argument("--namespace", metavar="NAME", help="by default that of kubectl's configuration")
    parser.add_argument(
        "--kubectl", type=shlex.split, default=["kubectl"], metavar="COMMAND", help="with its --context"
    )
    parser.add_argument(
        "--none-is-dead", action="store_true", help="you know the selector to be right, and delete no pod by force"
    )
    asked = parser.parse_args()
    try:
        found = pods(asked.kubectl, asked.selector, asked.namespace)
        code, because = check(found, os.environ.get("POD_NAME"), none_is_dead=asked.none_is_dead)
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        code, because = UNKNOWN, f"unknown: {error!r}"
    print(because)
    return code


if __name__ == "__main__":
    sys.exit(main())
