"""Scenes about offsets: the classic recipe with its price, and records that Kafka has deleted unread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from lastgood.demo.application import DemoFailedError
from lastgood.demo.events import Scene
from lastgood.demo.scenes import await_plan_told, make_scene, measure_seconds, require_ready, sum_price
from lastgood.demo.script import Script
from lastgood.demo.stage import TOPIC, DemoStage
from lastgood.observe.positions import StartChoice
from lastgood.planning.price import Waiver
from lastgood.settings.policy import Policy
from lastgood.sources.kafka.ranges import Ranges, count_offsets
from lastgood.supervise.care import PersonNeededError
from lastgood.supervise.events import Called, Repaired

STABLE_LAG = 3
_GONE = 0.6
"""Which part of what was unread Kafka deletes."""


def play_stable_offsets(stage: DemoStage, script: Script) -> Iterator[Scene]:
    """`d`: the next start is fed with the offsets of CURRENT-3, though nothing is broken; its price is told before."""
    application = stage.application
    require_ready(stage, script)
    stage.send(script.share("d"))
    stage.settle()
    application.stop()
    exact = stage.plan().to_json()
    at = time.time()
    decision = stage.recover("reposition", StartChoice(stable_lag=STABLE_LAG), accept=(Waiver.DUPLICATES,))
    if decision.recovery is None:
        raise DemoFailedError("the offsets were not set back", found=decision.because)
    plan, done_at = decision.recovery.plan.to_json(), time.time()
    application.tell(f"said beforehand: {count_offsets(sum_price(plan, 'duplicated')):,} records will come twice")
    mark = application.start(limit=script.limit)
    seconds = measure_seconds(stage, mark, since="after `lastgood recover`", at=at, detected_at=done_at)
    stage.settle()
    yield make_scene(
        "d",
        plan,
        at=at,
        broke="nothing: somebody goes back three batches, to be on the safe side",
        did=f"it starts where batch CURRENT-{STABLE_LAG} ended; what comes twice is said beforehand, and accepted",
        seconds=seconds,
        beside=(f"the exact way from the same place, --goal resume: {_describe_price(exact)}",),
    )


def play_outage(stage: DemoStage, script: Script) -> Iterator[Scene]:
    """`e`: Kafka deletes unread records while the application is down; nobody can bring them back."""
    application = stage.application
    require_ready(stage, script)
    stage.send(script.share("e") // 2)
    stage.settle()
    application.stop()
    read = stage.committed()
    stage.send(script.share("e") - script.share("e") // 2)
    stage.await_sent()
    latest = stage.broker.latest_offsets(TOPIC)
    gone = stage.expire({each: read[each] + int(_GONE * (latest[each] - read[each])) for each in latest})
    at = time.time()
    file = _start_refused(stage, script)
    application.tell(f"a person was called, the plan is saved ({file.name}); here the demo accepts the loss")
    mark = application.start(Policy(accept=(Waiver.LOSS.value,)), limit=script.limit)
    repaired = application.await_event(Repaired, mark)
    seconds = measure_seconds(stage, mark, since="after `lastgood run`", at=at, detected_at=repaired.at)
    plan = await_plan_told(stage, mark)
    stage.settle()
    yield make_scene(
        "e",
        plan,
        at=at,
        broke=f"the application is down, and Kafka deletes {count_offsets(gone):,} records that nobody has read",
        did="nothing was started, and a person was called; once the loss was accepted, it went on right behind it",
        seconds=seconds,
        beside=(f"lost for good: {_name_ranges(sum_price(plan, 'lost'))}",),
    )


def _start_refused(stage: DemoStage, script: Script) -> Path:
    """Start it with a policy that accepts nothing; where the plan is saved that a person has to decide on."""
    application = stage.application
    mark = application.start(limit=script.limit)
    needed = application.wait()
    called = application.events(Called, mark)
    if not isinstance(needed, PersonNeededError) or not called or called[0].file is None:
        raise DemoFailedError("a person was to be called", found=str(needed))
    return Path(called[0].file)


def _describe_price(plan: dict[str, object]) -> str:
    told = {what: count_offsets(sum_price(plan, what)) for what in ("reread", "lost", "duplicated")}
    return f"{told['reread']:,} read again, {told['lost']:,} lost, {told['duplicated']:,} doubled"


def _name_ranges(ranges: Ranges) -> str:
    spans = (
        f"{topic}/{partition} [{start:,}, {end:,})"
        for topic, partitions in ranges.items()
        for partition, found in partitions.items()
        for start, end in found
    )
    return ", ".join(spans)
