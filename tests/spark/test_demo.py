"""One scene of the demo; `tests/proof` plays them all, and kills the driver twenty times over."""

from __future__ import annotations

from pathlib import Path

import pytest
from stories import play


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.timeout(1200)
def test_demo_drops_a_batch_that_is_too_large_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (dropped,) = play(tmp_path, "b", flights=20_000)
    assert dropped["reread"] > 0
