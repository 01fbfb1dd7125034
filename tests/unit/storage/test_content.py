"""What is read of a local file, and what it costs."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from lastgood.storage.reading import LocalStorage, parse_location


def test_no_more_is_read_than_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(range(256)) * 1000)
    for limit in (0, 1, 255_999, 256_000, 256_001, 2**40):
        content = LocalStorage().read(parse_location(str(tmp_path / "file")), limit=limit)
        assert content == (bytes(range(256)) * 1000)[:limit]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="a system without /proc")
def test_a_file_whose_size_is_not_told_is_read_to_its_end() -> None:
    content = LocalStorage().read(parse_location("/proc/self/status"), limit=10**6)
    assert content is not None
    assert content.endswith(b"\n")
    assert len(content) > 500


def test_contents_that_are_kept_take_no_more_than_they_are(tmp_path: Path) -> None:
    """As many as there are batches in a long log: each must not hold a buffer as large as the limit, or a mapping."""
    (tmp_path / "file").write_bytes(b"x" * 1000)
    file = parse_location(str(tmp_path / "file"))
    tracemalloc.start()
    try:
        kept = [LocalStorage().read(file, limit=8 * 1024 * 1024) for _ in range(500)]
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == 500
    assert peak < held + 500_000
    assert held < 1_000_000
