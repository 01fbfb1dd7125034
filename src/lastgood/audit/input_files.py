"""Whether the logs of file sources tell which files the committed batches have read, and name none twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lastgood.frozen import dataclass
from lastgood.observe.open_query import OpenQuery, SourceLogFile
from lastgood.sources.kafka.ranges import Range
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class NotListed(JsonValue):
    """Entries of a file source's log that are missing or damaged: what was read by them, nobody can tell."""

    json = make_form("source=source_id entries")
    """One element of `not_listed` of `verify --format json`."""

    source_id: str
    entries: Range
    """`[from, to)`."""


@dataclass(frozen=True, slots=True)
class FileTwice(JsonValue):
    """A file that the log of its source names twice, in one form: the batches have read it twice."""

    json = make_form("source=source_id file=path entries")
    """One element of `files_twice` of `verify --format json`."""

    source_id: str
    path: str
    entries: tuple[int, int]
    """Which two."""


@dataclass(frozen=True, slots=True)
class InputFiles:
    """What the logs of all file sources tell."""

    not_listed: tuple[NotListed, ...]
    twice: tuple[FileTwice, ...]


def check_input_files(query: OpenQuery, read_up_to: Mapping[str, int]) -> InputFiles:
    """Look at every entry of the logs that is left, in the checkpoint or in its mirror.

    Args:
        query: From `gather`, with its mirror.
        read_up_to: Per file source the newest entry that a committed batch has read.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    not_listed: list[NotListed] = []
    twice: list[FileTwice] = []
    for source_id, up_to in read_up_to.items():
        if source_id not in query.checkpoint.shared_logs:  # it may go by that of another one
            entries = list(query.source_entries(source_id))
            not_listed += (NotListed(source_id, gap) for gap in _find_gaps(entries, up_to))
            # A copy may be of a batch that was planned anew.
            own = [each for each in entries if not each.is_copy]
            twice += (FileTwice(source_id, path, pair) for path, pair in _find_twice(own, up_to))
    return InputFiles(tuple(not_listed), tuple(twice))


def _find_gaps(entries: Sequence[SourceLogFile], up_to: int) -> Iterator[Range]:
    """Ranges of entries that nobody has, up to one; a compact one holds all before it."""
    compacted = max((each.log_id for each in entries if each.is_compact), default=-1)
    expected = compacted + 1
    for log_id in sorted({each.log_id for each in entries if each.log_id > compacted}):
        if expected < log_id and expected <= up_to:
            yield expected, min(log_id, up_to + 1)
        expected = log_id + 1
    if expected <= up_to:
        yield expected, up_to + 1


def _find_twice(entries: Iterable[SourceLogFile], up_to: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each file that stands there twice with the same time; one that was written again since may be read again."""
    first_at: dict[tuple[str, int], int] = {}
    told: set[tuple[int, str]] = set()
    for each in entries:
        in_this: set[tuple[str, int]] = set()
        for file in each.entry:
            log_id = file.log_id if each.is_compact else each.log_id
            form = (file.path, file.timestamp_ms)
            first = first_at.setdefault(form, log_id)
            is_twice = first != log_id or form in in_this
            in_this.add(form)
            if is_twice and max(first, log_id) <= up_to and (log_id, file.path) not in told:
                told.add((log_id, file.path))
                yield file.path, (first, log_id)
