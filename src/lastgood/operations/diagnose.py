"""`diagnose`: what is the matter with a query, and what Spark would do on restart."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.engine import diagnose as judge
from lastgood.diagnosis.rules_sources import batches_that_went_back
from lastgood.diagnosis.skipping import versions_loaded
from lastgood.diagnosis.spark_version import SparkVersion, parse_spark_version
from lastgood.diagnosis.world import Seal, World
from lastgood.errors import ExtraMissingError, StorageError, UsageError
from lastgood.operations.advice_facts import advice_facts
from lastgood.operations.evidence import Evidence, gather, known_left, now_ms, require_checkpoint
from lastgood.operations.state_checksums import unsound_state
from lastgood.operations.surroundings import TIMEOUT_SECONDS, EvidenceOptions, Surroundings, look_around
from lastgood.operations.unread_files import unread_files
from lastgood.sources.delta import DeltaFacts, ask_delta
from lastgood.storage import LocationInvalidError, open_storage, parse_location
from lastgood.writing import open_writable

if TYPE_CHECKING:
    from lastgood.diagnosis.driver_log import DriverLog
    from lastgood.diagnosis.failures import Failure
    from lastgood.diagnosis.log_facts import QueryFacts, SourceFacts
    from lastgood.operations.bundle import SavedBundle

BATCHES = 20
"""How many of the newest batches are read."""
STDIN = "-"
_TABLES = ("delta", "files")


@dataclass(frozen=True, slots=True)
class DiagnoseOptions:
    """What to diagnose with."""

    evidence: EvidenceOptions = field(default_factory=EvidenceOptions)
    spark: str | None = None
    """Version to predict for; None: the newest that can read the logs."""
    fail_on_data_loss: bool | None = None
    """As the Kafka source of the query has it; None: as the log tells, else true."""
    log: str | None = None
    """A driver's log, a traceback or an agent's records; `-` is standard input."""
    max_downtime_ms: int | None = None
    """How long the query may be down without losing anything."""
    save: Path | None = None
    """File to write a bundle to."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A report, and the bundle if one was saved."""

    report: Report
    saved: SavedBundle | None = None


def diagnose(target: str, options: DiagnoseOptions | None = None, *, config: Path | None = None) -> Report:
    """Diagnose a query; nothing is changed. See `diagnose_and_save`."""
    return diagnose_and_save(target, options, config=config).report


def diagnose_and_save(target: str, options: DiagnoseOptions | None = None, *, config: Path | None = None) -> Diagnosis:
    """Diagnose a query, and keep what the diagnosis rests on if that is asked for.

    Args:
        target: Location of a checkpoint, name in `lastgood.toml`, or a bundle.
        options: Where else to look, and for which Spark to predict.
        config: Another configuration than `lastgood.toml` here.

    Raises:
        CheckpointMissingError: there is no checkpoint, nor a mirror of one.
        BundleInvalidError: the bundle is none, or damaged.
        UsageError: an option is not understood, or a file cannot be read (subclasses).
        StorageError: the checkpoint cannot be read (subclasses).
    """
    options = options or DiagnoseOptions()
    spark = None if options.spark is None else parse_spark_version(options.spark)
    if Path(target).is_file():  # no checkpoint is a file: it is a bundle
        return Diagnosis(_of_bundle(Path(target), options, spark))
    log = None if options.log is None else _read_log(options.log)
    evidence = _gathered(target, config)
    query = _query_of(log, evidence.query_id)
    asked = _told_by_log(options, query)
    with ThreadPoolExecutor(2) as pool:
        advice = pool.submit(advice_facts, evidence, max_downtime_ms=options.max_downtime_ms, spark=options.spark)
        tables = pool.submit(_tables, evidence, query)
        surroundings = look_around(evidence, asked.evidence, now_ms=now_ms(), headroom=True)
        known = advice.result()
        world = world_of(evidence, surroundings, asked)
        world = replace(world, advice=known, topic_ids=known.topic_ids, tables=tables.result())
    failures = log.failures if log else ()
    saved = None
    if options.save is not None:
        from lastgood.operations.bundle import save_bundle

        saved = save_bundle(options.save, evidence, world, failures=failures)
    return Diagnosis(_judge(world, spark, failures), saved)


def _gathered(target: str, config: Path | None) -> Evidence:
    """The checkpoint and its mirror, also of one that was left behind and of which nothing is left on its storage."""
    from lastgood.recovery.plan import PlanInvalidError

    evidence = gather(target, config=config, batches=BATCHES, may_be_missing=True)
    with contextlib.suppress(PlanInvalidError):  # what cannot be read is the business of whoever repairs
        evidence = known_left(evidence)
    if not (evidence.mirror or evidence.left):
        require_checkpoint(evidence.location, evidence.checkpoint)
    return evidence


def _judge(world: World, spark: SparkVersion | None, failures: Sequence[Failure]) -> Report:
    if not failures:
        return judge(world, spark)
    from lastgood.diagnosis.rules_failures import find_failures

    query = world.checkpoint.query
    found = find_failures(failures, query.query_id if isinstance(query, QueryMetadata) else None)
    return judge(world, spark, failures, others=list(found))


def _of_bundle(path: Path, options: DiagnoseOptions, spark: SparkVersion | None) -> Report:
    from lastgood.operations.bundle import open_bundle

    if options.evidence != EvidenceOptions() or options.save is not None:
        option = "--save" if options.save is not None else "--sink, --kafka"
        raise UsageError("a bundle is diagnosed by what it holds", subject=option, found=str(path))
    with open_bundle(path) as bundle:
        world = bundle.world(bundle.evidence(batches=BATCHES).checkpoint)
        if options.fail_on_data_loss is not None:
            world = replace(world, fail_on_data_loss=options.fail_on_data_loss)
        if options.max_downtime_ms is not None:
            world = replace(world, advice=replace(world.advice, max_downtime_ms=options.max_downtime_ms))
        if spark is None and world.advice.spark is not None:
            spark = parse_spark_version(world.advice.spark)
        failures = bundle.failures if options.log is None else _read_log(options.log).failures
        return _judge(world, spark, failures)


def _read_log(log: str) -> DriverLog:
    from lastgood.diagnosis.driver_log import read_driver_log

    try:
        if log == STDIN:
            return read_driver_log(sys.stdin.buffer)
        with Path(log).open("rb") as stream:
            return read_driver_log(stream)
    except OSError as error:
        raise UsageError("the log cannot be read", subject=f"--log {log}", found=error.strerror) from error


def _told_by_log(options: DiagnoseOptions, query: QueryFacts | None) -> DiagnoseOptions:
    """The options, with what the log knows of the query wherever nothing else was said."""
    if query is None:
        return options
    evidence = options.evidence
    sink = query.sink.location if query.sink and query.sink.kind in _TABLES else None
    if sink and not evidence.sinks:
        evidence = replace(evidence, sinks=(sink,))
    pattern = next(
        (s.subscription.value for s in query.sources if s.subscription and s.subscription.kind == "subscribe_pattern"),
        None,
    )
    if pattern and evidence.subscribe_pattern is None:
        evidence = replace(evidence, subscribe_pattern=pattern)
    fails = options.fail_on_data_loss if options.fail_on_data_loss is not None else query.fail_on_data_loss
    return replace(options, evidence=evidence, fail_on_data_loss=fails)


def _query_of(log: DriverLog | None, query_id: str | None) -> QueryFacts | None:
    queries = log.facts.queries if log else ()
    known = next((query for query in queries if query.query_id == query_id), None)
    return known or (queries[0] if len(queries) == 1 and query_id is None else None)


def world_of(evidence: Evidence, surroundings: Surroundings, options: DiagnoseOptions) -> World:
    """All that a diagnosis rests on."""
    versions = versions_loaded(evidence.checkpoint, surroundings.sinks)
    return World(
        evidence.checkpoint,
        location=str(evidence.location),
        now_ms=now_ms(),
        sinks=surroundings.sinks,
        kafka=surroundings.kafka,
        fail_on_data_loss=options.fail_on_data_loss is not False,
        is_pattern=options.evidence.subscribe_pattern is not None,
        is_local=evidence.location.scheme == "file",
        files=unread_files(evidence),
        unsound=unsound_state(evidence.storage, evidence.location, evidence.checkpoint, versions),
        seal=_seal(evidence),
        left=evidence.left,
        rewritten=_rewritten(evidence),
    )


def _rewritten(evidence: Evidence) -> Mapping[int, str]:
    """The batches that go back by a recovery, if any goes back: else nobody need look."""
    back = batches_that_went_back(evidence.checkpoint)
    if not back:
        return {}
    from lastgood.recovery.plan import PlanInvalidError
    from lastgood.recovery.room import RecoveryUnknownError, Room, Stage, recoveries

    found: dict[int, str] = {}
    storage = open_writable(evidence.location)
    for recovery in recoveries(storage, evidence.location):
        room = Room(evidence.location, recovery, storage)
        try:
            steps = room.plan().steps if room.stage() is Stage.CLOSED else ()
        except (PlanInvalidError, RecoveryUnknownError):  # then it is told as anybody's
            continue
        written = {step.path for step in steps}
        found |= {batch: recovery for batch in back if f"offsets/{batch}" in written}
    return found


def _seal(evidence: Evidence) -> Seal | None:
    """The repair that is open, if the newest plan looks like a seal: else nobody need look."""
    offsets = evidence.checkpoint.offsets
    newest = None if offsets.newest is None else offsets.entries.get(offsets.newest)
    if not isinstance(newest, Damage) or newest.kind is not DamageKind.EMPTY:
        return None
    from lastgood.recovery.room import Room, open_recovery
    from lastgood.recovery.seal import stands

    recovery = open_recovery(evidence.storage, evidence.location)
    if recovery is None:
        return None
    room = Room(evidence.location, recovery, open_writable(evidence.location))
    stage = room.stage()
    paths = tuple(path for path in room.seal() if stands(room, path))
    return Seal(recovery, stage.value if stage else "", paths) if paths else None


def _tables(evidence: Evidence, query: QueryFacts | None) -> Mapping[str, DeltaFacts]:
    """What the Delta tables still serve that the query reads, as far as a log tells where they are."""
    newest = evidence.checkpoint.newest_offsets
    lines = (
        {line.source_id: line.offset for line in newest.sources if isinstance(line.offset, DeltaOffset)}
        if newest
        else {}
    )
    told = [source for source in (query.sources if query else ()) if source.kind == "delta" and source.location]
    found = {}
    for source_id, offset in lines.items():
        is_alone = len(lines) == len(told) == 1
        places = {source.location for source in told if is_alone or _table_id(source) == offset.table_id}
        if len(places) == 1:
            found[source_id] = _table(str(places.pop()))
    return found


def _table(location: str) -> DeltaFacts:
    """What a table still serves; nobody asked for it by name, so that it cannot be looked at is an answer."""
    try:
        place = parse_location(location)
        return ask_delta(open_storage(place), place, timeout_seconds=TIMEOUT_SECONDS)
    except (LocationInvalidError, ExtraMissingError, StorageError) as error:
        return DeltaFacts(location, exists=None, unknown=str(error))


def _table_id(source: SourceFacts) -> str | None:
    """The id of the table at the offset that a log tells of a source."""
    offset = source.end_offset if isinstance(source.end_offset, dict) else source.start_offset
    return offset.get("reservoirId") if isinstance(offset, dict) else None
