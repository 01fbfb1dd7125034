"""State of totals that is made anew in place: a batch writes all of it, or what changed, and every total is right."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typed
from conformance.sparks import Sparks
from repair.windows import CHANGELOG, CHECKPOINT_V2, HDFS, ROCKSDB, Windows, make_events, write_file

import lastgood
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee, Waiver

pytestmark = pytest.mark.spark

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))
SCRIPT = Path(__file__).with_name("totals_app.py")
BATCHES = 5
RUN = 3
FORMATS = {"hdfs": HDFS, "rocksdb": ROCKSDB, "changelog": CHANGELOG, "v2": CHECKPOINT_V2}
WAYS = [("delta", "complete"), ("foreachBatch", "complete"), ("foreachBatch", "update")]
BROKEN = "assert_true(v < 0) is null"
"""A bug in the application: it ends with the first row."""


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@dataclass
class Totals(Windows):
    """The same of totals."""

    script: Path = SCRIPT
    mode: str = "complete"
    keys: int = 7
    """How many; 0: one total of everything."""
    delay: str = ""
    """Of the watermark; empty: none."""
    is_windowed: bool = False
    """Whether the key is a window."""

    def start(self, code: str, **more: Any) -> str | None:
        return super().start(code, **self._said, **more)

    def start_reference(self) -> None:
        assert self._start("reference-chk", "reference", "new", self._said) is None

    @property
    def _said(self) -> dict[str, Any]:
        return {"mode": self.mode, "keys": self.keys, "delay": self.delay, "is_windowed": self.is_windowed}


def begin(sparks: Sparks, folder: Path, sink: str, conf: Mapping[str, str], *, is_broken: bool, **how: Any) -> Totals:
    """The old code has read the first files; where it is broken, it has died in the batch after them."""
    query = Totals(sparks.of("4.2.0"), folder, sink, {"spark.sql.shuffle.partitions": "2", **conf}, **how)
    query.events = make_events(SEED, BATCHES, are_late=False)
    for number in range(RUN):
        write_file(folder / "input", number, query.events[number])
    assert query.start("old") is None
    query.start_reference()
    if is_broken:
        write_file(folder / "input", RUN, query.events[RUN])
        assert "is not true" in (query.start("old", where=BROKEN) or "")
    return query


def recompute(query: Totals, *, accept: tuple[Waiver, ...] = ()) -> Plan:
    said = None if query.sink == "delta" else query.mode
    name = None if query.sink == "delta" else "totals"
    goal = lastgood.Recompute(output_mode=said)
    plan = lastgood.plan(str(query.checkpoint), goal=goal, sink=query.table, txn_app_id=name, accept=accept)
    lastgood.apply(plan, driver_is_dead=True)
    return plan


def finish(query: Totals) -> None:
    """The rest comes, and the new code reads it."""
    for number in range(RUN, BATCHES + 1):
        write_file(query.folder / "input", number, query.events[number])
    assert query.start("new") is None
    query.start_reference()
    assert query.rows() == query.rows("reference")
    assert sum(count for _, count, _ in query.rows()) == sum(map(len, query.events))


@pytest.mark.proof
def test_new_code_goes_on_with_a_table_that_is_written_whole(sparks: Sparks, tmp_path: Path) -> None:
    query = begin(sparks, tmp_path, "delta", HDFS, is_broken=True)
    plan = recompute(query)
    assert (plan.guarantee, plan.promise.outcome) == (Guarantee.EXACTLY_ONCE, "reruns")
    finish(query)
    assert typed.call("verify", query.checkpoint).returncode == 0
    assert typed.call("diagnose", query.checkpoint, "--sink", query.table).returncode == 0


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("keys", [7, 0], ids=["by key", "of everything"])
@pytest.mark.parametrize("delay", ["", "10 minutes"], ids=["no watermark", "watermark"])
@pytest.mark.parametrize("is_broken", [False, True], ids=["stopped", "broken"])
@pytest.mark.parametrize(
    ("sink", "mode"), [("delta", "complete"), ("foreachBatch", "complete"), ("foreachBatch", "update")]
)
def test_every_form_of_state(
    sparks: Sparks, tmp_path: Path, form: str, keys: int, delay: str, sink: str, mode: str, *, is_broken: bool
) -> None:
    how = {"keys": keys, "delay": delay, "mode": mode}
    query = begin(sparks, tmp_path, sink, FORMATS[form], is_broken=is_broken, **how)
    accepted = (Waiver.DUPLICATES,) if mode == "update" else ()
    plan = recompute(query, accept=accepted)
    assert plan.guarantee is (Guarantee.AT_LEAST_ONCE if mode == "update" else Guarantee.EXACTLY_ONCE)
    finish(query)


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_windows_that_are_closed_are_not_sent_again(sparks: Sparks, tmp_path: Path, form: str) -> None:
    """In output mode update: what old code has sent of them stays, and every open one comes from the new code."""
    how: dict[str, Any] = {"mode": "update", "delay": "10 minutes", "is_windowed": True}
    query = begin(sparks, tmp_path, "foreachBatch", FORMATS[form], is_broken=False, **how)
    recompute(query, accept=(Waiver.DUPLICATES,))
    for number in range(RUN, BATCHES + 1):
        write_file(query.folder / "input", number, query.events[number])
    assert query.start("new") is None
    query.start_reference()
    found, wanted = query.rows(), query.rows("reference")
    assert [row[:2] for row in found] == [row[:2] for row in wanted]
    new = [row for row in found if row[2] is not None]
    assert 0 < len(new) < len(found)
    assert new == [row for row in wanted if row[0] in {each[0] for each in new}]
