"""What all scenes have in common: how they begin, and how what lastgood tells becomes their figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastgood.demo.application import DemoFailedError
from lastgood.demo.events import Scene, Seconds
from lastgood.demo.script import SCENES, Script
from lastgood.demo.stage import DemoStage
from lastgood.journal.incident import list_ranges
from lastgood.sources.kafka.ranges import Ranges, count_offsets, unite
from lastgood.supervise.events import Committed, PromiseChecked, Started


def require_ready(stage: DemoStage, script: Script) -> None:
    """The application runs with today's limit, and has read all that there is: also where this is the first scene."""
    if not stage.application.is_running:
        stage.send(script.first)
        stage.application.start(limit=script.limit)
    stage.settle()


def measure_seconds(stage: DemoStage, mark: int, *, since: str, at: float, detected_at: float) -> Seconds:
    """How quickly lastgood went; waits for the first new batch.

    Args:
        stage: Where it happens.
        mark: Before all that counts.
        since: What the seconds are counted from.
        at: When that was, a Unix time in seconds.
        detected_at: When lastgood knew, and had done what was to be done.
    """
    started = stage.application.await_event(Started, mark, after=detected_at)
    first = stage.application.await_event(Committed, mark, after=started.at)
    return Seconds(since, *(round(each - at, 2) for each in (detected_at, started.at, first.at)))


def await_plan_told(stage: DemoStage, mark: int) -> Mapping[str, Any]:
    """The plan that lastgood went by, as it has written it down; waits until it was held against the first new batch.

    Raises:
        DemoFailedError: that batch did something else, or there was no plan.
    """
    promised = stage.application.await_event(PromiseChecked, mark)
    if promised.state == "broken":
        raise DemoFailedError("the first new batch did something else than was said", found="; ".join(promised.because))
    plan = stage.incident().plan
    if plan is None:
        raise DemoFailedError("lastgood has gone by no plan", subject=str(stage.mirror))
    return plan


def make_scene(  # noqa: PLR0913 - all but what it is about by name
    letter: str,
    plan: Mapping[str, Any],
    *,
    at: float,
    broke: str,
    did: str,
    seconds: Seconds,
    title: str | None = None,
    beside: tuple[str, ...] = (),
) -> Scene:
    """A scene, with the price and the guarantee that a plan tells; see `Scene`."""
    return Scene(
        at=at,
        letter=letter,
        title=title or SCENES[letter],
        broke=broke,
        did=did,
        guarantee=str(plan["guarantee"]).replace("_", " "),
        seconds=seconds,
        reread=count_offsets(sum_price(plan, "reread")),
        lost=sum_price(plan, "lost"),
        doubled=sum_price(plan, "duplicated"),
        beside=beside,
    )


def sum_price(plan: Mapping[str, Any], what: str) -> Ranges:
    """What a plan says of all sources: `reread`, `lost`, `duplicated`."""
    found: Ranges = {}
    for source in plan["sources"]:
        for topic, partition, start, end in list_ranges(source, what):
            found = unite(found, {topic: {partition: ((start, end),)}})
    return found
