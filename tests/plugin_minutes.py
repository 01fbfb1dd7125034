"""Where the minutes of a run go: seconds of its workers by folder, beside the budgets of CONTRIBUTING.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
_ROW = re.compile(r"^\| `tests/([a-z]+)` \|.*\| ([\d,]+) \|$", re.MULTILINE)
_SHORT_SECONDS = 60
"""A run of one file needs no table."""

_seconds: Counter[str] = Counter()


def budgets() -> dict[str, int]:
    """Seconds of workers that `make test` may take for each folder."""
    return {folder: int(seconds.replace(",", "")) for folder, seconds in _ROW.findall(CONTRIBUTING.read_text())}


def folder_of(nodeid: str) -> str:
    """`unit` of `tests/unit/query/test_sinks.py::test_x`."""
    folder, _, rest = nodeid.removeprefix("tests/").partition("/")
    return folder if rest else "."


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[folder_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if sum(_seconds.values()) < _SHORT_SECONDS:
        return
    terminalreporter.section("seconds of workers by folder, and the budget of make test")
    allowed = budgets()
    for folder, seconds in _seconds.most_common():
        budget = f"of {allowed[folder]:,}" if folder in allowed else ""
        terminalreporter.write_line(f"{seconds:8,.0f}  {budget:>10}  tests/{folder}")
