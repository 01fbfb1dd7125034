"""However much a lake holds, a person reads a page of it, which says how much more there is, and where."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from hostile.attacker import Attacker, Told, call

from lastgood import redaction
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.cli import apply
from lastgood.recovery.warrant import Outside
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.visible import SHOWN_MAX, TEXT_MAX, WHOLE, shorten, take_excerpt, take_first_lines

MANY = 3_000
PAGE_MAX = 200_000
"""Characters: of all that a lake of `MANY` of anything has a verb say. One line for each would be more."""
VERBS = [
    ["status"],
    ["diagnose"],
    ["inspect"],
    ["inspect", "--batch", "3"],
    ["inspect", "--state"],
    ["inspect", "--time", "2026-11-21T12:00Z"],
    ["offsets"],
    ["offsets", "--stable-lag", "1"],
    ["verify"],
    ["recover", "--observe"],
    ["plan", "--goal", "replan", "-o", "plan.json"],
    ["plan", "--goal", "reposition", "--stable-lag", "2", "-o", "plan.json"],
]


@dataclass(frozen=True)
class ManyTopics:
    """A query that reads so many topics, each with a name as long as Kafka allows."""

    count: int = MANY
    per_batch: int = 5

    def end(self, ends: Sequence[int]) -> KafkaOffset:
        skipped = 3 * (len(ends) == 4)  # offsets that no batch reads
        return KafkaOffset({f"orders-{topic:05}-{'x' * 200}": {0: ends[-1] + skipped} for topic in range(self.count)})

    def log(self, ends: Sequence[int]) -> None:
        """None: the log may be lost."""


def many_topics(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint, ManyTopics())
    query.run(3)
    query.plan()


def many_files(checkpoint: Path) -> None:
    """Plans that are empty, and commits of batches that nobody has planned."""
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    for batch in range(3, MANY):
        (checkpoint / f"offsets/{batch}").touch()
    for batch in range(MANY, MANY + 500):
        (checkpoint / f"commits/{batch}").touch()


def many_stores(checkpoint: Path) -> None:
    """State of operators and partitions without end."""
    query = CheckpointBuilder(checkpoint)
    query.run(4)
    for operator in range(60):
        for partition in range(20):
            folder = checkpoint / f"state/{operator}/{partition}"
            folder.mkdir(parents=True)
            (folder / "1.delta").write_bytes(b"x" * (operator + partition))


@pytest.mark.parametrize("lake", [many_topics, many_files, many_stores])
def test_no_verb_says_more_than_a_page(lake: object, tmp_path: Path) -> None:
    checkpoint = tmp_path / "lake/chk"
    lake(checkpoint)  # type: ignore[operator]
    for verb in VERBS:
        answer = call(verb[0], checkpoint, *verb[1:])
        assert answer.code != 4, (verb, answer.err)
        assert len(answer.out) + len(answer.err) < PAGE_MAX, verb
        assert max(map(len, answer.out.splitlines()), default=0) < TEXT_MAX + 100, verb


def test_what_is_left_out_is_said_and_json_has_all_of_it(tmp_path: Path) -> None:
    many_topics(tmp_path / "lake/chk")
    checkpoint = tmp_path / "lake/chk"
    told = call("inspect", checkpoint, "--batch", "2")
    assert f"and {MANY - SHOWN_MAX:,} more: {WHOLE}" in told.out
    whole = call("inspect", checkpoint, "--batch", "2", "--format", "json").json
    assert len(whole["batch"]["sources"][0]["ranges"]) == MANY
    text = call("offsets", checkpoint)
    assert "--bare prints them" in text.out
    assert len(json.loads(call("offsets", checkpoint, "--bare").out)) == MANY


def test_report_is_a_page_whatever_plan_and_incident_hold(attacker: Attacker, plan: Told) -> None:
    step = plan["steps"][0]
    plan["steps"] = [_moved(step, batch) for batch in range(7, 7 + MANY)]
    plan["rests_on"] = [f"ground {each}" for each in range(MANY)]
    topics = {f"topic-{each}": {"0": [[0, 5]]} for each in range(MANY)}
    plan["sources"][0] |= {"reread": topics, "lost": topics}
    attacker.place(plan, "begun", "applying")
    attempt = {"at_ms": 1, "did": "wait", "because": "because " * 1_000, "seconds": 0.0}
    attacker.incident(attempts=[attempt] * MANY)
    for words in ([plan["recovery"]], ["last"]):
        told = call("report", *words, "--checkpoint", attacker.checkpoint)
        assert told.code == 0, told.err
        assert len(told.out) < 500_000
        assert f"more: {WHOLE}" in told.out
        whole = call("report", *words, "--checkpoint", attacker.checkpoint, "--format", "json")
        assert whole.json["attempts"]


def _moved(step: Told, batch: int) -> Told:
    path = f"offsets/{batch}"
    return {**step, "path": path, "do": f"rewrite {path}: {step['why']}", "undo": f"put {path} back as it was"}


def test_report_of_a_plan_looks_at_each_step_so_many_times_and_no_more(
    attacker: Attacker, plan: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 0
    hide = redaction.redact

    def counted(text: str) -> str:
        nonlocal count
        count += 1
        return hide(text)

    monkeypatch.setattr("lastgood.written.redact", counted)
    looks = []
    step = plan["steps"][0]
    for steps in (500, 1_000):
        plan["steps"] = [_moved(step, batch) for batch in range(7, 7 + steps)]
        attacker.place(plan, "begun", "applying")
        count = 0
        assert call("report", plan["recovery"], "--checkpoint", attacker.checkpoint).code == 0
        looks.append(count)
    of_a_step = (looks[1] - looks[0]) / 500
    assert of_a_step <= 10, looks  # its texts, read and told
    assert looks[0] < 500 * of_a_step + 500


def test_excerpt_says_how_many_more() -> None:
    assert list(take_first_lines(map(str, range(60_000))))[SHOWN_MAX:] == [f"and 59,950 more: {WHOLE}"]
    assert list(take_first_lines(["a", "b"])) == ["a", "b"]
    assert take_excerpt(range(3), 2).in_a_line == "0, 1, and 1 more"
    assert take_excerpt(range(3)).in_a_line == "0, 1, 2"
    assert shorten("a" * TEXT_MAX) == "a" * TEXT_MAX
    assert len(shorten("a" * 10_000_000)) < TEXT_MAX + 50


@pytest.mark.parametrize("touched", [[Outside("a file", "x", "y")] * (SHOWN_MAX + 1), [Outside("a" * 9_000, "x", "y")]])
def test_nobody_is_asked_to_allow_what_was_not_shown(touched: list[Outside], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(apply, "print_plan", lambda *_: asked.append("plan"))
    monkeypatch.setattr("click.confirm", lambda *_, **__: asked.append("confirmed"))
    assert apply._is_confirmed(None, touched) is False  # type: ignore[arg-type]
    assert asked == []
