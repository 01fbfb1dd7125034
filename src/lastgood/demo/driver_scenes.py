"""Scenes in which the driver dies: killed from outside, or of a batch that is too large for it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

from lastgood.demo.application import DemoFailedError
from lastgood.demo.events import Scene
from lastgood.demo.scenes import await_plan_told, make_scene, measure_seconds, require_ready
from lastgood.demo.script import Script
from lastgood.demo.stage import DemoStage
from lastgood.journal.incident import STANDBY
from lastgood.settings.policy import Policy
from lastgood.sources.kafka.ranges import count_offsets
from lastgood.supervise.events import Ended, Recovered, Repaired, StandingBy, Started

SAME_BATCH = 2
_RESULTS = "64k"
_FILES_PER_BATCH = 10
_JAVA_CLASS = re.compile(r"^[\w.$]+: ")


def make_small_driver(script: Script) -> dict[str, str]:
    """Spark's settings for a driver that a batch of today's limit suits, and not one of eight times as many records.

    The results of a job grow with its files, and what the driver takes of them is bounded
    (`spark.driver.maxResultSize`): whoever exceeds that fails each time, on any machine.
    """
    return {
        "spark.driver.maxResultSize": _RESULTS,
        "spark.sql.files.maxRecordsPerFile": str(max(1, script.limit // _FILES_PER_BATCH)),
    }


def play_killed(stage: DemoStage, script: Script) -> Iterator[Scene]:
    """`a`: kill -9 at a random instant of a batch, again and again."""
    application, chance = stage.application, random.Random(script.seed)  # noqa: S311 - instants, not secrets
    stage.send(script.first, rate=script.rate)
    application.start(limit=script.kill_limit)
    for number in range(script.kills):
        if number == script.kills - 1:
            application.limit(script.limit)  # nobody waits for small batches once there is nothing to be killed in one
        application.await_commits(chance.randint(1, 3))
        mark = application.mark
        kill = application.kill_in_a_batch(chance)
        ended = application.await_event(Ended, mark, after=kill.at)
        seconds = measure_seconds(stage, mark, since="after the kill", at=kill.at, detected_at=ended.at)
        yield make_scene(
            "a",
            await_plan_told(stage, mark),
            at=kill.at,
            broke=f"kill -9 of driver {kill.pid} inside batch {kill.batch}",
            did=f"a plain restart: Spark runs batch {kill.batch} again with its recorded ranges",
            seconds=seconds,
        )
    stage.settle()


def play_too_large(stage: DemoStage, script: Script) -> Iterator[Scene]:
    """`b`: a backlog is planned as one batch; the limit that is set then changes nothing about it."""
    application = stage.application
    require_ready(stage, script)
    application.stop()
    stage.send(script.share("b"))
    stage.await_sent()
    mark = application.start(Policy(same_batch=SAME_BATCH))
    batch = application.await_that("a batch without a limit", lambda: application.progress.in_flight)
    size = count_offsets(stage.read_by(batch))
    application.limit(script.limit)
    application.tell(f"batch {batch} is planned with {size:,} records; the limit is {script.limit:,} from now on")
    repaired = application.await_event(Repaired, mark)
    failures = [each for each in application.events(Ended, mark) if each.at <= repaired.at]
    last = failures[-1].at
    seconds = measure_seconds(stage, mark, since="after the last failure", at=last, detected_at=repaired.at)
    plan = await_plan_told(stage, mark)
    stage.settle()
    first = application.await_event(Recovered, mark).batch
    batches = (application.progress.committed or first) - first + 1
    yield make_scene(
        "b",
        plan,
        at=last,
        broke=f"batch {batch} is planned without a limit, {size:,} records:"
        f" {_JAVA_CLASS.sub('', failures[0].error or 'it fails')}",
        did=f"with a limit of {script.limit:,} set, the recorded batch came and failed again; after {len(failures)}"
        f" failures it was dropped, and {batches} batches within the limit did the rest",
        seconds=seconds,
    )


def play_standby(stage: DemoStage, script: Script) -> Iterator[Scene]:
    """`f`: as `a`, but another driver waits, warm, and takes over."""
    application, chance = stage.application, random.Random(script.seed)  # noqa: S311 - instants, not secrets
    require_ready(stage, script)
    application.stop()
    share = script.share("f")
    stage.send(share // 4)
    mark = application.start(limit=script.limit, standby=True)
    waiting = application.await_event(StandingBy, mark)
    stage.send(share - share // 4)
    mark = application.mark
    kill = application.kill_in_a_batch(chance)
    ended = application.await_event(Ended, mark, after=kill.at)
    seconds = measure_seconds(stage, mark, since="after the kill", at=kill.at, detected_at=ended.at)
    started = application.await_event(Started, mark, after=ended.at)
    if started.way != STANDBY:
        raise DemoFailedError("another driver was to take over", found="a new process was started")
    plan = await_plan_told(stage, mark)
    stage.settle()
    yield make_scene(
        "f",
        plan,
        at=kill.at,
        broke=f"kill -9 of driver {kill.pid} inside batch {kill.batch}",
        did=f"driver {started.pid} had stood by, warm, and ran batch {kill.batch} again with its recorded ranges",
        seconds=seconds,
        beside=(f"it held {waiting.memory_bytes / 1e6:,.0f} MB while it waited",),
    )
