"""After a long outage a real Spark starts where the policy says, and every row comes as often as was said."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from conformance.cases import Case
from plugin_laboratory import OpenLaboratory
from repair.repairs import broken_promise, differing, wrong_price

from lastgood.operations.recover import recover
from lastgood.settings.target import resolve_target

VERSION = "4.2.0"
HOUR_SECONDS = 3600
CASES = [
    pytest.param("kafka-delta", "at_sink", "fresh", "exactly_once", id="table, which tells"),
    pytest.param(
        "kafka-delta", "stable_lag", "reposition", "at_least_once", id="table, and stable offsets all the same"
    ),
    pytest.param("kafka", "stable_lag", "reposition", "at_least_once", id="function, which tells nothing"),
]


@pytest.mark.proof
@pytest.mark.parametrize(("flavour", "start", "goal", "word"), CASES)
def test_query_starts_where_the_policy_says(
    flavour: str,
    start: str,
    goal: str,
    word: str,
    open_laboratory: OpenLaboratory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    laboratory, case = open_laboratory(VERSION, flavour), Case(VERSION, flavour, (), "outage")
    with laboratory.damaged(case) as folder:
        then = time.time() - 3 * HOUR_SECONDS
        for commit in (folder / "checkpoint/commits").iterdir():
            os.utime(commit, (then, then))
        sink = f'sink = "{folder}/sink"\n' if flavour == "kafka-delta" else ""
        (tmp_path / "lastgood.toml").write_text(
            f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{folder}/checkpoint"\n{sink}'
            f'kafka = {{ bootstrap = "{folder}/kafka.json" }}\ndriver_check = ["true"]\n[pipeline.orders.policy]\n'
            f'after_outage = "2h"\noutage_start = "{start}"\nstable_lag = 1\naccept = ["duplicates", "loss"]\n'
        )
        done = recover(resolve_target("orders")).recovery
        assert done is not None
        again = recover(resolve_target("orders"))
        seen = laboratory.restart(case, folder)
        lost, twice = differing(seen, folder)
        wrong = [*broken_promise(done.plan, seen), *wrong_price(done.plan, seen, folder)]
    print(flavour, start, done.plan.guarantee.value, seen.ended, lost.total(), twice.total(), done.plan.sources)
    assert wrong == []
    assert (done.plan.goal, done.plan.guarantee.value, seen.ended, lost.total()) == (goal, word, "finished", 0)
    assert (again.verdict.value, again.recovery) == ("start", None)
