"""What lies in `_delta_log`, told from names alone. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from lastgood.checkpoint.logs import BatchIds

DELTA_LOG = "_delta_log"

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(?:parquet|json)")


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """One complete checkpoint of a table's log."""

    version: int
    names: tuple[str, ...]
    """One file, or all parts of it."""


@dataclass(frozen=True, slots=True)
class DeltaLogListing:
    """The versions of a table of which something is left."""

    commits: BatchIds = field(default_factory=BatchIds)
    """Versions whose commit file is there."""
    checksums: BatchIds = field(default_factory=BatchIds)
    """Versions with a `.crc` of Delta, which is not one of Hadoop."""
    checkpoints: tuple[CheckpointFiles, ...] = ()
    """Complete ones, oldest first; one a version."""

    @property
    def newest(self) -> int | None:
        """The newest version; None if there is no table."""
        checkpoint = self.checkpoints[-1].version if self.checkpoints else None
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


def commit_name(version: int) -> str:
    """Name of the commit file of a version."""
    return f"{version:020d}.json"


def checksum_name(version: int) -> str:
    """Name of Delta's own checksum file of a version."""
    return f"{version:020d}.crc"


def list_delta_log(names: Iterable[str]) -> DeltaLogListing:
    """Sort the names in `_delta_log`."""
    commits, checksums = [], []
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if found := _COMMIT.fullmatch(name):
            commits.append(int(found[1]))
        elif found := _CHECKSUM.fullmatch(name):
            checksums.append(int(found[1]))
        elif found := _CHECKPOINT.fullmatch(name):
            parts.setdefault((int(found[1]), int(found[3] or 1)), []).append(name)
    whole: dict[int, CheckpointFiles] = {}
    for (version, count), found_names in sorted(parts.items()):
        if count == 1:  # several of one version hold the same
            whole[version] = CheckpointFiles(version, (min(found_names),))
        elif len(found_names) == count:
            whole.setdefault(version, CheckpointFiles(version, tuple(sorted(found_names))))
    return DeltaLogListing(BatchIds.of(commits), BatchIds.of(checksums), tuple(whole.values()))
