"""The diagnosis: position, what Spark would do, and every finding, worst first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lastgood.checkpoint.query import QueryMetadata
from lastgood.diagnosis.findings import Finding, Severity, sort_worst_first
from lastgood.diagnosis.rules_advice import find_advice
from lastgood.diagnosis.rules_kafka import find_kafka
from lastgood.diagnosis.rules_left import drop_of_the_left, find_left
from lastgood.diagnosis.rules_links import find_links
from lastgood.diagnosis.rules_logs import find_logs
from lastgood.diagnosis.rules_lost import find_lost
from lastgood.diagnosis.rules_seal import drop_of_the_seal, find_seal
from lastgood.diagnosis.rules_sinks import find_sinks
from lastgood.diagnosis.rules_source_logs import find_source_logs
from lastgood.diagnosis.rules_sources import find_sources
from lastgood.diagnosis.rules_state import find_state
from lastgood.diagnosis.unknowns import find_unknowns
from lastgood.query.observation import Observation
from lastgood.query.position import Position, locate
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.readers import find_log_versions, find_newest_reading
from lastgood.query.prediction.restart import Restart
from lastgood.query.prediction.spark_version import SPARK_VERSIONS, SparkVersion
from lastgood.values import JsonValue, make_form

if TYPE_CHECKING:
    from lastgood.failures.classify import Failure


@dataclass(frozen=True, slots=True)
class Report(JsonValue):
    """What is the matter with a query."""

    json = make_form(
        "checkpoint=world.location query_id mode=world.checkpoint.mode log_versions=_log_versions "
        "last_planned=position.planned last_committed=position.committed last_good=position.last_good "
        "stateful=world.checkpoint.is_stateful position reasons=position.reasons restart other_versions=others "
        "findings failures"
    )
    """What `diagnose --format json` prints."""

    world: Observation
    position: Position
    restart: Restart
    """For the version of Spark that was asked for."""
    spark: SparkVersion
    """That version."""
    findings: tuple[Finding, ...]
    """Worst first."""
    failures: tuple[Failure, ...] = ()
    """What a driver's log told; empty if none was given."""

    @property
    def others(self) -> tuple[Restart, ...]:
        """For the versions that would do something else; only who asks waits for these predictions."""
        predicted = (predict(self.world, version) for version in SPARK_VERSIONS if version != self.spark)
        return tuple(other for other in predicted if _is_different(other, self.restart))

    @property
    def query_id(self) -> str | None:
        """From `metadata`; None if that does not tell."""
        query = self.world.checkpoint.query
        return query.query_id if isinstance(query, QueryMetadata) else None

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None if there is none."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def _log_versions(self) -> Mapping[str, int | None]:
        return dict(find_log_versions(self.world))


def diagnose(
    world: Observation,
    spark: SparkVersion | None = None,
    failures: Sequence[Failure] = (),
    *,
    others: Sequence[Finding] = (),
) -> Report:
    """Diagnose a query.

    Args:
        world: What was found and asked.
        spark: The version to predict for; None: the newest that can read the logs.
        failures: What a driver's log told.
        others: Findings from elsewhere, such as those about `failures`.
    """
    chosen = spark or find_newest_reading(world)
    position = locate(world.checkpoint, world.sinks)
    restart = predict(world, chosen)
    restart = replace(restart, unknowns=tuple(dict.fromkeys((*restart.unknowns, *find_unknowns(world, restart)))))
    findings = [
        *others,
        *find_links(world),
        *find_lost(world),
        *find_logs(world, restart),
        *find_source_logs(world, restart),
        *find_state(world, restart),
        *find_kafka(world, restart),
        *find_sources(world, restart),
        *find_sinks(world, restart),
        *find_advice(world),
    ]
    findings = [*find_left(world), *drop_of_the_left(world, findings)]
    findings = [*find_seal(world), *drop_of_the_seal(world, findings)]
    return Report(
        world,
        position,
        restart,
        chosen,
        tuple(sort_worst_first(findings)),
        tuple(failures),
    )


def _is_different(one: Restart, other: Restart) -> bool:
    return (one.outcome, one.batch, one.leaves_orphan) != (other.outcome, other.batch, other.leaves_orphan)
