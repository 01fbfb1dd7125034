"""Topic ids: whom to ask, how often, and what they look like. The Java side answers as py4j's objects do."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lastgood.spark.agent import topics
from lastgood.spark.agent.topics import KafkaTopics, translate_topic_id

ORDERS = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", "startingoffsets": "earliest"}
ID = "4JsV+tHNSU+gPfgSpzeUDQ"


class Java:
    """As much of Java as the admin client of Kafka needs; counts the questions, refuses while `trouble` is set."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.settings: list[dict[str, str]] = []
        self.trouble: Exception | None = None
        self.closed = 0
        admin = SimpleNamespace(AdminClient=SimpleNamespace(create=self._create))
        kafka = SimpleNamespace(clients=SimpleNamespace(admin=admin))
        self.org = SimpleNamespace(apache=SimpleNamespace(kafka=kafka))
        self.java = SimpleNamespace(
            util=SimpleNamespace(
                HashMap=_Map, ArrayList=_List, concurrent=SimpleNamespace(TimeUnit=SimpleNamespace(SECONDS=1))
            ),
            time=SimpleNamespace(Duration=SimpleNamespace(ZERO=0)),
        )

    def _create(self, settings: dict[str, str]) -> Any:
        self.settings.append(settings)
        return SimpleNamespace(describeTopics=self._describe, close=self._close)

    def _describe(self, names: list[str]) -> Any:
        self.asked.append(list(names))
        if self.trouble is not None:
            raise self.trouble
        told = {
            name: SimpleNamespace(topicId=lambda: SimpleNamespace(toString=lambda: ID.replace("+", "-")))
            for name in names
        }
        return SimpleNamespace(allTopicNames=lambda: SimpleNamespace(get=lambda *_: told))

    def _close(self, _: object) -> None:
        self.closed += 1


class _Map(dict[str, str]):
    def put(self, key: str, value: str) -> None:
        self[key] = value


class _List(list[str]):
    def add(self, item: str) -> None:
        self.append(item)


def plan(*options: dict[str, str]) -> Any:
    leaves = [_leaf("StreamingRelationV2", "kafka", each) for each in options]
    leaves.append(_leaf("StreamingRelationV2", "rate", {}))
    leaves.append(_leaf("LocalRelation", None, {}))
    return SimpleNamespace(collectLeaves=lambda: SimpleNamespace(size=lambda: len(leaves), apply=leaves.__getitem__))


def _leaf(kind: str, source: str | None, options: dict[str, str]) -> Any:
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind),
        sourceName=lambda: source,
        extraOptions=lambda: options,
    )


def source(kind: str = "subscribe", value: str = "orders", **end_offset: dict[str, int]) -> dict[str, Any]:
    told = {"kind": kind, "value": value}
    return {
        "subscription": told,
        "end_offset": end_offset or {"orders": {"0": 1}},
        "topic_ids": None,
        "topic_ids_at_ms": None,
    }


def test_ids_are_asked_of_the_querys_own_broker_with_its_own_settings() -> None:
    java = Java()
    secure = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "login", "kafka.max.poll.records": "5"}
    asking = KafkaTopics(java, plan({**ORDERS, **secure}))
    asked = source()
    asking.fill_in([asked, {"subscription": None, "end_offset": 3}])
    assert asked["topic_ids"] == {"orders": ID}
    assert asked["topic_ids_at_ms"] > 0
    (settings,) = java.settings
    assert settings["bootstrap.servers"] == "broker:9092"
    assert (settings["security.protocol"], settings["sasl.jaas.config"]) == ("SASL_SSL", "login")
    assert "max.poll.records" not in settings
    asking.close()
    assert java.closed == 1


def test_young_answer_is_used_again_unless_there_is_a_new_topic() -> None:
    java = Java()
    asking = KafkaTopics(java, plan({**ORDERS, "subscribe": "returns, orders"}))
    for topic in ("orders", "orders", "returns"):
        asking.fill_in([source(value="orders, returns", **{topic: {"0": 1}})])
    assert java.asked == [["orders"], ["returns"]]
    assert len(java.settings) == 1


def test_broker_in_trouble_is_left_in_peace_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    java = Java()
    java.trouble = ConnectionError("no broker")
    asking = KafkaTopics(java, plan(ORDERS))
    with pytest.raises(ConnectionError):
        asking.fill_in([source()])
    later = source()
    asking.fill_in([later])
    assert (later["topic_ids"], len(java.asked)) == (None, 1)
    java.trouble = None
    monkeypatch.setattr(topics.time, "monotonic", lambda: float("inf"))
    asking.fill_in([later])
    assert later["topic_ids"] == {"orders": ID}


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"subscribepattern": "ord.*"}, source("subscribe_pattern", "ord.*")),
        ({"assign": '{"orders":[0]}'}, source("assign", "orders-0")),
    ],
)
def test_other_subscriptions_are_found_too(options: dict[str, str], asked: dict[str, Any]) -> None:
    KafkaTopics(Java(), plan({"kafka.bootstrap.servers": "b", **options})).fill_in([asked])
    assert asked["topic_ids"] == {"orders": ID}


def test_where_two_clusters_have_such_a_topic_nobody_is_asked() -> None:
    java = Java()
    unclear = source()
    KafkaTopics(java, plan(ORDERS, {**ORDERS, "kafka.bootstrap.servers": "other:9092"})).fill_in([unclear])
    assert (unclear["topic_ids"], java.asked) == (None, [])


def test_topic_id_is_written_as_confluent_kafka_writes_it() -> None:
    assert translate_topic_id("_xohe6JvQsSDzVZCB-LD2w") == "/xohe6JvQsSDzVZCB+LD2w"
    assert translate_topic_id("AAAAAAAAAAAAAAAAAAAAAA") is None
