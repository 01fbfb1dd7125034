"""Looks what has become of files that a file source has planned, in the folders where they lie."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from urllib.parse import unquote

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.errors import StorageError, explain_error
from lastgood.sources.files.facts import MAX_FILE_AGE_DEFAULT_MS, FileFacts, FileState, WrittenAgain
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import Entry, Location, Storage, open_storage, parse_location

TIMEOUT_SECONDS = 10.0
_FOLDERS_MAX = 32
_ENTRIES_MAX = 100_000
"""Of one folder: as many as a listing of a few seconds holds."""
_SECOND_MS = 1000
_PATTERN = re.compile(r"[][{}*?\\]")
_URI_PATH = re.compile(r"((?:[A-Za-z][A-Za-z0-9+.-]*:)?(?://[^/]*)?)(.*)", re.DOTALL)


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
    return tuple(_make_facts(file, answer.value, answer.error) for file, answer in zip(files, answers, strict=True))


def locate_file(uri: str) -> Location:
    """The place of a logged file: its path is a URI, whose special characters are encoded.

    Raises:
        LocationInvalidError: no storage that we know.
    """
    found = _URI_PATH.fullmatch(uri)
    assert found is not None  # it matches every text
    return parse_location(found[1] + unquote(found[2]))


def format_for_spark(uri: str) -> str:
    """A logged path as Spark's readers take it: they decode nothing, and take some characters for a pattern."""
    found = _URI_PATH.fullmatch(uri)
    assert found is not None  # it matches every text
    return found[1] + escape_pattern(unquote(found[2]))


def escape_pattern(path: str) -> str:
    """A path as Spark's readers take it, for which some of its characters would make it a pattern."""
    return _PATTERN.sub(r"\\\g<0>", path)


def find_written_again(
    logged: Iterable[SourceFile],
    up_to: int,
    *,
    open_at: Callable[[Location], Storage] = open_storage,
    timeout_seconds: float = TIMEOUT_SECONDS,
    is_whole: bool = True,
) -> WrittenAgain:
    """Look which files were written again after they were read, by listing the folders that were read last.

    A folder that cannot be listed within the time limit, or is not among the newest, is not looked at.

    Args:
        logged: Entries of the source's log, oldest first: the newest that names a file counts.
        up_to: The entry up to which they were read. Those behind it wait; Spark goes by their times as well.
        open_at: Gives access to the storage of a folder.
        timeout_seconds: For all folders together.
        is_whole: Whether `logged` is all of the log: else nobody can say of a file that it is not named there.

    Raises:
        ExtraMissingError: the library for a storage is not installed.
    """
    entries = tuple(logged)
    newest_ms = max((file.timestamp_ms for file in entries), default=0)
    newest = {file.path: file for file in entries}
    named = {path: file for path, file in newest.items() if file.log_id <= up_to}
    folders: dict[str, list[SourceFile]] = {}
    for file in sorted(named.values(), key=lambda file: file.timestamp_ms, reverse=True):
        folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    asked = list(folders.items())[:_FOLDERS_MAX]
    opened = _Storages(open_at)
    ways = [partial(opened.times, folder) for folder, _ in asked]
    samples = [files[0] for _, files in asked]
    answers = ask_all(
        ways,
        parallel=opened.parallel(samples),
        deadline=Deadline.after(timeout_seconds),
        subject="the folders of the source",
    )
    found, looked_at, left_out = [], 0, []
    for (folder, files), answer in zip(asked, answers, strict=True):
        times = answer.value or {}
        if is_whole:
            named_here = {_get_name(path) for path in newest if path.rpartition("/")[0] == folder}
            left_out += [f"{folder}/{name}" for name in _list_too_old(times, named_here, newest_ms)]
        there = [(file, times[name]) for file in files if (name := _get_name(file.path)) in times]
        looked_at += len(there)
        found += [
            FileFacts(file, FileState.CHANGED, now_ms)
            for file, now_ms in there
            if not _is_same_time(now_ms, file.timestamp_ms)
        ]
    found.sort(key=lambda each: each.modified_ms or 0, reverse=True)
    return WrittenAgain(tuple(found), newest_ms, looked_at, len(named), tuple(left_out))


def _get_name(path: str) -> str:
    return unquote(path).rpartition("/")[2]


def _list_too_old(times: Mapping[str, int], named: Collection[str], newest_ms: int) -> list[str]:
    """The files of a folder that are named as those that were read, and that Spark takes for too old."""
    endings = {PurePosixPath(name).suffix for name in named}
    oldest_ms = newest_ms - MAX_FILE_AGE_DEFAULT_MS
    return sorted(
        name
        for name, modified_ms in times.items()
        if modified_ms < oldest_ms
        and name not in named
        and not name.startswith(("_", "."))
        and PurePosixPath(name).suffix in endings
    )


class _Storages:
    """Storages by filesystem: each is opened once."""

    def __init__(self, open_at: Callable[[Location], Storage]) -> None:
        self._open_at = open_at
        self._opened: dict[tuple[str, str], Storage] = {}
        self._lock = threading.Lock()

    def stat(self, uri: str) -> Entry | None:
        location = locate_file(uri)
        return self._at(location).stat(location)

    def times(self, uri: str) -> dict[str, int]:
        """The time of change of each file in a folder, by name, as far as it is told."""
        location = locate_file(uri)
        listing = self._at(location).scan(location) or ()
        entries = islice(listing, _ENTRIES_MAX)
        return {each.name: each.modified_ms for each in entries if not each.is_folder and each.modified_ms is not None}

    def parallel(self, files: Sequence[SourceFile]) -> int:
        try:
            if not files:
                return 1
            return self._at(locate_file(files[0].path)).parallel
        except StorageError:
            return 1  # each file will say so

    def _at(self, location: Location) -> Storage:
        with self._lock:
            place = (location.scheme, location.authority)
            if place not in self._opened:
                self._opened[place] = self._open_at(location)
            return self._opened[place]


def _make_facts(file: SourceFile, entry: Entry | None, error: StorageError | None) -> FileFacts:
    if error is not None:
        return FileFacts(file, FileState.UNKNOWN, because=explain_error(error))
    if entry is None or entry.is_folder:
        return FileFacts(file, FileState.MISSING)
    if entry.modified_ms is None:
        return FileFacts(file, FileState.UNKNOWN, because="the storage does not say when it was changed")
    state = FileState.PRESENT if _is_same_time(entry.modified_ms, file.timestamp_ms) else FileState.CHANGED
    return FileFacts(file, state, entry.modified_ms)


def _is_same_time(one_ms: int, other_ms: int) -> bool:
    """Java 8, and several storages, know whole seconds only."""
    if one_ms % _SECOND_MS and other_ms % _SECOND_MS:
        return one_ms == other_ms
    return one_ms // _SECOND_MS == other_ms // _SECOND_MS
