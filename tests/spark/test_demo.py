"""Two scenes of the demo; `tests/proof` plays them all, and kills the driver twenty times over."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import play


@pytest.mark.spark
@pytest.mark.services
def test_demo_loses_what_it_said_and_leaves_nothing_behind(tmp_path: Path) -> None:
    dropped, lost = play(tmp_path, "be", flights=20_000)
    assert dropped["reread"] > 0
    assert lost["lost"]
