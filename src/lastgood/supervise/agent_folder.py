"""Where the agent in the driver writes: a folder of this run, and how every Python of the command finds it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs
import psutil

from lastgood.process.driver import Launch
from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE
from lastgood.spark.agent.fit import KEPT_FILE
from lastgood.spark.agent.restarts import VARIABLE as RESTARTS
from lastgood.spark.agent.silent import VARIABLE
from lastgood.storage.rights import make_private, open_privately
from lastgood.supervise.events import Event, Noticed

_AGENT_FOLDERS_KEPT = 20


def name_agent_folder(name: str) -> Path:
    """A folder of this run, on this machine."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return platformdirs.user_state_path("lastgood") / "agent" / name / f"{stamp}-{os.getpid()}"


def instrument(launch: Launch, folder: Path, *, restarts: bool = False) -> Launch:
    """The same command; every Python that it starts finds the agent.

    Args:
        launch: The command.
        folder: For what the agent writes.
        restarts: Whether it may start queries again that have failed.
    """
    inherited = launch.env.get("PYTHONPATH")
    found = inherited.split(os.pathsep) if inherited else []
    others = [each for each in found if each != str(SITE_FOLDER)]
    path = os.pathsep.join([str(SITE_FOLDER), *others])
    env = {**launch.env, "PYTHONPATH": path, FOLDER_VARIABLE: str(folder)}
    env.pop(RESTARTS, None)
    if restarts:
        env[RESTARTS] = "1"
    env.pop(VARIABLE, None)  # it runs for its sink, whatever the shell that we are called by has exported
    return replace(launch, env=env)


def put_kept(folder: Path, kept: Mapping[str, Mapping[str, Any]]) -> None:
    """Tell the guard in the drivers what checkpoints keep.

    Args:
        folder: Of this run.
        kept: Checkpoint → see `spark.agent.fit.compare`.

    Raises:
        OSError: it cannot be written.
    """
    told = [{"checkpoint": checkpoint, "kept": each} for checkpoint, each in kept.items()]
    # Safe: the folder is of this run alone, and no driver of it runs that starts a query now: one may wait to.
    _put(folder / KEPT_FILE, json.dumps(told))


def put_answer(folder: Path, name: str, answer: str) -> None:
    """Tell the agent in a driver what becomes of a query.

    Args:
        folder: Of this run.
        name: Of the file for that.
        answer: See `spark.agent.restarts`.

    Raises:
        OSError: it cannot be written.
    """
    # Safe: there is no file of that name, or it holds an answer that was not acted on.
    _put(folder / name, answer)


def _put(file: Path, content: str) -> None:
    make_private(file.parent)
    draft = file.with_name(f"{file.name}.tmp")
    with os.fdopen(open_privately(str(draft), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as stream:
        stream.write(content)
    # Safe: as whoever calls this argues.
    draft.replace(file)


def make_agent_folder(folder: Path, tell: Callable[[Event], None]) -> None:
    """Make it, and remove those of runs long past."""
    try:
        make_private(folder)  # exceptions may quote data
        old = sorted(each for each in folder.parent.iterdir() if each != folder)[:-_AGENT_FOLDERS_KEPT]
        for each in old:
            owner = each.name.rpartition("-")[2]
            if not (owner.isdigit() and psutil.pid_exists(int(owner))):
                # Safe: a folder that was named after a run of this pipeline, whose process is gone, and older than the
                # newest ones, which stay: what it holds was for that run alone. No link is followed.
                shutil.rmtree(each)
    except OSError as error:
        tell(
            Noticed(
                at=time.time(),
                condition="AGENT_FOLDER_NOT_WRITTEN",
                sentence=f"{folder} cannot be written ({error.strerror}): nothing of what the agent sees is kept",
            )
        )
