from __future__ import annotations

import sys

import pytest

from lastgood.delta_log.actions import Transaction
from lastgood.planning.plan import Plan, PlannedSink, Promise
from lastgood.planning.price import Guarantee
from lastgood.recovery.driver_death import DriverNotProvenDeadError, explain_driver_shut_out, prove_driver_dead
from lastgood.sinks.delta.step import DeltaStep
from lastgood.steps.step import Step


def test_a_person_or_a_command_can_know() -> None:
    assert prove_driver_dead("chk", told=True) == "--driver-is-dead was given"
    assert prove_driver_dead("chk", told=False, check=("true",)) == "driver_check: true"


@pytest.mark.parametrize(
    ("check", "found"),
    [
        ((), "neither driver_check in lastgood.toml nor --driver-is-dead"),
        (("sh", "-c", "echo it runs; exit 3"), "exit code 3 it runs"),
        (("/no/such/command",), "No such file"),
        (("sleep", "60"), "timed out"),
    ],
)
def test_silence_is_no_proof(check: tuple[str, ...], found: str) -> None:
    with pytest.raises(DriverNotProvenDeadError) as caught:
        prove_driver_dead("chk", told=False, check=check, seconds=0.2)
    assert found in str(caught.value.found)


def test_check_is_out_of_reach_of_the_terminal_and_may_print_what_it_likes() -> None:
    code = "import os, sys; sys.stdout.buffer.write(b'\\xff'); sys.exit(os.getsid(0) != os.getpid())"
    assert prove_driver_dead("chk", told=False, check=(sys.executable, "-c", code)).startswith("driver_check: ")


def planned(*steps: Step, checkpoint: str = "/chk", sinks: int = 1) -> Plan:
    sink = PlannedSink(0, "delta", "/lake/t", 7, known=True, skips_up_to=7, identity="t", fence="q")
    return Plan(
        recovery="20261121-160058-7f3a",
        goal="replan",
        checkpoint=checkpoint,
        query_id="q",
        guarantee=Guarantee.EXACTLY_ONCE,
        rests_on=(),
        promise=Promise("4.2", "resumes", 9, ""),
        sinks=(sink,) * sinks,
        steps=steps,
        made_at_ms=0,
        made_by="test",
    )


def step(batch: int, table: str = "/lake/t") -> DeltaStep:
    mark = Transaction("q", 7)
    return DeltaStep(table=table, table_id="t", mark=mark, batch=batch, version=9, versions=(), why="")


def test_driver_whose_batch_is_used_up_in_its_only_sink_may_be_alive() -> None:
    assert explain_driver_shut_out(planned(step(8))) is not None
    assert explain_driver_shut_out(planned(step(8, "hdfs://lake/t"), checkpoint="hdfs://lake/chk")) is not None


@pytest.mark.parametrize(
    "plan",
    [
        planned(),
        planned(step(6)),
        planned(step(8), sinks=2),
        planned(step(8, "s3a://lake/t")),
        planned(step(8), checkpoint="s3a://lake/chk"),
    ],
    ids=["no such step", "taken back", "two sinks", "table on S3", "checkpoint on S3"],
)
def test_driver_has_to_be_dead_where_it_could_write_elsewhere_or_over_what_is_there(plan: Plan) -> None:
    assert explain_driver_shut_out(plan) is None
