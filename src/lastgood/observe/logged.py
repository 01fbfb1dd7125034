"""What a driver's log tells of a query, wherever nobody else has said it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.errors import ExtraMissingError, StorageError, UsageError
from lastgood.observe.hosts import open_named
from lastgood.observe.observation import DiagnoseOptions
from lastgood.observe.open_query import OpenQuery
from lastgood.observe.surroundings import TIMEOUT_SECONDS
from lastgood.redaction import hide_login
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, make_unknown_evidence
from lastgood.sinks.opening import split_kind
from lastgood.sources.delta.facts import DeltaFacts, find_newest_read
from lastgood.sources.delta.table import ask_delta
from lastgood.sources.kinds import is_told_as_table
from lastgood.storage.reading import Location, LocationInvalidError, Storage, parse_location

if TYPE_CHECKING:
    from lastgood.failures.driver_log import DriverLog
    from lastgood.failures.log_facts import LoggedQuery, SourceFacts

STDIN = "-"


def read_log(log: str) -> DriverLog:
    """What a driver's log tells; `-` is standard input.

    Raises:
        UsageError: it cannot be read.
    """
    from lastgood.failures.driver_log import read_driver_log

    try:
        if log == STDIN:
            return read_driver_log(sys.stdin.buffer)
        with Path(log).open("rb") as stream:
            return read_driver_log(stream)
    except OSError as error:
        raise UsageError("the log cannot be read", subject=f"--log {log}", found=error.strerror) from error


def add_what_log_tells(options: DiagnoseOptions, query: LoggedQuery | None) -> DiagnoseOptions:
    """The options, with what the log knows of the query wherever nothing else was said."""
    if query is None:
        return options
    evidence = options.evidence
    sink = query.sink.location if query.sink else None
    if sink and not evidence.sinks:
        evidence = replace(evidence, sinks=(sink,))
    subscriptions = [source.subscription for source in query.sources if source.subscription is not None]
    pattern = next((each.value for each in subscriptions if each.kind == "subscribe_pattern"), None)
    if pattern and evidence.subscribe_pattern is None:
        evidence = replace(evidence, subscribe_pattern=pattern)
    is_by_name = bool(subscriptions) and pattern is None
    fails = options.fail_on_data_loss if options.fail_on_data_loss is not None else query.fail_on_data_loss
    return replace(options, evidence=evidence, fail_on_data_loss=fails, is_by_name=is_by_name)


def find_sink_nobody_named(query: OpenQuery, logged: LoggedQuery | None) -> tuple[SinkEvidence, ...]:
    """The sink of which the log tells, if it is nowhere that somebody has named here: nobody is asked for it."""
    sink = logged.sink if logged is not None else None
    if sink is None or sink.location is None:
        return ()
    try:
        open_named(query)(split_kind(sink.location)[1])
    except ExtraMissingError:
        return ()  # whoever asks it says so
    except StorageError as error:
        return (make_unknown_evidence("unknown", hide_login(sink.location), DedupeKey.NONE, f"{error} (--sink)"),)
    return ()


def find_logged_query(log: DriverLog | None, query_id: str | None) -> LoggedQuery | None:
    """What a log tells of the query with this id; of its only one where nobody knows the id."""
    queries = log.facts.queries if log else ()
    known = next((query for query in queries if query.query_id == query_id), None)
    return known or (queries[0] if len(queries) == 1 and query_id is None else None)


def ask_tables(query: OpenQuery, logged: LoggedQuery | None) -> Mapping[str, DeltaFacts]:
    """What the Delta tables still serve that the query reads, as far as a log tells where they are."""
    newest = query.checkpoint.newest_offsets
    if newest is None or logged is None:
        return {}
    lines = {line.source_id: line.offset for line in newest.sources if isinstance(line.offset, DeltaOffset)}
    told = [source for source in logged.sources if is_told_as_table(source.kind) and source.location]
    found = {}
    for source_id, offset in lines.items():
        is_alone = len(lines) == len(told) == 1
        places = {source.location for source in told if is_alone or _find_table_id(source) == offset.table_id}
        if len(places) == 1:
            newest_read = find_newest_read(offset)
            versions = () if newest_read is None else (newest_read,)
            found[source_id] = _ask_table(str(places.pop()), open_named(query), versions)
    return found


def _ask_table(location: str, open_at: Callable[[Location], Storage], versions: Sequence[int]) -> DeltaFacts:
    """What a table still serves; nobody asked for it by name, so that it cannot be looked at is an answer."""
    try:
        place = parse_location(location)
        return ask_delta(open_at(place), place, versions=versions, timeout_seconds=TIMEOUT_SECONDS)
    except (LocationInvalidError, ExtraMissingError, StorageError) as error:
        return DeltaFacts(location, exists=None, unknown=str(error))


def _find_table_id(source: SourceFacts) -> str | None:
    """The id of the table at the offset that a log tells of a source."""
    offset = source.end_offset if isinstance(source.end_offset, dict) else source.start_offset
    return offset.get("reservoirId") if isinstance(offset, dict) else None
