"""Numbers that a sink has from an older plan, on a real broker, a real Spark and real sinks; every record counted."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest
from repair.seeded import BEFORE, TXN_APP_ID, Application, MakeApplication, judged

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.observe.positions import StartChoice
from lastgood.operations.diagnose import diagnose
from lastgood.operations.recover import recover
from lastgood.planning.price import Guarantee, Waiver
from lastgood.recovery.decision import Verdict
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.target import resolve_target

SINKS = [
    pytest.param("delta", {}, id="delta"),
    pytest.param("parquet", {}, id="file sink"),
    pytest.param("txn", {"evidence": {"txn_app_id": TXN_APP_ID}}, id="function with txnAppId"),
    pytest.param("txn", {}, id="function with a txnAppId that nobody named"),
]


def newest(app: Application) -> int:
    return max(int(each.name) for each in (app.checkpoint / "offsets").iterdir() if each.name.isdecimal())


def drop_by_hand(app: Application, number: int) -> bytes:
    """What somebody does with an orphan, who does not ask the sink; its plan."""
    plan = (app.checkpoint / f"offsets/{number}").read_bytes()
    for log in ("offsets", "commits"):
        for name in (str(number), f".{number}.crc"):
            (app.checkpoint / log / name).unlink(missing_ok=True)
    return plan


def plan_anew(app: Application, number: int, older: bytes, end: int) -> None:
    """The plan of a driver that died right after it had planned the number anew, up to other offsets."""
    entry = parse_offset_entry(older)
    assert isinstance(entry, OffsetEntry)
    (line,) = entry.sources
    assert isinstance(line.offset, KafkaOffset)
    anew = entry.with_source_line(
        line.source_id, KafkaOffset({app.topic: dict.fromkeys(line.offset.topics[app.topic], end)})
    )
    lines = anew.to_bytes().decode().split("\n")
    metadata = json.loads(lines[1]) | {"batchTimestampMs": int(time.time() * 1000)}
    lines[1] = json.dumps(metadata, separators=(",", ":"))
    (app.checkpoint / f"offsets/{number}").write_text("\n".join(lines))


@pytest.mark.proof
@pytest.mark.parametrize("end", [17, 24, 30], ids=["narrower", "wider", "all"])
@pytest.mark.parametrize(("sink", "options"), SINKS)
@pytest.mark.parametrize("goal", ["resume", "replan", "reposition"])
def test_orphan_that_was_planned_anew_loses_nothing(
    goal: str, sink: str, options: dict[str, object], end: int, application: MakeApplication
) -> None:
    app = application(sink=sink, **options)
    number = newest(app)
    plan_anew(app, number, drop_by_hand(app, number), end)
    where = StartChoice(batch=number - 1) if goal == "reposition" else StartChoice()
    plan = app.planned(where, goal)
    assert (plan.guarantee, bool(plan.steps)) == (Guarantee.AT_LEAST_ONCE, True)
    app.carry_out(plan)
    assert judged(app, plan) == []
    assert app.planned(StartChoice(), "resume").guarantee is Guarantee.AT_LEAST_ONCE


@pytest.mark.spark
@pytest.mark.services
def test_recover_asks_before_it_uses_the_number_up(application: MakeApplication) -> None:
    app = application()
    number = newest(app)
    plan_anew(app, number, drop_by_hand(app, number), 30)
    evidence = EvidenceOptions(sinks=(str(app.table),), kafka=app.broker.bootstrap)
    found = diagnose(resolve_target(str(app.checkpoint)), DiagnoseOptions(evidence=evidence))
    assert found.findings[0].condition.name == "SINK_WOULD_SKIP"
    asked = recover(resolve_target(str(app.checkpoint)), PlanOptions(evidence=evidence), driver_is_dead=True)
    assert asked.verdict is Verdict.PERSON
    accepting = PlanOptions(evidence=evidence, accept=(Waiver.DUPLICATES,))
    done = recover(resolve_target(str(app.checkpoint)), accepting, driver_is_dead=True)
    assert done.verdict is Verdict.START
    assert done.recovery is not None
    assert judged(app, done.recovery.plan, is_verified=False) == []


@pytest.mark.proof
@pytest.mark.parametrize(("sink", "options"), SINKS)
def test_batch_that_the_sink_has_skipped_is_told_with_its_range(
    sink: str, options: dict[str, object], application: MakeApplication
) -> None:
    app = application(sink=sink, **options)
    number = newest(app)
    drop_by_hand(app, number)
    assert replace(app, limit=24).start() is None  # wider than before, and dropped
    missing = app.wanted() - app.rows()
    assert missing
    evidence = EvidenceOptions(sinks=(str(app.table),), kafka=app.broker.bootstrap, **app.evidence)
    found = diagnose(resolve_target(str(app.checkpoint)), DiagnoseOptions(evidence=evidence))
    skipped = next(each for each in found.findings if each.condition.name == "SINK_BATCHES_SKIPPED")
    told = skipped.evidence["may_be_missing"][str(number)]["0"][app.topic]
    ranges = {(int(p), offset) for p, spans in told.items() for start, end in spans for offset in range(start, end)}
    assert missing.keys() <= ranges
    assert app.planned(StartChoice(), "resume").guarantee is Guarantee.LOSSY


@pytest.mark.proof
def test_topic_created_again_within_the_tolerance_of_clocks_is_not_called_exact(application: MakeApplication) -> None:
    app = application()
    app.broker.recreate_topic(app.topic)
    app.produce(0, BEFORE + 10)
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.LOSSY
    assert any("--topic-is-the-same" in line for line in plan.rests_on)
    assert app.start() is None
    lost = (app.wanted(BEFORE) + app.wanted(BEFORE + 10)) - app.rows()
    assert lost == app.wanted(BEFORE)


@pytest.mark.proof
def test_few_records_of_a_clock_that_is_ahead_are_no_other_topic(application: MakeApplication) -> None:
    app = application()
    app.produce(BEFORE + 10, BEFORE + 12, ahead_ms=60_000)
    assert app.start() is None
    app.produce(BEFORE + 12, BEFORE + 14)
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    assert app.start() is None
    assert app.rows() == app.wanted(BEFORE + 14)


@pytest.mark.proof
@pytest.mark.parametrize(("sink", "options"), SINKS)
def test_several_numbers_that_were_dropped_are_used_up_together(
    sink: str, options: dict[str, object], application: MakeApplication
) -> None:
    """Two plans were dropped by hand, and the first of their numbers was planned anew."""
    app = application(sink=sink, **options)
    number = newest(app)
    drop_by_hand(app, number)
    plan_anew(app, number - 1, drop_by_hand(app, number - 1), 30)
    plan = app.planned(StartChoice(), "resume")
    assert plan.guarantee is Guarantee.AT_LEAST_ONCE
    app.carry_out(plan)
    assert judged(app, plan) == []
