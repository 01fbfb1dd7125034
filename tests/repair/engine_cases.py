"""A checkpoint with a plan for it, on any storage, and an engine that can be killed there."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lastgood.journal.lease import LeaseLostError
from lastgood.journal.plan_file import parse_plan
from lastgood.journal.room import Room
from lastgood.journal.seal import list_seal_files
from lastgood.planning.plan import Plan, PlannedSink, Promise
from lastgood.planning.price import Guarantee
from lastgood.planning.steps import (
    REBUILT,
    REBUILT_CHECKPOINT,
    BringStep,
    FileStep,
    MoveStep,
    StateStep,
    compute_digest,
    list_files_after,
    list_files_brought,
    sort_steps,
)
from lastgood.recovery.engine import Engine, Surveyor, compute_listing_digest, list_log_folders
from lastgood.steps.step import Step
from lastgood.storage.reading import Location, Storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.testing.storage import FaultyWriter, MemoryWriter

KINDS = ("drop", "lift", "complete", "cut", "edit", "renew", "bring")
BROUGHT = b"the state made anew"
"""As long as the one of before."""


STATE = "state/0/0/9.delta"
SNAPSHOT = "state/0/0/8.snapshot"
SINK = PlannedSink(0, "delta", "/lake/orders", 7, known=True, skips_up_to=7, identity="t")
RESUMES = Promise("4.2", "resumes", 8, "batch 7 is committed")


class Killed(BaseException):
    """As `kill -9`: nobody catches it."""


class OurLease:
    number = 1

    def check(self) -> None: ...


class TakenOver:
    """A lease that is lost as soon as so many changes were made."""

    number = 1

    def __init__(self, checks: int, meanwhile: Callable[[], None]) -> None:
        self._left = checks
        self._meanwhile = meanwhile

    def check(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._meanwhile()
        if self._left <= 0:
            raise LeaseLostError("another process has taken over")


@functools.cache
def built() -> dict[str, bytes]:
    """The logs of a query of which eight batches are committed and a ninth is planned."""
    with tempfile.TemporaryDirectory() as folder:
        query = CheckpointBuilder(Path(folder))
        query.run(8)
        query.plan()
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        return {str(file.relative_to(folder)): file.read_bytes() for file in files}


class Case:
    """A checkpoint, in memory if nothing else is said, and a plan for it."""

    def __init__(self, kind: str, storage: WritableStorage | None = None, location: Location | None = None) -> None:
        self.storage = storage or MemoryWriter()
        self.location = location or parse_location("/lake/orders")
        for path, content in built().items():
            self.put(path, content)
        self.put(STATE, b"state")
        self.put(SNAPSHOT, b"the state of before")
        self.sinks = self.planned_sinks()
        self.before = self.files()
        steps = sort_steps(list(self.steps(kind)))
        folders = list_log_folders(self.storage, self.location)
        newest = {"drop": 7, "lift": 11, "complete": 8, "cut": 5, "edit": 8, "renew": 8, "bring": 8}[kind]
        self.plan = Plan(
            recovery="20261121-160058-7f3a",
            goal="resume",
            checkpoint=str(self.location),
            query_id="q",
            guarantee=Guarantee.EXACTLY_ONCE,
            rests_on=("delta txn 7",),
            position={"planned": 8, "committed": 7},
            promise=RESUMES,
            sinks=self.sinks,
            steps=steps,
            seal=list_seal_files(8, 7, newest),
            listings={
                folder: compute_listing_digest(self.storage, self.location / folder, folder) for folder in folders
            },
            guards={"metadata": compute_digest(self.read("metadata"))},
            made_at_ms=0,
            made_by="test",
        )
        self.plan = parse_plan(self.plan.to_bytes(), "plan.json")

    def planned_sinks(self) -> tuple[PlannedSink, ...]:
        return (SINK,)

    def steps(self, kind: str) -> Iterator[Step]:
        if kind == "drop":
            yield self.step("offsets/8", None)
            yield MoveStep(STATE, 5, "it is newer than the last good batch")
        if kind == "lift":
            for batch in (8, 9, 10, 11):
                yield self.step(f"offsets/{batch}", b"plan %d" % batch)
                yield self.step(f"commits/{batch}", b"commit %d" % batch)
        if kind == "complete":
            yield self.step("commits/8", b"commit 8")
        if kind == "cut":
            yield from self.cut()
        if kind == "edit":
            yield self.step("offsets/7", b"other offsets")
            yield self.step("offsets/8", b"")
        if kind == "renew":
            yield from self.renew()
        if kind == "bring":
            yield from self.bring()

    def cut(self) -> Iterator[Step]:
        for batch in (6, 7, 8):
            yield self.step(f"offsets/{batch}", None)
            if batch < 8:
                yield self.step(f"commits/{batch}", None)

    def renew(self) -> Iterator[Step]:
        yield self.step("offsets/7", b"the beginning")
        yield self.step("offsets/8", b"the end")
        yield self.step("commits/7", b"the watermark")
        yield MoveStep(STATE, 5, "the state is made anew")
        yield StateStep(SNAPSHOT, 19, b"nothing", "the state is made anew", ("9.delta",))
        yield StateStep("state/0/1/8.snapshot", None, b"nothing", "the state is made anew")

    def bring(self) -> Iterator[Step]:
        yield self.step("commits/7", b"the versions")
        yield MoveStep(STATE, 5, "the state was made anew")
        for path, size in ((SNAPSHOT, 19), ("state/0/1/8.snapshot", None)):
            source = f"{REBUILT}/20261121-160058-7f39/{REBUILT_CHECKPOINT}/{path}"
            self.storage.write(self.location.sibling(WORK_SUFFIX) / source, BROUGHT)
            yield BringStep(path, size, source, len(BROUGHT), "made anew", ("9.delta", "8.snapshot"))

    def step(self, path: str, after: bytes | None) -> FileStep:
        return FileStep(path, compute_digest(self.read(path)), after, "test")

    def put(self, path: str, content: bytes) -> None:
        self.storage.write(self.location / path, content)

    def read(self, path: str) -> bytes | None:
        return self.storage.read(self.location / path, limit=1_000_000)

    def files(self) -> dict[str, bytes | None]:
        return {entry.name: self.read(entry.name) for entry in self.storage.walk(self.location) or ()}

    @property
    def wanted(self) -> dict[str, bytes | None]:
        brought = dict.fromkeys(list_files_brought(self.plan.steps), BROUGHT)
        then = {**self.before, **list_files_after(self.plan.steps), **brought}
        return {path: content for path, content in then.items() if content is not None}

    def engine(
        self,
        storage: WritableStorage | None = None,
        lease: object = None,
        settle: Callable[[], None] = lambda: None,
    ) -> Engine:
        room = Room(self.location, self.plan.recovery, storage or self.storage)
        surveyor = Surveyor(sinks=lambda: self.sinks, promise=self.promise)
        return Engine(room, self.plan, lease or OurLease(), surveyor, lambda _: None, lambda: 0, settle=settle)  # type: ignore[arg-type]

    def promise(self, shown: Storage) -> Promise:
        assert {entry.name for entry in shown.walk(self.location) or ()} == set(self.wanted)
        return RESUMES

    def is_sealed(self) -> bool:
        """Whether a driver that starts dies: the newest plan is an empty file."""
        names = [int(name) for name in self.storage.names(self.location / "offsets") or () if name.isdecimal()]
        return self.read(f"offsets/{max(names)}") == b""

    def commits_ahead(self) -> bool:
        newest = {
            log: max((int(n) for n in self.storage.names(self.location / log) or () if n.isdecimal()), default=-1)
            for log in ("offsets", "commits")
        }
        return newest["commits"] > newest["offsets"]


def changes(case: Case, work: Callable[[Engine], object]) -> Sequence[str]:
    counting = FaultyWriter(case.storage)
    work(case.engine(counting))
    return counting.changes


def killed(case: Case, work: Callable[[Engine], object], *, watch: bool = True, **moment: int) -> None:
    """Kill `work` at one change; at no instant before could a driver start on a half-done checkpoint."""
    whole = (case.before, case.wanted)

    def look(_: int) -> None:
        assert case.is_sealed() or case.files() in whole
        assert not case.commits_ahead()

    with pytest.raises(Killed):
        work(case.engine(FaultyWriter(case.storage, error=Killed(), between=look if watch else None, **moment)))
    look(0)


def first_step(kind: str = "cut") -> int:
    """The number of the change that the first step makes."""
    told = changes(Case(kind), lambda engine: engine.apply("proof"))
    return next(number for number, change in enumerate(told, 1) if change.startswith(("remove /", "move /")))


def moments(count: int) -> Iterator[dict[str, int]]:
    for number in range(1, count + 1):
        yield {"before": number}
        yield {"after": number}
