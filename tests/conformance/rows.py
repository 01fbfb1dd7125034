"""What an edit is, and the table of them: each row is one kind of damage to a checkpoint.

Each row lists its parameters that make sense for a given checkpoint: all of them are tried alone, some of them
together with others. Parameters are JSON, so that a failure once found can be told and done again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Parameters = dict[str, Any]
Apply = Callable[..., None]
Choices = Callable[[Path], Iterator[Parameters]]


@dataclass(frozen=True)
class Edit:
    """One damage: a row of the table and what it is done to."""

    row: str
    parameters: Parameters

    def __str__(self) -> str:
        return f"{self.row}({', '.join(f'{key}={value}' for key, value in self.parameters.items())})"

    def to_json(self) -> dict[str, Any]:
        return {"row": self.row, **self.parameters}


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    apply: Apply
    choices: Choices
    weight: int
    """How often it is chosen at random, against the other rows."""


ROWS: dict[str, Row] = {}


def row(choices: Choices, *, weight: int = 2) -> Callable[[Apply], Apply]:
    """Put a function into the table: it does the damage to the folder of a case, with parameters from `choices`."""

    def add(function: Apply) -> Apply:
        ROWS[function.__name__] = Row(function, choices, weight)
        return function

    return add
