from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.observe import broker
from lastgood.observe.broker import Broker, open_broker, read_facts
from lastgood.sources.kafka.facts import KafkaFacts, KafkaFactsError, PartitionFacts, TopicFacts

FACTS = KafkaFacts("broker:9092", 1_000, {"orders": TopicFacts("id", {0: PartitionFacts(0, 10)})})


@pytest.fixture
def facts_file(tmp_path: Path) -> Path:
    file = tmp_path / "facts"
    file.write_text(json.dumps(FACTS.to_json()))
    return file


def test_a_file_that_is_there_holds_facts_whatever_its_name(facts_file: Path) -> None:
    broker = open_broker(str(facts_file), None)
    assert broker == Broker("broker:9092", facts=FACTS)
    assert broker.ask(["any"], now_ms=5, timeout_seconds=1) == FACTS  # what was written down, nobody is asked


@pytest.mark.parametrize("servers", ["broker:9092", "a:1,b:2", "PLAINTEXT://broker:9092", "broker"])
def test_anything_else_names_servers(servers: str) -> None:
    assert open_broker(servers, None) == Broker(servers)


@pytest.mark.parametrize("missing", ["facts.json", "/nowhere/facts", "./facts"])
def test_what_can_only_be_a_file_has_to_be_there(missing: str) -> None:
    with pytest.raises(UsageError, match="no such file of facts") as caught:
        open_broker(missing, None)
    assert (caught.value.subject, caught.value.found) == (missing, "no such file")


def test_a_folder_is_no_file_of_facts(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_broker(str(tmp_path), None)
    assert caught.value.found == "a folder"


@pytest.mark.parametrize("content", ["", "no json", "[" * 100_000, "[]", '{"topics": 3}', '{"topics": {"a": []}}'])
def test_a_file_of_something_else_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "facts.json"
    file.write_text(content)
    with pytest.raises(KafkaFactsError):
        read_facts(file)


def test_a_file_of_facts_is_read_within_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_FACTS_BYTES_MAX", 100)
    file = tmp_path / "facts.json"
    file.write_bytes(b" " * 101)
    with pytest.raises(KafkaFactsError, match="too long"):
        read_facts(file)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_facts(tmp_path / "none")


def test_client_properties_may_name_the_servers(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=inside:9092\nclient.id=me\n")
    assert open_broker(None, file) == Broker("inside:9092", {"client.id": "me"})
    assert open_broker("outside:9092", file) == Broker("outside:9092", {"client.id": "me"})
    assert open_broker(None, None) is None
    file.write_text("client.id=me\n")
    assert open_broker(None, file) is None


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(Broker("b", {"sasl.password": "hush"}))


def test_without_a_topic_nothing_can_be_asked() -> None:
    facts = Broker("broker:9092").ask([], now_ms=7, timeout_seconds=1)
    assert (facts.asked_at_ms, facts.topics) == (7, {})
    assert facts.unknown == "no log names a topic: --topic NAME or --subscribe-pattern REGEX does"
