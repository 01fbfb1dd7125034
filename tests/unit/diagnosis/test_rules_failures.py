"""What a driver's log says, and the command that is named with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import known, stateful, windowed

from lastgood.diagnosis.rules_failures import find_failures
from lastgood.failures.classify import Failure
from lastgood.failures.failure_class import FailureClass
from lastgood.failures.of_checkpoint import STATE_SCHEMA
from lastgood.query.observation import Observation


def name_command(failure: Failure, observed: Observation) -> str:
    (found,) = find_failures([failure], None, observed)
    assert found.next is not None
    return found.next


@pytest.mark.parametrize(
    ("failure", "wanted"),
    [
        (Failure(cls=FailureClass.CODE_INCOMPATIBLE, because="other state", rule=STATE_SCHEMA), "--goal recompute"),
        (Failure(cls=FailureClass.STATE_DAMAGED, because="a file"), "--goal recompute"),
        (Failure(cls=FailureClass.CODE_INCOMPATIBLE, because="other sources", rule="source_count"), "explain"),
    ],
)
def test_state_of_windows_that_stops_a_query_can_be_made_anew(tmp_path: Path, failure: Failure, wanted: str) -> None:
    windowed(tmp_path, 3)
    assert wanted in name_command(failure, known(tmp_path))


def test_other_state_is_explained(tmp_path: Path) -> None:
    stateful(tmp_path, 3, orphan=False)
    failure = Failure(cls=FailureClass.CODE_INCOMPATIBLE, because="other state", rule=STATE_SCHEMA)
    assert name_command(failure, known(tmp_path)) == "lastgood explain FAILURE_CODE_INCOMPATIBLE"
