from __future__ import annotations

from typing import Any

import pytest

from lastgood.bundle.tree import CHECKPOINT, WORK, BundleTree, NotInBundleError, tree_from_json
from lastgood.storage.reading import parse_location
from lastgood.values import ShapeError

LOCATION = parse_location("s3a://lake/chk/orders")
ROOTS = {CHECKPOINT: LOCATION, WORK: LOCATION.sibling(".lastgood")}


def tree() -> BundleTree:
    made = BundleTree(ROOTS)
    made.add_folder("checkpoint/commits")
    made.add_file("checkpoint/offsets/7", 12, 99)
    made.add_file("lastgood/mirror/a", None, None)
    return made


def test_places_have_the_paths_of_parts() -> None:
    found = tree()
    assert found.path(LOCATION) == "checkpoint"
    assert found.path(LOCATION / "offsets/7") == "checkpoint/offsets/7"
    assert found.path(LOCATION.sibling(".lastgood") / "mirror") == "lastgood/mirror"


@pytest.mark.parametrize("place", ["s3a://lake/chk", "s3a://lake/chk/orders2", "s3a://other/chk/orders", "/chk/orders"])
def test_nothing_is_known_of_other_places(place: str) -> None:
    with pytest.raises(NotInBundleError):
        tree().entry(parse_location(place))


def test_files_bring_the_folders_above_them() -> None:
    found = tree()
    assert sorted(each.name for each in found.folder(LOCATION) or ()) == ["commits", "offsets"]
    assert found.folder(LOCATION / "commits") == []
    assert found.folder(LOCATION / "sources") is None
    seven, top = found.entry(LOCATION / "offsets/7"), found.entry(LOCATION)
    assert seven is not None
    assert (seven.size, seven.modified_ms, seven.is_folder) == (12, 99, False)
    assert top is not None
    assert top.is_folder
    assert found.entry(LOCATION / "offsets/8") is None


def test_a_tree_comes_back_as_it_was() -> None:
    told = tree().to_json()
    assert tree_from_json(ROOTS, told).to_json() == told


@pytest.mark.parametrize(
    "told",
    [
        None,
        {},
        {"folders": [], "files": {}},
        {"folders": [7], "files": []},
        {"folders": ["etc"], "files": []},
        {"folders": ["checkpoint//a"], "files": []},
        {"folders": ["/".join(["checkpoint"] + ["a"] * 20)], "files": []},
        {"folders": [], "files": [["checkpoint/a", 1]]},
        {"folders": [], "files": [["checkpoint/a", "1", 2]]},
        {"folders": [], "files": [["checkpoint/a", True, 2]]},
    ],
)
def test_another_shape_is_an_error(told: Any) -> None:
    with pytest.raises(ShapeError):
        tree_from_json(ROOTS, told)
