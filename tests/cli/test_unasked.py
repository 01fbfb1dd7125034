"""What nobody was asked about is named by every verb, in text and in JSON, and a better answer is a lower word."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typed import call

from lastgood.testing.checkpoints import CheckpointBuilder

ABOUT_TOPICS = "topics those that were read", "topics are those that were read"
ABOUT_SINKS = "--sink", "not every sink told"


@dataclass(frozen=True)
class Verb:
    words: tuple[str, ...]

    def told(self, *more: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(call(*self.words, "chk", *more, "--format", "json").stdout)
        return answer

    def named(self, *more: str) -> list[str]:
        """What its JSON says that it rests on, or does not know."""
        told = self.told(*more)
        restart = told.get("restart")
        of_restart = restart["unknowns"] if isinstance(restart, dict) else ()
        return [*told.get("rests_on", ()), *told.get("unknowns", ()), *of_restart]

    def text(self, *more: str) -> str:
        return " ".join(call(*self.words, "chk", *more).stdout.split())


VERBS = {
    "status": Verb(("status",)),
    "diagnose": Verb(("diagnose",)),
    "plan": Verb(("plan", "-o", "plan.json")),
    "recover": Verb(("recover", "--observe")),
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of three batches that its sink has; its topic was created again since, and is longer than before."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    CheckpointBuilder(tmp_path / "chk").run(3)
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for batch in range(3):
        (log / str(batch)).write_bytes(b"v1")
    parts = {number: {"earliest": 0, "latest": 40} for number in ("0", "1")}
    topic = {"topic_id": "now", "partitions": parts}
    facts = {"topics": {"orders": topic}, "topic_id_when_the_checkpoint_was_written": {"orders": "then"}}
    (tmp_path / "kafka.json").write_text(json.dumps(facts))


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
def test_topics_and_sinks_that_nobody_was_asked_about_are_named(verb: Verb) -> None:
    for about in (ABOUT_TOPICS, ABOUT_SINKS):
        assert any(words in line for line in verb.named() for words in about)
        assert any(words in verb.text() for words in about)
    with_sink = ("--sink", "file:sink")
    assert not any(words in line for line in verb.named(*with_sink) for words in ABOUT_SINKS)
    assert any(words in line for line in verb.named(*with_sink) for words in ABOUT_TOPICS)


def test_topic_that_nobody_was_asked_about_is_an_assumption_and_an_answer_lowers_the_word() -> None:
    sink = ("--sink", "file:sink")
    for name in ("plan", "recover"):
        told = VERBS[name].told(*sink)
        assert told["guarantee"] == "exactly_once"
        assert any("the assumption that source 0 is Kafka" in line for line in told["rests_on"])
    assert VERBS["recover"].told(*sink, "--kafka", "kafka.json")["guarantee"] == "lossy"
    assert VERBS["status"].told(*sink, "--kafka", "kafka.json")["grade"] == "losing"
    refused = VERBS["plan"].told(*sink, "--kafka", "kafka.json")["error"]
    assert refused["sentence"].startswith("a topic was deleted and created again")
