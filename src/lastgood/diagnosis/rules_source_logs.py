"""What is wrong with the offsets of single sources, and with the logs that file sources keep. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import VoidOffset
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart, Stop
from lastgood.query.source_logs import find_logs_behind

SOURCE_COUNT_CHANGED = Condition(
    "SOURCE_COUNT_CHANGED",
    Severity.ERROR,
    "plans disagree about how many sources the query has",
    """\
The offset log (version 1) has one line for each source, in the order of the query's plan, and no names. Spark counts
them and stops if they are not as many as the query has sources. A line was lost or added by hand, or the application
was changed: then even an equal number may be other sources in another order.""",
)
SOURCE_OFFSET_VOID = Condition(
    "SOURCE_OFFSET_VOID",
    Severity.ERROR,
    "a source has lost its offset",
    """\
The newest plan has `-` where a source had an offset before. Spark takes the source for one that has not read anything
in that batch and goes on from the plan before it: what that batch read is read a second time.""",
)
SOURCE_LOG_DAMAGED = Condition(
    "SOURCE_LOG_DAMAGED",
    Severity.ERROR,
    "the log of a file source cannot be read",
    """\
A file source writes down which files it has seen, in `sources/<i>`. It reads the newest compaction and all entries
after it when the query starts, and stops at one that is damaged or missing. One that has lost its newest entries,
which no batch asks for again, stops nothing: the files that come next are noted down under the same numbers, count as
read, and are never read.

Without this log Spark would take every file of the folder for a new one. Put the entry back from the mirror or a
backup; do not delete the folder.""",
)
SOURCE_LOG_AHEAD = Condition(
    "SOURCE_LOG_AHEAD",
    Severity.INFO,
    "the log of a file source is ahead of the plans",
    """\
Files are noted down before the batch is planned, so a crash in between, or a plan that was deleted, leaves entries that
no batch has read. They are not lost: the next batch reads them together with what it finds, in one go, whatever
`maxFilesPerTrigger` says. To have them planned anew under today's limit, the entries have to go with the plan.""",
)
CONDITIONS = (SOURCE_COUNT_CHANGED, SOURCE_OFFSET_VOID, SOURCE_LOG_DAMAGED, SOURCE_LOG_AHEAD)


def find_source_logs(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about source lines and source logs, by what a start would make of them."""
    yield from _check_lines(observed)
    yield from _check_source_logs(observed, restart)
    yield from _check_ahead(observed)


def _check_lines(observed: Observation) -> Iterator[Finding]:
    """Lines of sources that are too many, too few or void."""
    log = observed.checkpoint.offsets
    entries = [(n, entry) for n, entry in sorted(log.entries.items()) if isinstance(entry, OffsetEntry)]
    counts = {n: len(entry.sources) for n, entry in entries if entry.version == 1}
    usual = max(counts.values(), key=list(counts.values()).count, default=None)
    read = [log.newest, None if log.newest is None else log.newest - 1]
    for batch_id in (n for n in read if n in counts and counts[n] != usual):
        found = {"lines": counts[batch_id], "others": usual}
        command = observed.command("inspect", "--batch", str(batch_id))
        yield Finding(SOURCE_COUNT_CHANGED, f"offsets/{batch_id}", "The query cannot start.", found, command)
    if len(entries) < 2 or entries[-1][0] != log.newest:
        return
    (_, before), (newest, entry) = entries[-2:]
    for line in entry.sources:
        previous = before.source(line.source_id)
        if isinstance(line.offset, VoidOffset) and previous and not isinstance(previous.offset, VoidOffset):
            effect = f"What source {line.source_id} read in batch {newest} is read a second time."
            was = {"source": line.source_id, "before": previous.text}
            yield Finding(SOURCE_OFFSET_VOID, f"offsets/{newest}", effect, was, observed.command("offsets"))


def _check_source_logs(observed: Observation, restart: Restart) -> Iterator[Finding]:
    stop, command = restart.stop, observed.command("plan")
    damaged = {path: damage for log in observed.checkpoint.sources for path, damage in log.damage.items()}
    if (
        stop
        and stop.subject.startswith("sources/")
        and stop.subject not in damaged
        and not _is_in_the_way(observed, stop)
    ):
        yield Finding(SOURCE_LOG_DAMAGED, stop.subject, "The query cannot start.", {"because": stop.because}, command)
    for source_id, lost in find_logs_behind(observed.checkpoint).items() if stop is None else ():
        subject = f"sources/{source_id}"
        effect = (
            f"What the source finds next is noted down under number {lost[0]}, which counts as read: no batch reads it,"
            " and there is no error."
        )
        if restart.next_stop is not None and restart.next_stop.subject == subject:
            effect = "The next batch that is planned fails."
        evidence = {"newest": lost[0] - 1, "planned_up_to": lost[-1]}
        yield Finding(SOURCE_LOG_DAMAGED, subject, effect, evidence, command)
    for path, damage in damaged.items():
        stops = stop is not None and stop.subject == path
        level = Severity.ERROR if stops else Severity.WARNING
        effect = "The query cannot start." if stops else "Spark does not read it at its next start."
        damage_found = {"damage": damage.kind.value, "found": damage.found, "line": damage.line}
        yield Finding(SOURCE_LOG_DAMAGED, path, effect, damage_found, command, level)


def _is_in_the_way(observed: Observation, stop: Stop) -> bool:
    """Whether a start stops at something that keeps it from writing, rather than at what it reads."""
    folder, _, name = stop.subject.rpartition("/")
    logs = (log for log in observed.checkpoint.sources if log.folder == folder)
    return name.startswith(".") or any(f"{name}/" in log.listing.foreign for log in logs)


def _check_ahead(observed: Observation) -> Iterator[Finding]:
    newest = observed.checkpoint.newest_offsets
    for log in observed.checkpoint.sources:
        line = None
        if newest:
            line = newest.source(log.name)
        planned = None
        if line:
            planned = getattr(line.offset, "log_offset", None)
        logged = log.listing.ids.newest
        if planned is not None and logged is not None and logged > planned:
            effect = "The next batch reads these files as well, in one go and whatever the limit."
            found = {"planned_up_to": planned, "logged_up_to": logged}
            yield Finding(SOURCE_LOG_AHEAD, f"{log.folder}/{logged}", effect, found)
