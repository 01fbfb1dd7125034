"""Files that a file source has planned: which are still there as they were, and which it would not find again."""

from __future__ import annotations

import enum
import re
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import unquote

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.errors import StorageError
from lastgood.parallel import Deadline, ask_all, reason
from lastgood.storage import Entry, Location, Storage, open_storage, parse_location

TIMEOUT_SECONDS = 10.0
MAX_FILE_AGE_DEFAULT_MS = 7 * 24 * 60 * 60 * 1000
"""Spark's `maxFileAge`."""

_SECOND_MS = 1000
_URI_PATH = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?)(.*)", re.DOTALL)


class FileState(enum.Enum):
    """What has become of a file since it was planned."""

    PRESENT = "present"
    CHANGED = "changed"
    """It was written again: a batch that reads it again reads something else."""
    MISSING = "missing"
    """A batch that reads it again gets nothing of it, without an error."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file of a file source's log."""

    file: SourceFile
    state: FileState
    modified_ms: int | None = None
    """Time of its last change now; None if it is missing or nobody knows."""
    because: str | None = None
    """Why its state is unknown."""


def ask_files(
    files: Sequence[SourceFile],
    *,
    open_at: Callable[[Location], Storage] = open_storage,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> tuple[FileFacts, ...]:
    """Look which files are still there as they were logged; all at once, within a time limit.

    Args:
        files: Entries of a source's log, such as those of the batches that are not committed.
        open_at: Gives access to the storage of a file; they need not lie where the checkpoint does.
        timeout_seconds: For all together. Files that were not looked at by then are unknown.

    Returns:
        Facts in the order of `files`.

    Raises:
        ExtraMissingError: the library for a storage is not installed.
    """
    deadline = Deadline.after(timeout_seconds)
    opened = _Storages(open_at)
    answers = ask_all(
        [partial(opened.stat, file.path) for file in files],
        parallel=opened.parallel(files),
        deadline=deadline,
        subject="the files of the source",
    )
    return tuple(_facts(file, answer.value, answer.error) for file, answer in zip(files, answers, strict=True))


def file_location(uri: str) -> Location:
    """The place of a logged file: its path is a URI, whose special characters are encoded.

    Raises:
        LocationInvalidError: no storage that we know.
    """
    found = _URI_PATH.fullmatch(uri)
    assert found is not None  # it matches every text
    return parse_location(found[1] + unquote(found[2]))


def never_found_again(
    dropped: Iterable[SourceFile], kept: Collection[SourceFile], max_file_age_ms: int = MAX_FILE_AGE_DEFAULT_MS
) -> tuple[SourceFile, ...]:
    """The files that would be lost if their log entries were dropped: too old to be taken for new ones. Pure.

    Spark ignores files older than the newest logged one by more than `maxFileAge`; not with `latestFirst` and a limit
    per trigger.

    Args:
        dropped: Files of the entries that would go.
        kept: Files of those that would stay.
        max_file_age_ms: The source's `maxFileAge`.
    """
    newest_ms = max((file.timestamp_ms for file in kept), default=None)
    if newest_ms is None:
        return ()
    return tuple(file for file in dropped if file.timestamp_ms < newest_ms - max_file_age_ms)


class _Storages:
    """Storages by filesystem: each is opened once."""

    def __init__(self, open_at: Callable[[Location], Storage]) -> None:
        self._open_at = open_at
        self._opened: dict[tuple[str, str], Storage] = {}
        self._lock = threading.Lock()

    def stat(self, uri: str) -> Entry | None:
        location = file_location(uri)
        return self._at(location).stat(location)

    def parallel(self, files: Sequence[SourceFile]) -> int:
        try:
            return self._at(file_location(files[0].path)).parallel if files else 1
        except StorageError:
            return 1  # each file will say so

    def _at(self, location: Location) -> Storage:
        with self._lock:
            place = (location.scheme, location.authority)
            if place not in self._opened:
                self._opened[place] = self._open_at(location)
            return self._opened[place]


def _facts(file: SourceFile, entry: Entry | None, error: StorageError | None) -> FileFacts:
    if error is not None:
        return FileFacts(file, FileState.UNKNOWN, because=reason(error))
    if entry is None or entry.is_folder:
        return FileFacts(file, FileState.MISSING)
    if entry.modified_ms is None:
        return FileFacts(file, FileState.UNKNOWN, because="the storage does not say when it was changed")
    state = FileState.PRESENT if _same_time(entry.modified_ms, file.timestamp_ms) else FileState.CHANGED
    return FileFacts(file, state, entry.modified_ms)


def _same_time(one_ms: int, other_ms: int) -> bool:
    """Java 8, and several storages, know whole seconds only."""
    if one_ms % _SECOND_MS and other_ms % _SECOND_MS:
        return one_ms == other_ms
    return one_ms // _SECOND_MS == other_ms // _SECOND_MS
