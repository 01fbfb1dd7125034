"""The page on security names tests that are there, and leaves no file of them out."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reference" / "security.md"
ELSEWHERE = re.compile(r"`(tests/[\w/]+\.py)`")
ROW = re.compile(r"^\| (?!-|threat )(.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(test_\w+\.py)(?:::(\w+))?`")


def test_every_test_that_it_names_is_there() -> None:
    named = NAMED.findall(PAGE.read_text())
    assert named
    for file, function in named:
        assert f"def {function}" in (HERE / file).read_text(), (file, function)


def test_every_file_of_attacks_is_named() -> None:
    named = {file for file, _ in NAMED.findall(PAGE.read_text())}
    assert {file.name for file in HERE.glob("test_*.py")} - {Path(__file__).name} == named


def test_each_threat_has_what_holds_it_and_a_test_that_is_there() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert len(rows) > 50
    for row in rows:
        threat, holds, test = (cell.strip() for cell in re.split(r"(?<!\\)\|", row))
        assert threat
        assert holds
        assert NAMED.search(test) or ELSEWHERE.search(test), row
        assert all((HERE.parents[1] / file).is_file() for file in ELSEWHERE.findall(test)), row
