"""Findings about sources of any kind, about files and about Delta tables that are read as streams. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.file_logs import FileLogEntry, SourceFile
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import (
    DELTA_BEGINNING,
    OFFSET_EARLIEST,
    DeltaOffset,
    FileOffset,
    KafkaOffset,
    RateMicroBatchOffset,
    SourceOffset,
    get_topics,
)
from lastgood.checkpoint.source_order import OffsetStep, Steps
from lastgood.diagnosis import source_conditions as conditions
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.kafka_reading import name_partitions, select_positions, turn_ranges
from lastgood.diagnosis.rules_files import find_files_again
from lastgood.query.observation import Observation
from lastgood.query.prediction.delta_source import is_refused
from lastgood.query.prediction.restart import Restart
from lastgood.query.refills import is_refill
from lastgood.query.sink_batches import is_in_sinks
from lastgood.query.sinks import NONE
from lastgood.query.source_tables import find_written_anew
from lastgood.query.spans import SourceStand, Span, find_orphan, list_spans, list_stands
from lastgood.sources.delta.facts import DeltaFacts, DeltaServing, Serving, can_serve
from lastgood.sources.files.facts import MAX_FILE_AGE_DEFAULT_MS, FileFacts, FileState, list_never_found_again
from lastgood.sources.kafka.ranges import find_went_back, ranges_to_json

CONDITIONS: tuple[Condition, ...] = conditions.CONDITIONS

_NAMES_SHOWN = 20


def find_sources(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about every source, but for what only a Kafka broker can tell.

    Args:
        observed: What was found, and what storages and tables said if they were asked.
        restart: What Spark will do.
    """
    yield from _check_went_back(observed, restart)
    for source_id, files in observed.files.items():
        yield from _check_files(observed, restart, source_id, files)
    yield from _check_file_logs(observed)
    yield from find_files_again(observed)
    if restart.stop is not None and is_refused(restart.stop):
        found = {"because": restart.stop.because, "error": restart.stop.error}
        effect = "The query cannot start."
        yield Finding(conditions.SOURCE_OFFSET_REFUSED, restart.stop.subject, effect, found, observed.command("plan"))
    read = list_spans(observed.checkpoint)
    for stand in list_stands(observed.checkpoint):
        table = observed.tables.get(stand.source_id)
        if table is not None:
            own = [span for span in read if span.source_id == stand.source_id]
            yield from _check_table(observed, stand, own, table)


# Going back, whatever the source.


def _check_went_back(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Batches that end before they begin: history if they are done, and an obstacle if they are not."""
    steps = Steps()
    for span in list_spans(observed.checkpoint):
        evidence = _describe_back(span, steps)
        if evidence is None:
            continue
        evidence = {"source": span.source_id, "batch": span.batch_id, **evidence}
        subject = f"offsets/{span.batch_id}"
        command = observed.command("inspect", "--batch", str(span.batch_id))
        if span.is_done and restart.stop and restart.stop.subject == subject:
            effect = "The query cannot start: Spark asks once more for the newest batch, which ends before it begins."
            yield Finding(conditions.SOURCE_OFFSET_WENT_BACK, subject, effect, evidence, command)
        elif span.is_done and span.batch_id in observed.rewritten:
            recovery = observed.rewritten[span.batch_id]
            effect = f"Recovery {recovery} moved the query back: the batch after it reads again from where it ends now."
            plans = observed.checkpoint.offsets.entries
            if is_refill(plans.get(span.batch_id), plans.get(span.batch_id + 1)):
                effect = f"Recovery {recovery} emptied the state: the batch after it reads again what fills it."
            evidence = {**evidence, "recovery": recovery}
            command = observed.make_report_command(recovery)
            yield Finding(conditions.SOURCE_OFFSET_WENT_BACK, subject, effect, evidence, command, Severity.INFO)
        elif span.is_done:
            effect = (
                f"Batch {span.batch_id} read nothing of it, and what was written at these offsets before the next plan"
                " was not read."
            )
            yield Finding(conditions.SOURCE_OFFSET_WENT_BACK, subject, effect, evidence, command, Severity.WARNING)
        elif not _is_refused(span.end):
            effect = (
                f"Batch {span.batch_id} ends before it begins: only its source can tell what a start makes of that."
            )
            yield Finding(conditions.SOURCE_OFFSET_WENT_BACK, subject, effect, evidence, command)
        elif not isinstance(span.end, KafkaOffset):  # those are judged with all else that a broker can refuse
            effect = f"Batch {span.batch_id} ends before it begins: every start fails at it."
            yield Finding(conditions.ORPHAN_UNREPLAYABLE, subject, effect, evidence, command)


def find_batches_that_went_back(checkpoint: Checkpoint) -> frozenset[int]:
    """Done batches that end before they begin, or at the earliest offset, which may be before."""
    steps = Steps()
    return frozenset(
        span.batch_id
        for span in list_spans(checkpoint)
        if (_describe_back(span, steps) is not None or _is_at_earliest(span)) and span.is_done
    )


def _is_at_earliest(span: Span) -> bool:
    return any(offset == OFFSET_EARLIEST for parts in get_topics(span.end).values() for offset in parts.values())


def _describe_back(span: Span, steps: Steps) -> dict[str, object] | None:
    """How a batch goes back; None if it does not, or if its offsets have no order."""
    start, end = span.start, span.end
    if isinstance(start, KafkaOffset) and isinstance(end, KafkaOffset):
        back = find_went_back(select_positions(start.topics), select_positions(end.topics))
        if not back:
            return None
        return {"partitions": name_partitions(back), "went_back": ranges_to_json(turn_ranges(back))}
    if start is None or steps.step(span.source_id, start, end) is not OffsetStep.BACK:
        return None
    return {"start": start.to_text(), "end": end.to_text()}


def _is_refused(end: SourceOffset) -> bool:
    """Whether Spark is known not to run a batch of this source that ends before it begins."""
    return isinstance(end, KafkaOffset | FileOffset | RateMicroBatchOffset | DeltaOffset)


# Files.


def _check_files(
    observed: Observation, restart: Restart, source_id: str, files: tuple[FileFacts, ...]
) -> Iterator[Finding]:
    """What has become of the files of the newest plan, and of those that the source has noted down since."""
    planned = observed.checkpoint.last_planned
    if is_in_sinks(observed.checkpoint, observed.sinks):
        orphan = None
    else:
        orphan = find_orphan(observed.checkpoint)
    subject = f"sources/{source_id}"
    taken_for_done = _find_taken_for_done(observed, source_id)
    files = tuple(each for each in files if each.file.log_id not in taken_for_done)
    waiting = [each for each in files if each.file.log_id > _find_planned_up_to(observed, source_id)]
    yield from _check_waiting(subject, waiting)
    files = tuple(each for each in files if each not in waiting)
    by_state = {state: [each for each in files if each.state is state] for state in FileState}
    evidence: dict[str, object] = {"batch": planned, "of": len(files)}
    command = None
    if planned is not None:
        command = observed.command("inspect", "--batch", str(planned))
    if gone := by_state[FileState.MISSING]:
        found = {**evidence, "count": len(gone), "files": _list_paths(gone)}
        if orphan is None:
            done = "is in every sink" if observed.checkpoint.orphan == planned else "is committed"
            effect = f"Batch {planned} has read them and {done}; nobody can go back behind it."
            yield Finding(conditions.SOURCE_FILES_GONE, subject, effect, found, None, Severity.INFO)
        else:
            rows = "no rows at all" if len(gone) == len(files) else "the rows of the others only"
            when = "As soon as it can run, "
            if restart.batch == orphan and restart.stop is None:
                when = ""
            effect = f"{when}{'b' if when else 'B'}atch {orphan} runs with {rows}, and is committed without an error."
            yield Finding(conditions.SOURCE_FILES_GONE, subject, effect, found, command)
    if changed := by_state[FileState.CHANGED]:
        found = {**evidence, "count": len(changed), "files": _list_paths(changed)}
        if orphan is None:
            effect = "What was written into them since is not read: a file that is to be read again needs a new name."
        else:
            effect = f"Batch {orphan} reads what is in them now, not what its first attempt may have read."
        level = Severity.INFO if orphan is None else Severity.WARNING
        yield Finding(conditions.SOURCE_FILES_CHANGED, subject, effect, found, command, level)
    if unknown := by_state[FileState.UNKNOWN]:
        found = {**evidence, "count": len(unknown), "files": _list_paths(unknown), "because": unknown[0].because}
        effect = f"Nobody knows whether the files of batch {planned} are still there."
        level = Severity.INFO if orphan is None else Severity.WARNING
        yield Finding(conditions.SOURCE_UNKNOWN, subject, effect, found, command, level)


def _find_planned_up_to(observed: Observation, source_id: str) -> int:
    """The newest entry of a source's own log that the newest plan names."""
    newest = observed.checkpoint.newest_offsets
    line = None
    if newest is not None:
        line = newest.source(source_id)
    if line is not None and isinstance(line.offset, FileOffset):
        return line.offset.log_offset
    return -1


def _find_taken_for_done(observed: Observation, source_id: str) -> range:
    """The entries of a source's own log that are of no commit, and below the batch that runs again."""
    checkpoint = observed.checkpoint
    plan = None if checkpoint.last_committed is None else checkpoint.offsets.entries.get(checkpoint.last_committed)
    line = plan.source(source_id) if isinstance(plan, OffsetEntry) else None
    committed = NONE
    if line is not None and isinstance(line.offset, FileOffset):
        committed = line.offset.log_offset
    for stand in list_stands(checkpoint):
        if stand.source_id == source_id and stand.is_rerun and isinstance(stand.start, FileOffset):
            return range(committed + 1, stand.start.log_offset + 1)
    return range(0)


def _check_waiting(subject: str, files: list[FileFacts]) -> Iterator[Finding]:
    """Files that no plan names yet: the driver died between the entry of the source's own log and the plan."""
    gone = [each for each in files if each.state is FileState.MISSING]
    if gone:
        effect = "They are noted down to be read next, and the next batch leaves them out without an error."
        found: dict[str, object] = {"of": len(files), "count": len(gone), "files": _list_paths(gone)}
        yield Finding(conditions.SOURCE_FILES_GONE, subject, effect, found)
    unknown = [each for each in files if each.state is FileState.UNKNOWN]
    if unknown:
        effect = "Nobody knows whether the files are there that are noted down to be read next."
        found = {"count": len(unknown), "files": _list_paths(unknown), "because": unknown[0].because}
        yield Finding(conditions.SOURCE_UNKNOWN, subject, effect, found, None, Severity.WARNING)


def _check_file_logs(observed: Observation) -> Iterator[Finding]:
    """What a file source's own log says of files that are planned and not committed, and of itself."""
    read = {stand.source_id: stand for stand in list_stands(observed.checkpoint)}
    for log in observed.checkpoint.sources:
        large = [
            n for n, entry in log.entries.items() if isinstance(entry, Damage) and entry.kind is DamageKind.TOO_LARGE
        ]
        if large:
            subject = f"{log.folder}/{log.entry_name(large[-1])}"
            effect = "Each compaction writes all of it again: those batches are slow."
            yield Finding(conditions.SOURCE_LOG_LARGE, subject, effect)
        stand = read.get(log.name)
        done = stand.start if stand else None
        if not isinstance(done, FileOffset):
            continue
        each = {n: tuple(entry) for n, entry in log.entries.items() if isinstance(entry, FileLogEntry)}
        files = [file for entry in each.values() for file in entry if isinstance(file, SourceFile)]
        open_files = [file for file in files if file.log_id > done.log_offset]
        old = list_never_found_again(open_files, [file for file in files if file.log_id <= done.log_offset])
        if old:
            effect = (
                f"If the entries above {done.log_offset} are removed to plan their files anew, Spark takes"
                f" {len(old)} of these files for too old, and never reads them."
            )
            paths = [file.path for file in old[:_NAMES_SHOWN]]
            evidence = {"count": len(old), "files": paths, "max_file_age_ms": MAX_FILE_AGE_DEFAULT_MS}
            yield Finding(conditions.SOURCE_FILES_TOO_OLD, log.folder, effect, evidence)


def _list_paths(files: list[FileFacts]) -> list[str]:
    return [each.file.path for each in files[:_NAMES_SHOWN]]


# Delta tables.


def _check_table(observed: Observation, stand: SourceStand, read: list[Span], table: DeltaFacts) -> Iterator[Finding]:
    """What a Delta table still has of what a start asks for: the range of the newest plan, and all after it."""
    newest = None
    if read:
        newest = read[-1]
    end = newest.end if newest else stand.start
    if not isinstance(end, DeltaOffset):
        return
    evidence = {"source": stand.source_id, "table": table.location, "table_id": table.table_id, "offset": end.to_text()}
    command = observed.command("inspect", "--batch", str(newest.batch_id if newest else 0))
    subject = table.location
    if table.unknown is not None or table.exists is None:
        effect = "Nobody knows whether the table still has what is to be read."
        found = {**evidence, "because": table.unknown}
        yield Finding(conditions.SOURCE_UNKNOWN, subject, effect, found, command)
        return
    if not table.exists or table.latest_version is None:
        effect = "The query cannot start, and what was unread in the table is lost with it."
        yield Finding(conditions.SOURCE_TABLE_GONE, subject, effect, evidence, command)
        return
    if table.table_id is not None and table.table_id != end.table_id:
        effect = "The query cannot start; the offsets of the old table say nothing about the new one."
        found = {**evidence, "table_id_before": end.table_id}
        yield Finding(conditions.SOURCE_TABLE_REPLACED, subject, effect, found, command)
        return
    yield from _check_versions(observed, stand, _find_asked_from(newest), end, table)


def _find_asked_from(newest: Span | None) -> DeltaOffset | None:
    """Where the range begins that Spark asks for first: that of the newest plan, committed or not."""
    start = newest.start if newest else None
    return start if isinstance(start, DeltaOffset) else None


def _check_versions(
    observed: Observation, stand: SourceStand, start: DeltaOffset | None, end: DeltaOffset, table: DeltaFacts
) -> Iterator[Finding]:
    unread = end
    if stand.is_rerun and start is not None:
        unread = start
    evidence = {"source": stand.source_id, "earliest": table.earliest_version, "latest": table.latest_version}
    command = observed.command("inspect", "--batch", str(max(0, stand.batch_id - (not stand.is_rerun))))
    latest = -1 if table.latest_version is None else table.latest_version
    if end.place > (latest + 1, DELTA_BEGINNING):
        effect = (
            f"The table ends at version {latest}, below the position of the query: the query cannot start, and versions"
            " that are written again under these numbers are not read."
        )
        found = {**evidence, "offset": end.to_text()}
        yield Finding(conditions.SOURCE_OFFSET_WENT_BACK, table.location, effect, found, command)
        return
    anew = find_written_anew(observed.checkpoint, stand.source_id, table)
    if anew is not None and anew.batch_id not in observed.rewritten:
        seconds = (anew.written_ms - anew.planned_ms) / 1000
        effect = (
            f"Version {anew.version} was written {seconds:,.0f} seconds after batch {anew.batch_id} was planned, which"
            " has read one of that number: the table was put back, and what was written again under numbers that were"
            " read is not read."
        )
        times = {"version": anew.version, "written_at_ms": anew.written_ms, "planned_at_ms": anew.planned_ms}
        yield Finding(conditions.SOURCE_OFFSET_WENT_BACK, table.location, effect, {**evidence, **times}, command)
        return
    asked = can_serve(table, start or end)
    if asked.serving is Serving.UNKNOWN:
        effect = "Nobody knows whether the table still has what is to be read."
        yield Finding(
            conditions.SOURCE_UNKNOWN, table.location, effect, {**evidence, "because": asked.because}, command
        )
    if asked.serving is not Serving.NO:
        return
    left = can_serve(table, unread)
    yield _make_versions_gone(observed, table, {**evidence, "offset": end.to_text()}, asked, left, command)


def _make_versions_gone(
    observed: Observation,
    table: DeltaFacts,
    evidence: dict[str, object],
    asked: DeltaServing,
    left: DeltaServing,
    command: str,
) -> Finding:
    """`asked` is the range of the newest plan and all after it, `left` only what is unread."""
    if left.serving is Serving.NO:
        lost = left.lost_versions
    else:
        lost = range(0)
    if asked.lost_versions and not observed.fail_on_data_loss:
        if lost:
            what = f"versions {lost.start} to {lost.stop - 1} are skipped without a word"
        else:
            what = "nothing unread is lost"
        effect = f"The query starts; {what}."
    elif left.serving is Serving.NO:
        effect = f"The query cannot start, and what is unread is no longer in the log: {left.because}."
    else:
        effect = f"The query cannot start, though nothing unread is missing: {asked.because}."
    missing_versions = None
    if asked.lost_versions:
        missing_versions = [asked.lost_versions.start, asked.lost_versions.stop]
    unread_versions = None
    if lost:
        unread_versions = [lost.start, lost.stop]
    found = {
        **evidence,
        "because": asked.because,
        "missing_versions": missing_versions,
        "unread_versions": unread_versions,
    }
    return Finding(conditions.SOURCE_VERSIONS_GONE, table.location, effect, found, command)
