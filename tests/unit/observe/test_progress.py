"""How far a query has come, while its logs grow, are purged, taken back, and have gaps."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.observe.progress import LogProgress, LogWatch
from lastgood.storage.reading import parse_location


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for log in ("offsets", "commits"):
        (tmp_path / log).mkdir()
    return tmp_path


def put(checkpoint: Path, log: str, *batches: int) -> None:
    for batch in batches:
        (checkpoint / log / str(batch)).write_text("v1")


def test_it_follows_what_comes_and_what_is_taken_away(checkpoint: Path) -> None:
    watch = LogWatch(parse_location(str(checkpoint)))
    assert watch.look() == LogProgress(None, None)
    put(checkpoint, "offsets", *range(5))
    put(checkpoint, "commits", *range(4))
    assert watch.look() == LogProgress(4, 3)
    put(checkpoint, "commits", 4, 5, 6)
    put(checkpoint, "offsets", 5, 6, 7)
    assert watch.look() == LogProgress(7, 6)
    (checkpoint / "offsets/0").unlink()
    assert watch.look() == LogProgress(7, 6)
    for batch in (7, 6, 5):
        (checkpoint / "offsets" / str(batch)).unlink()
    (checkpoint / "commits/6").unlink()
    assert watch.look() == LogProgress(4, 5)


def test_gaps_hide_nothing(checkpoint: Path) -> None:
    """Progress that is tracked asynchronously leaves out batches."""
    watch = LogWatch(parse_location(str(checkpoint)))
    put(checkpoint, "offsets", 0, 1, 2)
    put(checkpoint, "commits", 0, 1, 2)
    assert watch.look() == LogProgress(2, 2)
    put(checkpoint, "offsets", 5)
    assert watch.look() == LogProgress(5, 2)
    put(checkpoint, "commits", 5)
    assert watch.look() == LogProgress(5, 5)
    put(checkpoint, "offsets", 6, 9)
    put(checkpoint, "commits", 6, 9)
    assert watch.look() == LogProgress(9, 9)
