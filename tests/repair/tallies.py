"""How repairs ended, per sink and goal; pytest shows it in the end."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pytest
from conformance.cases import Laboratory
from conformance.flavours import FLAVOURS
from conformance.trials import TerminalReporter
from repair.repairs import REFUSED, Repair, tried

from lastgood.planning.price import Guarantee

WRONG = "wrong"
_WORDS = (*(word.value for word in Guarantee), REFUSED, WRONG)


@dataclass
class Tally:
    """Counts, and what was not as was said."""

    ended: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def pytest_terminal_summary(self, terminalreporter: TerminalReporter) -> None:
        if self.ended:
            terminalreporter.section("repairs that did what their plan said")
            for line in (*self.lines(), *self.wrong):
                terminalreporter.write_line(line)

    def lines(self) -> Iterator[str]:
        """A table in Markdown."""
        yield f"| sink | goal | {' | '.join(_WORDS)} |"
        yield "|---" * (2 + len(_WORDS)) + "|"
        for sink, goal in sorted({(sink, goal) for sink, goal, _ in self.ended}):
            counts = (str(self.ended[sink, goal, word]) for word in _WORDS)
            yield f"| {sink} | {goal} | {' | '.join(counts)} |"


def require_truth(
    laboratory: Laboratory,
    slots: Iterable[Iterable[Repair]],
    tally: Tally,
    *,
    wrong_at_most: int = 0,
    verified_at_most: int = sys.maxsize,
) -> None:
    """Fail if more came out otherwise than their plans said: for each what differs, and the line that fixes it.

    Args:
        laboratory: Where they are tried.
        slots: Of each repairs are tried until one is not refused.
        tally: Counts all of them.
        wrong_at_most: So many that nobody has seen before are only shown.
        verified_at_most: Of so many slots `verify --data` is asked as well.
    """
    found = []
    for number, repairs in enumerate(slots):
        for repair in repairs:
            outcome = tried(laboratory, repair, is_verified=number < verified_at_most)
            sink = FLAVOURS[repair.case.flavour].sink
            tally.ended[sink, repair.goal, WRONG if outcome.wrong else outcome.word] += 1
            if outcome.wrong:
                said = f"  the plan: {outcome.word}; {outcome.because}"
                wrong = [f"  {line}" for line in outcome.wrong]
                found.append("\n".join([str(repair), said, *wrong, json.dumps(repair.to_json())]))
            if outcome.word != REFUSED:
                break
    tally.wrong += found
    if len(found) > wrong_at_most:
        pytest.fail("\n\n".join(found), pytrace=False)
