from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from plugin_minutes import add_up, budgets, folder_of, is_above, processor_seconds

TESTS = Path(__file__).parents[2]
PROOFS = {"proof", "supervision"}
"""Folders of which `make test` runs nothing."""


def test_each_folder_of_tests_has_a_budget() -> None:
    folders = {each.parent.relative_to(TESTS).parts[0] for each in TESTS.rglob("test_*.py")}
    assert budgets().keys() == folders - PROOFS, "CONTRIBUTING.md: where the minutes go"
    assert all(seconds > 0 for seconds in budgets().values())


def test_budgets_are_fifteen_minutes_of_two_cores_together() -> None:
    assert sum(budgets().values()) <= 15 * 60 * 2


def test_folder_is_the_first_below_tests() -> None:
    assert folder_of("tests/unit/query/test_sinks.py::test_x[a/b::c]") == "unit"
    assert folder_of("tests/test_x.py::test_y") == "."


def test_folder_without_a_budget_is_never_above_it_and_a_tenth_more_is_none() -> None:
    assert [is_above(seconds, 100) for seconds in (100, 110, 121)] == [False, False, True]
    assert not is_above(10**6, None)


def test_each_part_of_the_unit_tests_begins_with_a_letter_that_check_names() -> None:
    named = re.findall(r"^unit-.+: BEGIN := \[(.)-(.)\]$", (TESTS.parent / "Makefile").read_text(), re.MULTILINE)
    for part in (TESTS / "unit").iterdir():
        if part.name != "__pycache__":
            assert sum(first <= part.name[0] <= last for first, last in named) == 1, part.name


def test_runs_side_by_side_are_told_together(tmp_path: Path) -> None:
    parts = [(Counter(unit=20.5, style=8.0), Counter(unit=40.0, style=10.0)), (Counter(unit=30.0), Counter(unit=31.0))]
    assert add_up(tmp_path / "minutes", *parts[0]) == parts[0]
    assert add_up(tmp_path / "minutes", *parts[1]) == (Counter(unit=50.5, style=8.0), Counter(unit=71.0, style=10.0))


def test_what_a_test_has_started_counts_while_it_runs_and_when_it_has_ended() -> None:
    work = "import sys; [n * n for n in range(4_000_000)]; print(flush=True); sys.stdin.read()"
    before = processor_seconds(looks_at_children=True)
    with subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running = processor_seconds(looks_at_children=True)
        child.communicate(b"")
    ended = processor_seconds(looks_at_children=False)
    assert before < running
    assert running <= ended + 0.001  # sums of hundredths, each rounded by itself
