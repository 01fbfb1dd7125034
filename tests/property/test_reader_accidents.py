"""Whatever happened to the files of a checkpoint, reading it gives a value that can be asked for everything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lastgood.checkpoint.contents import Checkpoint, Mode
from lastgood.checkpoint.reader import read_batches, read_checkpoint
from lastgood.checkpoint.state import LOADINGS, Loads, find_unique_ids
from lastgood.storage.reading import Entry, Location

EXAMPLES = max(60, int(os.environ.get("LASTGOOD_FUZZ_EXAMPLES", "0")) // 50)
"""A whole checkpoint takes some fifty times as long as one file."""
CASES = Path(__file__).parents[1] / "corpus" / "cases"
HERE = Location("file", "", "/chk")
NAMES = [
    *("0", "006", "-1", "x", "٣", "metadata", ".5.crc", "7.compact", "9.compact", "999999999999999999", "9" * 19),
    *("8.delta", "8.snapshot", "8.zip", "8.changelog"),
    *(f"8_68ed4850-d346-4756-94d9-8f64625f261a.{suffix}" for suffix in ("zip", "changelog")),
]
CONTENTS = [
    b"",
    b"v1",
    b"v1\n{}",
    b"v1\n{}\n5",
    b'v1\n{}\n{"logOffset":999999999999}',
    b"v2\n{}\n0:5",
    b"\0v1\n5",
    b"\xff",
    b"PK\x03\x04",
]


class Memory:
    """Files by their path below the checkpoint."""

    parallel = 2

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    def _below(self, folder: Location) -> dict[str, bytes] | None:
        prefix = folder.path.removeprefix("/chk").strip("/")
        prefix = f"{prefix}/" if prefix else ""
        found = {path.removeprefix(prefix): raw for path, raw in self.files.items() if path.startswith(prefix)}
        return found or None

    def names(self, folder: Location) -> Iterator[str] | None:
        below = self._below(folder)
        if below is None:
            return None
        return iter({first + slash for first, slash, _ in (path.partition("/") for path in below)})

    def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
        raise NotImplementedError  # the reader asks for names

    def walk(self, folder: Location) -> Iterator[Entry] | None:
        below = self._below(folder)
        return None if below is None else (Entry(path, False, len(raw), None) for path, raw in below.items())

    def read(self, file: Location, *, limit: int) -> bytes | None:
        raw = self.files.get(file.path.removeprefix("/chk/"))
        return None if raw is None else raw[:limit]

    def stat(self, location: Location) -> Entry | None:
        raw = self.files.get(location.path.removeprefix("/chk/"))
        return None if raw is None else Entry(location.name, is_folder=False, size=len(raw), modified_ms=5)


def files_of(case: str) -> dict[str, bytes]:
    root = CASES / case / "checkpoint"
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@st.composite
def accidents(draw: st.DrawFn, files: dict[str, bytes]) -> dict[str, bytes]:
    """The files after some were removed, cut, copied over others, or joined by files that do not belong there."""
    paths = sorted(files)
    after = dict(files)
    for _ in range(draw(st.integers(1, 8))):
        path = draw(st.sampled_from(paths))
        folder, slash, _ = path.rpartition("/")
        accident = draw(st.sampled_from(("remove", "remove folder", "cut", "write", "copy", "add")))
        if accident == "remove":
            after.pop(path, None)
        elif accident == "remove folder":
            after = {other: raw for other, raw in after.items() if not folder or not other.startswith(f"{folder}/")}
        elif accident == "cut":
            after[path] = files[path][: draw(st.integers(0, len(files[path])))]
        elif accident == "write":
            after[path] = draw(st.sampled_from(CONTENTS))
        elif accident == "copy":
            after[path] = files[draw(st.sampled_from(paths))]
        else:
            after[folder + slash + draw(st.sampled_from(NAMES))] = draw(st.sampled_from([*CONTENTS, files[path]]))
    return after


def look_at(found: Checkpoint, files: dict[str, bytes]) -> None:
    """Ask for everything, and see that what is said of files is so."""
    assert isinstance(found.mode, Mode)
    assert set(found.absent).isdisjoint(files)
    assert set(found.damage) <= set(files)
    assert found.last_planned is None or f"offsets/{found.last_planned}" in files
    assert found.last_committed is None or f"commits/{found.last_committed}" in files
    assert found.orphan in (None, found.last_planned)
    assert (found.spark_versions, found.shuffle_partitions, found.is_stateful) is not None
    if found.state is None:
        return
    for store in (store for operator in found.state.operators for store in operator.stores):
        for loading in LOADINGS:
            loads = Loads(store, find_unique_ids(store, {}), loading=loading)
            assert all(loads.obstacle(version) is None for version in loads.loadable())
    if found.state.loadable and found.last_committed is not None:
        needed = found.last_committed + 1
        assert (needed in found.state.loadable) == (not found.state.obstacles)


@pytest.mark.parametrize("case", sorted(path.name for path in CASES.iterdir() if path.is_dir()))
def test_a_checkpoint_can_be_read_after_any_accident(case: str) -> None:
    files = files_of(case)

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), print_blob=True
    )
    @given(accidents(files))
    def can_be_read(after: dict[str, bytes]) -> None:
        found = read_checkpoint(Memory(after), HERE, batches=4)
        look_at(found, after)
        for batch in read_batches(Memory(after), HERE, found.offsets.ids.last(3)):
            assert batch.offsets is not None

    can_be_read()
