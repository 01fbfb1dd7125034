"""`status FOLDER` follows no link, looks no further than it says, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastgood.cli.main import main
from lastgood.observe import below
from lastgood.observe.below import Reach, find_checkpoints_below
from lastgood.operations.status import list_statuses_below
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import open_storage, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder


def sought(folder: Path, reach: Reach) -> list[str]:
    location = parse_location(str(folder))
    return [place.name for place in find_checkpoints_below(open_storage(location), location, reach)]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for name in ("lake/orders", "lake/team/visits", "elsewhere/secret"):
        CheckpointBuilder(tmp_path / name).run(3)
    (tmp_path / "lake/latest").symlink_to(tmp_path / "elsewhere/secret")
    (tmp_path / "lake/team/all").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "lake/team/up").symlink_to("..")
    return tmp_path / "lake"


def test_no_link_is_followed_and_each_is_told(lake: Path) -> None:
    reach = Reach()
    assert [each.location.name for each in list_statuses_below(resolve_target(str(lake)), reach=reach)] == [
        "orders",
        "visits",
    ]
    assert sorted(reach.links) == [f"{lake}/latest", f"{lake}/team/all", f"{lake}/team/up"]
    assert not reach.is_whole


def test_the_verb_says_how_far_it_looked(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["status", str(lake), "--format=json"])
    told = json.loads(capsys.readouterr().out)
    assert told["looked"]["folders"] == 4
    assert told["looked"]["whole"] is False
    assert f"{lake}/team/up -> .." in told["looked"]["links"]
    with pytest.raises(SystemExit):
        main(["status", str(lake)])
    said = " ".join(capsys.readouterr().out.split())
    assert "looked into 4 folders; 3 links not followed, such as" in said


def test_a_checkpoint_that_the_user_names_may_be_a_link(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", str(lake / "latest"), "--format=json"])
    assert ended.value.code == 0
    assert json.loads(capsys.readouterr().out)["last_committed"] == 2


def test_more_folders_than_are_looked_into_are_told(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / f"{number:03d}/empty").mkdir(parents=True)
    reach = Reach(folders_max=20)
    assert sought(tmp_path, reach) == []
    assert reach.folders == 20
    assert reach.ended == "not into more than 20"


def test_deeper_folders_than_are_looked_into_are_told(tmp_path: Path) -> None:
    deep = "/".join("d" * (below._DEPTH_MAX + 1))
    CheckpointBuilder(tmp_path / deep).run(1)
    reach = Reach()
    assert sought(tmp_path, reach) == []
    assert reach.ended == f"not deeper than {below._DEPTH_MAX} folders"
    whole = Reach()
    assert sought(tmp_path / "d/d", whole) == ["d"]
    assert whole.is_whole


def test_time_that_is_up_is_told(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"{number}").mkdir()
    clock = iter(range(100))
    reach = Reach(seconds_max=4, clock=lambda: next(clock))
    sought(tmp_path, reach)
    assert reach.folders == 4
    assert reach.ended == "not for longer than 4 s"
