from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from reading import CASES


@pytest.fixture
def case(tmp_path: Path) -> Callable[[str], Path]:
    """A copy of a real checkpoint, to be damaged."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(CASES / name / "checkpoint", tmp_path / name))

    return copy
