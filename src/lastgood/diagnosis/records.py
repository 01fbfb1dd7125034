"""Errors between a query and its sources and sinks: records are lost or doubled, or would be. Pure."""

from __future__ import annotations

from lastgood.diagnosis import rules_kafka, rules_sinks, rules_sources, sink_conditions
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.query.prediction.restart import Restart
from lastgood.query.world import World

OF_RECORDS = (*rules_kafka.CONDITIONS, *rules_sources.CONDITIONS, *rules_sinks.CONDITIONS)
"""Every condition by which records can be lost or doubled."""
ONLY_TWICE = (sink_conditions.SINK_WOULD_REPEAT, sink_conditions.SINK_BATCH_TWICE)
"""Those by which none is lost."""


def errors_of_records(world: World, restart: Restart) -> list[Finding]:
    """What is lost or doubled in a world, or will be: where there is any of it, nothing is exactly once.

    Args:
        world: What was found and asked.
        restart: What Spark will do.
    """
    findings = [
        *rules_kafka.find_kafka(world, restart),
        *rules_sources.find_sources(world, restart),
        *rules_sinks.find_sinks(world, restart),
    ]
    return [each for each in findings if each.severity is Severity.ERROR and each.condition in OF_RECORDS]
