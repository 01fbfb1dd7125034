"""Files that a file source has noted down, and that the next batches are to read. Pure.

A source notes a file down before the plan that reads it is written, and never looks for it again: one that is gone by
then is left out without an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.source_offsets import FileOffset, SourceOffset
from lastgood.planning.pricing import find_ends
from lastgood.planning.standing import Standing
from lastgood.query.prediction.restart import Outcome
from lastgood.query.sinks import NONE
from lastgood.query.source_logs import find_logs_behind
from lastgood.sources.files.facts import (
    FileFacts,
    FileState,
    describe_assumed_max_age,
    describe_left_out,
    find_least_age_to_hold,
)


def find_left_out(standing: Standing) -> dict[str, tuple[FileFacts, ...]]:
    """Per source the files that the next batches would leave out, or read otherwise than a first attempt."""
    found: dict[str, tuple[FileFacts, ...]] = {}
    for source_id, each, is_planned in _list_unread(standing):
        if each.state is FileState.MISSING or (is_planned and each.state is FileState.CHANGED):
            found[source_id] = (*found.get(source_id, ()), each)
    return found


def describe_left_out_files(source_id: str, files: tuple[FileFacts, ...]) -> str:
    """The first of them, and how many more there are."""
    more = "" if len(files) == 1 else f", and so are {len(files) - 1} more"
    return f"source {source_id}: {files[0].file.path} is {files[0].state.value}{more}"


def list_never_read(standing: Standing) -> list[str]:
    """The sources that note down what they find next under numbers that count as read; one line each."""
    return [
        f"source {source_id}: its log has lost {_name_entries(lost)}, which a plan has read: what it finds next is"
        " noted down under such a number, and no batch reads it"
        for source_id, lost in find_logs_behind(standing.checkpoint).items()
    ]


def _name_entries(lost: range) -> str:
    return f"entry {lost[0]}" if len(lost) == 1 else f"entries {lost[0]} to {lost[-1]}"


def list_unknown(standing: Standing) -> list[str]:
    """The sources whose files nobody could look at; one line each."""
    found: dict[str, str | None] = {}
    for source_id, each, _ in _list_unread(standing):
        if each.state is FileState.UNKNOWN:
            found.setdefault(source_id, each.because)
    return [
        f"the assumption that the files which source {source_id} is still to read are there: {because}"
        for source_id, because in found.items()
    ]


def list_assumed_ages(standing: Standing) -> Iterator[str]:
    """What is taken to be so of `maxFileAge`, where files that were read have been written again; one line each."""
    for source_id, again in standing.observed.files_again.items():
        least_ms = find_least_age_to_hold(again)
        if least_ms is not None:
            told = describe_assumed_max_age(source_id, least_ms)
            yield f"the assumption that {told}: else files that were written again are read once more"


def list_taken_for_others(standing: Standing) -> Iterator[str]:
    """That files which Spark takes for too old are none of the query's, where there are any; one line each."""
    for source_id, again in standing.observed.files_again.items():
        told = describe_left_out(source_id, again)
        if told is not None:
            yield f"the assumption that {told}"


def _get_log_offset(offset: SourceOffset | None) -> int:
    if isinstance(offset, FileOffset):
        return offset.log_offset
    return NONE


def _list_unread(standing: Standing) -> Iterator[tuple[str, FileFacts, bool]]:
    """Each with its source, and whether the newest plan reads it."""
    restart = standing.restart
    is_held = restart.outcome is Outcome.RERUNS and standing.common == standing.planned
    if is_held:
        done = standing.planned
    else:
        done = (restart.batch or 0) - 1
    read, planned = find_ends(standing.plan(done)), find_ends(standing.plan(standing.planned))
    for source_id, files in standing.observed.files.items():
        first, last = _get_log_offset(read.get(source_id)), _get_log_offset(planned.get(source_id))
        yield from ((source_id, each, each.file.log_id <= last) for each in files if each.file.log_id > first)
