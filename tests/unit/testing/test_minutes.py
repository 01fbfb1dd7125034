from __future__ import annotations

from pathlib import Path

from plugin_minutes import budgets, folder_of

TESTS = Path(__file__).parents[2]


def test_each_folder_of_tests_has_a_budget() -> None:
    folders = {each.parent.relative_to(TESTS).parts[0] for each in TESTS.rglob("test_*.py")}
    assert budgets().keys() == folders - {"proof"}, "CONTRIBUTING.md: where the minutes go"
    assert all(seconds > 0 for seconds in budgets().values())


def test_folder_is_the_first_below_tests() -> None:
    assert folder_of("tests/unit/query/test_sinks.py::test_x[a/b::c]") == "unit"
    assert folder_of("tests/test_x.py::test_y") == "."
