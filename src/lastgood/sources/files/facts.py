"""Files that a file source has planned: which are still there as they were, and which it would not find again. Pure."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable

from lastgood.checkpoint.file_logs import SourceFile
from lastgood.frozen import dataclass

MAX_FILE_AGE_DEFAULT_MS = 7 * 24 * 60 * 60 * 1000
"""Spark's `maxFileAge`."""


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

    @property
    def forgotten_after_ms(self) -> int | None:
        """A file that is newer than this makes Spark forget its name and read it, with `maxFileAge` at its default.

        None if it is as it was, or older: then Spark never does.
        """
        if self.modified_ms is None or self.modified_ms <= self.file.timestamp_ms:
            return None
        return self.file.timestamp_ms + MAX_FILE_AGE_DEFAULT_MS


def list_never_found_again(
    dropped: Iterable[SourceFile], kept: Collection[SourceFile], max_file_age_ms: int = MAX_FILE_AGE_DEFAULT_MS
) -> tuple[SourceFile, ...]:
    """The files that would be lost if their log entries were dropped: too old to be taken for new ones.

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


class Then(enum.Enum):
    """What Spark does with a file that was written again after it was read."""

    IGNORED = "ignored"
    """Its name is held, so that it is not looked into; until a file comes that is newer by more than `maxFileAge`."""
    READ_AGAIN = "read_again"
    """Its name is forgotten: it is taken for a new file, and read as a whole."""
    TOO_OLD = "too_old"
    """Its name is forgotten, and it is older than what Spark takes for new."""


def predict_file(facts: FileFacts, newest_ms: int, max_file_age_ms: int = MAX_FILE_AGE_DEFAULT_MS) -> Then | None:
    """What Spark does with a file that its log names; None for one that is as it was, gone or not known.

    Spark forgets a name whose logged time is older than the newest logged one by more than `maxFileAge`; with
    `latestFirst` and a limit per trigger it forgets none.

    Args:
        facts: The file, as the newest entry that names it has it.
        newest_ms: The newest time that the log holds.
        max_file_age_ms: The source's `maxFileAge`.
    """
    if facts.state is not FileState.CHANGED or facts.modified_ms is None:
        return None
    oldest_ms = newest_ms - max_file_age_ms
    if facts.file.timestamp_ms >= oldest_ms:
        return Then.IGNORED
    return Then.READ_AGAIN if facts.modified_ms >= oldest_ms else Then.TOO_OLD


@dataclass(frozen=True, slots=True)
class WrittenAgain:
    """Files of one source that were written again since it had read them."""

    files: tuple[FileFacts, ...]
    """By the time of their change, the newest first."""
    newest_ms: int
    """The newest time that the source's log holds."""
    looked_at: int
    """How many of the files that were read lie in a folder that was listed."""
    of: int
    """How many were read."""
    left_out: tuple[str, ...] = ()
    """Files beside them, named alike, that no entry of the log names and that are too old to be taken for new."""

    def by_fate(self) -> dict[Then, list[FileFacts]]:
        """The files by what Spark does with them; no entry where there is none."""
        found: dict[Then, list[FileFacts]] = {}
        for each in self.files:
            fate = predict_file(each, self.newest_ms)
            if fate is not None:
                found.setdefault(fate, []).append(each)
        return found


def find_least_age_to_find(dropped: Iterable[SourceFile], kept: Collection[SourceFile]) -> int | None:
    """The smallest `maxFileAge`, in milliseconds, with which Spark finds all of these files again.

    Args:
        dropped: Files of the entries that would go.
        kept: Files of those that would stay.

    Returns:
        None where it finds them with any.
    """
    newest_ms = max((file.timestamp_ms for file in kept), default=0)
    return max((newest_ms - file.timestamp_ms for file in dropped if file.timestamp_ms < newest_ms), default=None)


def find_least_age_to_hold(again: WrittenAgain) -> int | None:
    """The smallest `maxFileAge`, in milliseconds, with which Spark holds the names that it is taken to hold.

    None where it holds them with any: then it matters to no file that was written again.
    """
    held = [each.file.timestamp_ms for each in again.by_fate().get(Then.IGNORED, [])]
    return max((again.newest_ms - time_ms for time_ms in held if time_ms < again.newest_ms), default=None)


def describe_assumed_max_age(source_id: str, least_ms: int) -> str:
    """What is taken to be so of an option that neither checkpoint nor recorder tells, in words."""
    hours = f"{least_ms / 3_600_000:,.2f} hours or more, as Spark's default of seven days is"
    return f"maxFileAge of source {source_id}, which no file records, is {hours}"


def describe_left_out(source_id: str, again: WrittenAgain) -> str | None:
    """What is taken to be so of files that lie beside those that were read, in words; None where there are none.

    By which pattern a source chooses its files no file tells, so that these may be of another query.
    """
    if not again.left_out:
        return None
    count = len(again.left_out)
    which = f"{again.left_out[0]} is" if count == 1 else f"{count:,} files, such as {again.left_out[0]}, are"
    return (
        f"{which} not for source {source_id}, whose log does not name what lies there: older than the newest that it"
        " has read by more than maxFileAge (seven days unless set), it is never read"
    )
