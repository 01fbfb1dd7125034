"""Where the minutes of a run go: what its tests took of the processor, by folder, beside budgets of CONTRIBUTING.md.

Seconds of the processor are those of a test and of all that it has started, a Spark or a broker, say. Unlike seconds of
the clock they are the same beside whatever else runs on the machine, and half of their sum is what two cores need.

Runs side by side, of parts of a folder each, name one file in `MINUTES`: each adds its own, and the last one of them to
end tells the sum of all.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import forked
import psutil
import pytest

CONTRIBUTING = Path(__file__).parents[1] / "CONTRIBUTING.md"
EXCESS = 1.2
"""No two runs take the same: what is so much above its budget is shown as above it."""
_ROW = re.compile(r"^\| `tests/([a-z]+)` \|.*\| ([\d,]+) \|$", re.MULTILINE)
_SHORT_SECONDS = 60
"""A run of one file needs no table."""
_LONG_SECONDS = 1
_SHOWN = 20
"""Of the tests that take longer, so many are shown: those that take most."""
_TOGETHER = os.environ.pop("MINUTES", None)
"""What tests start is no run beside this one: it does not see the file."""
_BEGAN = pytest.StashKey[float]()

_seconds: Counter[str] = Counter()
_of_processor: Counter[str] = Counter()
_of_tests: Counter[str] = Counter()


def budgets() -> dict[str, int]:
    """Seconds of the processor that `make test` may take for each folder."""
    return {folder: int(seconds.replace(",", "")) for folder, seconds in _ROW.findall(CONTRIBUTING.read_text())}


def folder_of(nodeid: str) -> str:
    """`unit` of `tests/unit/query/test_sinks.py::test_x`."""
    folder, _, rest = nodeid.removeprefix("tests/").partition("/")
    return folder if rest else "."


def is_above(seconds: float, budget: int | None) -> bool:
    """Whether a folder took clearly more than it may."""
    return budget is not None and seconds > EXCESS * budget


def processor_seconds(*, looks_at_children: bool) -> float:
    """What this process has taken so far, with all that it has started and that has ended.

    Args:
        looks_at_children: Count what is still running as well; it takes some milliseconds to find that.
    """
    taken = sum(os.times()[:4])
    if not looks_at_children:
        return taken + forked.processor_seconds()
    for child in psutil.Process().children(recursive=True):
        try:
            taken += sum(child.cpu_times()[:4])
        except psutil.NoSuchProcess:  # it has ended as we looked, and is counted by whoever waited for it
            continue
    return taken


def _starts_services(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("spark", "services", "proof"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.stash[_BEGAN] = processor_seconds(looks_at_children=_starts_services(item))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        taken = processor_seconds(looks_at_children=_starts_services(item)) - item.stash[_BEGAN]
        report.processor_seconds = taken  # type: ignore[attr-defined]  # goes from a worker to whoever counts
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    folder = folder_of(report.nodeid)
    _seconds[folder] += report.duration
    taken: float = getattr(report, "processor_seconds", 0.0)
    _of_processor[folder] += taken
    if taken > _LONG_SECONDS:
        _of_tests[report.nodeid] = round(taken)


def add_up(file: Path, of_processor: Counter[str], of_clock: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """The seconds of all runs that have added theirs to a file so far, after these.

    Args:
        file: One line of JSON a run.
        of_processor: Seconds of the processor of this run, by folder.
        of_clock: Seconds of the clock.
    """
    with file.open("a") as lines:
        lines.write(json.dumps([of_processor, of_clock]) + "\n")
    sums: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for line in file.read_text().splitlines():
        for counted, told in zip(sums, json.loads(line), strict=True):
            counted.update(told)
    return sums


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    of_processor, of_clock = _of_processor, _seconds
    if _TOGETHER is not None:
        of_processor, of_clock = add_up(Path(_TOGETHER), of_processor, of_clock)
    if of_clock.total() < _SHORT_SECONDS:
        return
    terminalreporter.section("seconds of the processor by folder, the budget of make test, and seconds of workers")
    allowed = budgets()
    for folder, seconds in of_processor.most_common():
        budget = allowed.get(folder)
        told = "" if budget is None else f"of {budget:,}"
        line = f"{seconds:8,.0f}  {told:>10}  {of_clock[folder]:8,.0f}  tests/{folder}"
        if is_above(seconds, budget):
            terminalreporter.write_line(f"{line}  ABOVE ITS BUDGET: see CONTRIBUTING.md", red=True, bold=True)
        else:
            terminalreporter.write_line(line)
    terminalreporter.write_line(f"{of_processor.total():8,.0f}  {'':>10}  {of_clock.total():8,.0f}  all")
    for test, taken in _of_tests.most_common(_SHOWN):
        terminalreporter.write_line(f"{taken:8,}  {test}")
