"""The recipes of CONTRIBUTING.md, each followed once: what only this file knows goes the whole way through the house.

A kind of sink, a kind of source, a goal and a kind of storage are one line of a table each. None of them may need a
change elsewhere: `diagnose`, `plan`, `apply` and `undo` know them as they know their own.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import lastgood
import lastgood.diagnosis
from lastgood.audit.logs import verify_logs
from lastgood.checkpoint.source_offsets import JsonOffset, SourceOffset
from lastgood.cli.main import VERBS
from lastgood.cli.plan import plan as plan_verb
from lastgood.diagnosis.catalogue import CONDITIONS
from lastgood.diagnosis.findings import Condition
from lastgood.planning.draft import Draft, Edit, RepairRefusedError
from lastgood.planning.goals.kind import Begins, GoalKind
from lastgood.planning.goals.kinds import GOAL_KINDS
from lastgood.planning.price import Guarantee, Waiver
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion
from lastgood.recovery.plans import PlanOptions, make_plan
from lastgood.settings.target import resolve_target
from lastgood.sinks.changes import SinkChanges
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence
from lastgood.sinks.kind import Opening, SinkKind, SinkTraits
from lastgood.sinks.kinds import SINK_KINDS
from lastgood.sources.kind import SourceKind
from lastgood.sources.kinds import SOURCE_KINDS
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site
from lastgood.steps.step import Rank, SinkEdit, Step, Turn
from lastgood.storage.location import STORAGE_KINDS, StorageKind
from lastgood.storage.reading import Location, Storage, parse_location
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder
from lastgood.testing.storage import MemoryWriter
from lastgood.values import make_form

CONTRIBUTING = Path(__file__).parents[2] / "CONTRIBUTING.md"
TALLY = "tally.json"
BATCHES = 4
"""So many are committed; one more is planned."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def files(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in sorted(folder.rglob("*")) if each.is_file()}


# A kind of source.


@dataclass(frozen=True)
class Pages:
    """A service that is read page by page."""

    per_batch: int = 5

    def end(self, ends: Sequence[int]) -> SourceOffset:
        return JsonOffset({"page": ends[-1]})

    def log(self, ends: Sequence[int]) -> None:
        """It writes nothing down."""


PAGES = SourceKind(
    name="Pages",
    title="a service that is read page by page",
    is_one=lambda value: value.keys() == {"page"},
    place=lambda value: page if isinstance(page := value["page"], int) else None,
    makes_its_rows=True,
    may_be_read_again=True,
    is_read_again=True,
)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setitem(SOURCE_KINDS, PAGES.name, PAGES)


def pages_read(folder: Path) -> CheckpointBuilder:
    builder = CheckpointBuilder(folder, Pages())
    builder.run(BATCHES)
    builder.plan()
    return builder


def test_source_that_nobody_knows_is_not_relied_upon(tmp_path: Path) -> None:
    pages_read(tmp_path / "chk")
    assert any("a source that lastgood does not know" in line for line in lastgood.plan(str(tmp_path / "chk")).rests_on)
    with pytest.raises(RepairRefusedError, match="cannot be planned anew"):
        lastgood.plan(str(tmp_path / "chk"), goal=lastgood.Replan())
    found = verify_logs(resolve_target(str(tmp_path / "chk")))
    assert [each.name for each in found.not_compared] == ["a source that lastgood does not know"]


@pytest.mark.usefixtures("pages")
def test_kind_of_source_goes_the_whole_way(tmp_path: Path) -> None:
    target = tmp_path / "chk"
    pages_read(target)
    before = files(target)
    report = lastgood.diagnose(str(target))
    assert report.restart.batch == BATCHES
    plan = lastgood.plan(str(target), goal=lastgood.Replan(), accept=["duplicates"])
    assert not any("does not know" in line for line in plan.rests_on)
    recovery = lastgood.apply(plan, driver_is_dead=True)
    assert (target / f"offsets/{BATCHES}").read_bytes() != before[f"offsets/{BATCHES}"]
    assert verify_logs(resolve_target(str(target))).not_compared == ()
    assert lastgood.undo(recovery.id, driver_is_dead=True).undone
    assert files(target) == before


@pytest.mark.usefixtures("pages")
def test_kind_of_source_tells_when_it_went_back(tmp_path: Path) -> None:
    builder = pages_read(tmp_path / "chk")
    builder.commit()
    builder.plan(-7)
    builder.commit()
    assert [seam.condition for seam in verify_logs(resolve_target(str(tmp_path / "chk"))).seams] == ["OVERLAP"]


# A kind of sink.


@dataclass(frozen=True, slots=True)
class TallyStep(Step):
    """Batches are taken out of a tally."""

    json = make_form("do undo kind path gone batch why")
    kind: ClassVar = "tally"

    path: str
    gone: Mapping[str, int]
    """Number and time of each that goes."""
    batch: int
    why: str

    @property
    def do(self) -> str:
        return f"take {len(self.gone)} batches out of {self.path}"

    @property
    def undo(self) -> str:
        return f"put {len(self.gone)} batches back into {self.path}"

    @property
    def rank(self) -> Rank:
        return Turn.SINK, 0, 0, self.path

    @property
    def edit(self) -> SinkEdit:
        return SinkEdit("tally", self.path, None, self.batch, self.why)


class CarriedTallyStep(Carrying):
    """The step on its file."""

    def __init__(self, step: TallyStep, site: Site) -> None:
        self._step = step
        self._file = parse_location(step.path) / TALLY
        self._storage = site.open_other(self._file)

    def do(self, seal: Collection[str]) -> None:
        held = self._held()
        self._write({number: at for number, at in held.items() if number not in self._step.gone})

    def undo(self, seal: Collection[str]) -> None:
        self._write({**self._held(), **self._step.gone})

    def is_done(self, seal: Collection[str]) -> bool:
        return not self._held().keys() & self._step.gone.keys()

    def _held(self) -> dict[str, int]:
        found = self._storage.read(self._file, limit=10_000)
        if found is None:
            raise CheckpointChangedError("the tally is gone", subject=str(self._file))
        held: dict[str, int] = json.loads(found)
        return held

    def _write(self, held: Mapping[str, int]) -> None:
        self._storage.write(self._file, json.dumps(held).encode())


class TallySink:
    """A file that names each batch and when it came."""

    kind = "tally"

    def __init__(self, storage: Storage, folder: Location) -> None:
        self._storage, self._folder = storage, folder

    @property
    def location(self) -> str:
        return str(self._folder)

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        held = json.loads(self._storage.read(self._folder / TALLY, limit=10_000) or b"{}")
        batches = tuple(CommittedBatch(int(number), committed_at_ms=at) for number, at in held.items())
        last = max((each.batch_id for each in batches), default=None)
        return SinkEvidence(
            self.kind,
            self.location,
            DedupeKey.DIRECTORY,
            last,
            known=True,
            because="its tally",
            skips_up_to=last,
            batches=batches,
            complete_from=0,
            times_by_driver=True,
            back_to=0,
        )


def is_tally(storage: Storage, folder: Location) -> bool:
    return storage.stat(folder / TALLY) is not None


def open_tally(storage: Storage, folder: Location, opening: Opening) -> TallySink:
    del opening
    return TallySink(storage, folder)


def tally_steps(edit: SinkEdit, storage: Storage) -> tuple[TallyStep, ...] | str:
    found = storage.read(parse_location(edit.location) / TALLY, limit=10_000)
    if found is None:
        return "no tally"
    gone = {number: at for number, at in json.loads(found).items() if int(number) > edit.batch}
    return (TallyStep(edit.location, gone, edit.batch, edit.why),)


TALLIES = SinkKind(
    name="tally",
    traits=SinkTraits(shows_all_or_none=True),
    sign=TALLY,
    is_at=is_tally,
    open_at=open_tally,
    changes=lambda: SinkChanges(TallyStep, CarriedTallyStep, tally_steps),
)


@pytest.fixture
def tallies(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    monkeypatch.setitem(SINK_KINDS, TALLIES.name, TALLIES)


def tallied(folder: Path, up_to: int) -> str:
    folder.mkdir()
    held = {str(number): STARTED_MS + 1000 * number + 500 for number in range(up_to + 1)}
    (folder / TALLY).write_text(json.dumps(held))
    return str(folder)


@pytest.mark.usefixtures("pages", "tallies")
@pytest.mark.parametrize("prefix", ["", "tally:"])
def test_kind_of_sink_goes_the_whole_way(tmp_path: Path, prefix: str) -> None:
    """The sink has the orphan, and `replan` takes it back out of it."""
    target, sink = tmp_path / "chk", tallied(tmp_path / "out", BATCHES)
    pages_read(target)
    before = files(target), files(tmp_path / "out")
    named = f"{prefix}{sink}"
    report = lastgood.diagnose(str(target), sink=named)
    assert [each.condition.name for each in report.findings if each.subject == sink] == ["SINK_HOLDS_ORPHAN"]
    assert lastgood.plan(str(target), sink=named).guarantee is Guarantee.EXACTLY_ONCE
    plan = lastgood.plan(str(target), goal=lastgood.Replan(), sink=named)
    assert [step.kind for step in plan.steps if step.sink == sink] == ["tally"]
    assert plan.guarantee is Guarantee.EXACTLY_ONCE
    recovery = lastgood.apply(plan, driver_is_dead=True)
    assert json.loads((tmp_path / "out" / TALLY).read_text()).keys() == {str(number) for number in range(BATCHES)}
    assert not (target / f"offsets/{BATCHES}").exists()
    assert lastgood.undo(recovery.id, driver_is_dead=True).undone
    assert (files(target), files(tmp_path / "out")) == before


def test_sink_that_nobody_knows_cannot_tell(tmp_path: Path) -> None:
    sink = tallied(tmp_path / "out", BATCHES)
    pages_read(tmp_path / "chk")
    report = lastgood.diagnose(str(tmp_path / "chk"), sink=sink)
    assert [each.condition.name for each in report.findings if each.subject == sink] == ["SINK_UNKNOWN"]


# A goal.


@dataclass(frozen=True, slots=True)
class Hold:
    """What is planned is set aside, and nothing else is looked at."""

    name: ClassVar = "hold"

    def to_json(self) -> dict[str, Any]:
        return {}


def draft_hold(observed: Observation, goal: Hold, spark: SparkVersion) -> Draft:
    del goal, spark
    path = f"offsets/{observed.checkpoint.last_planned}"
    return Draft((Edit(path, None, "somebody wants to look"),), Guarantee.AT_LEAST_ONCE, ("the recipe",))


def offer_hold(observed: Observation, asked: object) -> Iterator[tuple[Hold, tuple[str, ...]]]:
    del observed
    if not isinstance(asked, Hold):
        yield Hold(), ()


@pytest.fixture
def holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one line."""
    kind = GoalKind(name=Hold.name, begins=Begins.BY_ITSELF, make=Hold, draft=draft_hold, offer=offer_hold)
    monkeypatch.setitem(GOAL_KINDS, kind.name, kind)


@pytest.mark.usefixtures("holds")
def test_goal_goes_the_whole_way(tmp_path: Path) -> None:
    target = tmp_path / "chk"
    builder = CheckpointBuilder(target)
    builder.run(BATCHES)
    builder.plan()
    before = files(target)
    plan = make_plan(resolve_target(str(target)), PlanOptions("hold", accept=(Waiver.DUPLICATES,)))
    assert (plan.goal, [step.path for step in plan.steps]) == ("hold", [f"offsets/{BATCHES}"])
    recovery = lastgood.apply(plan, driver_is_dead=True)
    assert not (target / f"offsets/{BATCHES}").exists()
    assert lastgood.undo(recovery.id, driver_is_dead=True).undone
    assert files(target) == before
    offered = lastgood.plan(str(target)).alternatives
    assert "hold" in {each.goal for each in offered}
    goal = next(option for option in plan_verb.params if option.name == "goal")
    assert goal.type.convert("hold", goal, None) == "hold"


# A kind of storage.


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> MemoryWriter:
    """The one line: a store at `vault://NAME/FOLDER`."""
    held = MemoryWriter()
    kind = StorageKind(
        scheme="vault",
        authority=re.compile(r"[a-z]+"),
        form="NAME",
        open=lambda location, options: held,
        creates_exclusively=True,
        writes_at_once=True,
    )
    monkeypatch.setitem(STORAGE_KINDS, kind.scheme, kind)
    return held


def test_kind_of_storage_goes_the_whole_way(tmp_path: Path, vault: MemoryWriter) -> None:
    builder = CheckpointBuilder(tmp_path / "chk")
    builder.run(BATCHES)
    builder.plan()
    target = "vault://store/lake/chk"
    place = parse_location(target)
    before = files(tmp_path / "chk")
    for path, content in before.items():
        vault.write(place / path, content)
    assert lastgood.diagnose(target).restart.batch == BATCHES
    plan = lastgood.plan(target, goal=lastgood.Replan(), accept=["duplicates"])
    recovery = lastgood.apply(plan, driver_is_dead=True)
    assert vault.read(place / f"offsets/{BATCHES}", limit=10_000) != before[f"offsets/{BATCHES}"]
    assert lastgood.undo(recovery.id, driver_is_dead=True).undone
    assert {path: vault.read(place / path, limit=100_000) for path in before} == before
    with pytest.raises(lastgood.LastgoodError, match="the location is not understood"):
        parse_location("vault://STORE/lake")


# What the recipes say is what there is.


def recipe(name: str) -> str:
    """What CONTRIBUTING.md says of one."""
    text = CONTRIBUTING.read_text()
    begin = text.index(f"**A new {name}.**")
    return text[begin:].partition("\n\n**")[0].partition("\n## ")[0]


RECIPES = ("verb", "error", "finding", "goal", "kind of sink", "kind of source", "kind of storage")


@pytest.mark.parametrize("name", RECIPES)
def test_recipe_names_files_that_are_there(name: str) -> None:
    root = CONTRIBUTING.parent
    words = re.findall(r"`([^`\n]+)`", recipe(name))
    paths = [
        word for word in words if "/" in word and re.search(r"\.(py|md)$|/$", word) and not re.search("[A-Z]{3}", word)
    ]
    assert paths
    found = [path for path in paths if not (root / path).exists() and not (root / "src/lastgood" / path).exists()]
    assert found == []


def test_each_goal_is_told_in_the_help_of_plan() -> None:
    told = plan_verb.help or ""
    assert [name for name in GOAL_KINDS if not re.search(rf"^ *{name}  +\w", told, re.MULTILINE)] == []


def homes(folder: Path) -> list[str]:
    """The folders of kinds; each says what its kind is."""
    found = [each.name for each in folder.iterdir() if each.is_dir() and each.name != "__pycache__"]
    assert [name for name in found if not (folder / name / "kind.py").exists()] == []
    return found


def test_each_kind_of_sink_and_source_has_a_folder_or_needs_none() -> None:
    source = Path(lastgood.__file__).parent
    assert len(homes(source / "sinks")) == len(SINK_KINDS)
    priced = [kind for kind in SOURCE_KINDS.values() if kind.price != "other"]
    assert len(homes(source / "sources")) == len(priced)


def test_each_verb_is_a_file_of_the_command_line() -> None:
    source = Path(lastgood.__file__).parent
    assert [verb for verb in VERBS if not (source / "cli" / f"{verb}.py").exists()] == []


def test_each_condition_of_a_finding_is_told_by_explain() -> None:
    modules = pkgutil.iter_modules(lastgood.diagnosis.__path__, "lastgood.diagnosis.")
    loaded = [vars(importlib.import_module(each.name)).values() for each in modules]
    defined = {each.name for values in loaded for each in values if isinstance(each, Condition)}
    assert defined
    assert defined - {each.name for each in CONDITIONS} == set()
