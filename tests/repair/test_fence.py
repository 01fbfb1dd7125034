"""A driver that is alive, inside a slow batch, is shut out of a Delta table: its rows never get there."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance.sparks import Sparks
from deltalake import DeltaTable

from lastgood.delta_log.actions import FENCE, USE_UP
from lastgood.lab.spark import find_default_spark, submit
from lastgood.observe.evidence import EvidenceOptions
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.process.child import Child
from lastgood.process.java import Java
from lastgood.recovery.applying import apply_plan
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sinks.delta.carrying import fence_off
from lastgood.steps.carrying import Site
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import LocalWriter, open_writable

APP = Path(__file__).with_name("held_app.py")
VERSION = "4.2.0"
COMMITTED = 3
ROWS = 5
DEADLINE_SECONDS = 180
CONFLICT = "DELTA_CONCURRENT_TRANSACTION"


class Query:
    """An application that reads a folder into a table, unchanged from start to start."""

    def __init__(self, folder: Path, sparks: Sparks, java: Java, jars: tuple[Path, ...]) -> None:
        self.folder = folder
        self._sparks = sparks
        self.checkpoint, self.table = folder / "checkpoint", folder / "table"
        self._how = {"environment": find_default_spark(), "java": java, "jars": jars, "cwd": folder}
        self._files = 0
        self._children: list[Child] = []

    def feed(self, count: int) -> None:
        for number in range(self._files, self._files + count):
            rows = (json.dumps({"id": number * ROWS + n}) for n in range(ROWS))
            draft = self.folder / f"f{number}.json"
            draft.write_text("\n".join(rows) + "\n")
            (self.folder / "input").mkdir(exist_ok=True)
            draft.rename(self.folder / "input" / draft.name)
        self._files += count

    def start(self) -> Child:
        """A driver of its own, which goes on until something stops it."""
        result = self.folder / "result.json"
        with (self.folder / "spark.log").open("ab") as output:
            child = submit(
                APP,
                [str(self.folder), str(self.checkpoint), str(result)],
                output=output,
                **self._how,
            )  # type: ignore[arg-type]
        self._children.append(child)
        return child

    def start_and_hold(self) -> Child:
        """Let it stand inside a batch that is being written."""
        self.feed(COMMITTED)
        child = self.start()
        self.await_(f"checkpoint/commits/{COMMITTED - 1}")
        (self.folder / "hold").touch()
        self.feed(1)
        self.await_("held")
        return child

    def end(self, child: Child) -> dict[str, Any]:
        assert child.wait(DEADLINE_SECONDS) is not None
        told: dict[str, Any] = json.loads((self.folder / "result.json").read_text())
        return told

    def run(self, checkpoint: Path | None = None) -> dict[str, Any]:
        """A start in another driver, to the end of the input."""
        told = {"folder": str(self.folder), "checkpoint": str(checkpoint or self.checkpoint), "how": "once"}
        return self._sparks.of(VERSION).call(APP, "run", **told)

    def await_(self, path: str) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not (self.folder / path).exists():
            assert time.monotonic() < deadline, (self.folder / "spark.log").read_text()[-2000:]
            time.sleep(0.05)

    def plan(self, goal: str) -> Plan:
        evidence = EvidenceOptions(sinks=(str(self.table),))
        return make_plan(resolve_target(str(self.checkpoint)), PlanOptions(goal=goal, evidence=evidence))

    def apply(self, plan: Plan, *, driver_is_dead: bool) -> None:
        file = self.folder / "plan.json"
        file.write_bytes(plan.to_bytes())
        apply_plan(str(file), driver_is_dead=driver_is_dead)

    def rows(self) -> Counter[int]:
        return Counter(DeltaTable(self.table).to_pyarrow_table().column("id").to_pylist())

    def operations(self) -> list[str]:
        return [str(each["operation"]) for each in DeltaTable(self.table).history()]

    def require_all_once(self) -> None:
        assert self.rows() == Counter(range(self._files * ROWS))

    def close(self) -> None:
        for child in self._children:
            child.kill()


@pytest.fixture
def query(
    tmp_path: Path,
    java: Java,
    sparks: Sparks,
    spark_jars: tuple[Path, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Query]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "case"
    folder.mkdir()
    found = Query(folder, sparks, java, spark_jars)
    yield found
    found.close()


@pytest.mark.proof
def test_slow_batch_of_a_driver_that_is_alive_is_shut_out_and_the_next_start_is_exact(query: Query) -> None:
    child = query.start_and_hold()
    before = query.folder / "before"
    shutil.copytree(query.checkpoint, before)

    plan = query.plan("replan")
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    query.apply(plan, driver_is_dead=False)  # nobody has to know that it is alive
    assert child.ending is None
    assert query.operations()[:2] == [USE_UP, FENCE]

    (query.folder / "hold").unlink()
    told = query.end(child)
    assert told["ended"] == "failed"
    assert CONFLICT in str(told["chain"])
    assert query.rows() == Counter(range(COMMITTED * ROWS))

    told = query.run(before)  # one that has read the logs before the seal, and writes only now
    assert query.rows() == Counter(range(COMMITTED * ROWS))
    assert told["ended"] == "finished"

    query.feed(1)
    assert query.run()["ended"] == "finished"
    query.require_all_once()


@pytest.mark.proof
def test_fence_alone_makes_a_slow_batch_fail_and_leaves_the_query_as_it_was(query: Query) -> None:
    child = query.start_and_hold()
    query_id = json.loads((query.checkpoint / "metadata").read_text())["id"]
    checkpoint = parse_location(str(query.checkpoint))
    site = Site(
        recovery="20261121-160058-7f3a",
        checkpoint=checkpoint,
        storage=LocalWriter(),
        kept=checkpoint,
        now_ms=int(time.time() * 1000),
        open_other=open_writable,
    )
    assert fence_off(site, str(query.table), query_id) is None
    (query.folder / "hold").unlink()
    told = query.end(child)
    assert CONFLICT in str(told["chain"])
    assert query.rows() == Counter(range(COMMITTED * ROWS))
    assert query.run()["batches"][0] == COMMITTED
    query.require_all_once()
