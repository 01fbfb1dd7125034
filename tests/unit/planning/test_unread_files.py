"""Files that a source has noted down and no batch has read: one that is gone is lost, whatever else is sound."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from planning import delta, drafted, known, query

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.planning.goals.values import ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.testing.checkpoints import FileInput

EXACT, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.LOSSY
PRESENT, CHANGED, MISSING, UNKNOWN = FileState.PRESENT, FileState.CHANGED, FileState.MISSING, FileState.UNKNOWN


def noted(log_id: int, state: FileState) -> Mapping[str, tuple[FileFacts, ...]]:
    """What has become of a file, by the entry of the source's own log that names it."""
    return {"0": (FileFacts(SourceFile(f"file:///in/{log_id}", 1, log_id), state, because="nobody answers"),)}


@pytest.mark.parametrize(
    ("batches", "orphan", "shown", "log_id", "state", "word"),
    [
        (3, False, 2, 3, MISSING, LOSSY),
        (3, False, 2, 3, CHANGED, EXACT),
        (3, False, 2, 3, PRESENT, EXACT),
        (3, False, 2, 2, MISSING, EXACT),
        (3, True, 2, 3, MISSING, LOSSY),
        (3, True, 2, 3, CHANGED, LOSSY),
        (3, True, 3, 3, MISSING, EXACT),
        (3, True, 3, 4, MISSING, LOSSY),
        (3, True, 2, 4, MISSING, LOSSY),
        (0, False, None, 0, MISSING, LOSSY),
        (0, False, None, 0, PRESENT, EXACT),
    ],
    ids=[
        "resumed, gone",
        "resumed, read as it is now",
        "resumed, there",
        "resumed, read before",
        "run again, gone",
        "run again, another one",
        "run again, and the sink has it",
        "the sink has it, the next one gone",
        "run again, the next one gone",
        "first start, gone",
        "first start, there",
    ],
)
def test_file_that_is_gone_is_lost_unless_it_was_read(
    tmp_path: Path, batches: int, orphan: bool, shown: int | None, log_id: int, state: FileState, word: Guarantee
) -> None:
    query(tmp_path, batches, orphan=orphan, source=FileInput())
    sink = delta(shown)
    found = drafted(known(tmp_path, *([] if shown is None else [sink]), files=noted(log_id, state)), ResumeGoal())
    if shown is None:  # no sink is known of a query that never ran
        assert (found.guarantee is LOSSY) == (word is LOSSY)
        return
    assert found.guarantee is word
    assert any(f"file:///in/{log_id}" in line for line in found.rests_on) == (word is LOSSY)


def test_plan_that_cannot_be_read_hides_no_file_that_is_gone(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True, source=FileInput())
    (tmp_path / "offsets/3").write_bytes(b"")
    found = drafted(known(tmp_path, delta(2), files=noted(3, MISSING)), ResumeGoal())
    assert found.guarantee is LOSSY


@pytest.mark.parametrize("orphan", [False, True])
def test_what_nobody_could_look_at_is_an_assumption(tmp_path: Path, orphan: bool) -> None:
    query(tmp_path, 3, orphan=orphan, source=FileInput())
    found = drafted(known(tmp_path, delta(2), files=noted(3, UNKNOWN)), ResumeGoal())
    assert found.guarantee is EXACT
    assert "the files which source 0 is still to read are there: nobody answers" in found.rests_on[-1]
