from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from planning import mirror_of, query, read

from lastgood.checkpoint.contents import Checkpoint
from lastgood.planning.draft import Edit
from lastgood.planning.log_edits import add_checksum_edits, apply_edits, name_checksum_path
from lastgood.testing.checkpoints import FileInput, Input, KafkaInput

EDITS = {
    "nothing": {},
    "orphan dropped": {"offsets/4": None},
    "several dropped": {"commits/3": None, "offsets/4": None, "offsets/3": None},
    "commit written": {"commits/4": b'v1\n{"nextBatchWatermarkMs":0}'},
    "plan damaged": {"offsets/3": b""},
    "plan added beyond a hole": {"offsets/9": b"v1\n{}\n5"},
    "id lost": {"metadata": None},
    "id written": {"metadata": b'{"id":"0b7e60a2-1111-4222-8333-944445555666"}'},
    "checksum left over": {"offsets/.5.crc": b"crc", "commits/.1.crc": b"crc"},
    "names that are none": {"offsets/004": b"", "offsets/note": b"", "sources/0/x": b""},
    "source cut": {"sources/0/4": None, "sources/0/3": None},
    "source added": {"sources/1/0": b'v1\n{"t":{"0":1}}', "sources/clicks/0": b"v1\n"},
    "everything gone": {"metadata": None, **{f"offsets/{n}": None for n in range(5)}},
}


@pytest.mark.parametrize(
    "source", [KafkaInput(), FileInput(), FileInput(compact_interval=5)], ids=["kafka", "files", "compacted"]
)
@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS.keys())
def test_edited_checkpoint_is_the_one_that_is_read_after_the_edits(
    tmp_path: Path, source: Input, edits: dict[str, bytes | None]
) -> None:
    query(tmp_path, 4, orphan=True, source=source)
    there = {path: content for path, content in edits.items() if content is not None or (tmp_path / path).exists()}
    foreseen = apply_edits(read(tmp_path), [Edit(path, content, "a test wants it") for path, content in there.items()])
    for path, content in there.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        if content is None:
            (tmp_path / path).unlink()
        else:
            (tmp_path / path).write_bytes(content)
    assert comparable(foreseen) == comparable(read(tmp_path))


def test_whole_checkpoint_can_be_foreseen_where_there_was_nothing(tmp_path: Path) -> None:
    query(tmp_path / "before", 4, orphan=True)
    edits = [Edit(path, content, "") for path, content in mirror_of(tmp_path / "before").items()]
    foreseen = dataclasses.replace(apply_edits(read(tmp_path / "lost"), edits), location=str(tmp_path / "before"))
    assert comparable(foreseen) == comparable(read(tmp_path / "before"))


def comparable(checkpoint: Checkpoint) -> Checkpoint:
    """Without what only a storage knows."""
    blank = {"newest_modified_ms": None, "checksum_damage": {}}
    return dataclasses.replace(
        checkpoint,
        offsets=dataclasses.replace(checkpoint.offsets, **blank),
        commits=dataclasses.replace(checkpoint.commits, **blank),
        sources=tuple(
            dataclasses.replace(log, entries={n: str(entry) for n, entry in log.entries.items()})  # type: ignore[misc]  # entries of files compare by identity of their reader
            for log in checkpoint.sources
        ),
    )


def test_checksum_is_set_aside_once_and_only_where_there_is_one() -> None:
    edits = [Edit("offsets/3", None, "first"), Edit("offsets/3", b"", "again"), Edit("commits/3", None, "")]
    found = add_checksum_edits(edits, {"offsets/.3.crc", "offsets/.2.crc", ".metadata.crc"})
    assert [(edit.path, edit.after) for edit in found] == [
        ("offsets/3", b""),
        ("commits/3", None),
        ("offsets/.3.crc", None),
    ]
    assert name_checksum_path("metadata") == ".metadata.crc"
