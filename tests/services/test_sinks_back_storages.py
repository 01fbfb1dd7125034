"""Sinks on real storages go back and are shown again, also when that is killed in between."""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from repair.engine_cases import Killed, changes, moments
from repair.sink_cases import KINDS, SinkCase

from lastgood.errors import LastgoodError
from lastgood.journal.room import find_open_recovery
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage
from lastgood.testing.storage import FaultyWriter

pytestmark = pytest.mark.services

KILLS = 3
SEED = os.environ.get("LASTGOOD_SEED", "1")
NewFolder = Callable[[], tuple[WritableStorage, Location]]
MakeCase = Callable[[str], SinkCase]


@pytest.fixture
def make(new_folder: NewFolder) -> MakeCase:
    """Makes a checkpoint and a sink of its own on one kind of storage."""
    return lambda kind: SinkCase(kind, *new_folder())


def is_untried(case: SinkCase) -> bool:
    """Whether its sink is a table where no commit of ours was tried beside Spark's."""
    return case.kind != "files" and case.table.scheme in ("abfss", "gs")


@pytest.mark.parametrize("kind", KINDS)
def test_sink_on_this_storage_goes_back_and_is_shown_again(make: MakeCase, kind: str) -> None:
    case = make(kind)
    if is_untried(case):
        with pytest.raises(LastgoodError):
            case.engine().apply("proof")
        assert (case.files(), case.shown()) == (case.before, case.shown_before)
        return
    case.engine().apply("proof")
    assert (case.files(), case.shown()) == (case.wanted, case.shown_then)
    case.engine().undo("proof")
    assert (case.files(), case.shown()) == (case.before, case.shown_before)


@pytest.mark.parametrize("kind", ["rows", "files"])
def test_killed_on_this_storage_it_is_finished_or_taken_back(make: MakeCase, kind: str) -> None:
    if is_untried(make(kind)):
        return  # nothing is begun there, see above
    chosen = random.Random(f"{SEED}/{kind}")
    count = len(changes(make(kind), lambda engine: engine.apply("proof")))
    for moment in chosen.sample(list(moments(count)), KILLS):
        case = make(kind)
        with pytest.raises(Killed):
            case.engine(FaultyWriter(case.storage, error=Killed(), **moment)).apply("proof")
        if chosen.random() < 0.5:
            case.engine().apply("proof")
            assert (case.files(), case.shown()) == (case.wanted, case.shown_then), moment
        else:
            case.engine().undo("proof")
            assert (case.files(), case.shown()) == (case.before, case.shown_before), moment
        assert find_open_recovery(case.storage, case.location) is None
