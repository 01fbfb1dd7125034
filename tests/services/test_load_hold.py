"""Who works on a load, where several machines reach its checkpoint: with a real S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.lab.s3 import S3Server
from lastgood.recovery.hold import CheckpointHeldError
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.supervise.load_hold import check_lease, hold_alone

pytestmark = pytest.mark.services


@pytest.fixture(autouse=True)
def _environment(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "here"))
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)


def test_a_second_machine_is_told_and_a_late_one_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = parse_location(f"s3a://lake/{tmp_path.name}/chk")
    storage, leases = open_writable(checkpoint), checkpoint.sibling(".lastgood/leases")
    with hold_alone(checkpoint) as lease:
        assert lease is not None
        check_lease(lease, checkpoint)
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
            with pytest.raises(CheckpointHeldError, match="on another machine"), hold_alone(checkpoint):
                pass
        storage.write(leases / f"{lease.number + 1}.json", b"{}")
        with pytest.raises(CheckpointHeldError, match="has gone on with this load"):
            check_lease(lease, checkpoint)
        storage.remove(leases / f"{lease.number + 1}.json")
    with hold_alone(checkpoint) as again:
        assert again is not None
        assert again.number > lease.number


def test_what_only_this_machine_reaches_needs_no_lease(tmp_path: Path) -> None:
    checkpoint = parse_location(str(tmp_path / "chk"))
    with hold_alone(checkpoint) as lease:
        assert lease is None
        with pytest.raises(CheckpointHeldError), hold_alone(checkpoint):
            pass
