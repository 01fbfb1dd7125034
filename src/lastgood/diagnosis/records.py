"""What speaks against exactly once: records that are lost or doubled between sources, state and sinks. Pure."""

from __future__ import annotations

from lastgood.diagnosis import (
    kafka_conditions,
    rules_kafka,
    rules_logs,
    rules_lost,
    rules_sinks,
    rules_sources,
    rules_state,
    sink_conditions,
    source_conditions,
)
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.query.observation import Observation
from lastgood.query.prediction.restart import Restart

_OF_STATE = (
    rules_state.STATE_PARTITIONS_CHANGED,
    rules_state.STALE_STATE_SNAPSHOT,
    rules_state.STATE_LEFT_OVER,
    rules_state.STATE_FILE_DAMAGED,
)
"""Those with which Spark may go on, with totals that lack what was read before, or hold what was given up."""
_OF_LOGS = (rules_lost.LOGS_OLDER_THAN_RECORDS, rules_logs.PLAN_EDITED)
OF_RECORDS = (*rules_kafka.CONDITIONS, *rules_sources.CONDITIONS, *rules_sinks.CONDITIONS)
"""Every condition by which records can be lost or doubled between sources and sinks."""
_DONE_ALREADY = (
    source_conditions.SOURCE_OFFSET_WENT_BACK,
    kafka_conditions.SOURCE_OFFSET_NEGATIVE,
    kafka_conditions.SOURCE_SUBSCRIPTION_CHANGED,
    kafka_conditions.SOURCE_PARTITIONS_GONE,
    source_conditions.SOURCE_FILES_CHANGED,
    source_conditions.SOURCE_FILE_IGNORED,
    rules_state.STATE_FILE_DAMAGED,
    sink_conditions.SINK_BATCHES_MISSING,
    rules_logs.PLAN_EDITED,
)
"""Those that are no error, since a query goes on with them: a batch that is done left something out, what it has read
comes once more, how far it read is written nowhere, what came under the name of a file that it has read is read by
none, a file of its state was changed and no Spark sees it, a batch left no mark, which it need not where it had no
rows, or its plan may have been edited."""
_ONLY_TWICE = (
    sink_conditions.SINK_WOULD_REPEAT,
    sink_conditions.SINK_BATCH_TWICE,
    kafka_conditions.SOURCE_SUBSCRIPTION_CHANGED,  # what is unread was given up with the subscription
    source_conditions.SOURCE_FILES_CHANGED,  # of a batch that runs again the planner says by itself what it lacks
)
"""Those by which none is lost."""


def is_only_twice(finding: Finding) -> bool:
    """Whether nothing is lost by it, as far as anything speaks for that: then what it weakens is at least once."""
    may_have_no_rows = finding.condition is sink_conditions.SINK_BATCHES_MISSING and finding.severity < Severity.ERROR
    return may_have_no_rows or finding.condition in _ONLY_TWICE


def find_against_exactly_once(observed: Observation, restart: Restart) -> list[Finding]:
    """What is lost or doubled, or will be: where there is any of it, nothing is exactly once.

    Args:
        observed: What was found and asked.
        restart: What Spark will do.
    """
    findings = [
        *rules_kafka.find_kafka(observed, restart),
        *rules_sources.find_sources(observed, restart),
        *rules_sinks.find_sinks(observed, restart),
        *rules_state.find_state(observed, restart),
        *rules_lost.find_older(observed),
    ]
    return [each for each in findings if is_against(each)]


def may_be_lost(finding: Finding) -> bool:
    """Whether records are lost by it, or may be: where it stands beside a plan, that is not called at least once."""
    return is_against(finding) and not is_only_twice(finding)


def is_against(finding: Finding) -> bool:
    """Whether nothing is exactly once where it is found."""
    least = Severity.WARNING if finding.condition in _DONE_ALREADY else Severity.ERROR
    return finding.severity >= least and finding.condition in (*OF_RECORDS, *_OF_STATE, *_OF_LOGS)
