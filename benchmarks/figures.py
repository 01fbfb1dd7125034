"""What a benchmark has measured, and how it is printed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One measured value; `budget` is None where there is none."""

    name: str
    value: float
    unit: str
    budget: float | None = None

    @property
    def is_missed(self) -> bool:
        return self.budget is not None and self.value > self.budget


def print_figures(figures: Sequence[Figure]) -> int:
    """One JSON object; the exit code: 1 if a budget is missed."""
    missed = [figure.name for figure in figures if figure.is_missed]
    rounded = [{**asdict(figure), "value": round(figure.value, 3)} for figure in figures]
    print(json.dumps({"figures": rounded, "missed": missed}, indent=1))
    return 1 if missed else 0
