"""The examples of the docstrings are what happens."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import lastgood
from lastgood.observe.open_query import gather
from lastgood.observe.rows import make_rows
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import CheckpointBuilder

SRC = Path(lastgood.__file__).parent
MODULES = sorted(
    ".".join(("lastgood", *file.relative_to(SRC).with_suffix("").parts))
    for file in SRC.rglob("*.py")
    if ">>> " in file.read_text()
)


def test_there_are_examples() -> None:
    assert "lastgood.asked" in MODULES


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_are_what_happens(name: str, tmp_path: Path) -> None:
    """`query` has three batches, of which the two newest were read."""
    CheckpointBuilder(tmp_path / "chk").run(3)
    given = {
        "tmp_path": tmp_path,
        "query": gather(resolve_target(str(tmp_path / "chk")), batches=2),
        "make_rows": make_rows,
    }
    found = doctest.testmod(importlib.import_module(name), extraglobs=given)
    assert (found.failed, found.attempted > 0) == (0, True)
