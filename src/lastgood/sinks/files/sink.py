"""Spark's file sink: the folder `_spark_metadata` lists what counts, and its newest number is what is skipped up to.

It knows no query: whichever writes there next goes on with the same numbers.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import field, replace
from functools import partial
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import (
    SinkFile,
    SinkLogEntry,
    derive_compact_interval,
    is_compaction,
    list_ids_read_at_start,
    parse_sink_log_entry,
)
from lastgood.checkpoint.layout import SINK_LOG
from lastgood.checkpoint.logs import BatchIds, LogListing, list_log
from lastgood.checkpoint.reader import read_file
from lastgood.errors import StorageError, explain_error
from lastgood.frozen import dataclass
from lastgood.sinks.data_files import DataFile, add_broken_files, join_below
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, make_silent_evidence
from lastgood.sinks.files.kind import FILE_SINK, NOTE
from lastgood.storage.parallel import Deadline, ask_all, ask_one
from lastgood.storage.reading import Entry, Location, LocationInvalidError, Storage, parse_location

TIMEOUT_SECONDS = 10.0
ENTRIES_DEFAULT = 200
"""How many of the newest entries are read, beside those that Spark reads itself."""

_ENTRY_BYTES_MAX = 256 * 1024 * 1024
_LISTED_MAX = 10_000
_FOLDERS_MAX = 20
_MISSING_MAX = 100
"""Of so many of the newest files, and in so many folders, is looked up whether they are there, and whole."""


@dataclass(frozen=True, slots=True)
class FileSinkLog:
    """The folder `_spark_metadata` as it was when it was read."""

    location: str
    listing: LogListing
    entries: Mapping[int, SinkLogEntry | Damage] = field(default_factory=dict)
    """The newest ones; a compact one holds the files of all batches up to it."""

    @property
    def ids(self) -> BatchIds:
        """The batches whose entry is there."""
        return self.listing.ids

    @property
    def interval(self) -> int:
        """The compaction interval that the folder shows."""
        return derive_compact_interval(self.listing.compact)

    @property
    def needed(self) -> range:
        """The entries that Spark has to read to know what counts."""
        if self.ids.newest is None:
            return range(0)
        return self._needed_for(self.ids.newest)

    @property
    def missing(self) -> tuple[int, ...]:
        """Those of them that are not there, the oldest ones: Spark cannot read the folder, and cannot compact it."""
        unreadable = (each for gap in self._there.missing(self.needed) for each in gap)
        return tuple(itertools.islice(unreadable, _MISSING_MAX))

    @property
    def _there(self) -> BatchIds:
        return BatchIds.of(batch_id for batch_id in self.ids.within(self.needed) if self._can_be_read(batch_id))

    @property
    def names(self) -> tuple[str, ...]:
        """What lies in the log, but for checksums that belong to an entry and writes that were never finished."""
        listing = self.listing
        entries = (listing.entry_name(n) for n in listing.ids)
        return (*entries, *listing.noncanonical, *listing.stale_checksums, *listing.foreign)

    @property
    def unreadable(self) -> tuple[int, ...]:
        """What a reader needs and cannot read: entries that are missing or damaged, and names such as `006`."""
        damaged = (n for n in self.ids.within(self.needed) if isinstance(self.entries.get(n), Damage))
        unopened = (batch_id for batch_id in self.listing.noncanonical.values() if batch_id not in self.ids)
        return tuple(sorted({*self.missing, *damaged, *unopened}))

    @property
    def oldest_boundary(self) -> int | None:
        """The oldest batch back to which the folder can be cut; None if to none."""
        return next((batch_id for batch_id in self.ids if self.can_be_cut_to(batch_id)), None)

    @property
    def listed_files(self) -> tuple[SinkFile, ...] | None:
        """Every file that counts, by the entries that Spark reads; None if one of them is missing or damaged."""
        files: dict[str, SinkFile] = {}
        for batch_id in self.needed:
            entry = self.entries.get(batch_id)
            if entry is None or isinstance(entry, Damage):
                return None
            for file in entry:
                if file.action == "add":
                    files[file.path] = file
                else:
                    files.pop(file.path, None)
        return tuple(files.values())

    def can_be_cut_to(self, batch_id: int) -> bool:
        """Whether everything up to a batch can still be told once all later entries are gone."""
        return batch_id in self.ids and all(self._can_be_read(one) for one in self._needed_for(batch_id))

    def files_of(self, batch_id: int) -> tuple[SinkFile, ...] | None:
        """The files that one batch wrote; None if they cannot be told from those of earlier ones.

        Those of a compaction are what it lists beyond the entries before it.
        """
        entry = self.entries.get(batch_id)
        if entry is None or isinstance(entry, Damage):
            return None
        if batch_id not in self.listing.compact:
            return tuple(entry)
        earlier: set[str] = set()
        for before in self._needed_for(batch_id - 1) if batch_id else ():
            found = self.entries.get(before)
            if found is None or isinstance(found, Damage):
                return None
            earlier.update(file.path for file in found)
        return tuple(file for file in entry if file.path not in earlier)

    def _needed_for(self, newest: int) -> range:
        """Without any compaction nobody can tell the interval: then all entries count."""
        if self.listing.compact:
            return list_ids_read_at_start(newest, self.interval)
        return range(newest + 1)

    def _can_be_read(self, batch_id: int) -> bool:
        if is_compaction(batch_id, self.interval) and self.listing.compact:
            return batch_id in self.listing.compact
        return batch_id in self.ids


class FileSink:
    """A folder that Spark's file sink writes."""

    kind = FILE_SINK.name

    def __init__(
        self,
        storage: Storage,
        folder: Location,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        entries_max: int = ENTRIES_DEFAULT,
    ) -> None:
        """Describe a folder; nothing is read yet.

        Args:
            storage: From `open_storage(folder)`.
            folder: What the application gives as `path`.
            timeout_seconds: How long reading may take.
            entries_max: How many of the newest batches to look at one by one.
        """
        self._storage = storage
        self._folder = folder
        self._timeout_seconds = timeout_seconds
        self._entries_max = entries_max

    @property
    def location(self) -> str:
        """Where the folder is."""
        return str(self._folder)

    def read(self) -> FileSinkLog | None:
        """The log of the sink; None if the folder has none.

        Raises:
            StorageError: the storage does not answer in time, or does not let us look.
        """
        log_folder = self._folder / SINK_LOG
        deadline = Deadline.after(self._timeout_seconds)
        names = ask_one(lambda: _list_folder(self._storage, log_folder), deadline=deadline, subject=str(log_folder))
        if names is None:
            return None
        log = FileSinkLog(self.location, list_log(names, compactible=True))
        wanted = sorted({*log.ids.last(self._entries_max), *log.ids.within(log.needed)})
        files = [log_folder / log.listing.entry_name(n) for n in wanted]
        answers = ask_all(
            [partial(read_file, self._storage, file, parse_sink_log_entry, limit=_ENTRY_BYTES_MAX) for file in files],
            parallel=self._storage.parallel,
            deadline=deadline,
            subject=str(log_folder),
        )
        entries = {n: answer.or_raise() for n, answer in zip(wanted, answers, strict=True)}
        return FileSinkLog(self.location, log.listing, {n: entry for n, entry in entries.items() if entry is not None})

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        """What the folder says, the same for every query; see `Sink.evidence`."""
        try:
            log = self.read()
            is_empty = log is not None or not self._list_others()
        except StorageError as error:
            return make_silent_evidence(self.kind, self.location, DedupeKey.DIRECTORY, error)
        found = judge_sink_log(log, self.location)
        if log is not None:
            return self._with_broken_files(log, self._with_time(log, found))
        if is_empty:
            return found
        because = f"there are files, but no {SINK_LOG}: it may have been deleted"
        return replace(found, known=False, because=because, complete_from=None)

    def _list_others(self) -> set[str]:
        """What lies in the folder itself, but for the note that says whose it is."""
        names = ask_one(
            lambda: _list_folder(self._storage, self._folder),
            deadline=Deadline.after(self._timeout_seconds),
            subject=self.location,
        )
        return set(names or ()) - {NOTE}

    def _with_time(self, log: FileSinkLog, found: SinkEvidence) -> SinkEvidence:
        """The same, knowing when its newest batch was written where that left no file which could tell."""
        newest = found.last_batch
        if newest is None or log.files_of(newest):
            return found
        entry = self._folder / SINK_LOG / log.listing.entry_name(newest)
        try:
            answer = ask_one(
                lambda: self._storage.stat(entry), deadline=Deadline.after(self._timeout_seconds), subject=str(entry)
            )
        except StorageError:
            return found  # then nobody tells when it was written
        if answer is None:
            return found
        return replace(found, marked_at_ms=answer.modified_ms)

    def _with_broken_files(self, log: FileSinkLog, found: SinkEvidence) -> SinkEvidence:
        """The same, knowing which files count and are gone or cut short, as far as they lie in the folder itself.

        The log names them by whole URIs: those of a folder that was moved are not looked for.
        """
        files = _list_below(self._folder, log)
        folders = {file.folder: self._folder for file in files}
        for below in filter(None, folders):
            folders[below] = self._folder / below
        answers = ask_all(
            [partial(_list_files, self._storage, folder) for folder in folders.values()],
            parallel=self._storage.parallel,
            deadline=Deadline.after(self._timeout_seconds),
            subject=self.location,
        )
        sizes: dict[str, int | None] = {}
        for below, answer in zip(folders, answers, strict=True):
            if answer.error is not None:
                return replace(found, files_untold=explain_error(answer.error))
            for entry in answer.value or ():
                sizes[join_below(below, entry.name)] = entry.size
        return add_broken_files(found, files, sizes)


def _list_below(folder: Location, log: FileSinkLog) -> list[DataFile]:
    """The files that count and lie below a folder, the newest first; no more than are looked for."""
    batch_of: dict[str, int] = {}
    for batch_id in sorted(log.entries, reverse=True):
        batch_of |= {file.path: batch_id for file in log.files_of(batch_id) or ()}
    root = f"{folder.identity}/"
    found: list[DataFile] = []
    folders: set[str] = set()
    for file in reversed(log.listed_files or ()):
        try:
            place = parse_location(unquote(file.path)).identity
        except LocationInvalidError:
            continue  # in a storage that we do not know, so elsewhere
        if not place.startswith(root):
            continue
        each = DataFile(place.removeprefix(root), file.size, batch_of.get(file.path))
        if each.folder not in folders and len(folders) == _FOLDERS_MAX:
            continue
        folders.add(each.folder)
        found.append(each)
        if len(found) == _LISTED_MAX:
            break
    return found


def judge_sink_log(log: FileSinkLog | None, location: str) -> SinkEvidence:
    """What the log of a file sink says. Pure; None for a folder without one."""
    if log is None or log.listing.newest_listed is None:
        is_empty = log is not None
        notes = (f"{SINK_LOG} is there and empty: Spark reads the folder as an empty table",) if is_empty else ()
        if is_empty:
            because = f"{SINK_LOG} is empty"
        else:
            because = f"there is no {SINK_LOG}"
        return SinkEvidence(
            kind=FileSink.kind,
            location=location,
            dedupe_key=DedupeKey.DIRECTORY,
            last_batch=None,
            known=True,
            because=because,
            complete_from=0,
            notes=notes,
        )
    newest = log.listing.newest_listed
    complete_from = None
    if log.ids.runs:
        complete_from = log.ids.runs[-1].start
    return SinkEvidence(
        kind=FileSink.kind,
        location=location,
        dedupe_key=DedupeKey.DIRECTORY,
        last_batch=newest,
        known=True,
        because=f"the newest entry of {SINK_LOG}",
        skips_up_to=newest,
        batches=tuple(_make_batch(log, batch_id) for batch_id in sorted(log.entries)),
        complete_from=complete_from,
        unreadable=log.unreadable,
        log_names=log.names,
        back_to=log.oldest_boundary,
        back_because="older entries of its log are gone, or folded into one",
        times_by_driver=location.startswith("/"),
        notes=tuple(_list_notes(log)),
    )


def _make_batch(log: FileSinkLog, batch_id: int) -> CommittedBatch:
    files = log.files_of(batch_id) or ()
    written_ms = max((file.modification_time_ms for file in files), default=None)
    return CommittedBatch(batch_id, committed_at_ms=written_ms, is_streaming=True)


def _list_notes(log: FileSinkLog) -> list[str]:
    notes = []
    if log.missing:
        listed = ", ".join(map(str, log.missing))
        notes.append(f"entries {listed} of {SINK_LOG} are missing: Spark cannot read the folder")
    damaged = [batch_id for batch_id, entry in sorted(log.entries.items()) if isinstance(entry, Damage)]
    if damaged:
        notes.append(f"entries {', '.join(map(str, damaged))} of {SINK_LOG} are damaged")
    if log.listing.noncanonical:
        names = ", ".join(sorted(log.listing.noncanonical))
        notes.append(f"Spark counts {names} in {SINK_LOG} and cannot open them")
    return notes


def _list_folder(storage: Storage, folder: Location) -> list[str] | None:
    names = storage.names(folder)
    if names is None:
        return None
    return list(names)


def _list_files(storage: Storage, folder: Location) -> list[Entry] | None:
    entries = storage.scan(folder)
    if entries is None:
        return None
    return [entry for entry in entries if not entry.is_folder]
