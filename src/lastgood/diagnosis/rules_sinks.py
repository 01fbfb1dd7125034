"""Findings about sinks: what they show, what they would drop, and what they would take twice. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from lastgood.checkpoint.logs import name_batches
from lastgood.checkpoint.query import QueryMetadata
from lastgood.diagnosis import sink_conditions as conditions
from lastgood.diagnosis.findings import Condition, Finding, Severity
from lastgood.diagnosis.rules_logs import NAME_TAKEN, STALE_CHECKSUM_FILE
from lastgood.diagnosis.sink_reading import SinkReading, make_sink_readings
from lastgood.query.observation import Observation, make_removal_command
from lastgood.query.prediction.restart import Restart, StartStage
from lastgood.query.sink_batches import Origin
from lastgood.query.sinks import NONE, Rerun
from lastgood.query.unmarked import find_unmarked
from lastgood.sinks.evidence import DedupeKey, is_query_id

CONDITIONS: tuple[Condition, ...] = conditions.CONDITIONS

_SHOWN_MAX = 20


def find_sinks(observed: Observation, restart: Restart) -> Iterator[Finding]:
    """Findings about every sink that was asked.

    Args:
        observed: What was found.
        restart: What Spark will do.
    """
    readings = make_sink_readings(observed, restart)
    for reading in readings:
        yield from _check_not_known(reading)
        yield from _check_shows_none(reading)
        yield from _check_would_skip(reading)
        yield from _check_orphan(reading)
        yield from _check_behind(reading)
        yield from _check_made_later(reading)
        yield from _check_rolled_back(reading)
        yield from _check_dropped(reading)
        yield from _check_missing(reading)
        yield from _check_twice(reading)
        yield from _check_log_gap(reading)
        yield from _check_in_the_way(reading)
        yield from _check_data_files(reading)
        yield from _check_others(reading)
        yield from _check_remarks(reading)
    yield from _check_apart(observed, readings)


# What the sink does not tell.


def _check_not_known(reading: SinkReading) -> Iterator[Finding]:
    sink, orphan = reading.sink, reading.orphan
    if sink.known or (sink.traits.keeps_log and sink.skips_known) or reading.possible_names:
        return  # names are told by `_check_others`
    if orphan is None:
        twice = ""
    else:
        twice = f" Whether a start writes batch {orphan} a second time is not known."
    level = Severity.INFO if orphan is None else Severity.WARNING
    if sink.skips_known or sink.identity is not None or sink.batches:
        effect = f"Nobody can tell from it whether a batch is there.{twice}"
        yield reading.finding(conditions.SINK_MARKER_UNKNOWN, effect, {}, reading.status(), level)
        return
    is_answer = not sink.traits.tells_batches
    effect = f"Nobody knows whether it agrees with the checkpoint.{twice}"
    yield reading.finding(conditions.SINK_UNKNOWN, effect, {}, reading.status(), level if is_answer else None)


def _check_shows_none(reading: SinkReading) -> Iterator[Finding]:
    """A sink that knows nothing of the query, though batches are committed."""
    sink = reading.sink
    if not reading.shows_none or reading.done == NONE or sink.traits.keeps_log:
        return
    if not sink.traits.is_there:
        effect = f"The rows of {name_batches(range(reading.done + 1))} are not there, and no start brings them back."
        yield reading.finding(conditions.SINK_GONE, effect, {"done": reading.done}, reading.status())
    elif not sink.others:
        effect = "From this sink nobody can tell what is written; a batch that runs again is written again."
        yield reading.finding(conditions.SINK_SHOWS_NONE, effect, {"done": reading.done}, reading.status())


# What the sink would do with the batches that come.


def _check_would_skip(reading: SinkReading) -> Iterator[Finding]:
    """New data under numbers that the sink has already."""
    sink, orphan, numbers = reading.sink, reading.orphan, reading.would_drop
    if not numbers or reading.possible_names:
        return  # names are told by `_check_others`
    if orphan is not None and reading.is_planned_anew:
        yield _make_planned_anew(reading, orphan)
        return
    first, last = numbers[0], numbers[-1]
    when = "" if reading.restart.stop is None else "As soon as the query can start: "
    will = "will" if sink.skips_known else "may"
    effect = f"{when}{name_batches(numbers)} {will} be committed and dropped by the sink, whatever new rows they bring."
    if sink.dedupe_key is DedupeKey.DIRECTORY and reading.done == NONE:
        effect += " The file sink knows no query: this checkpoint is new, the numbers are taken."
    if orphan is not None and orphan < first and reading.shown > orphan:
        effect += f" So will batch {orphan}, if it was planned again since the sink got it."
    evidence = {"skips_up_to": last, "next_batch": first, "would_skip": [first, last]}
    yield reading.finding(conditions.SINK_WOULD_SKIP, effect, evidence, reading.plan())


def _make_planned_anew(reading: SinkReading, orphan: int) -> Finding:
    """The sink had the orphan before it was planned: then it holds another batch of that number."""
    numbers, held = reading.would_drop, reading.held[orphan]
    is_sure = (held.origin is Origin.OLDER_PLAN or numbers[-1] > orphan) and reading.sink.skips_known
    becomes = "will be" if is_sure else "may be"
    dropped = f"{becomes} committed and dropped by the sink, whatever new rows they bring"
    effect = f"{name_batches(numbers)} {dropped}: {held.because}."
    evidence = {
        "skips_up_to": numbers[-1],
        "next_batch": orphan,
        "would_skip": [orphan, numbers[-1]],
        "origin": held.origin.value,
        "ranges": reading.ranges(orphan),
    }
    level = None if is_sure else Severity.WARNING
    return reading.finding(conditions.SINK_WOULD_SKIP, effect, evidence, reading.plan(), level)


def _check_orphan(reading: SinkReading) -> Iterator[Finding]:
    """The batch that runs again, where the sink holds it."""
    sink, orphan, rerun = reading.sink, reading.orphan, reading.rerun
    if orphan is None or rerun in (None, Rerun.WRITES, Rerun.DROPS):  # what it drops is told by `_check_would_skip`
        return
    evidence = {"batch": orphan, "versions": list(sink.versions(orphan)) or None}
    if rerun is Rerun.REPEATS:
        effect = f"The next start runs batch {orphan} again, and its rows are written a second time."
        yield reading.finding(conditions.SINK_WOULD_REPEAT, effect, evidence, reading.inspect(orphan))
    elif rerun is Rerun.UNKNOWN:
        effect = f"Whether a start writes batch {orphan} a second time is not known."
        yield reading.finding(conditions.SINK_MARKER_UNKNOWN, effect, evidence, reading.status())
    elif reading.shown == orphan:
        effect = f"The next start runs batch {orphan} again, the sink drops it, and each of its rows is there once."
        if sink.has_broken_file(orphan):
            effect = f"The next start runs batch {orphan} again, and the sink drops it: what is broken of it stays so."
        yield reading.finding(conditions.SINK_HOLDS_ORPHAN, effect, evidence)


# What is missing in the sink, or there twice.


def _check_behind(reading: SinkReading) -> Iterator[Finding]:
    sink, first = reading.sink, reading.shown + 1
    if not sink.known or reading.shows_none:
        return
    gone = reading.batches_done(first, reading.done)
    missing = reading.may_have_rows(gone)
    if not missing:
        if gone:
            effect = f"The sink shows nothing of {name_batches(gone)}; they read nothing, so nothing is missing."
            yield reading.finding(conditions.SINK_BEHIND, effect, {"empty": gone[:_SHOWN_MAX]}, None, Severity.INFO)
        return
    unmarked = find_unmarked(reading)
    unless = "" if unmarked is None else f", unless they were written under no mark of it ({unmarked.because})"
    effect = f"The rows of {name_batches(missing)} are not in it, and no start brings them back{unless}."
    evidence = {"done": reading.done, "missing": missing[:_SHOWN_MAX], "missing_count": len(missing)}
    level = None if reading.has_every_mark else Severity.WARNING
    yield reading.finding(conditions.SINK_BEHIND, effect, evidence, reading.inspect(missing[0]), level)


def _check_made_later(reading: SinkReading) -> Iterator[Finding]:
    """A table that was made after batches were done, which wrote to one that was there before."""
    older = reading.older()
    if not older:
        return
    evidence = {
        "done": reading.done,
        "missing": older[:_SHOWN_MAX],
        "missing_count": len(older),
        "created_at_ms": reading.sink.created_at_ms,
    }
    unless, level = ": their rows", None
    if not reading.is_surely_made_later:
        unless, level = ", unless clocks differ by so much: then their rows", Severity.WARNING
    batches = name_batches(older)
    effect = f"It was made after {batches} had been written{unless} are not in it, and no start brings them back."
    yield reading.finding(conditions.SINK_BEHIND, effect, evidence, reading.status(), level)


def _check_rolled_back(reading: SinkReading) -> Iterator[Finding]:
    """Rows that were taken back: by a RESTORE that left the mark, or below batches that were written since."""
    sink = reading.sink
    empty = {each.batch_id for each in sink.batches if each.row_count == 0}
    holes = reading.may_have_rows(batch_id for batch_id in sink.holes if batch_id not in empty)
    is_high = sink.known and reading.skips > reading.shown
    perhaps = reading.perhaps_gone()
    if perhaps and not is_high:
        effect = f"The rows of {name_batches(perhaps)} may be gone from the sink: {sink.unclear}."
        doubt = {"mark": sink.skips_up_to, "taken_back": perhaps[:_SHOWN_MAX]}
        yield reading.finding(conditions.SINK_ROLLED_BACK, effect, doubt, reading.status(), Severity.WARNING)
    if not is_high and not holes:
        return
    # as wide as a mark is high
    if is_high:
        above = range(reading.shown + 1, reading.skips + 1)
    else:
        above = range(0)
    gone = [*holes, *above[:_SHOWN_MAX]]
    told = [name_batches(each) for each in (holes, above) if each]
    effect = f"The rows of {' and of '.join(told)} are gone from the sink"
    if is_high:
        effect += (
            f", and {'they are' if len(gone) > 1 else 'it is'} dropped if run again: its mark stands at {reading.skips}"
        )
    evidence = {"mark": sink.skips_up_to, "taken_back": gone[:_SHOWN_MAX], "holes": holes[:_SHOWN_MAX]}
    yield reading.finding(conditions.SINK_ROLLED_BACK, f"{effect}.", evidence, reading.status())


def _check_dropped(reading: SinkReading) -> Iterator[Finding]:
    """Committed batches that the sink had before they were planned."""
    found = reading.dropped()
    if not found:
        return
    is_sure = all(held.origin is Origin.OLDER_PLAN for held in found.values())
    effect = (
        f"What {name_batches(found)} read {'is not' if is_sure else 'may not be'} in the sink, but for what older"
        f" batches of the same number wrote: {next(iter(found.values())).because}."
    )
    numbers = list(found)[:_SHOWN_MAX]
    ranges = {str(batch_id): told for batch_id in numbers if (told := reading.ranges(batch_id))}
    evidence = {"batches": numbers, "count": len(found), "may_be_missing": ranges or None}
    level = None if is_sure else Severity.WARNING
    yield reading.finding(conditions.SINK_BATCHES_SKIPPED, effect, evidence, reading.verify(), level)


def _check_missing(reading: SinkReading) -> Iterator[Finding]:
    """Batches up to the newest that it shows, of which it shows nothing at all."""
    missing, before = reading.absent(), reading.absent_before()
    evidence = {"missing": missing[:_SHOWN_MAX], "complete_from": reading.sink.complete_from}
    if missing and reading.has_every_mark:
        effect = (
            f"The rows of {name_batches(missing)} are not in it, though later ones are, and no start brings them back."
        )
        yield reading.finding(conditions.SINK_BATCHES_MISSING, effect, evidence, reading.inspect(missing[0]))
    elif missing:
        unless = "their rows are not in it, unless there were none"
        effect = f"It shows nothing of {name_batches(missing)}, though later ones are there: {unless}."
        yield reading.finding(
            conditions.SINK_BATCHES_MISSING, effect, evidence, reading.inspect(missing[0]), Severity.WARNING
        )
    if before:
        unless = "their rows are not in it, unless they were written without a mark"
        effect = f"It shows nothing of {name_batches(before)}, which are older than all that it shows: {unless}."
        told = {**evidence, "missing": before[:_SHOWN_MAX]}
        yield reading.finding(
            conditions.SINK_BATCHES_MISSING, effect, told, reading.inspect(before[0]), Severity.WARNING
        )


def _check_twice(reading: SinkReading) -> Iterator[Finding]:
    versions: dict[int, list[int]] = {}
    for each in reading.sink.batches:
        if each.is_live and each.version is not None and each.row_count != 0:
            versions.setdefault(each.batch_id, []).append(each.version)
    for batch_id, held in reading.doubled().items():
        effect = (
            f"Its rows of batch {batch_id} are read again by what comes after, and are there twice: {held.because}."
        )
        yield reading.finding(
            conditions.SINK_BATCH_TWICE, effect, {"batch": batch_id}, reading.inspect(batch_id), Severity.WARNING
        )
    twice = {batch_id: found for batch_id, found in versions.items() if len(found) > 1}
    if twice:
        effect = f"The rows of {name_batches(twice)} are in the sink more than once."
        evidence = {"versions": {str(batch_id): found for batch_id, found in sorted(twice.items())[:_SHOWN_MAX]}}
        yield reading.finding(conditions.SINK_BATCH_TWICE, effect, evidence, reading.inspect(min(twice)))


def _check_log_gap(reading: SinkReading) -> Iterator[Finding]:
    """The log of a file sink, which is all that its readers go by."""
    sink, comes = reading.sink, reading.next_new
    if not sink.traits.keeps_log:
        return
    if sink.unreadable:
        effect = "Spark cannot read the folder, and the next compaction fails."
        yield reading.finding(conditions.SINK_LOG_GAP, effect, {"unreadable": list(sink.unreadable)}, reading.status())
    elif not sink.known and sink.skips_known:
        is_new = reading.done == NONE
        effect = "Readers list the folder itself, unfinished files included, until the next batch begins a new log."
        if is_new:
            effect = "As soon as the first batch is written, Spark no longer reads the files that are there now."
        level = Severity.WARNING if is_new else None
        yield reading.finding(conditions.SINK_LOG_GAP, effect, {"done": reading.done}, reading.status(), level)
    elif reading.shows_none and reading.done > NONE:
        done = name_batches(range(reading.done + 1))
        effect = f"Of {done} Spark reads nothing, without an error, and no start brings it back."
        yield reading.finding(conditions.SINK_LOG_GAP, effect, {"done": reading.done}, reading.status())
    if reading.orphan is not None and reading.orphan > reading.shown:
        comes = reading.orphan
    if sink.known and sink.last_batch is not None and comes > reading.shown + 1:
        missing = range(reading.shown + 1, comes)
        effect = f"{name_batches(missing)} will be missing in its log: the query runs until the next compaction."
        evidence = {"next_batch": comes, "missing": list(missing)[:_SHOWN_MAX]}
        yield reading.finding(conditions.SINK_LOG_GAP, effect, evidence, reading.inspect(missing[0]))


def _check_in_the_way(reading: SinkReading) -> Iterator[Finding]:
    """What keeps a file sink from writing down the batch that runs next."""
    stop = reading.restart.stop
    if not reading.sink.traits.keeps_log or stop is None or stop.stage is not StartStage.SINK:
        return
    name = stop.subject.rpartition("/")[2]
    effect, evidence = "The query stops when the sink writes this entry, at every start.", {"name": stop.subject}
    if name.startswith("."):
        command = make_removal_command(reading.sink.location, stop.subject)
        yield reading.finding(STALE_CHECKSUM_FILE, effect, evidence, command, Severity.ERROR)
    elif f"{name}/" in reading.sink.log_names:
        yield reading.finding(NAME_TAKEN, effect, evidence, reading.status())


def _check_data_files(reading: SinkReading) -> Iterator[Finding]:
    """Files that count and are not there, or not whole."""
    gone, damaged = reading.sink.files_gone, reading.sink.files_damaged
    orphan, broken_from = reading.orphan, reading.sink.broken_from
    command = reading.status()
    if orphan is not None and broken_from is not None and broken_from >= orphan:
        command = reading.replan()
    if gone:
        effect = f"Spark cannot read it: {len(gone)} of its files are gone, and their rows with them."
        evidence = {"files": list(gone[:_SHOWN_MAX]), "count": len(gone)}
        yield reading.finding(conditions.SINK_FILES_GONE, effect, evidence, command)
    if damaged:
        effect = f"Rows are missing or cannot be read: {len(damaged)} of its files are not as long as its log says."
        evidence = {"files": list(damaged[:_SHOWN_MAX]), "count": len(damaged)}
        yield reading.finding(conditions.SINK_FILES_DAMAGED, effect, evidence, command)


# Who else is in the sink, and what else is to be known.


def _check_others(reading: SinkReading) -> Iterator[Finding]:
    sink = reading.sink
    queries = {name: last for name, last in sink.others.items() if is_query_id(name)}
    apps = {name: last for name, last in sink.others.items() if name not in queries}
    candidates = _find_former_ids(reading, queries)
    if candidates:
        yield _make_id_changed(reading, candidates)
    rest = {name: last for name, last in {**queries, **apps}.items() if name not in candidates}
    if not rest:
        return
    stands = {reading.committed, NONE if reading.orphan is None else reading.orphan} - {NONE}
    is_none = (reading.shows_none or bool(reading.possible_names)) and not candidates
    level = Severity.INFO
    if is_none and not stands.intersection(apps.values()):
        level = Severity.WARNING
    effect = "If one of them is a former checkpoint of this application, what both have read is in the sink twice."
    if is_none and reading.done > NONE:
        effect = (
            "It shows only their batches: it is another query's sink, or this one leaves its mark under another name."
        )
    elif is_none:
        effect = "A new checkpoint writes again all that a former one of the same application has written."
    evidence = {"others": dict(sorted(rest.items())[:_SHOWN_MAX])}
    yield reading.finding(conditions.SINK_KNOWS_OTHER_QUERY, effect, evidence, None, level)
    ahead = reading.names_ahead
    if ahead:
        numbers = range(reading.comes_next, max(ahead.values()) + 1)
        effect = (
            f"If the query writes under the name {min(ahead)}, {name_batches(numbers)} will be dropped by the sink."
        )
        skips = {"next_batch": numbers[0], "would_skip": [numbers[0], numbers[-1]], "others": ahead}
        command = reading.plan_as(min(ahead))
        yield reading.finding(conditions.SINK_WOULD_SKIP, effect, skips, command, Severity.WARNING)


def _find_former_ids(reading: SinkReading, queries: Mapping[str, int]) -> dict[str, int]:
    """Query ids under which the sink holds this checkpoint's batches, up to where it stands or where its id changed."""
    sink = reading.sink
    if sink.dedupe_key is not DedupeKey.QUERY_ID or reading.done == NONE:
        return {}
    is_lost = not isinstance(reading.observed.checkpoint.query, QueryMetadata)
    if reading.shows_none or reading.possible_names or is_lost:
        stands = {reading.committed, reading.done, NONE if reading.orphan is None else reading.orphan} - {NONE}
        return {name: last for name, last in queries.items() if last in stands}
    first = min((each.batch_id for each in sink.batches), default=0)
    if first == 0 or sink.complete_from != 0:
        return {}
    return {name: last for name, last in queries.items() if last in (first - 1, first)}


def _make_id_changed(reading: SinkReading, candidates: Mapping[str, int]) -> Finding:
    evidence = {"former_ids": dict(candidates)}
    highest = max(candidates.values())
    is_none = reading.shows_none or bool(reading.possible_names)
    if not is_none and isinstance(reading.observed.checkpoint.query, QueryMetadata):
        first = min(each.batch_id for each in reading.sink.batches)
        is_twice = highest == first
        effect = f"The id changed with batch {first}" + (
            ", and its rows are in the sink under both ids." if is_twice else "; nothing was written twice by that."
        )
        level = Severity.ERROR if is_twice else Severity.INFO
        return reading.finding(conditions.QUERY_ID_CHANGED, effect, evidence, reading.inspect(first), level)
    orphan = reading.orphan
    if orphan is not None and highest == orphan and reading.may_have_rows([orphan]):
        effect = (
            f"The sink holds batch {orphan} under the old id and does not recognise it: its rows are written twice."
        )
        return reading.finding(conditions.QUERY_ID_CHANGED, effect, evidence, reading.backups(), Severity.ERROR)
    effect = "The sink no longer recognises a batch of this checkpoint that runs again: its rows would come twice."
    return reading.finding(conditions.QUERY_ID_CHANGED, effect, evidence, reading.backups())


def _check_remarks(reading: SinkReading) -> Iterator[Finding]:
    sink = reading.sink
    if sink.write_obstacles and sink.traits.is_there:
        effect = "A recovery that has to take batches back from this sink will be refused."
        yield reading.finding(conditions.SINK_NOT_WRITABLE, effect, {"obstacles": list(sink.write_obstacles)})
    if sink.notes:
        effect = f"{sink.notes[0]}."
        yield reading.finding(conditions.SINK_NOTES, effect, {"notes": list(sink.notes)})


def _check_apart(observed: Observation, readings: Sequence[SinkReading]) -> Iterator[Finding]:
    """Several sinks, of which only some hold the batch that runs again."""
    known = [each for each in readings if each.sink.known and not each.shows_none]
    shown = {each.sink.location: each.sink.last_batch for each in known}
    orphan = None
    if known:
        orphan = known[0].orphan
    if orphan is None or len(set(shown.values())) < 2:
        return
    holding = [each.sink.location for each in known if each.shown >= orphan]
    if holding:
        effect = f"The next start brings batch {orphan} to the sinks that lack it; it must not be planned anew."
        yield Finding(conditions.SINKS_APART, ", ".join(shown), effect, {"shown": shown, "holding": holding})
