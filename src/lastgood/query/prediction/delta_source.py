"""What a Delta source says of a table that no longer has what its offsets stand for. Pure."""

from __future__ import annotations

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.query.prediction.restart import StartStage, Stop, StoppedError
from lastgood.sources.delta.facts import DeltaFacts, Serving, can_serve


def open_table(table: DeltaFacts) -> None:
    """The application names the table, before the query begins.

    Raises:
        StoppedError: there is none.
    """
    if table.exists is False:
        raise StoppedError(Stop(StartStage.START, "DELTA_SCHEMA_NOT_SET", table.location, "there is no table"))


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
        error, because = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE", "it was created again"
        raise StoppedError(Stop(StartStage.START, error, table.location, because))
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
