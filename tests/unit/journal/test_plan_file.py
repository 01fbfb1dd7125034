from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lastgood.journal.plan_file import parse_plan
from lastgood.planning.plan import Alternative, Plan, PlanInvalidError, PlannedSink, Promise, compute_checksum
from lastgood.planning.price import Guarantee, SourcePrice, Waiver
from lastgood.planning.proof import Proof
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import FileStep, compute_digest
from lastgood.sinks.files.step import FileSinkStep

PLAN = Plan(
    recovery="20261121-160058-7f3a",
    goal="replan",
    options={"fail_on_data_loss": True},
    checkpoint="s3a://lake/chk/orders",
    query_id="9818",
    guarantee=Guarantee.AT_LEAST_ONCE,
    rests_on=("commits/6",),
    needs=(Waiver.DUPLICATES,),
    position={"planned": 7, "committed": 6},
    promise=Promise("4.2", "resumes", 7, "batch 6 is committed"),
    sources=(
        SourcePrice(0, "kafka", reread={"orders": {0: ((10, 20),)}}, lost={}, duplicated={"orders": {0: ((10, 12),)}}),
        SourcePrice(1, "file", reread_files=("a.json", "b.json"), bound=True),
        SourcePrice(2, "kafka", reread_from={"t": {0: 7}}, duplicated_from={"t": {0: 7, 1: 9}}, bound=True),
    ),
    sinks=(PlannedSink(0, "delta", "s3a://lake/orders", 6, known=True, skips_up_to=6, identity="t"),),
    evidence=("--sink", "s3a://lake/orders"),
    steps=(FileStep("offsets/7", compute_digest(b"x"), None, "it is dropped"),),
    seal=("offsets/8", "commits/7"),
    listings={"offsets": "a" * 64},
    guards={"metadata": "b" * 64, "commits/7": None},
    alternatives=(Alternative("resume", Guarantee.EXACTLY_ONCE, "Spark runs batch 7 again"),),
    proof=Proof(is_proven=True, spark="4.2.0", batch=7, reads=("orders/0 from 10",), leaves_open=("the state",)),
    made_at_ms=1,
    made_by="1.0",
)


def test_plan_is_read_as_it_was_written() -> None:
    assert parse_plan(PLAN.to_bytes(), "plan.json") == PLAN


def test_plan_holds_the_fields_that_are_documented() -> None:
    told = json.loads(PLAN.to_bytes())
    assert told["from_batch"] == 7
    assert told["sources"][0]["reread"] == {"orders": {"0": [[10, 20]]}}
    assert told["sources"][1]["reread"] == ["a.json", "b.json"]
    assert told["steps"][0]["do"] == "set aside offsets/7: it is dropped"
    assert told["steps"][0]["undo"] == "put offsets/7 back as it was"


def change(told: dict[str, Any], key: str, value: object) -> bytes:
    return json.dumps({**told, key: value}).encode()


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda _: b"", "this is no plan"),
        (lambda _: b"not json", "this is no plan"),
        (lambda _: b"[1]", "this is no plan"),
        (lambda _: b'{"recovery": 1}', "this is no plan"),
        (lambda _: b"[" * 100_000, "this is no plan"),
        (lambda told: change(told, "format", 2), "of a format that this lastgood does not know"),
        (lambda told: change(told, "guarantee", "exactly_once"), "changed after it was made"),
        (lambda told: change(told, "needs", []), "changed after it was made"),
        (lambda told: change(told, "checkpoint", "/etc"), "changed after it was made"),
        (lambda told: change(told, "checksum", None), "changed after it was made"),
    ],
)
def test_plan_that_was_edited_by_hand_is_refused(edit: Callable[[dict[str, Any]], bytes], says: str) -> None:
    with pytest.raises(PlanInvalidError, match=says) as caught:
        parse_plan(edit(json.loads(PLAN.to_bytes())), "plan.json")
    assert caught.value.subject == "plan.json"


@pytest.mark.parametrize(
    "changed",
    [
        {"recovery": "../../x"},
        {"seal": ("offsets/../x",)},
        {"seal": ()},
        {"guards": {"../x": None}},
        {"guards": {"metadata": "x"}},
        {"listings": {"..": "x"}},
        {"listings": {"sources/..": "x"}},
        {"listings": {"/etc": "x"}},
        {"steps": (FileStep("../x", None, b"", ""),)},
        {"steps": (FileSinkStep("/etc", "_spark_metadata/7", 1, ""),)},
        {"steps": (StartFileStep("/etc/passwd", None, b"", ""),)},
        {"steps": (StartFileStep("/etc/passwd", None, b"", ""),), "options": {"start_file": {"location": "/etc/x"}}},
    ],
)
def test_plan_that_reaches_out_of_its_checkpoint_is_refused_also_with_a_checksum_that_fits(
    changed: dict[str, Any],
) -> None:
    with pytest.raises(PlanInvalidError, match="not understood"):
        parse_plan(replace(PLAN, **changed).to_bytes(), "plan.json")


@pytest.mark.parametrize("field", [name for name in json.loads(PLAN.to_bytes()) if name != "checksum"])
def test_plan_with_a_field_that_cannot_be_meant_so_is_refused_also_with_a_checksum_that_fits(field: str) -> None:
    told = json.loads(PLAN.to_bytes())
    del told["checksum"]
    for odd in (None, 7.5, "", [], {}, [None], {"a": None}, [{}], [["a"]], "../x", -1):
        changed = {**told, field: odd}
        raw = json.dumps({**changed, "checksum": compute_checksum(changed)}).encode()
        with contextlib.suppress(PlanInvalidError):
            assert parse_plan(raw, "plan.json").to_json() == changed
