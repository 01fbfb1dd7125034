from __future__ import annotations

from typing import Any

import pytest
from ledgers import CHECKPOINT, NOON_MS, QUERY_ID, failure, progress

from lastgood.ledger.telling import clean_value, identify_checkpoint, make_telling
from lastgood.records.record import StartFailed, Terminated


@pytest.mark.parametrize(
    ("told", "identity"),
    [
        ("file:/lake/chk", CHECKPOINT),
        ("/lake/chk/", CHECKPOINT),
        ("s3a://lake/chk", "s3://lake/chk"),
        ("hdfs://nn:8020/chk", "hdfs://nn/chk"),
        ("viewfs://x/chk", "viewfs://x/chk"),
        ("chk", "chk"),
        (None, ""),
    ],
)
def test_checkpoint_is_the_same_however_it_is_written(told: str | None, identity: str) -> None:
    assert identify_checkpoint(told) == identity


def test_records_of_a_query_are_gathered_with_its_name_and_times() -> None:
    later = progress(4, query_name="renamed")
    telling = make_telling([progress(2), later, progress(2), progress(3, query_id="other", query_name=None)])
    facts, other = telling.queries
    assert (facts.query_id, facts.checkpoint, sorted(facts.batches)) == (QUERY_ID, CHECKPOINT, [2, 4])
    assert facts.named == (NOON_MS + 4800, "renamed")
    assert (facts.first_seen_ms, facts.last_seen_ms) == (NOON_MS + 2800, NOON_MS + 4800)
    assert (other.named, len(other.runs), len(other.topics)) == (None, 1, 1)


def test_topic_whose_id_nobody_knew_is_left_out() -> None:
    (source,) = progress(1).sources
    unknown = [{"topic_ids": None}, {"topic_ids": {"orders": None}}, {"topic_ids_at_ms": None}]
    for fields in unknown:
        told = type(source)(**{**{name: getattr(source, name) for name in source.__slots__}, **fields})
        assert make_telling([progress(1, sources=(told,))]).queries[0].topics == ()


def test_failure_of_a_run_is_one_and_failures_without_a_run_are_many() -> None:
    ended = [Terminated(recorded_at_ms=at, query_id="q", run_id="r", failure=failure()) for at in (1, 2)]
    refused = [StartFailed(recorded_at_ms=at, failure=failure()) for at in (1, 1, 2)]
    ids = [each.failure_id for each in make_telling([*ended, *refused]).failures]
    assert (len(ids), len(set(ids))) == (5, 3)
    assert ids[0] == ids[1]
    assert make_telling([Terminated(recorded_at_ms=1, query_id="q", run_id="r")]).failures == ()


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        ("a\0b", "a�b"),
        ("\udc80", "?"),
        ("é😀", "é😀"),
        (2**63, None),
        (-(2**63), -(2**63)),
        (float("inf"), None),
        (1.5, 1.5),
        (True, True),
        (None, None),
        ({"a\0": [1, (2**99,)]}, {"a�": [1, (None,)]}),
    ],
)
def test_values_are_cleaned_for_any_database(value: Any, clean: Any) -> None:
    assert clean_value(value) == clean
