"""Trying cases: damage, ask lastgood, start Spark, compare; and the count of how often they agreed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pytest
from conformance.cases import Case, Laboratory
from conformance.flavours import FLAVOURS, Flavour
from conformance.judging import compare, prediction

VERSIONS = ("3.5.9", "4.0.5", "4.1.4", "4.2.0", "4.3.0")
"""The newest of each release line that we have."""


class TerminalReporter(Protocol):
    """What pytest gives for its summary."""

    def section(self, title: str) -> None: ...

    def write_line(self, line: str) -> None: ...


@dataclass
class Tally:
    """How often prediction and Spark agreed, per version; pytest shows it in the end."""

    tried: Counter[str] = field(default_factory=Counter)
    agreed: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.tried:
            terminalreporter.section("predictions that came true")
            for line in (*self.lines(), *self.wrong):
                terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """A table in Markdown."""
        yield "| Spark | damaged checkpoints | predicted right |"
        yield "|---|---|---|"
        for version in sorted(self.tried):
            yield f"| {version} | {self.tried[version]} | {self.agreed[version]} |"
        yield f"| all | {self.tried.total()} | {self.agreed.total()} |"


def flavours_of(version: str) -> list[Flavour]:
    """The kinds of queries that this Spark can run here, and on which random damage is tried."""
    return [flavour for flavour in FLAVOURS.values() if version in flavour.versions and flavour.is_chosen]


def random_cases(laboratory: Laboratory, flavour: Flavour, count: int, seed: str, *, made_by: str = "") -> list[Case]:
    """Cases that the same seed gives again; each can also be had alone, by the seed that it carries."""
    origin = f"{seed}/{made_by}>{laboratory.version}/{flavour.name}"
    return [laboratory.random_case(flavour, f"{origin}/{number}", made_by) for number in range(count)]


def some_flavours(version: str, count: int, seed: int) -> list[Flavour]:
    """A few kinds of queries, others with every seed."""
    return random.Random(f"{seed}/{version}").sample(flavours_of(version), count)


def require_agreement(laboratory: Laboratory, cases: Sequence[Case], tally: Tally, *, wrong_at_most: int = 0) -> None:
    """Fail if more was predicted wrong: for each such case what differs, and the line that makes it a fixed one.

    A seed that nobody has tried may find a case that nobody has seen: it is shown, and one alone is no failure of a
    large matrix.
    """
    found = []
    # Those of other versions first: each change of version starts another Spark.
    for case in sorted(cases, key=lambda case: case.made_by, reverse=True):
        laboratory.healthy(FLAVOURS[case.flavour], case.made_by)
    for case in cases:
        with laboratory.damaged(case) as folder:
            restart = prediction(case, folder)
            wrong = compare(laboratory.restart(case, folder), restart)
        tally.tried[case.spark] += 1
        tally.agreed[case.spark] += not wrong
        if wrong:
            found.append("\n".join([str(case), *(f"  {line}" for line in wrong), f"  {json.dumps(case.to_json())}"]))
    tally.wrong += found
    if len(found) > wrong_at_most:
        pytest.fail("\n\n".join(found), pytrace=False)
