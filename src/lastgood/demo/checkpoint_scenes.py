"""The scene in which the checkpoint is deleted while the application is down: with a mirror, and without one."""

from __future__ import annotations

import time
from collections.abc import Iterator

from lastgood.demo.events import Scene
from lastgood.demo.scenes import await_plan_told, make_scene, measure_seconds, require_ready
from lastgood.demo.script import SCENES, Script
from lastgood.demo.stage import DemoStage
from lastgood.supervise.events import Repaired


def play_deleted(stage: DemoStage, script: Script) -> Iterator[Scene]:
    """`c`: rebuilt from the mirror; then once more, from the table's own columns."""
    yield _play_deleted(
        stage,
        script,
        mirror_too=False,
        title=SCENES["c"],
        broke="somebody deletes the checkpoint, to begin afresh",
        did="every log put back as the mirror holds it; the query goes on with its id and its numbers",
    )
    yield _play_deleted(
        stage,
        script,
        mirror_too=True,
        title=f"{SCENES['c']}, and its mirror too",
        broke="the same once more, and no log is left anywhere",
        did="a new checkpoint, which begins where the columns partition and offset of the table end",
    )


def _play_deleted(stage: DemoStage, script: Script, *, mirror_too: bool, title: str, broke: str, did: str) -> Scene:
    application = stage.application
    require_ready(stage, script)
    application.stop()
    stage.send(script.share("c") // 2)
    stage.lose_checkpoint(mirror_too=mirror_too)
    application.tell(broke)
    at = time.time()
    mark = application.start(limit=script.limit)
    repaired = application.await_event(Repaired, mark)
    seconds = measure_seconds(stage, mark, since="after `lastgood run`", at=at, detected_at=repaired.at)
    shown = make_scene("c", await_plan_told(stage, mark), at=at, title=title, broke=broke, did=did, seconds=seconds)
    stage.settle()
    return shown
