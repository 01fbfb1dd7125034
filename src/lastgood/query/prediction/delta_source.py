"""What a Delta source says of a table that no longer has what its offsets stand for. Pure."""

from __future__ import annotations

from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.lines import is_long
from lastgood.checkpoint.source_offsets import (
    DELTA_BEGINNING_WRITTEN,
    DELTA_VERSION_NEWEST,
    DELTA_VERSIONS,
    DeltaOffset,
    JsonOffset,
    SourceOffset,
)
from lastgood.query.prediction.restart import StartStage, Stop, StoppedError
from lastgood.sources.delta.facts import DeltaFacts, Serving, can_serve

_FIELDS = {"sourceVersion", "reservoirId", "reservoirVersion", "index"}
_OTHER_TABLE = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
_FORM_TOO_NEW = "DELTA_INVALID_FORMAT_FROM_SOURCE_VERSION"
_FORM_UNKNOWN = "DELTA_INVALID_SOURCE_VERSION"
_BEGINNING_UNKNOWN = "assertion failed: Index should never be -1"
_REFUSALS = (_OTHER_TABLE, _FORM_TOO_NEW, _FORM_UNKNOWN, _BEGINNING_UNKNOWN)


def is_refused(stop: Stop) -> bool:
    """Whether Delta stops at what a plan has for its offset, whatever the table is."""
    return stop.subject.startswith(f"{OFFSETS}/") and stop.error in _REFUSALS


def open_table(table: DeltaFacts) -> None:
    """The application names the table, before the query begins.

    Raises:
        StoppedError: there is none.
    """
    if table.exists is False:
        raise StoppedError(Stop(StartStage.START, "DELTA_SCHEMA_NOT_SET", table.location, "there is no table"))


def read_offset(offset: SourceOffset, path: str) -> None:
    """Delta reads an offset, from what some file says of it.

    Raises:
        StoppedError: it is none that Delta takes.
    """
    error = _refuse_form(offset)
    if error is not None:
        raise StoppedError(Stop(StartStage.START, error, path, "Delta does not take this form of its offsets"))


def require_same_table(start: SourceOffset, end: SourceOffset, path: str) -> None:
    """Delta compares the table of both ends of a range with the one that it has.

    Raises:
        StoppedError: they are of two tables, of which it has one at most.
    """
    if isinstance(start, DeltaOffset) and isinstance(end, DeltaOffset) and start.table_id != end.table_id:
        because = f"it ends in table {end.table_id}, and begins in {start.table_id}"
        raise StoppedError(Stop(StartStage.START, _OTHER_TABLE, path, because))


def _refuse_form(offset: SourceOffset) -> str | None:
    """How Delta refuses what has the fields of its offsets and is none; None of what it is not known to refuse."""
    if isinstance(offset, DeltaOffset):
        return _BEGINNING_UNKNOWN if offset.place[1] == DELTA_BEGINNING_WRITTEN else None
    if not isinstance(offset, JsonOffset) or not isinstance(offset.value, dict):
        return None
    version = offset.value.get("sourceVersion")
    if not offset.value.keys() >= _FIELDS or not is_long(version):
        return None
    if version > DELTA_VERSION_NEWEST:
        return _FORM_TOO_NEW
    return _FORM_UNKNOWN if version not in DELTA_VERSIONS else None


def read_range(
    table: DeltaFacts, start: DeltaOffset | None, end: DeltaOffset, *, fail_on_data_loss: bool
) -> str | None:
    """The range from `start` to `end` is asked for: when a batch runs, and once more when the query goes on after it.

    Returns:
        What is not known and may change the answer; None if nothing.

    Raises:
        StoppedError: the table cannot serve it.
    """
    if table.table_id is not None and table.table_id != end.table_id:
        raise StoppedError(Stop(StartStage.START, _OTHER_TABLE, table.location, "it was created again"))
    first = start or end
    answer = can_serve(table, first)
    latest = -1 if table.latest_version is None else table.latest_version
    is_beyond = answer.serving is not Serving.UNKNOWN and end.table_version > latest + 1
    if is_beyond and fail_on_data_loss:
        because = f"the table ends at version {latest}, and was read up to {end.table_version}"
        raise StoppedError(Stop(StartStage.START, "DELTA_STREAMING_TRAILING_COMMIT_MISSING", table.location, because))
    if answer.serving is Serving.UNKNOWN or is_beyond:
        return f"{table.location}: {answer.because}"
    if answer.serving is Serving.YES:
        return None
    if not answer.lost_versions:
        error = "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"
        raise StoppedError(Stop(StartStage.START, error, table.location, answer.because))
    if fail_on_data_loss:
        error = "DELTA_MISSING_FILES_UNEXPECTED_VERSION"
        raise StoppedError(Stop(StartStage.START, error, table.location, answer.because))
    return None


def explain_unseen_files(table: DeltaFacts, unread: DeltaOffset) -> str | None:
    """What the log of a table cannot tell of what follows `unread`: whether its data files are there; None if none do.

    VACUUM takes the files of a version away while its commit stays, and Spark fails on them whatever its options.
    """
    latest = table.latest_version
    if table.unknown is not None or latest is None or unread.table_version > latest:
        return None
    versions = f"versions {unread.table_version} to {latest}"
    return f"{table.location}: whether the data files of {versions} are there, which VACUUM may have taken away"
