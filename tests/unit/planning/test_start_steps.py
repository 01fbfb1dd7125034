"""What a plan does to the one file outside of the checkpoint."""

from __future__ import annotations

import pytest

from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import (
    FileStep,
    MoveStep,
    compute_digest,
    list_files_after,
    list_files_before,
    list_files_outside,
    sort_steps,
)
from lastgood.steps.kinds import parse_step
from lastgood.values import ShapeError

STEP = StartFileStep("/etc/start.json", compute_digest(b"old"), b"{}\n", "it starts there")


def test_step_is_read_as_it_was_written() -> None:
    assert parse_step(STEP.to_json()) == STEP
    assert (STEP.do, STEP.undo) == (
        "rewrite /etc/start.json: it starts there",
        "put /etc/start.json back as it was",
    )


@pytest.mark.parametrize(("field", "value"), [("path", "nowhere://x"), ("path", ""), ("after", "%")])
def test_step_that_is_not_understood_is_refused(field: str, value: str) -> None:
    with pytest.raises(ValueError, match=r"location|base64"):
        parse_step({**STEP.to_json(), field: value})


def test_what_is_no_such_step_is_left_to_others() -> None:
    with pytest.raises(ShapeError):
        StartFileStep.from_json(MoveStep("state/0/0/9.delta", 1, "why").to_json())


def test_file_outside_of_the_checkpoint_comes_last_and_is_none_of_its_files() -> None:
    own = FileStep("metadata", compute_digest(b"{}"), None, "it is left behind")
    assert sort_steps([STEP, own]) == (own, STEP)
    assert list_files_after([STEP, own]) == {"metadata": None}
    assert list_files_before([STEP, own]) == {"metadata": compute_digest(b"{}")}
    assert list_files_outside([STEP, own]) == ("/etc/start.json",)
