"""Damage to what state stores have written."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from conformance.folders import partitions as stores
from conformance.folders import remove, state_files, state_versions, write
from conformance.rows import Parameters, row


def _whole_state(case: Path) -> Iterator[Parameters]:
    state = case / "checkpoint" / "state"
    if state.is_dir():  # without the folder itself nothing shows that there was any state: see docs/why/prediction.md
        for operator in sorted(path for path in state.iterdir() if path.is_dir()):
            yield {"what": f"state/{operator.name}"}
            for name in ("0", "1", "_metadata", "0/_metadata", "0/left-keyToNumValues", "1/right-keyWithIndexToValue"):
                if (operator / name).is_dir():
                    yield {"what": f"state/{operator.name}/{name}"}
        for folder in sorted(state.rglob("SSTs")):
            yield {"what": str(folder.relative_to(case / "checkpoint"))}


@row(_whole_state, weight=3)
def remove_state_folder(case: Path, what: str) -> None:
    shutil.rmtree(case / "checkpoint" / what)


def _state_versions(case: Path) -> Iterator[Parameters]:
    versions = state_versions(case)
    if not versions:
        return
    for which in ("first", "all"):
        for chosen in (versions[-1:], versions[-2:], versions[-2:-1], versions[-3:-2], versions[:1], versions[-3:]):
            if chosen:
                yield {"partitions": which, "versions": chosen, "kind": "any"}
    for kind in (".snapshot", ".zip", ".delta", ".changelog"):
        if any(path.suffix == kind for folder in stores(case) for path in folder.iterdir()):
            for chosen in (versions, versions[-2:], versions[:2]):
                yield {"partitions": "all", "versions": chosen, "kind": kind}
                yield {"partitions": "first", "versions": chosen, "kind": kind}


@row(_state_versions, weight=5)
def remove_state_versions(case: Path, partitions: str, versions: list[int], kind: str) -> None:
    for folder in _chosen(case, partitions):
        for path in [path for version in versions for path in state_files(folder, version)]:
            if kind in {"any", path.suffix}:
                remove(path)


def _state_cuts(case: Path) -> Iterator[Parameters]:
    versions = state_versions(case)
    for version in versions[-2:]:
        for size, crc in (("0", "none"), ("half", "none"), ("0", "stale"), ("half", "stale")):
            yield {"partitions": "first", "version": version, "size": size, "crc": crc}


@row(_state_cuts, weight=3)
def cut_state_version(case: Path, partitions: str, version: int, size: str, crc: str) -> None:
    for folder in _chosen(case, partitions):
        for path in state_files(folder, version):
            content = path.read_bytes()
            write(path, content[: len(content) // 2] if size == "half" else b"", crc=crc)


def _flips(case: Path) -> Iterator[Parameters]:
    versions = state_versions(case)[-1:]
    for version in versions:
        for kind in sorted({path.suffix for folder in stores(case) for path in state_files(folder, version)}):
            yield {"version": version, "kind": kind}
        if any(stores(case)[0].rglob("*.sst")):
            yield {"version": version, "kind": ".sst"}


@row(_flips)
def flip_state_byte(case: Path, version: int, kind: str) -> None:
    """A bit turned in the middle of a file of one store, as a bad disk does; its checksum stays as it was."""
    for folder in _chosen(case, "first"):
        found = folder.rglob("*.sst") if kind == ".sst" else state_files(folder, version)
        for path in [path for path in found if path.suffix == kind]:
            content = bytearray(path.read_bytes())
            if content:
                content[len(content) // 2] ^= 1
                write(path, bytes(content), crc="stale")


def _extra_versions(case: Path) -> Iterator[Parameters]:
    if versions := state_versions(case):
        yield from ({"version": versions[-1], "by": by} for by in (1, 2))


@row(_extra_versions)
def add_state_version(case: Path, version: int, by: int) -> None:
    """Files of a version that is not reached yet, as an abandoned attempt leaves them."""
    for folder in _chosen(case, "all"):
        for path in state_files(folder, version):
            write(path.with_name(path.name.replace(str(version), str(version + by), 1)), path.read_bytes())


def _chosen(case: Path, which: str) -> list[Path]:
    """The stores of every partition, or one store of one partition."""
    found = stores(case)
    return found[:1] if which == "first" else found
