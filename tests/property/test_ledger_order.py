"""A ledger under any order and repetition of what is told: the same rows, as if all had been told at once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import NOON_MS, commit, dump, failure, kafka_end, plan, progress, telling

from lastgood.ledger.opening import open_ledger
from lastgood.ledger.telling import Telling, make_telling
from lastgood.ledger.url import parse_place
from lastgood.records.record import QueryStarted, Terminated

FEW, MANY = 8, 300
"""Of each of both questions; many under `proof`."""
# Drawn evenly, not as hypothesis likes it: what has to meet here are several tellings of the same few batches.
chances = st.integers(0, 2**32 - 1).map(Random)


def told_of_logs(chance: Random) -> Telling:
    """A plan or a commit as it was seen at some time; a batch may be planned anew, and its entry be edited."""
    batch_id, second = chance.randrange(2), NOON_MS + 1000 * chance.randrange(5)
    if chance.random() < 0.4:
        return telling(commit(batch_id, seen_ms=second))
    if chance.random() < 0.1:
        return telling(initial={"0": '{"orders":{"0":2,"1":0}}'})
    end = chance.choice([kafka_end(batch_id)] * 4 + [kafka_end(batch_id + 1), "-"])
    return telling(plan(batch_id, planned_ms=NOON_MS + 1000 * chance.randrange(2), seen_ms=second, end=end))


def told_by_recorder(chance: Random) -> Telling:
    """What one of several recorders tells of one of two runs; of the same event no two tell different things."""
    run, batch_id = chance.choice("ab"), chance.randrange(3)
    trigger_ms = NOON_MS + 1000 * (run == "b")
    names: dict[str, Any] = {"query_id": progress(0).query_id, "run_id": run, "checkpoint": "/lake/chk"}
    kind = chance.choice(["whole", "whole", "no ids", "less", "started", "terminated"])
    if kind == "started":
        started_ms = chance.choice([None, 5])
        return make_telling([QueryStarted(recorded_at_ms=trigger_ms, started_at_ms=started_ms, **names)])
    if kind == "terminated":
        failed = chance.choice([None, failure(), failure("job aborted")])
        recorded_ms = trigger_ms + chance.randrange(5)
        return make_telling([Terminated(recorded_at_ms=recorded_ms, batch_id=batch_id, failure=failed, **names)])
    recorded_ms = trigger_ms + chance.randrange(5)
    told = progress(batch_id, run_id=run, trigger_at_ms=trigger_ms, recorded_at_ms=recorded_ms)
    if kind == "no ids":
        told = replace(
            told, sources=tuple(replace(each, topic_ids=None, topic_ids_at_ms=None) for each in told.sources)
        )
    elif kind == "less":
        told = replace(told, query_name=None, duration_ms={}, event_time_min_ms=None, state_operators=(), sources=())
    return make_telling([told])


def tellings(chance: Random) -> list[Telling]:
    kinds = [told_of_logs, told_of_logs, told_by_recorder]
    return [chance.choice(kinds)(chance) for _ in range(chance.randrange(4, 20))]


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledgers")


def rows_of(folder: Path, told: list[Telling]) -> dict[str, list[Any]]:
    """What a new ledger holds that was told these things one by one."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        place = parse_place(f"{own}/ledger.db")
        with open_ledger(place) as ledger:
            for each in told:
                ledger.add(each)
        return dump(place)


def in_another_order(told: list[Telling], chance: Random) -> list[Telling]:
    """Some of them again."""
    again = chance.choices(told, k=chance.randrange(6))
    return chance.sample([*told, *again], len(told) + len(again))


def at_once(told: list[Telling], chance: Random) -> list[Telling]:
    del chance
    queries = tuple(facts for each in told for facts in each.queries)
    failures = tuple(failed for each in told for failed in each.failures)
    return [Telling(queries, failures)]


@pytest.mark.parametrize("otherwise", [in_another_order, at_once])
@pytest.mark.parametrize("examples", [FEW, pytest.param(MANY, marks=pytest.mark.proof)])
def test_ledger_is_the_same_however_it_is_told(
    otherwise: Callable[[list[Telling], Random], list[Telling]], examples: int, ledgers: Path
) -> None:
    @given(chance=chances)
    @settings(max_examples=examples, deadline=None)
    def hold(chance: Random) -> None:
        told = tellings(chance)
        assert rows_of(ledgers, told) == rows_of(ledgers, otherwise(told, chance))

    hold()
