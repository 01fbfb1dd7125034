"""`lastgood rebuild`, as far as it comes without an application: what it refuses, and that nothing is written then."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import typed

from lastgood.checkpoint.empty_state import EMPTY_SNAPSHOTS
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.partitions import find_pinned_partitions
from lastgood.testing.checkpoints import CheckpointBuilder

BATCHES = 5


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A query whose state is whole."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    monkeypatch.chdir(tmp_path)
    found = tmp_path / "chk"
    CheckpointBuilder(found).run(BATCHES)
    plan = parse_offset_entry((found / "offsets/4").read_bytes())
    assert isinstance(plan, OffsetEntry)
    for partition in range(find_pinned_partitions(plan) or 1):
        folder = found / f"state/0/{partition}"
        folder.mkdir(parents=True)
        for version in range(1, BATCHES + 1):
            (folder / f"{version}.delta").write_bytes(EMPTY_SNAPSHOTS["lz4"])
    return found


def list_all(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "which application runs the query?"),
        (("--accept", "duplicates", "--", "python", "app.py"), 57, "whether Kafka still has"),
        (("--", "python", "app.py"), 51, "-- COMMAND"),
        (("--no-such-option", "--", "python", "app.py"), 2, "no-such-option"),
    ],
)
def test_what_it_does_not_begin_with_leaves_nothing(
    checkpoint: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    (checkpoint / "state/0/0/4.delta").unlink()
    before = list_all(checkpoint.parent)
    done = typed.call("rebuild", checkpoint, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert list_all(checkpoint.parent) == before


def test_state_that_can_be_loaded_is_left_alone_and_one_that_is_lost_is_sent_there(checkpoint: Path) -> None:
    whole = typed.call("rebuild", checkpoint, "--", "python", "app.py")
    assert (whole.returncode, "version 5 can be loaded" in whole.stderr) == (57, True)
    (checkpoint / "state/0/0/4.delta").unlink()
    found = typed.call("diagnose", checkpoint)
    assert f"lastgood rebuild {checkpoint} -- COMMAND" in found.stdout
    (checkpoint / "offsets/4").write_bytes(b"v1\n{")
    cut = typed.call("rebuild", checkpoint, "--accept", "duplicates", "--", "python", "app.py")
    assert cut.returncode == 57


@pytest.mark.parametrize(
    ("earliest", "latest", "found"), [(18, 99, "[18, 99)"), (None, 99, "what it has is not known")]
)
def test_what_kafka_does_not_have_is_told_before_anything_runs(
    checkpoint: Path, earliest: int | None, latest: int, found: str
) -> None:
    """Version 3 can be loaded: batch 3 has read [15, 20) of each partition, and batch 4 [20, 25)."""
    (checkpoint / "state/0/0/4.delta").unlink()
    refused = rebuild(checkpoint, {str(each): {"earliest": earliest, "latest": latest} for each in range(2)})
    assert (refused.returncode, "REPAIR_REFUSED" in refused.stderr, found in refused.stderr) == (57, True, True)


def test_topic_that_only_a_batch_in_the_middle_has_read_is_asked_for_as_well(checkpoint: Path) -> None:
    (checkpoint / "state/0/0/4.delta").unlink()
    plan = checkpoint / "offsets/3"
    plan.write_text(plan.read_text().replace('{"orders":', '{"clicks":{"0":7},"orders":'))
    refused = rebuild(checkpoint, {str(each): {"earliest": 0, "latest": 99} for each in range(2)})
    assert (refused.returncode, "clicks/0" in refused.stderr) == (57, True)


def rebuild(checkpoint: Path, partitions: dict[str, dict[str, int | None]]) -> subprocess.CompletedProcess[str]:
    facts = {"bootstrap": "b:9092", "captured_at_ms": 1, "topics": {"orders": {"partitions": partitions}}}
    file = checkpoint.parent / "kafka.json"
    file.write_text(json.dumps(facts))
    return typed.call("rebuild", checkpoint, "--accept", "duplicates,loss", "--kafka", file, "--", "python", "app.py")
