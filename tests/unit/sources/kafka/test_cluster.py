from __future__ import annotations

import sys

import pytest

from lastgood.errors import ExtraMissingError, UsageError
from lastgood.sources.kafka.cluster import ask_kafka


def test_missing_client_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ExtraMissingError) as raised:
        ask_kafka("broker:9092", ["orders"])
    assert raised.value.next == "pip install 'lastgood[kafka]'"


def test_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        ask_kafka("broker:9092", subscribe_pattern="(")
    assert raised.value.subject == "("
