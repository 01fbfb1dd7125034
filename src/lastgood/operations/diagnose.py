"""`diagnose`: what is the matter with a query, and what Spark would do on restart."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.engine import diagnose as judge
from lastgood.errors import ExtraMissingError, StorageError, UsageError
from lastgood.observe.advice_facts import advice_facts
from lastgood.observe.evidence import EvidenceOptions, start_words
from lastgood.observe.files_again import files_again
from lastgood.observe.hosts import open_named
from lastgood.observe.observation import BATCHES, DiagnoseOptions, advised, asked_by, observe
from lastgood.observe.open_query import OpenQuery, gather, known_left, now_ms, require_checkpoint
from lastgood.observe.surroundings import TIMEOUT_SECONDS, look_around
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion, parse_spark_version
from lastgood.redaction import without_login
from lastgood.settings.config import Config
from lastgood.settings.target import Target, resolve_target
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, unknown_evidence
from lastgood.sinks.opening import split_kind
from lastgood.sources.delta.facts import DeltaFacts
from lastgood.sources.delta.table import ask_delta
from lastgood.sources.kinds import is_told_as_table
from lastgood.storage.reading import Location, LocationInvalidError, Storage, parse_location

if TYPE_CHECKING:
    from lastgood.failures.classify import Failure
    from lastgood.failures.driver_log import DriverLog
    from lastgood.failures.log_facts import LoggedQuery, SourceFacts
    from lastgood.observe.bundle import SavedBundle

STDIN = "-"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A report, and the bundle if one was saved."""

    report: Report
    saved: SavedBundle | None = None


def diagnose(target: Target, options: DiagnoseOptions | None = None) -> Report:
    """Diagnose a query; nothing is changed. See `diagnose_and_save`."""
    return diagnose_and_save(target, options).report


def diagnose_and_save(target: Target, options: DiagnoseOptions | None = None) -> Diagnosis:
    """Diagnose a query, and keep what the diagnosis rests on if that is asked for.

    Args:
        target: Which query, or a bundle; see `asked_about`.
        options: Where else to look, and for which Spark to predict.

    Raises:
        CheckpointMissingError: there is no checkpoint, nor a mirror of one.
        BundleInvalidError: the bundle is none, or damaged.
        UsageError: an option is not understood, or a file cannot be read (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    options = options or DiagnoseOptions()
    spark = None if options.spark is None else parse_spark_version(options.spark)
    if _is_file(target.typed):  # no checkpoint is a file: it is a bundle
        return Diagnosis(_of_bundle(Path(target.typed), options, spark))
    log = None if options.log is None else _read_log(options.log)
    query = _gathered(target, options.evidence)
    logged = _query_of(log, query.query_id)
    unasked = _unasked(query, logged)
    asked = _told_by_log(options, None if logged is None else replace(logged, sink=None) if unasked else logged)
    with ThreadPoolExecutor(3) as pool:
        again = pool.submit(files_again, query)
        advice = pool.submit(advice_facts, query, max_downtime_ms=options.max_downtime_ms, spark=options.spark)
        tables = pool.submit(_tables, query, logged)
        found = look_around(query, asked.evidence, now_ms=now_ms(), headroom=True)
        if not (options.evidence.sinks or query.target.sink):
            found = replace(found, seen=replace(found.seen, sinks=(*found.seen.sinks, *unasked)))
        world = advised(observe(found, asked), advice.result())
        world = replace(world, tables=tables.result(), files_again=again.result())
    failures = log.failures if log else ()
    saved = None
    if options.save is not None:
        from lastgood.observe.bundle import save_bundle

        # Where the bundle is read, nobody knows the pipeline by its name.
        elsewhere = asked_by(replace(query.target, name=None), asked)
        saved = save_bundle(options.save, replace(query, seen=replace(world, asked=elsewhere)), failures=failures)
    removed_idle = log.facts.executors_removed_idle if log else 0
    return Diagnosis(_judge(world, spark, failures, removed_idle, show_data=options.show_data), saved)


def asked_about(text: str, config: Config) -> Target:
    """Find what is to be diagnosed: a query, as `resolve_target` does it, or a bundle, of which no configuration knows.

    Args:
        text: Location of a checkpoint, name in `lastgood.toml`, or a bundle.
        config: Of this command.

    Raises:
        ConfigError, UsageError: as `resolve_target`.
    """
    return Target(text, config=config) if _is_file(text) else resolve_target(text, config)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # no name that a file of this machine can have
        return False


def examine(
    query: OpenQuery,
    facts: AdviceFacts,
    *,
    asked: EvidenceOptions,
    at_ms: int,
    max_downtime_ms: int | None = None,
) -> Report:
    """The same diagnosis for who has looked around already: `status`, of one checkpoint or of many.

    Args:
        query: With `BATCHES` of the newest batches, and the mirror where `gather` reads it; its sinks and Kafka were
            asked, with `headroom`.
        facts: From `query_facts` at least; with less than `advice_facts` tells there is less advice, and no more.
        asked: By what options they were asked.
        at_ms: The time, milliseconds since 1970.
        max_downtime_ms: How long the query may be down, as it was said beside the configuration; the commands that are
            printed say it as well.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    world = observe(query, DiagnoseOptions(asked, max_downtime_ms=max_downtime_ms))
    return judge(replace(advised(world, facts), now_ms=at_ms))


def _gathered(target: Target, evidence: EvidenceOptions) -> OpenQuery:
    """The checkpoint and its mirror, also of one that was left behind and of which nothing is left on its storage."""
    from lastgood.planning.plan import PlanInvalidError

    query = gather(target, batches=BATCHES, may_be_missing=True, may_have_links=True, options=evidence)
    with contextlib.suppress(PlanInvalidError):  # what cannot be read is the business of whoever repairs
        query = known_left(query)
    if not (query.seen.copies or query.seen.left):
        require_checkpoint(query.location, query.checkpoint, evidence)
    return query


def _judge(
    world: Observation,
    spark: SparkVersion | None,
    failures: Sequence[Failure],
    removed_idle: int = 0,
    *,
    show_data: bool = False,
) -> Report:
    if not failures:
        return judge(world, spark)
    from lastgood.diagnosis.advice_failures import failure_advice
    from lastgood.diagnosis.rules_failures import find_failures
    from lastgood.failures.classify import shown

    query = world.checkpoint.query
    query_id = query.query_id if isinstance(query, QueryMetadata) else None
    advice = failure_advice(failures, query_id, world, removed_idle=removed_idle)
    told = [shown(each, show_data=show_data) for each in failures]
    found = [*find_failures(told, query_id, world), *advice]
    return judge(world, spark, told, others=found)


def _of_bundle(path: Path, options: DiagnoseOptions, spark: SparkVersion | None) -> Report:
    from lastgood.observe.bundle import open_bundle

    if options.evidence != EvidenceOptions() or options.save is not None:
        option = "--save" if options.save is not None else "--sink, --kafka"
        raise UsageError("a bundle is diagnosed by what it holds", subject=option, found=str(path))
    with open_bundle(path) as bundle:
        world = bundle.query(batches=BATCHES).seen
        if options.fail_on_data_loss is not None:
            world = replace(world, fail_on_data_loss=options.fail_on_data_loss)
        if options.spark is not None or options.fail_on_data_loss is not None:
            start = start_words(options.spark, fail_on_data_loss=world.fail_on_data_loss)
            world = replace(world, asked=replace(world.asked, start=start))
        if options.max_downtime_ms is not None:
            world = replace(world, advice=replace(world.advice, max_downtime_ms=options.max_downtime_ms))
        if spark is None and world.advice.spark is not None:
            spark = parse_spark_version(world.advice.spark)
        log = None if options.log is None else _read_log(options.log)
        if log is None:
            return _judge(world, spark, bundle.failures)
        return _judge(world, spark, log.failures, log.facts.executors_removed_idle, show_data=options.show_data)


def _read_log(log: str) -> DriverLog:
    from lastgood.failures.driver_log import read_driver_log

    try:
        if log == STDIN:
            return read_driver_log(sys.stdin.buffer)
        with Path(log).open("rb") as stream:
            return read_driver_log(stream)
    except OSError as error:
        raise UsageError("the log cannot be read", subject=f"--log {log}", found=error.strerror) from error


def _told_by_log(options: DiagnoseOptions, query: LoggedQuery | None) -> DiagnoseOptions:
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


def _unasked(query: OpenQuery, logged: LoggedQuery | None) -> tuple[SinkEvidence, ...]:
    """The sink of which the log tells, if it is nowhere that somebody has named here: nobody is asked for it."""
    sink = logged.sink if logged is not None else None
    if sink is None or sink.location is None:
        return ()
    try:
        open_named(query)(split_kind(sink.location)[1])
    except ExtraMissingError:
        return ()  # whoever asks it says so
    except StorageError as error:
        return (unknown_evidence("unknown", without_login(sink.location), DedupeKey.NONE, f"{error} (--sink)"),)
    return ()


def _query_of(log: DriverLog | None, query_id: str | None) -> LoggedQuery | None:
    queries = log.facts.queries if log else ()
    known = next((query for query in queries if query.query_id == query_id), None)
    return known or (queries[0] if len(queries) == 1 and query_id is None else None)


def _tables(query: OpenQuery, logged: LoggedQuery | None) -> Mapping[str, DeltaFacts]:
    """What the Delta tables still serve that the query reads, as far as a log tells where they are."""
    newest = query.checkpoint.newest_offsets
    lines = (
        {line.source_id: line.offset for line in newest.sources if isinstance(line.offset, DeltaOffset)}
        if newest
        else {}
    )
    told = [
        source for source in (logged.sources if logged else ()) if is_told_as_table(source.kind) and source.location
    ]
    found = {}
    for source_id, offset in lines.items():
        is_alone = len(lines) == len(told) == 1
        places = {source.location for source in told if is_alone or _table_id(source) == offset.table_id}
        if len(places) == 1:
            found[source_id] = _table(str(places.pop()), open_named(query))
    return found


def _table(location: str, open_at: Callable[[Location], Storage]) -> DeltaFacts:
    """What a table still serves; nobody asked for it by name, so that it cannot be looked at is an answer."""
    try:
        place = parse_location(location)
        return ask_delta(open_at(place), place, timeout_seconds=TIMEOUT_SECONDS)
    except (LocationInvalidError, ExtraMissingError, StorageError) as error:
        return DeltaFacts(location, exists=None, unknown=str(error))


def _table_id(source: SourceFacts) -> str | None:
    """The id of the table at the offset that a log tells of a source."""
    offset = source.end_offset if isinstance(source.end_offset, dict) else source.start_offset
    return offset.get("reservoirId") if isinstance(offset, dict) else None
