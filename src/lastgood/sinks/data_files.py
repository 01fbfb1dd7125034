"""Data files that the log of a sink names: which of them are gone, or are not as long as it says. Pure.

A driver or a machine that dies may leave a file empty or cut short beside a log that is whole: the log was made to last
and the file was not. Spark looks at none of that when it starts, and counts the batch as written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lastgood.frozen import dataclass
from lastgood.sinks.evidence import SinkEvidence


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file as the log tells of it."""

    path: str
    """Below the folder of the sink, as it is there."""
    size: int | None
    """Bytes; None: the log does not say."""
    batch_id: int | None
    """The batch that wrote it; None: not told."""

    @property
    def folder(self) -> str:
        """Where it lies below the folder of the sink; empty for that itself."""
        return self.path.rpartition("/")[0]


def join_below(folder: str, name: str) -> str:
    """The path of a file in a folder below that of the sink, which is the empty one."""
    if folder:
        return f"{folder}/{name}"
    return name


def add_broken_files(found: SinkEvidence, files: Sequence[DataFile], sizes: Mapping[str, int | None]) -> SinkEvidence:
    """What a sink says, knowing which of its files are gone or cut short.

    Args:
        found: What its log says.
        files: Those that were looked for.
        sizes: Bytes of each that is there, by its path; None: not told.
    """
    gone = [file for file in files if file.path not in sizes]
    damaged = list(_find_damaged(files, sizes))
    broken = [*gone, *damaged]
    batches = [file.batch_id for file in broken if file.batch_id is not None]
    broken_from = None
    if len(batches) == len(broken):
        broken_from = min(batches, default=None)
    return replace(
        found,
        files_gone=_sort_paths(gone),
        files_damaged=_sort_paths(damaged),
        broken_from=broken_from,
    )


def _find_damaged(files: Sequence[DataFile], sizes: Mapping[str, int | None]) -> Iterable[DataFile]:
    """Files of another size than the log says.

    Where each is longer by one and the same, the storage counts otherwise: so does S3 for what a client has encrypted.
    """
    more: dict[DataFile, int] = {}
    for file in files:
        size = sizes.get(file.path)
        if size is not None and file.size is not None:
            more[file] = size - file.size
    is_counted_otherwise = len(set(more.values())) == 1 and min(more.values()) > 0
    if is_counted_otherwise:
        return ()
    return [file for file, difference in more.items() if difference]


def _sort_paths(files: Iterable[DataFile]) -> tuple[str, ...]:
    return tuple(sorted(file.path for file in files))
