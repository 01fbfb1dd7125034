"""Repairs on real storages: carried out and taken back byte for byte, also when they are killed in between."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from repair.engine_cases import KINDS, Case, changes, killed, moments

from lastgood.journal.room import find_open_recovery
from lastgood.storage.reading import Location
from lastgood.storage.writing import HdfsWriter, WritableStorage

pytestmark = pytest.mark.services

KILLS = 3
SEED = os.environ.get("LASTGOOD_SEED", "1")
NewFolder = Callable[[], tuple[WritableStorage, Location]]
MakeCase = Callable[[str], Case]


@pytest.fixture
def make(new_folder: NewFolder) -> MakeCase:
    """Makes a checkpoint of its own on one kind of storage."""

    def new(kind: str) -> Case:
        storage, folder = new_folder()
        return Case(kind, storage, folder / "orders")

    return new


@pytest.mark.parametrize("kind", KINDS)
def test_plan_is_carried_out_and_taken_back_on_this_storage(make: MakeCase, kind: str) -> None:
    case = make(kind)
    case.engine().apply("proof")
    assert case.files() == case.wanted
    case.engine().undo("proof")
    assert case.files() == case.before


@pytest.mark.parametrize("kind", ["lift", "cut"])
def test_killed_on_this_storage_it_is_finished_or_taken_back(make: MakeCase, kind: str) -> None:
    chosen = random.Random(f"{SEED}/{kind}")
    count = len(changes(make(kind), lambda engine: engine.apply("proof")))
    for moment in chosen.sample(list(moments(count)), KILLS):
        case = make(kind)
        is_quick = not isinstance(case.storage, HdfsWriter)  # to look at all files at every change takes a minute there
        killed(case, lambda engine: engine.apply("proof"), watch=is_quick, **moment)
        if chosen.random() < 0.5:
            case.engine().apply("proof")
            assert case.files() == case.wanted, moment
        else:
            case.engine().undo("proof")
            assert case.files() == case.before, moment
        assert find_open_recovery(case.storage, case.location) is None
