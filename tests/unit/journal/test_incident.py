from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest

from lastgood.journal.incident import (
    Attempt,
    ComingBack,
    Incident,
    IncidentDamagedError,
    describe_way_back,
    list_files,
    list_ranges,
    parse_incident,
    shorten_plan,
)
from lastgood.planning.plan import Plan, PlannedSink, Promise
from lastgood.planning.price import Guarantee, SourcePrice, Waiver
from lastgood.planning.steps import FileStep, compute_digest

AT_MS = 1_795_220_516_284
PLAN = Plan(
    recovery="20261121-002157-7f3a",
    goal="replan",
    checkpoint="/lake/chk/orders",
    query_id="9818",
    guarantee=Guarantee.AT_LEAST_ONCE,
    rests_on=("commits/6",),
    accepted=(Waiver.DUPLICATES,),
    position={"planned": 7, "committed": 6},
    promise=Promise("4.2", "resumes", 7, "batch 6 is committed"),
    sources=(
        SourcePrice(0, "kafka", reread={"orders": {0: ((10, 20),)}}, lost={"orders": {1: ((0, 3),)}}),
        SourcePrice(1, "file", reread_files=("a.json", "b.json"), bound=True),
    ),
    sinks=(PlannedSink(0, "delta", "/lake/orders", 6, known=True, skips_up_to=6, identity="t"),),
    evidence=("--sink", "/lake/orders"),
    steps=(FileStep("offsets/7", compute_digest(b"x"), b"secret", "it is dropped"),),
    seal=("offsets/8", "commits/7"),
    made_at_ms=AT_MS + 900,
    made_by="1.0",
)
REPAIR = Attempt(
    at_ms=AT_MS + 1000,
    did="repair",
    because="batch 7 failed three times",
    seconds=0.4,
    recovery=PLAN.recovery,
    plan=shorten_plan(PLAN),
    proof="it was our own child",
)
INCIDENT = Incident(
    id="20261121-002156-0001",
    checkpoint="/lake/chk/orders",
    pipeline="orders",
    failed_at_ms=AT_MS,
    cause={"exit_code": 1, "error": "KafkaException: gone", "class": "transient", "condition": "KAFKA_DATA_LOSS"},
    position={"planned": 7, "committed": 6},
    attempts=(Attempt(at_ms=AT_MS + 5, did="restart", because="the first time", seconds=0.1), REPAIR),
    first_batch=7,
    rerun=False,
    first_batch_at_ms=AT_MS + 43_000,
    promise={"state": "kept", "because": ["batch 7 was committed, as promised"]},
    outcome="recovered",
)


def test_incident_is_read_as_it_was_written() -> None:
    assert parse_incident(INCIDENT.to_bytes(), "x.json") == INCIDENT
    early = replace(INCIDENT, cause=None, pipeline=None, attempts=(), first_batch=None, rerun=None, promise=None)
    assert parse_incident(early.to_bytes(), "x.json") == early


def test_incident_tells_how_long_it_took_and_what_was_done() -> None:
    assert INCIDENT.back_after_seconds == 43
    assert INCIDENT.promise_state == "kept"
    assert INCIDENT.recoveries == (PLAN.recovery,)
    assert INCIDENT.plan is REPAIR.plan
    assert replace(INCIDENT, attempts=(), first_batch_at_ms=None, promise=None).plan is None
    waiting = replace(INCIDENT, attempts=(replace(REPAIR, did="stop", recovery=None),))
    assert waiting.recoveries == (PLAN.recovery,)  # a person may carry it out later
    assert waiting.plan == REPAIR.plan


def test_incident_tells_the_way_back_in_parts() -> None:
    assert INCIDENT.parts == {}
    assert "back" not in json.loads(INCIDENT.to_bytes())  # as a file from before it was told
    back = ComingBack(way="standby", noticed_seconds=0.25, process_at_ms=AT_MS + 600, query_at_ms=AT_MS + 1600)
    told = replace(INCIDENT, back=back)
    assert parse_incident(told.to_bytes(), "x.json") == told
    parts = {"noticed": 0.25, "judged": 0.1, "repaired": 0.4, "waited": 0.1, "started": 1.0, "first batch": 41.4}
    assert told.parts == parts
    assert sum(parts.values()) == pytest.approx(43.25)
    line = describe_way_back("standby", {"noticed": 0.25, "judged": 0.1})
    assert line == "by the driver that stood by (noticed 0.2 s, judged 0.1 s)"
    unseen = replace(told, back=replace(back, noticed_seconds=None, query_at_ms=None))
    assert unseen.parts == {"judged": 0.1, "repaired": 0.4, "waited": 0.1, "first batch": 42.4}


def test_plan_that_was_carried_out_counts_before_one_that_was_only_made() -> None:
    made = replace(REPAIR, did="stop", recovery=None, plan={"recovery": "20261121-002159-ffff"})
    assert replace(INCIDENT, attempts=(REPAIR, made)).plan is REPAIR.plan


@pytest.mark.parametrize(
    ("cause", "line"),
    [
        (None, None),
        ({}, None),
        ({"error": "it broke"}, "it broke"),
        ({"error": "it broke", "because": "Kafka was away"}, "Kafka was away"),
        ({"error": "it broke", "condition": "KAFKA_DATA_LOSS"}, "KAFKA_DATA_LOSS: it broke"),
        ({"error": "[KAFKA_DATA_LOSS] it broke", "condition": "KAFKA_DATA_LOSS"}, "[KAFKA_DATA_LOSS] it broke"),
        ({"class": "resources"}, "resources"),
        ({"class": "resources", "signal": "SIGKILL"}, "ended by SIGKILL"),
        ({"exit_code": 3}, "exit code 3"),
    ],
)
def test_cause_is_one_line_for_a_person(cause: dict[str, Any] | None, line: str | None) -> None:
    assert replace(INCIDENT, cause=cause).cause_line == line


def test_what_is_kept_of_a_plan_holds_its_price_and_no_content_of_files() -> None:
    told = shorten_plan(PLAN)
    assert told["steps"] == [
        {
            "do": "rewrite offsets/7: it is dropped",
            "undo": "put offsets/7 back as it was",
            "kind": "file",
            "path": "offsets/7",
        }
    ]
    assert told["sources"] == [source.to_json() for source in PLAN.sources]
    assert (told["from_batch"], told["guarantee"], told["accepted"]) == (7, "at_least_once", ["duplicates"])
    assert "seal" not in told


def test_ranges_of_a_price_are_told_by_partition_and_files_by_name() -> None:
    kafka, files = (source.to_json() for source in PLAN.sources)
    assert list(list_ranges(kafka, "reread")) == [("orders", 0, 10, 20)]
    assert list(list_ranges(kafka, "lost")) == [("orders", 1, 0, 3)]
    assert (list(list_ranges(files, "reread")), list_files(files, "reread")) == ([], ["a.json", "b.json"])
    assert list_files(kafka, "reread") == []


@pytest.mark.parametrize("raw", [b"", b"not json", b"[1]", b"{}", b'{"id": 1}', b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_incident_is_damaged(raw: bytes) -> None:
    with pytest.raises(IncidentDamagedError, match="no incident, or not a whole one") as caught:
        parse_incident(raw, "x.json")
    assert caught.value.subject == "x.json"


def test_torn_file_is_damaged_wherever_it_was_torn() -> None:
    raw = INCIDENT.to_bytes()
    for length in range(0, len(raw) - 2, 7):
        with pytest.raises(IncidentDamagedError):
            parse_incident(raw[:length], "x.json")


def test_format_of_a_newer_lastgood_is_told_and_its_new_fields_are_left_out() -> None:
    told = INCIDENT.to_json()
    with pytest.raises(IncidentDamagedError, match="does not know") as caught:
        parse_incident(json.dumps({**told, "format": 2}).encode(), "x.json")
    assert (caught.value.found, caught.value.expected) == ("format 2", "format 1")
    assert parse_incident(json.dumps({**told, "mood": "good"}).encode(), "x.json") == INCIDENT


@pytest.mark.parametrize("field", [name for name in INCIDENT.to_json() if name != "format"])
def test_field_that_cannot_be_meant_so_is_damage_or_changes_nothing_else(field: str) -> None:
    told = INCIDENT.to_json()
    for odd in (None, True, 7.5, "", [], {}, [None], {"a": "x"}, [{}], [["a"]], "../x", float("nan")):
        with contextlib.suppress(IncidentDamagedError):
            found = parse_incident(json.dumps({**told, field: odd}).encode(), "x.json")
            assert found.to_json() == {**told, field: odd}


@pytest.mark.parametrize(
    "change",
    [
        {"did": "prayed"},
        {"seconds": float("nan")},
        {"seconds": True},
        {"at_ms": None},
        {"because": None},
        {"recovery": 7},
        {"plan": {"guarantee": "sure"}},
        {"plan": {"rests_on": [1]}},
        {"plan": {"needs": ["money"]}},
        {"plan": {"steps": [{"undo": "x"}]}},
        {"plan": {"sinks": [{"kind": "delta"}]}},
        {"plan": {"sources": [{"index": 0, "kind": "kafka", "bound": False, "reread": {}, "lost": {}}]}},
        *(
            {
                "plan": {
                    "sources": [{"index": 0, "kind": "k", "bound": False, "lost": {}, "duplicated": {}, "reread": odd}]
                }
            }
            for odd in (
                {"t": 1},
                {"t": {"x": [[1, 2]]}},
                {"t": {"0": [[1]]}},
                {"t": {"0": [["a", "b"]]}},
                [1],
                {"t": {"0": 5}},
            )
        ),
    ],
)
def test_attempt_that_cannot_be_meant_so_is_damage(change: dict[str, Any]) -> None:
    told = INCIDENT.to_json()
    told["attempts"][1].update(change)
    with pytest.raises(IncidentDamagedError, match="not understood") as caught:
        parse_incident(json.dumps(told).encode(), "x.json")
    assert caught.value.found


def test_text_that_no_encoding_takes_is_kept_all_the_same() -> None:
    odd = replace(INCIDENT, cause={"error": "\udcff broke\n\0"})
    assert parse_incident(odd.to_bytes(), "x.json") == odd
