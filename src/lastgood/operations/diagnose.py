"""`diagnose`: what is the matter with a query, and what Spark would do on restart."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lastgood.checkpoint.query import QueryMetadata
from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.engine import diagnose as judge
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.observe.advice_facts import find_advice_facts
from lastgood.observe.evidence import EvidenceOptions, list_start_words
from lastgood.observe.files_again import find_files_again
from lastgood.observe.logged import add_what_log_tells, ask_tables, find_logged_query, find_sink_nobody_named, read_log
from lastgood.observe.observation import BATCHES, DiagnoseOptions, add_advice_facts, make_asked_by, observe
from lastgood.observe.open_query import OpenQuery, gather, look_for_left_behind, read_clock_ms, require_checkpoint
from lastgood.observe.recalled import add_memory
from lastgood.observe.surroundings import look_around
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SparkVersion, parse_spark_version
from lastgood.settings.config import Config
from lastgood.settings.target import Target, resolve_target

if TYPE_CHECKING:
    from lastgood.failures.classify import Failure
    from lastgood.observe.bundle import SavedBundle


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
        target: Which query, or a bundle; see `resolve_subject`.
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
        return Diagnosis(_diagnose_bundle(Path(target.typed), options, spark))
    log = None if options.log is None else read_log(options.log)
    query = _gather(target, options.evidence)
    logged = find_logged_query(log, query.query_id)
    unasked = find_sink_nobody_named(query, logged)
    named = logged
    if logged is not None and unasked:
        named = replace(logged, sink=None)
    asked = add_what_log_tells(options, named)
    with ThreadPoolExecutor(3) as pool:
        again = pool.submit(find_files_again, query)
        advice = pool.submit(find_advice_facts, query, max_downtime_ms=options.max_downtime_ms, spark=options.spark)
        tables = pool.submit(ask_tables, query, logged)
        found = look_around(query, asked.evidence, now_ms=read_clock_ms(), headroom=True)
        if not (options.evidence.sinks or query.target.sink):
            found = replace(found, seen=replace(found.seen, sinks=(*found.seen.sinks, *unasked)))
        observed = add_advice_facts(observe(found, asked), advice.result())
        observed = replace(observed, tables=tables.result(), files_again=again.result())
    failures = log.failures if log else ()
    saved = None
    if options.save is not None:
        from lastgood.observe.bundle import save_bundle

        # Where the bundle is read, nobody knows the pipeline by its name.
        elsewhere = make_asked_by(replace(query.target, name=None), asked)
        saved = save_bundle(options.save, replace(query, seen=replace(observed, asked=elsewhere)), failures=failures)
    removed_idle = log.facts.executors_removed_idle if log else 0
    return Diagnosis(_judge(observed, spark, failures, removed_idle, show_data=options.show_data), saved)


def resolve_subject(text: str, config: Config) -> Target:
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


def _gather(target: Target, evidence: EvidenceOptions) -> OpenQuery:
    """The checkpoint and its mirror, also of one that was left behind and of which nothing is left on its storage."""
    from lastgood.planning.plan import PlanInvalidError

    query = gather(target, batches=BATCHES, may_be_missing=True, may_have_links=True, options=evidence)
    with contextlib.suppress(PlanInvalidError):  # what cannot be read is the business of whoever repairs
        query = look_for_left_behind(query)
    query = add_memory(query)
    if not query.is_known:
        require_checkpoint(query.location, query.checkpoint, evidence)
    return query


def _judge(
    observed: Observation,
    spark: SparkVersion | None,
    failures: Sequence[Failure],
    removed_idle: int = 0,
    *,
    show_data: bool = False,
) -> Report:
    if not failures:
        return judge(observed, spark)
    from lastgood.diagnosis.advice_failures import advise_on_failures
    from lastgood.diagnosis.rules_failures import find_failures
    from lastgood.failures.classify import show_failure

    query = observed.checkpoint.query
    query_id = query.query_id if isinstance(query, QueryMetadata) else None
    advice = advise_on_failures(failures, query_id, observed, removed_idle=removed_idle)
    told = [show_failure(each, show_data=show_data) for each in failures]
    found = [*find_failures(told, query_id, observed), *advice]
    return judge(observed, spark, told, others=found)


def _diagnose_bundle(path: Path, options: DiagnoseOptions, spark: SparkVersion | None) -> Report:
    from lastgood.observe.bundle import open_bundle

    if options.evidence != EvidenceOptions() or options.save is not None:
        option = "--save" if options.save is not None else "--sink, --kafka"
        raise UsageError("a bundle is diagnosed by what it holds", subject=option, found=str(path))
    with open_bundle(path) as bundle:
        observed = bundle.query(batches=BATCHES).seen
        if options.fail_on_data_loss is not None:
            observed = replace(observed, fail_on_data_loss=options.fail_on_data_loss)
        if options.spark is not None or options.fail_on_data_loss is not None:
            start = list_start_words(options.spark, fail_on_data_loss=observed.fail_on_data_loss)
            observed = replace(observed, asked=replace(observed.asked, start=start))
        if options.max_downtime_ms is not None:
            observed = replace(observed, advice=replace(observed.advice, max_downtime_ms=options.max_downtime_ms))
        if spark is None and observed.advice.spark is not None:
            spark = parse_spark_version(observed.advice.spark)
        log = None if options.log is None else read_log(options.log)
        if log is None:
            return _judge(observed, spark, bundle.failures)
        return _judge(observed, spark, log.failures, log.facts.executors_removed_idle, show_data=options.show_data)
