from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from planning import broker

from lastgood.journal.topic_ids import write_topic_ids
from lastgood.observe.evidence import EvidenceOptions
from lastgood.sources.kafka.facts import KafkaFacts, TopicFacts
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.supervise.events import Event, Noticed
from lastgood.supervise.topic_watch import TopicWatch
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

DEADLINE_SECONDS = 30.0


def test_topic_that_is_created_again_under_a_running_query_is_told_until_the_next_run_begins(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    location, facts = parse_location(str(tmp_path / "chk")), tmp_path / "facts.json"
    write_topic_ids(LocalWriter(), location, QUERY_ID, {"orders": "old"})
    facts.write_text(json.dumps(broker((0, 30), topic_id="old").to_json()))
    watch = TopicWatch(location, EvidenceOptions(kafka=str(facts)), look_seconds=0.01)
    time.sleep(0.2)
    assert told(watch) is None
    facts.write_text(json.dumps(broker((0, 30), topic_id="new").to_json()))
    deadline = time.monotonic() + DEADLINE_SECONDS
    while told(watch) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.close()
    assert str(told(watch)).startswith("orders was deleted and created again")
    watch.begin()
    assert told(watch) is None


def test_what_hinders_it_is_told_once(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    location, facts = parse_location(str(tmp_path / "chk")), tmp_path / "facts.json"
    write_topic_ids(LocalWriter(), location, QUERY_ID, {"orders": "old"})
    facts.write_text(json.dumps(KafkaFacts("broker:9092", 0, {}, unknown="no route to host").to_json()))
    events: list[Event] = []
    watch = TopicWatch(location, EvidenceOptions(kafka=str(facts)), tell=events.append, look_seconds=0.01)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not events and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    watch.close()
    assert watch.strayed is None
    (event,) = events
    assert isinstance(event, Noticed)
    assert event.condition == "TOPICS_NOT_WATCHED"
    assert event.sentence.startswith(f"whether a topic of {location} is created anew cannot be seen: Kafka does not")
    assert event.sentence.endswith("(no route to host); it is tried again")


def test_topic_that_is_silent_hides_no_other_that_is_created_again(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    location, path = parse_location(str(tmp_path / "chk")), tmp_path / "facts.json"
    write_topic_ids(LocalWriter(), location, QUERY_ID, {"clicks": "old", "orders": "old"})
    facts = broker((0, 30), topic_id="new")
    topics = {**facts.topics, "clicks": TopicFacts(unknown="not allowed")}
    path.write_text(json.dumps(replace(facts, topics=topics).to_json()))
    watch = TopicWatch(location, EvidenceOptions(kafka=str(path)), look_seconds=0.01)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while told(watch) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    watch.close()
    assert str(told(watch)).startswith("orders was deleted and created again")


def told(watch: TopicWatch) -> str | None:
    return watch.strayed


def test_without_a_broker_nobody_is_asked(tmp_path: Path) -> None:
    watch = TopicWatch(parse_location(str(tmp_path / "chk")), EvidenceOptions(), look_seconds=0.0)
    assert watch.strayed is None
    watch.close()
