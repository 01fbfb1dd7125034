from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

import pytest

import lastgood.diagnosis
from lastgood.diagnosis.catalogue import CONDITIONS, list_error_classes, list_names, list_topics
from lastgood.diagnosis.findings import Condition, Severity
from lastgood.errors import LastgoodError, Retry


def test_every_condition_is_told_once() -> None:
    counted = Counter(condition.name for condition in CONDITIONS)
    assert [name for name, times in counted.items() if times > 1] == []


def test_no_condition_of_any_rule_is_forgotten() -> None:
    known = set(CONDITIONS)
    for module in pkgutil.iter_modules(lastgood.diagnosis.__path__, "lastgood.diagnosis."):
        values = vars(importlib.import_module(module.name)).values()
        assert {each.name for each in values if isinstance(each, Condition)} <= {each.name for each in known}, module


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.name)
def test_every_condition_has_a_title_and_a_story(condition: Condition) -> None:
    title, story = condition.title, condition.story.strip()
    assert title == title.strip().rstrip(".")
    assert "\n" not in title
    assert title[0].islower() or title.split()[0][1:2].isupper() or title.split()[0] in ("Kafka", "Delta", "Spark")
    assert len(story) > 100
    assert story[-1] in ".)`"


def test_an_error_is_found_by_its_source_and_by_its_class_alike() -> None:
    for module in pkgutil.walk_packages(lastgood.__path__, "lastgood."):
        if module.name != "lastgood.spark.audit_job":  # a script for a cluster
            importlib.import_module(module.name)
    found, new = set[type[LastgoodError]](), [LastgoodError]
    while new:
        found.update(new)
        new = [below for each in new for below in each.__subclasses__()]
    own = {each for each in found if each.__module__.startswith("lastgood.")}
    assert set(list_error_classes()) == own


def test_all_names_have_a_topic_and_a_finding_may_be_an_error_too() -> None:
    found = {topic.name: topic for topic in list_topics()}
    assert set(found) == set(list_names())
    both = found["SOURCE_RANGE_EXPIRED"]
    assert (both.severity, both.theme, both.retry) == (Severity.ERROR, "Kafka", Retry.NEVER)
    assert both.exit_code is not None
    assert found["UNBOUNDED_STATE"].exit_code is None
    error = found["CHECKPOINT_MISSING"]
    assert (error.severity, error.exit_code, error.theme) == (None, 20, "Errors: checkpoint")
    assert error.title == "there is no checkpoint at this location, nor a mirror of one"
    assert found["CONFIG_INVALID"].title.startswith("`lastgood.toml` is missing")
    assert found["SQL_INVALID"].title == "Spark does not understand an SQL expression"
    assert found["INTERNAL"].title == "a bug of lastgood"


def test_a_few_topics_can_be_asked_for() -> None:
    assert [topic.name for topic in list_topics(["CHECKPOINT_MISSING", "UNBOUNDED_STATE"])] == [
        "UNBOUNDED_STATE",
        "CHECKPOINT_MISSING",
    ]
    assert list_topics(["NOTHING_LIKE_IT"]) == ()


def test_a_topic_as_json_has_every_field() -> None:
    told = list_topics(["SOURCE_RANGE_EXPIRED"])[0].to_json()
    assert list(told) == ["condition", "theme", "title", "story", "severity", "exit_code", "retry"]
    assert (told["condition"], told["severity"], told["retry"]) == ("SOURCE_RANGE_EXPIRED", "error", "never")
