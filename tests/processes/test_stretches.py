"""A long log that several processes read: they find what one finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lastgood.audit.logs import LogAudit, verify_logs
from lastgood.checkpoint import stretches
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.stretches import find_plain_stretches
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import CheckpointBuilder


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log is long from 40 batches on."""
    monkeypatch.setattr(stretches, "BATCHES_MIN", 40)
    monkeypatch.setattr(stretches, "STRETCH_BATCHES", 10)
    monkeypatch.setattr(stretches.os, "cpu_count", lambda: 3)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Plain stretches, and between them what `verify` tells of."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(34)
    query.plan(-7)
    query.commit()
    query.run(25)
    query.plan()  # never committed
    query.run(59)
    query.plan()
    (tmp_path / "chk/offsets/71").write_bytes(b"v1\n{")
    (tmp_path / "chk/commits/85").write_bytes(b"")
    (tmp_path / "chk/offsets/93").unlink()
    for log in ("offsets", "commits"):
        (tmp_path / "chk" / log / "105").unlink()
    return tmp_path / "chk"


def plain(folder: Path) -> list[range]:
    return list(find_plain_stretches(parse_location(str(folder)), BatchIds.of(range(120))))


def test_the_plain_stretches_are_found(checkpoint: Path) -> None:
    starts = [0, 10, 20, 40, 50, 110]
    assert plain(checkpoint) == [range(start, start + 10) for start in starts]


def test_readers_that_cannot_be_started_or_fail_find_nothing(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert plain(checkpoint) == []
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert plain(checkpoint) == []


def audit(checkpoint: Path, told: list[tuple[int, int]]) -> LogAudit:
    return verify_logs(resolve_target(str(checkpoint)), progress=lambda *now: told.append(now))


def test_a_log_is_verified_by_several_processes_as_by_one(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    by_several = audit(checkpoint, told)
    assert told == sorted(told)
    assert (told[0], told[-1]) == ((8, 120), (120, 120))
    monkeypatch.setattr(stretches, "BATCHES_MIN", 1000)
    by_one = audit(checkpoint, told)
    assert told[-2] == (0, 120)
    assert by_several.to_json() == by_one.to_json()
    assert [(seam.condition, seam.batch_id) for seam in by_one.seams] == [
        ("OVERLAP", 34),
        ("OVERLAP", 34),
        ("UNKNOWN", 61),
        ("UNKNOWN", 72),
        ("UNKNOWN", 94),
        ("UNKNOWN", 106),
    ]
