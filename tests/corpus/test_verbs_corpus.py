"""`status`, `inspect` and `offsets` on every real checkpoint: what they say is what the files and `about.json` say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from shared_corpus import ABSENT, CORPUS

from lastgood.diagnosis.findings import Severity
from lastgood.diagnosis.grade import Grade
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.open_query import BatchUnknownError
from lastgood.observe.state_sizes import inspect_state
from lastgood.operations.inspect import inspect_batch, inspect_batches
from lastgood.operations.status import list_statuses_below, status
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.reader import SourceKindError

CASES = Path(__file__).parent / "cases"

# Spark 3.5 gives a query without `metadata` a new id and goes on: its sinks no longer know it.
GOES_ON_UNDER_ANOTHER_ID = {"3.5-damaged-rm_metadata"}
# What breaks these restarts is in the broker: no file tells it.
BROKEN_OUTSIDE = {"4.2-kafka-expired"}
# Without an error Spark goes on with what is wrong.
SILENT = {"STALE_STATE_SNAPSHOT"}
# The cases came without the input files that their batches were to read.
NOT_HERE = {"SOURCE_FILES_GONE"}


def cases() -> list[Path]:
    found = [path.parent for root in (CASES, CORPUS) for path in sorted(root.glob("*/about.json"))]
    assert len(found) > 15
    return found


def name(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


def about(case: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((case / "about.json").read_text())
    return told


def newest(case: Path, log: str) -> int | None:
    folder = case / "checkpoint" / log
    return max((int(path.name) for path in folder.glob("*") if path.name.isdecimal()), default=None)


@pytest.mark.parametrize("case", cases(), ids=name)
def test_all_verbs_agree_on_what_is_planned_and_committed(case: Path) -> None:
    target, told = str(case / "checkpoint"), about(case)
    planned, committed = newest(case, "offsets"), newest(case, "commits")
    stands = status(resolve_target(target)).to_json()
    inspected = inspect_batches(resolve_target(target), limit=None)
    for facts in (stands, inspected.to_json(), inspect_state(resolve_target(target)).to_json()):
        assert (facts["last_planned"], facts["last_committed"]) == (planned, committed)
    if "next_batch" in told and "dedup" not in case.name:
        assert (planned, committed) == (told["next_batch"] - 1, told["next_batch"] - 1)
    orphan = re.search(r"uncommitted last batch (\d+)|orphan (\d+)", told["state"]) if "state" in told else None
    if orphan:
        assert (planned, committed) == (int(orphan[1] or orphan[2]), int(orphan[1] or orphan[2]) - 1)
    rows = {row.batch: row for row in inspected.rows}
    names = {log: {path.name for path in (case / "checkpoint" / log).glob("[0-9]*")} for log in ("offsets", "commits")}
    assert {str(n) for n, row in rows.items() if row.planned} == names["offsets"]
    assert {str(n) for n, row in rows.items() if row.committed} == names["commits"]
    assert list(rows) == sorted(rows, reverse=True)


@pytest.mark.parametrize("case", cases(), ids=name)
def test_the_grade_is_what_spark_did_on_restart(case: Path) -> None:
    """Damaged: a restart failed, or went on as another query. In flight: it ran the planned batch again."""
    told, found = about(case), status(resolve_target(str(case / "checkpoint")))
    restart = told.get("restart") or {}
    if "expect" in told:
        expected = told["expect"]
        is_damaged = bool(expected["damage"] or expected["absent"])
    else:
        is_damaged = bool(restart.get("error")) and case.name not in BROKEN_OUTSIDE
        is_damaged |= case.name in GOES_ON_UNDER_ANOTHER_ID
    planned, committed = newest(case, "offsets"), newest(case, "commits")
    errors = {each.condition.name for each in found.findings if each.severity is Severity.ERROR}
    assert bool(errors - NOT_HERE - SILENT) == is_damaged
    assert len(found.problems) >= len(errors)
    if errors:
        assert found.grade is (Grade.LOSING if errors & NOT_HERE else Grade.DAMAGED)
    else:
        assert found.grade is (Grade.HEALTHY if planned == committed else Grade.IN_FLIGHT)
    if not is_damaged:
        assert found.last_good == committed
    if found.last_good is not None:
        for log in ("offsets", "commits"):
            assert (case / "checkpoint" / log / str(found.last_good)).stat().st_size > 0


@pytest.mark.parametrize("case", cases(), ids=name)
def test_every_known_batch_can_be_shown_and_its_offsets_are_those_of_its_file(case: Path) -> None:
    target = str(case / "checkpoint")
    rows = inspect_batches(resolve_target(target), limit=None).rows[:12]
    legible = [row.batch for row in rows if row.planned and "plan damaged" not in str(row.notes)]
    # Of a query without Kafka no batch would do: that is said before one is looked for.
    missed = SourceKindError if legible and not plan(case, legible[0]) else BatchUnknownError
    for row in rows:
        shown, _ = inspect_batch(resolve_target(target), row.batch)
        assert (shown.planned, shown.committed, shown.reads) == (row.planned, row.committed, row.reads)
        lines = plan(case, row.batch) if row.batch in legible else None
        if lines is None:
            with pytest.raises(missed):
                find_offsets_after(resolve_target(target), batch=row.batch)
        elif not lines:
            with pytest.raises(SourceKindError):
                find_offsets_after(resolve_target(target), batch=row.batch)
        else:
            standing = find_offsets_after(resolve_target(target), batch=row.batch)
            assert [standing.starting_offsets(source) for source in standing.sources] == lines


def plan(case: Path, batch_id: int) -> list[Any]:
    """The offsets of its Kafka sources, as they stand in the file."""
    lines = (case / "checkpoint" / "offsets" / str(batch_id)).read_text().splitlines()
    sources = [line.partition(":")[2] for line in lines[2:]] if lines[0] == "v2" else lines[2:]
    return [json.loads(source) for source in sources if re.fullmatch(r'\{(,?"[^"]+":\{(,?"\d+":\d+)+\})+\}', source)]


@pytest.mark.parametrize("root", [CASES, CORPUS], ids=["cases", "corpus"])
def test_a_folder_full_of_checkpoints_is_graded_as_each_is_alone(root: Path) -> None:
    if not root.is_dir():
        pytest.skip(ABSENT)
    found = list_statuses_below(resolve_target(str(root)))
    assert {str(each.location) for each in found} == {str(path) for path in root.glob("*/checkpoint")}
    grades = [each.grade for each in found]
    assert grades == sorted(grades, reverse=True)
    for each in found:
        assert each.to_json() == status(resolve_target(str(each.location))).to_json()
