"""Repairs through a network that delays, resets and cuts: what one attempt leaves undone a next one finishes."""

from __future__ import annotations

import os
import random
import uuid
from pathlib import Path

import pytest
from repair.roads import KINDS, QUICK, Far, Traveller, far_hdfs, far_s3

from lastgood.errors import StorageError
from lastgood.journal.plan_file import parse_plan
from lastgood.journal.room import find_open_recovery
from lastgood.lab.s3 import S3Server
from lastgood.lab.toxiproxy import Toxic, Toxiproxy
from lastgood.observe.open_query import read_clock_ms
from lastgood.planning.steps import list_files_after
from lastgood.recovery.sweeping import KEPT_MS, sweep_drafts
from lastgood.storage.drafts import is_draft
from lastgood.storage.reading import parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, open_writable
from lastgood.testing.checkpoints import CheckpointBuilder

pytestmark = pytest.mark.proof

SEED = os.environ.get("LASTGOOD_SEED", "1")
BYTES_MAX = 1_000_000


@pytest.fixture
def far(request: pytest.FixtureRequest, toxiproxy: Toxiproxy, tmp_path: Path) -> Far:
    """A storage behind a network."""
    if request.param == "s3":
        return far_s3(request.getfixturevalue("s3"), toxiproxy)
    conf = tmp_path / "conf"
    conf.mkdir()
    return far_hdfs(request.getfixturevalue("hdfs"), toxiproxy, conf)


class Query:
    """A checkpoint with a plan that is not committed, somewhere far away."""

    def __init__(self, far: Far, folder: Path) -> None:
        self.location = parse_location(f"{far.root}/{uuid.uuid4().hex}/chk")
        self.storage: WritableStorage = open_writable(self.location, dict(far.options))
        self.traveller = Traveller(far, folder)
        self.folder = folder
        built = CheckpointBuilder(folder / "built")
        built.run(9)
        built.plan()
        for file in (folder / "built").rglob("*"):
            if file.is_file():
                self.storage.write(self.location / str(file.relative_to(folder / "built")), file.read_bytes())

    def files(self) -> dict[str, bytes | None]:
        """Every file of the checkpoint but the drafts of attempts that could not remove them any more: see `sweep`."""
        paths = [entry.name for entry in self.storage.walk(self.location) or ()]
        kept = [path for path in paths if not is_draft(path.rpartition("/")[2])]
        return {path: self.storage.read(self.location / path, limit=BYTES_MAX) for path in kept}

    def sweep(self) -> None:
        """Remove drafts as a repair does that comes later."""
        sweep_drafts(self.storage, self.location, now_ms=read_clock_ms() + 2 * KEPT_MS)
        for root in (self.location, self.location.sibling(WORK_SUFFIX)):
            assert not [each.name for each in self.storage.walk(root) or () if is_draft(each.name.rpartition("/")[2])]

    def planned(self, *goal: str) -> tuple[str, dict[str, bytes | None]]:
        """A plan for it: its id, and the files as they are to be."""
        file, before = self.folder / "plan.json", self.files()
        words = ("plan", str(self.location), "--goal", *goal, "--accept", "duplicates,loss", "-o", str(file))
        said = self.traveller.says(*words)
        assert said.code == 0, said
        plan = parse_plan(file.read_bytes(), str(file))
        wanted = {**before, **list_files_after(plan.steps)}
        return plan.recovery, {path: content for path, content in wanted.items() if content is not None}


PROOF = pytest.mark.proof
FARS = [
    ("s3", 1, QUICK),
    pytest.param("s3", 8, KINDS, marks=PROOF),
    pytest.param("hdfs", 8, KINDS, marks=PROOF),
]
"""Storages, how many repairs are tried there, and in which weather."""


@pytest.mark.parametrize(("far", "rounds", "kinds"), FARS, indirect=["far"])
def test_repair_is_carried_out_and_taken_back_whole_through_a_bad_network(
    far: Far, rounds: int, kinds: tuple[str, ...], tmp_path: Path
) -> None:
    rng = random.Random(f"{SEED}/{far.root.partition(':')[0]}/{rounds}")
    failed: list[Toxic] = []
    for number in range(rounds):
        (tmp_path / str(number)).mkdir()
        query = Query(far, tmp_path / str(number))
        before = query.files()
        recovery, wanted = query.planned(*rng.choice([("replan",), ("reposition", "--stable-lag", "3")]))
        assert wanted != before
        failed += query.traveller.does(rng, "apply", "plan.json", "--driver-is-dead", kinds=kinds)
        assert query.files() == wanted
        undo = ("undo", recovery, "--checkpoint", str(query.location), "--driver-is-dead")
        failed += query.traveller.does(rng, *undo, kinds=kinds)
        assert query.files() == before
        query.sweep()
        assert find_open_recovery(query.storage, query.location) is None
    assert failed or rounds == 1


@pytest.mark.parametrize("upstream", [True, False])
def test_write_to_s3_that_falls_silent_ends_with_an_error(
    s3: S3Server, toxiproxy: Toxiproxy, *, upstream: bool
) -> None:
    road = far_s3(s3, toxiproxy)
    file = parse_location(f"s3a://lake/{uuid.uuid4().hex}/file")
    storage = open_writable(file, {**s3.options, "endpoint_url": road.env["AWS_ENDPOINT_URL"]})
    storage.write(file, b"before")
    with road.proxies[0].poisoned(Toxic("timeout", {"timeout": 0}, upstream)), pytest.raises(StorageError):
        storage.write(file, b"after")
    assert storage.read(file, limit=10) in (b"before", b"after")
