"""Cases that a prediction once got wrong, or that are worth keeping: one JSON line each, in `fixed/*.jsonl`."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.cases import Case, case_from

FOLDER = Path(__file__).with_name("fixed")


LIMITS = "known_limits.jsonl"


def fixed_cases(version: str) -> list[Case]:
    """The fixed cases for a version of Spark."""
    return _cases([file for file in sorted(FOLDER.glob("*.jsonl")) if file.name != LIMITS], version)


def known_limits(version: str) -> list[Case]:
    """Cases that no file tells enough about to predict them."""
    return _cases([FOLDER / LIMITS], version)


def _cases(files: list[Path], version: str) -> list[Case]:
    lines = [line for file in files for line in file.read_text().splitlines() if line]
    return [case for case in map(case_from, map(json.loads, lines)) if case.spark == version]
