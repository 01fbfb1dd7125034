"""The scene in which the checkpoint is deleted while the application is down: with a mirror, and without one."""

from __future__ import annotations

import time
from collections.abc import Iterator

from lastgood.operations.demo.events import Scene
from lastgood.operations.demo.scenes import ready, scene, seconds_of, told
from lastgood.operations.demo.script import Script
from lastgood.operations.demo.stage import Stage
from lastgood.supervise.events import Repaired


def deleted(stage: Stage, script: Script) -> Iterator[Scene]:
    """`c`: rebuilt from the mirror; then once more, from the table's own columns."""
    yield _deleted(
        stage,
        script,
        mirror_too=False,
        broke="the application is down, and somebody deletes its checkpoint",
        did="every log put back from the mirror; the query goes on with its id and numbers",
    )
    yield _deleted(
        stage,
        script,
        mirror_too=True,
        broke="the same, and the mirror is deleted too: no log is left anywhere",
        did="a new checkpoint begins where the columns partition, offset of the table end",
    )


def _deleted(stage: Stage, script: Script, *, mirror_too: bool, broke: str, did: str) -> Scene:
    application = stage.application
    ready(stage, script)
    application.stop()
    stage.send(script.share("c") // 2)
    stage.lose_checkpoint(mirror_too=mirror_too)
    application.tell(broke)
    at = time.time()
    mark = application.start(limit=script.limit)
    repaired = application.await_event(Repaired, mark)
    seconds = seconds_of(stage, mark, since="after `lastgood run`", at=at, detected_at=repaired.at)
    shown = scene("c", told(stage, mark), at=at, broke=broke, did=did, seconds=seconds)
    stage.settle()
    return shown
