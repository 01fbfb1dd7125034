"""Damage to a healthy checkpoint: every kind alone, or some at random."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from conformance import edits_of_kafka, edits_of_logs, edits_of_state, edits_of_tables
from conformance.rows import ROWS, Edit

__all__ = [
    "Edit",
    "apply",
    "edit_from",
    "edits_of_kafka",
    "edits_of_logs",
    "edits_of_state",
    "edits_of_tables",
    "random_edit",
]


def edit_from(fields: dict[str, Any]) -> Edit:
    """The edit that `to_json` told."""
    return Edit(fields["row"], {key: value for key, value in fields.items() if key != "row"})


def apply(edit: Edit, case: Path) -> None:
    """Do the damage to the folder of a case."""
    ROWS[edit.row].apply(case, **edit.parameters)


def single_edits(case: Path) -> list[Edit]:
    """Every damage that can be done to this checkpoint alone."""
    return [Edit(name, parameters) for name, row in ROWS.items() for parameters in row.choices(case)]


def random_edit(case: Path, rng: random.Random) -> Edit:
    """One damage that can be done to this checkpoint; rows that combine interestingly come more often."""
    possible = {name: found for name, row in ROWS.items() if (found := list(row.choices(case)))}
    weights = [ROWS[name].weight for name in possible]
    name = rng.choices(list(possible), weights)[0]
    return Edit(name, rng.choice(possible[name]))
