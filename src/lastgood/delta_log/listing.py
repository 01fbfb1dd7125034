"""What lies in `_delta_log`, told from names alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field

from lastgood.checkpoint.logs import BatchIds
from lastgood.frozen import dataclass

DELTA_LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
SIDECARS = "_sidecars"
STAGED_FOLDERS = ("_staged_commits", "_commits")
"""Where commits wait that a catalog has taken, or will; the second name is of older previews."""

_COMMIT = re.compile(r"(\d{20})\.json")
_STAGED = re.compile(r"(\d{20})\..+\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")
_OWN_NAME = re.compile(r"\.checkpoint\.[0-9a-f-]{36}\.")
_OF_A_VERSION = re.compile(r"(?:\d{20}\.)?(\d{20})\..+")
"""What only a version leaves behind: its own file, a part of a checkpoint, a `.crc`, `FROM.TO.compacted.json`."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """One complete checkpoint of a table's log."""

    version: int
    names: tuple[str, ...]
    """One file, or all parts of it."""

    @property
    def has_own_name(self) -> bool:
        """Whether its name holds an id: only one of version 2 does."""
        return _OWN_NAME.search(self.names[0]) is not None


@dataclass(frozen=True, slots=True)
class DeltaLogListing:
    """The versions of a table of which something is left."""

    commits: BatchIds = field(default_factory=BatchIds)
    """Versions whose commit file is there."""
    checksums: BatchIds = field(default_factory=BatchIds)
    """Versions with a `.crc` of Delta, which is not one of Hadoop."""
    checkpoints: tuple[CheckpointFiles, ...] = ()
    """Complete ones, oldest first; one a version."""
    newest_trace: int | None = None
    """The newest version of which anything is left, be it a part of a checkpoint or a checksum."""

    @property
    def newest(self) -> int | None:
        """The newest version; None if there is no table."""
        checkpoint = None
        if self.checkpoints:
            checkpoint = self.checkpoints[-1].version
        found = [version for version in (self.commits.newest, checkpoint) if version is not None]
        return max(found, default=None)

    @property
    def unbroken(self) -> range:
        """The versions up to the newest whose commit files are all there; empty if the newest has none."""
        runs = self.commits.runs
        newest = self.newest
        if newest is None or not runs or runs[-1][-1] != newest:
            return range(0)
        return runs[-1]


def name_commit(version: int) -> str:
    """Name of the commit file of a version."""
    return f"{version:020d}.json"


def name_checksum(version: int) -> str:
    """Name of Delta's own checksum file of a version."""
    return f"{version:020d}.crc"


def list_delta_log(names: Iterable[str]) -> DeltaLogListing:
    """Sort the names in `_delta_log`."""
    commits, checksums, traces = [], [], []
    parts: dict[tuple[int, int], dict[int, str]] = {}
    for name in names:
        if found := _OF_A_VERSION.fullmatch(name):
            traces.append(int(found[1]))
        if found := _COMMIT.fullmatch(name):
            commits.append(int(found[1]))
        elif found := _CHECKSUM.fullmatch(name):
            checksums.append(int(found[1]))
        elif found := _CHECKPOINT.fullmatch(name):
            of_version = parts.setdefault((int(found[1]), int(found[3] or 1)), {})
            part = int(found[2] or 1)
            of_version[part] = min(name, of_version.get(part, name))  # several of one version hold the same
    whole: dict[int, CheckpointFiles] = {}
    for (version, count), found_names in sorted(parts.items()):
        if len(found_names) == count and min(found_names) == 1 and max(found_names) == count:
            names_in_order = tuple(found_names[part] for part in sorted(found_names))
            whole.setdefault(version, CheckpointFiles(version, names_in_order))
    return DeltaLogListing(
        BatchIds.of(commits), BatchIds.of(checksums), tuple(whole.values()), max(traces, default=None)
    )


def list_staged_versions(names: Iterable[str]) -> BatchIds:
    """The versions of which there is a file in one of `STAGED_FOLDERS`; which of them count, a catalog alone knows."""
    found = (_STAGED.fullmatch(name) for name in names)
    return BatchIds.of(int(each[1]) for each in found if each)
