"""What real Spark does after a repair keeps its promise, or has lost rows; and what is forged is told.

`LASTGOOD_SEED` chooses others.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conformance.cases import Laboratory, Observation
from conformance.flavours import FLAVOURS
from plugin_laboratory import OpenLaboratory
from repair.repairs import GOALS, Repair, broken_promise, carry_out, differing, make_mirror, planned, random_repair

from lastgood.errors import LastgoodError
from lastgood.incident.promise import Kept, Promised, check_promise
from lastgood.observe.evidence import parse_options
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.settings.target import resolve_target

SEED = os.environ.get("LASTGOOD_SEED", "1")
VERSION = "4.2.0"
SAMPLE = {"kafka-delta": 2}
"""Each goal once, if none is refused."""
KINDS = ("files", "file-sink", "file-delta", "kafka-delta")
MANY = 8
"""Of each kind of query in the proof."""
TRIES = 6


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("LASTGOOD_LEDGER", raising=False)


@dataclass(frozen=True)
class Restarted:
    """A plan that was carried out, and what Spark did then."""

    plan: Plan
    folder: Path
    seen: Observation

    @property
    def first(self) -> int | None:
        """The first batch that was committed."""
        return min(self.seen.committed, default=None)

    def check(self, plan: Plan | None = None, *, rows: int | None = None) -> Promised:
        assert self.first is not None
        evidence = parse_options(self.plan.evidence)
        return check_promise(
            plan or self.plan, resolve_target(str(self.folder / "checkpoint")), self.first, evidence=evidence, rows=rows
        )


@contextmanager
def restarted(laboratory: Laboratory, repair: Repair) -> Iterator[Restarted | None]:
    """The query after its repair and one start; None where nothing is promised."""
    with laboratory.damaged(repair.case, lambda folder: make_mirror(folder, repair.mirror)) as folder:
        try:
            plan = planned(repair, folder)
            carry_out(plan, folder)
        except LastgoodError:
            yield None
            return
        yield Restarted(plan, folder, laboratory.restart(repair.case, folder))


def repairs(laboratory: Laboratory, flavour: str, count: int) -> Iterator[Repair]:
    goals = GOALS if FLAVOURS[flavour].kind == "kafka" else ("resume", "replan", "fresh")
    for number in range(count * TRIES):
        seed = f"{SEED}/promise/{flavour}/{number}"
        yield random_repair(laboratory, FLAVOURS[flavour], (goals[number % len(goals)],), seed)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("flavour", "count"),
    [*SAMPLE.items(), *(pytest.param(flavour, MANY, marks=pytest.mark.proof) for flavour in KINDS)],
)
def test_promise_is_kept_where_spark_kept_it_and_broken_where_it_is_forged(
    flavour: str, count: int, open_laboratory: OpenLaboratory
) -> None:
    laboratory = open_laboratory(VERSION, flavour)
    states: Counter[str] = Counter()
    for repair in repairs(laboratory, flavour, count):
        if states.total() == count:
            break
        with restarted(laboratory, repair) as found:
            if found is None or found.first is None or list(broken_promise(found.plan, found.seen)):
                continue
            told = found.check(rows=found.seen.committed[found.first])
            states[told.state.value] += 1
            if told.state is Kept.BROKEN:  # nobody had asked the sink, say, and it dropped the batch
                lost, _ = differing(found.seen, found.folder)
                is_dropped = has_dropped_what_it_had(repair, found)
                assert lost or is_dropped, f"{json.dumps(repair.to_json())}: {told.because}"
            else:
                require_forgeries_told(found)
    assert states.total() == count
    assert states["kept"] * 2 >= states.total(), states  # now and then nobody can tell


def has_dropped_what_it_had(repair: Repair, found: Restarted) -> bool:
    """Whether a sink that nobody had named dropped a batch by its number, as the plan left open: it may have had it."""
    assert found.first is not None
    has_no_row = found.seen.committed[found.first] == 0
    return repair.is_blind and has_no_row and found.plan.guarantee is not Guarantee.EXACTLY_ONCE


def require_forgeries_told(found: Restarted) -> None:
    """Another number was promised; the batch before it is another one; no row was read of what there was."""
    plan, first = found.plan, found.first
    assert first is not None
    later = replace(plan, promise=replace(plan.promise, batch=first + 1))
    assert found.check(later).state is Kept.BROKEN
    guarded = replace(plan, guards={**plan.guards, f"offsets/{first - 1}": "0" * 64}, steps=())
    if (found.folder / f"checkpoint/offsets/{first - 1}").exists():
        assert found.check(guarded).state is Kept.BROKEN
    if found.seen.committed[first] and plan.promise.outcome != "reruns":
        assert found.check(rows=0).state is not Kept.KEPT, found.check(rows=0)
