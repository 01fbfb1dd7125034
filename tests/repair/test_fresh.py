"""Checkpoints are lost, seeded anew, and the unchanged application started: lost and doubled is what was said."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
from repair.seeded import AFTER, BEFORE, COLUMNS, PARTITIONS, TXN_APP_ID, MakeApplication, judged

from lastgood.observe.positions import StartChoice
from lastgood.operations.backup import create
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.price import Guarantee, Waiver
from lastgood.recovery.applying import undo
from lastgood.recovery.engine import PlanStaleError
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.start_files import StartFile

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY


@pytest.mark.spark
def test_rows_that_name_their_offsets_give_a_lost_checkpoint_back_exactly(application: MakeApplication) -> None:
    app = application()
    app.lose_checkpoint()
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert (plan.guarantee, plan.needs) == (EXACT, ())
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_rows_tell_it_without_a_broker_and_without_a_mark_too(application: MakeApplication) -> None:
    app = application(sink="foreachBatch")
    app.lose_checkpoint()
    app.evidence.update(kafka=None, topics=())
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert plan.guarantee is EXACT
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_numbers_that_a_constant_name_has_used_up_are_not_used_again(application: MakeApplication) -> None:
    app = application(sink="txn")
    app.evidence.update(txn_app_id=TXN_APP_ID)
    plan = app.planned(StartChoice(earliest=True))
    assert plan.guarantee is TWICE
    app.carry_out(plan)
    assert judged(app, plan, is_verified=False) == []
    assert sum((app.rows() - app.wanted()).values()) == PARTITIONS * BEFORE


@pytest.mark.proof
@pytest.mark.parametrize("app_id", [TXN_APP_ID, None])
def test_start_from_nothing_is_refused_under_a_constant_name_for_it_would_lose_rows(
    app_id: str | None, application: MakeApplication
) -> None:
    app = application(sink="txn")
    app.evidence.update(txn_app_id=app_id)
    app.lose_checkpoint()
    for where in (StartChoice(offset_columns=COLUMNS), StartChoice(earliest=True)):
        with pytest.raises(RepairRefusedError):
            app.planned(where)
    app.broker.delete_records(app.topic, dict.fromkeys(range(PARTITIONS), 7))  # so the numbers come to mean other rows
    assert app.start() is None
    assert app.wanted() - app.rows() == Counter((number, 20 + n) for number in range(PARTITIONS) for n in range(7))


@pytest.mark.proof
def test_rows_tell_where_a_checkpoint_begins_that_is_left_behind(application: MakeApplication) -> None:
    app = application()
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert (plan.guarantee, plan.query_id is None) == (EXACT, False)
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_from_the_first_row_that_is_missing_on_all_is_read_again(application: MakeApplication) -> None:
    app = application(where="offset <> 13")
    app.lose_checkpoint()
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert plan.guarantee is TWICE
    assert plan.sources[0].duplicated == {app.topic: dict.fromkeys(range(PARTITIONS), ((13, BEFORE),))}
    app.carry_out(plan)
    assert judged(app, plan) == []
    assert sum((app.rows() - app.wanted()).values()) == PARTITIONS * (BEFORE - 14)


@pytest.mark.proof
def test_marks_of_transactions_are_offsets_that_no_row_can_carry(application: MakeApplication) -> None:
    app = application(per_transaction=5)
    app.lose_checkpoint()
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    end = BEFORE + BEFORE // 5 - 1
    assert plan.guarantee is TWICE
    assert plan.sources[0].duplicated == {app.topic: dict.fromkeys(range(PARTITIONS), ((5, end),))}
    other = next(each for each in plan.alternatives if each.command is not None and "--at" in each.command.split())
    assert other.guarantee is LOSSY
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_rows_that_are_deleted_by_a_deletion_vector_are_not_taken_for_there(application: MakeApplication) -> None:
    app = application()
    app.sql("alter table {} set tblproperties (delta.enableDeletionVectors = true)")
    app.sql("delete from {} where partition = 1 and offset = 7")
    app.lose_checkpoint()
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert plan.guarantee is TWICE
    assert plan.sources[0].duplicated == {app.topic: {1: ((7, BEFORE),)}}
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_rows_that_come_after_the_plan_was_made_stop_it(application: MakeApplication) -> None:
    app = application()
    aside = app.folder / "aside"
    app.checkpoint.rename(aside)
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    aside.rename(app.checkpoint)
    assert app.start() is None
    shutil.rmtree(app.checkpoint)
    with pytest.raises(PlanStaleError):
        app.carry_out(plan)
    assert not app.checkpoint.exists()


@pytest.mark.proof
def test_mirror_gives_a_lost_checkpoint_back_exactly_and_undo_loses_it_again(application: MakeApplication) -> None:
    app = application()
    create(resolve_target(str(app.checkpoint)))
    app.lose_checkpoint()
    plan = app.planned(StartChoice())
    assert (plan.guarantee, plan.options["chosen"]) == (EXACT, "the mirror")
    app.carry_out(plan)
    undo(plan.recovery, target=resolve_target(str(app.checkpoint)), driver_is_dead=True)
    assert not [each for each in app.checkpoint.rglob("*") if each.is_file()]
    again = app.planned(StartChoice())
    app.carry_out(again)
    assert judged(app, again) == []


@pytest.mark.spark
def test_application_that_is_told_by_its_own_configuration_goes_on_exactly(
    application: MakeApplication, tmp_path: Path
) -> None:
    start = tmp_path / "start.json"
    start.write_text("earliest\n")
    app = application(config=str(start))
    plan = app.planned(StartChoice(), via=StartFile(str(start)))
    assert (plan.guarantee, plan.promise.batch) == (EXACT, 0)
    app.carry_out(plan)
    assert judged(app, plan, is_verified=False) == []
    assert json.loads(start.read_text()) == {app.topic: dict.fromkeys(map(str, range(PARTITIONS)), BEFORE)}


@pytest.mark.proof
def test_configuration_may_say_to_start_earlier_than_the_sink_ends(
    application: MakeApplication, tmp_path: Path
) -> None:
    start = tmp_path / "start.json"
    start.write_text("earliest\n")
    app = application(config=str(start))
    plan = app.planned(StartChoice(stable_lag=1), via=StartFile(str(start)))
    assert (plan.guarantee, plan.needs) == (TWICE, (Waiver.DUPLICATES,))
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_time_of_the_last_commit_loses_nothing(application: MakeApplication) -> None:
    app = application()
    app.lose_checkpoint()
    plan = app.planned(StartChoice(at_last_commit=True, margin_ms=1000))
    assert plan.guarantee is TWICE
    app.carry_out(plan)
    assert judged(app, plan) == []


@pytest.mark.proof
def test_earliest_writes_all_twice_that_kafka_still_has(application: MakeApplication) -> None:
    app = application()
    app.lose_checkpoint()
    plan = app.planned(StartChoice(earliest=True))
    assert plan.guarantee is TWICE
    app.carry_out(plan)
    assert judged(app, plan) == []
    assert sum((app.rows() - app.wanted()).values()) == PARTITIONS * BEFORE


@pytest.mark.proof
def test_earliest_is_lossy_once_something_has_expired(application: MakeApplication) -> None:
    app = application()
    app.lose_checkpoint()
    app.broker.delete_records(app.topic, {0: BEFORE + 3})
    plan = app.planned(StartChoice(earliest=True))
    assert (plan.guarantee, plan.sources[0].lost) == (LOSSY, {app.topic: {0: ((0, BEFORE + 3),)}})
    app.carry_out(plan)
    assert judged(app, plan) == []
    assert sum((app.wanted() - app.rows()).values()) == 3


@pytest.mark.proof
def test_expired_rows_are_the_price_where_the_table_tells_the_rest(application: MakeApplication) -> None:
    app = application()
    app.lose_checkpoint()
    app.broker.delete_records(app.topic, {0: BEFORE + 3})
    plan = app.planned(StartChoice(offset_columns=COLUMNS))
    assert (plan.guarantee, plan.sources[0].lost) == (LOSSY, {app.topic: {0: ((BEFORE, BEFORE + 3),)}})
    app.carry_out(plan)
    assert judged(app, plan) == []
    assert sum(app.rows().values()) == PARTITIONS * (BEFORE + AFTER) - 3


@pytest.mark.proof
def test_ledger_knows_where_the_newest_batch_of_the_sink_ended(
    application: MakeApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = application()
    ledger = f"sqlite:///{tmp_path}/ledger.db"
    create(resolve_target(str(app.checkpoint)), ledger=ledger)
    app.lose_checkpoint()
    shutil.rmtree(f"{app.checkpoint}.lastgood")
    monkeypatch.setenv("LASTGOOD_LEDGER", ledger)
    plan = app.planned(StartChoice())
    assert plan.guarantee is EXACT
    assert plan.options["chosen"].startswith("the end of batch ")
    app.carry_out(plan)
    assert judged(app, plan) == []
