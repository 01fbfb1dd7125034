"""Whether a pipeline's topics keep enough: asked before its query ever ran, and never in its way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.observe.retention import Retention, ask_retention
from lastgood.settings.config import Kafka
from lastgood.settings.target import Target
from lastgood.testing.checkpoints import CheckpointBuilder, FileInput

HOUR_MS = 3_600_000


def broker(folder: Path, **told: Any) -> Kafka:
    """What a broker said, in a file."""
    (folder / "kafka.json").write_text(json.dumps({"bootstrap": "broker:9092", **told}))
    return Kafka(bootstrap=str(folder / "kafka.json"))


def topic(retention_ms: int, *partitions: int) -> dict[str, Any]:
    config = {"retention.ms": str(retention_ms), "cleanup.policy": "delete"}
    return {"partitions": {str(each): {"earliest": 0, "latest": 99} for each in partitions}, "config": config}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    """A query that may be down for a day, of a topic that keeps an hour; it has not run."""
    kafka = broker(tmp_path, topics={"orders": topic(HOUR_MS, 0, 1), "others": topic(HOUR_MS, 0)})
    return Target(str(tmp_path / "chk"), kafka=kafka, topics=("orders",), max_downtime_ms=24 * HOUR_MS)


def subjects(found: Retention) -> list[str]:
    return [each.subject for each in found.warnings]


def test_what_a_running_query_reads_is_told_by_its_logs(target: Target, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    found = ask_retention(replace(target, topics=()))
    assert (subjects(found), found.unknown) == (["orders"], None)


def test_a_retention_that_suffices_and_a_query_without_the_key_are_no_warning(target: Target) -> None:
    assert ask_retention(replace(target, max_downtime_ms=HOUR_MS)) == Retention()
    assert ask_retention(replace(target, max_downtime_ms=None)) == Retention()


def test_a_query_that_reads_files_has_no_topic(target: Target, tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk", FileInput()).run(2)
    assert ask_retention(replace(target, topics=())) == Retention()


def test_whatever_hinders_is_said(target: Target, tmp_path: Path) -> None:
    silent = broker(tmp_path, unknown="no broker answers")
    assert ask_retention(replace(target, kafka=silent)).unknown == "no broker answers"
    assert "names no broker" in (ask_retention(replace(target, kafka=None)).unknown or "")
    gone = replace(target, kafka=Kafka(bootstrap=str(tmp_path / "gone.json")))
    assert "there is no such file" in (ask_retention(gone).unknown or "")
    denied = {"partitions": {"0": {}}, "config_unknown": "TOPIC_AUTHORIZATION_FAILED"}
    refused = ask_retention(replace(target, kafka=broker(tmp_path, topics={"orders": denied})))
    assert refused == Retention(unknown="orders: TOPIC_AUTHORIZATION_FAILED")
