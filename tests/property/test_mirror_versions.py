"""The mirror under random histories of a query: planned, committed, purged, planned again, begun anew."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.mirror.mirror import MirrorWriter, locate_mirror, read_mirror
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder, FileInput

DAY_MS = 86_400_000


def logs(root: Path) -> dict[str, bytes]:
    """The log files of a checkpoint."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


STEPS = ["plan", "small plan", "commit", "purge", "replan", "new query", "look", "settle", "new writer"]


class Model:
    """A query and its mirror; `seen` is what stood in the checkpoint at some look."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.checkpoint = root / "checkpoint"
        self.now_ms = STARTED_MS
        self.seen: set[tuple[str, str, bytes]] = set()
        self.generation = 0
        self.writers = 0
        self.new_query()
        self.new_writer()

    def clock(self) -> int:
        self.now_ms += 1
        return self.now_ms

    def new_query(self) -> None:
        shutil.rmtree(self.checkpoint, ignore_errors=True)
        self.query_id = f"{self.generation:08x}-9839-4690-99f7-f5f3cde02c1d"
        started_ms = STARTED_MS + self.generation * DAY_MS
        self.query = CheckpointBuilder(self.checkpoint, FileInput(), query_id=self.query_id, started_ms=started_ms)
        self.generation += 1
        self.is_committed = True

    def new_writer(self) -> None:
        self.writers += 1
        location = parse_location(str(self.checkpoint))
        self.writer = MirrorWriter(
            location,
            storage=LocalStorage(),
            folder=locate_mirror(location),
            target=LocalWriter(),
            writer=f"w{self.writers % 3}-{self.writers}",
            now_ms=self.clock,
        )

    def plan(self, amount: int) -> None:
        if self.is_committed:
            self.query.plan(amount)
            self.is_committed = False

    def do(self, step: str) -> None:
        match step:
            case "plan":
                self.plan(3)
            case "small plan":
                self.plan(1)
            case "commit" if not self.is_committed:
                self.query.commit()
                self.is_committed = True
            case "purge":
                self.query.purge(retain=2)
            case "replan" if not self.is_committed:
                self.query.drop_plan()
                time.sleep(0.002)  # no Spark plans a batch twice within a millisecond
                self.query.plan(2)
            case "new query":
                self.new_query()
            case "look":
                self.writer.look()
                self.seen |= {(self.query_id, path, content) for path, content in logs(self.checkpoint).items()}
            case "settle":
                self.writer.settle()
            case "new writer":
                self.new_writer()


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("property")


@given(steps=st.lists(st.sampled_from(STEPS + ["plan", "commit", "look"] * 2), max_size=40))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_the_mirror_holds_every_version_that_a_look_saw(scratch: Path, steps: list[str]) -> None:
    root = scratch / "run"
    shutil.rmtree(root, ignore_errors=True)
    model = Model(root)
    for step in steps:
        model.do(step)
    found = read_mirror(LocalStorage(), locate_mirror(parse_location(str(model.checkpoint))))
    copies = [(copy.query_id, copy.path, copy.modified_ms, copy.content) for copy in found]
    assert {(query_id, path, content) for query_id, path, _, content in copies} == model.seen
    assert len(set(copies)) == len(copies)
