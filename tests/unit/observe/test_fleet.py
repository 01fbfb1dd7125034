from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from lastgood.errors import UsageError
from lastgood.lab.ports import LOOPBACK, find_free_port
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.fleet import look_around_all
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka import cluster as kafka_cluster
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput, KafkaInput

QA, QB, QF = (f"9818c18b-9839-4690-99f7-f5f3cde02c{n}" for n in ("0a", "0b", "0f"))
NOW = STARTED_MS + 60_000
FACTS = {"bootstrap": "b:9092", "captured_at_ms": 5, "topics": {"a": {"partitions": {"0": {"earliest": 0}}}}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str, int], str]:
    """Write a batch of a query into a table."""

    def _write(table: str, query_id: str, batch_id: int) -> str:
        marker = CommitProperties(app_transactions=[Transaction(query_id, batch_id, NOW)])
        write_deltalake(tmp_path / table, pa.table({"n": [1]}), mode="append", commit_properties=marker)
        return str(tmp_path / table)

    return _write


@pytest.fixture
def fleet(tmp_path: Path) -> list[OpenQuery]:
    """Two queries on topics, one on files."""
    for query_id, source in ((QA, KafkaInput("a")), (QB, KafkaInput("b")), (QF, FileInput())):
        CheckpointBuilder(tmp_path / query_id, source, query_id=query_id).run(3)
    return [gather(resolve_target(str(tmp_path / query_id)), batches=2) for query_id in (QA, QB, QF)]


def test_nobody_is_asked_who_is_not_named(fleet: list[OpenQuery]) -> None:
    found = look_around_all(fleet, EvidenceOptions(), now_ms=NOW)
    assert [(each.seen.sinks, each.seen.kafka) for each in found] == [((), None)] * 3


def test_each_query_is_held_against_the_sinks_that_know_it(
    fleet: list[OpenQuery], write: Callable[[str, str, int], str]
) -> None:
    one, other = write("one", QA, 2), write("other", QB, 1)
    assert write("other", QA, 5) == other
    found = look_around_all(fleet, EvidenceOptions(sinks=(one, other)), now_ms=NOW)
    shown = [{Path(sink.location).name: sink.last_batch for sink in each.seen.sinks} for each in found]
    assert shown == [{"one": 2, "other": 5}, {"other": 1}, {}]


def test_name_of_one_query_is_not_asked_for_several(
    fleet: list[OpenQuery], write: Callable[[str, str, int], str]
) -> None:
    options = EvidenceOptions(sinks=(write("one", "etl", 2),), txn_app_id="etl")
    with pytest.raises(UsageError, match="under one name"):
        look_around_all(fleet, options, now_ms=NOW)
    ((sink,),) = (each.seen.sinks for each in look_around_all(fleet[:1], options, now_ms=NOW))
    assert (sink.last_batch, sink.known) == (2, True)


def test_a_sink_that_goes_by_its_folder_has_no_say(fleet: list[OpenQuery], tmp_path: Path) -> None:
    (tmp_path / "files" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "files" / "_spark_metadata" / "0").write_text("v1")
    assert not any(
        each.seen.sinks for each in look_around_all(fleet, EvidenceOptions((str(tmp_path / "files"),)), now_ms=NOW)
    )


def test_a_sink_that_does_not_answer_is_unknown_to_all(
    fleet: list[OpenQuery], write: Callable[[str, str, int], str]
) -> None:
    table = write("one", QA, 2)
    log = Path(table) / "_delta_log"
    log.rename(log.with_name("log"))
    log.symlink_to(log)
    found = look_around_all(fleet, EvidenceOptions((f"delta:{table}",)), now_ms=NOW)
    assert [[sink.known for sink in each.seen.sinks] for each in found] == [[False]] * 3


def test_a_broker_that_cannot_be_reached_is_asked_once(fleet: list[OpenQuery], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_cluster, "_GRACE_SECONDS", 0.1)
    found = look_around_all(fleet, EvidenceOptions(kafka=f"{LOOPBACK}:{find_free_port()}"), now_ms=NOW)
    one, other, none = (each.seen.kafka for each in found)
    assert one is not None
    assert one.unknown is not None
    assert one is other
    assert none is None


def test_facts_that_were_written_down_are_those_of_every_query(fleet: list[OpenQuery], tmp_path: Path) -> None:
    (tmp_path / "facts.json").write_text(json.dumps(FACTS))
    found = look_around_all(fleet, EvidenceOptions(kafka=str(tmp_path / "facts.json")), now_ms=NOW)
    assert [each.seen.kafka.earliest if each.seen.kafka else None for each in found] == [
        {"a": {0: 0}},
        {"a": {0: 0}},
        None,
    ]
