"""How `demo` shows what it did; the demo itself is in `tests/spark`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastgood import demo as package
from lastgood.cli.main import main
from lastgood.demo import Demo, DemoTally, Scene, SceneStep, Script, Seconds
from lastgood.sources.kafka.ranges import Ranges
from lastgood.spark.audit import Audit, Difference, PartitionDifference
from lastgood.supervise.events import Event

LOST: Ranges = {"flights": {0: ((1_000, 1_500),)}}
SCENE = Scene(
    at=0.0,
    letter="e",
    title="an outage longer than the retention",
    broke="Kafka deletes 500 records [unread]",
    did="it went on right behind them",
    guarantee="lossy",
    seconds=Seconds("after `lastgood run`", 0.42, 1.04, 9.96),
    reread=0,
    lost=LOST,
    beside=("lost for good: flights/0 [1,000, 1,500)",),
)


def shown(lost: int = 500) -> Demo:
    partition = PartitionDifference("flights-archive", 0, lost, ((1_000, 1_000 + lost),), 0)
    audit = Audit(
        checkpoint="chk",
        last_committed=7,
        kafka="broker:9092",
        sink="delta:table",
        sink_version=8,
        sink_rows=99_500,
        keys=("id",),
        isolation_level="read_uncommitted",
        ranges=(),
        source_records=100_000,
        lost=Difference(lost, (partition,)),
        duplicated=Difference(0),
        changed=Difference(0),
        unknown=Difference(0),
        aborted_records=0,
        aborted_rows=0,
        rows_before=0,
        rows_after=0,
        rows_not_verifiable=0,
        seconds=1.0,
    )
    return Demo((SCENE,), DemoTally(sent=100_000, audit=audit, said_lost=LOST), 200.0, Path("work"), "broker:9092")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Demo], list[Script]]:
    """Lets the verb show a demo that nobody played; what it was asked for."""

    def stand_in(result: Demo) -> list[Script]:
        asked: list[Script] = []

        def demo(script: Script, *, tell: Callable[[Event], None], **_: Any) -> Demo:
            asked.append(script)
            tell(SceneStep(at=0.0, sentence="Kafka answers"))
            tell(SCENE)
            return result

        monkeypatch.setattr(package, "demo", demo)
        return asked

    return stand_in


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["demo", *words])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_scene_is_a_few_plain_lines_without_a_terminal(
    play: Callable[[Demo], list[Script]], capsys: pytest.CaptureFixture[str]
) -> None:
    play(shown())
    code, out, err = run(capsys, "--seed=7")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "seed 7"
    assert "e an outage longer than the retention" in lines
    assert "broken Kafka deletes 500 records [unread]" in lines
    assert "seconds detected 0.4 · restarted 1.0 · first new batch 10.0 after `lastgood run`" in lines
    assert "records read again 0 · lost 500 · doubled 0" in lines
    assert "lost for good: flights/0 [1,000, 1,500)" in lines
    assert "lost flights/0 [1,000, 1,500) 500 500" in lines
    assert lines[-1].startswith("lost 500, duplicated 0 of 100,000 flights, as said (100,000 records, 99,500 rows")
    assert "Kafka answers" not in out


def test_figure_that_was_not_said_is_told_and_ends_with_1(
    play: Callable[[Demo], list[Script]], capsys: pytest.CaptureFixture[str]
) -> None:
    play(shown(lost=501))
    code, out, _ = run(capsys)
    assert code == 1
    assert "lost 501, duplicated 0 of 100,000 flights, which is not what was said" in out


def test_every_event_is_shown_when_that_is_wanted(
    play: Callable[[Demo], list[Script]], capsys: pytest.CaptureFixture[str]
) -> None:
    play(shown())
    _, out, _ = run(capsys, "--events")
    assert "Kafka answers" in out
    assert "an outage longer than the retention" in out


def test_json_is_a_line_for_each_event_and_the_result(
    play: Callable[[Demo], list[Script]], capsys: pytest.CaptureFixture[str]
) -> None:
    play(shown())
    code, out, _ = run(capsys, "--format=json")
    step, scene, result = [json.loads(line) for line in out.splitlines()]
    assert (code, step["event"], scene["event"]) == (0, "step", "scene")
    assert result["scenes"] == [scene]
    assert (result["as_said"], result["exact"], result["flights"]) == (True, False, 100_000)


def test_scenes_and_their_figures_are_what_was_asked_for(
    play: Callable[[Demo], list[Script]], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = play(shown())
    run(capsys, "--scenes=e,a", "--kills=3", "--flights=40000", "--rate=500", "--seed=5")
    assert asked == [Script(flights=40_000, rate=500, kills=3, seed=5, scenes=("a", "e"))]


def test_scene_that_there_is_not_is_a_clear_error(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "--scenes=x")
    assert (code, out) == (2, "")
    assert "of a,b,c,d,e,f" in err
