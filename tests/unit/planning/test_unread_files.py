"""Files that a source has noted down and no batch has read: one that is gone is lost, whatever else is sound."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import SPARK, broker, changes, delta, drafted, known, mirror_of, query, silent

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset
from lastgood.diagnosis.engine import diagnose
from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade, choose_grade
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ReplanGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
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


def query_of_two(folder: Path, *, orphan: bool, lost: tuple[int, ...]) -> dict[str, bytes]:
    """Files and a topic; batch 3 reads only the topic. The log of files loses its newest entries; a mirror has them."""
    query(folder, 3, orphan=True, source=FileInput())
    (folder / "sources/0/3").unlink()
    (folder / "sources/1").mkdir()
    (folder / "sources/1/0").write_bytes(b'\0v1\n{"orders":{"0":0}}')
    for number in range(4):
        plan = folder / f"offsets/{number}"
        head = plan.read_text().splitlines()[:2]
        ends = (FileOffset(min(number, 2)), KafkaOffset({"orders": {0: 5 * number + 5}}))
        plan.write_text("\n".join([*head, *(end.to_text() for end in ends)]))
    if not orphan:
        (folder / "commits/3").write_bytes((folder / "commits/2").read_bytes())
    mirror = mirror_of(folder)
    for number in lost:
        (folder / f"sources/0/{number}").unlink()
    return mirror


def look_at(folder: Path, *, orphan: bool, **others: Any) -> Observation:
    kafka = replace(broker((0, 100), topic_id="one"), topic_ids_before={"orders": "one"})
    return known(folder, delta(2 if orphan else 3), kafka=kafka, **others)


@pytest.mark.parametrize("orphan", [False, True])
def test_source_whose_log_has_lost_its_end_never_reads_what_comes_next(tmp_path: Path, orphan: bool) -> None:
    query_of_two(tmp_path, orphan=orphan, lost=(2,))
    observed = look_at(tmp_path, orphan=orphan)
    report = diagnose(observed, SPARK)
    errors = [each for each in report.findings if each.severity is Severity.ERROR]
    assert [(each.condition.name, each.subject) for each in errors] == [("SOURCE_LOG_DAMAGED", "sources/0")]
    assert "no batch reads it, and there is no error" in errors[0].effect
    assert choose_grade(report) is Grade.DAMAGED
    found = drafted(observed, ResumeGoal())
    assert found.guarantee is LOSSY
    assert "its log has lost entry 2, which a plan has read" in found.rests_on[-1]


@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("lost", [(2,), (1, 2)])
def test_mirror_gives_a_log_its_end_back(tmp_path: Path, orphan: bool, lost: tuple[int, ...]) -> None:
    mirror = query_of_two(tmp_path, orphan=orphan, lost=lost)
    found = drafted(look_at(tmp_path, orphan=orphan, mirror=mirror), ResumeGoal())
    assert found.guarantee is EXACT
    assert changes(found) == {f"sources/0/{number}": "written" for number in lost}


def test_query_is_not_run_again_where_the_next_batch_could_not_be_planned(tmp_path: Path) -> None:
    query_of_two(tmp_path, orphan=True, lost=(1, 2))
    observed = look_at(tmp_path, orphan=True)
    with pytest.raises(RepairRefusedError, match="would commit batch 3, and not run the next one"):
        drafted(observed, ResumeGoal())
    (found,) = (each for each in diagnose(observed, SPARK).findings if each.condition.name == "SOURCE_LOG_DAMAGED")
    assert found.effect == "The next batch that is planned fails."


def test_log_that_dropping_a_plan_leaves_behind_the_others_is_told(tmp_path: Path) -> None:
    query(tmp_path, 2, source=FileInput())
    for number in (2, 3):
        (tmp_path / f"offsets/{number}").write_bytes(
            (tmp_path / "offsets/1").read_bytes().replace(b'"logOffset":1', b'"logOffset":%d' % number)
        )
        (tmp_path / f"sources/0/{number}").write_bytes((tmp_path / "sources/0/1").read_bytes())
    (tmp_path / "sources/0/1").unlink()
    found = drafted(known(tmp_path, silent()), ReplanGoal())
    assert found.guarantee is LOSSY
    assert "its log has lost entry 1, which a plan has read" in found.rests_on[-1]


def test_price_of_a_first_batch_names_its_files(tmp_path: Path) -> None:
    """Batch 0 has no plan before it: it begins before the first file."""
    query(tmp_path, 0, orphan=True, source=FileInput(per_batch=2))
    found = drafted(known(tmp_path, silent()), ResumeGoal())
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    files = ("file:///data/input/f000.json", "file:///data/input/f001.json")
    assert [(price.reread_files, price.duplicated_files) for price in found.sources] == [(files, files)]


def test_price_of_a_newest_batch_whose_commits_are_lost_names_its_files_and_those_before(tmp_path: Path) -> None:
    """No commit is left and no sink tells: nothing is known to be done since before the first file."""
    query(tmp_path, 3, source=FileInput(per_batch=1))
    shutil.rmtree(tmp_path / "commits")
    found = drafted(known(tmp_path, silent()), ResumeGoal())
    assert found.guarantee is LOSSY
    (price,) = found.sources
    before, newest = ("file:///data/input/f000.json", "file:///data/input/f001.json"), ("file:///data/input/f002.json",)
    assert (price.lost_files, price.reread_files, price.duplicated_files) == (before, newest, newest)
    assert price.bound
