"""The diagnosis: position, what Spark would do, and every finding, worst first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from lastgood.frozen import dataclass
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
        "checkpoint=observed.location query_id mode=observed.checkpoint.mode log_versions=_log_versions "
        "last_planned=position.planned last_committed=position.committed last_good=position.last_good "
        "stateful=observed.checkpoint.is_stateful position reasons=position.reasons restart other_versions=others "
        "findings failures"
    )
    """What `diagnose --format json` prints."""

    observed: Observation
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
        versions = [version for version in SPARK_VERSIONS if version != self.spark]
        predicted = [predict(self.observed, version) for version in versions]
        return tuple(other for other in predicted if _is_different(other, self.restart))

    @property
    def query_id(self) -> str | None:
        """From `metadata`; None if that does not tell."""
        query = self.observed.checkpoint.query
        return query.query_id if isinstance(query, QueryMetadata) else None

    @property
    def worst(self) -> Severity | None:
        """The severity of the worst finding; None if there is none."""
        return max((finding.severity for finding in self.findings), default=None)

    @property
    def _log_versions(self) -> Mapping[str, int | None]:
        return dict(find_log_versions(self.observed))


def diagnose(
    observed: Observation,
    spark: SparkVersion | None = None,
    failures: Sequence[Failure] = (),
    *,
    others: Sequence[Finding] = (),
) -> Report:
    """Diagnose a query.

    Args:
        observed: What was found and asked.
        spark: The version to predict for; None: the newest that can read the logs.
        failures: What a driver's log told.
        others: Findings from elsewhere, such as those about `failures`.
    """
    chosen = spark or find_newest_reading(observed)
    position = locate(observed.checkpoint, observed.sinks)
    restart = predict(observed, chosen)
    restart = replace(restart, unknowns=tuple(dict.fromkeys((*restart.unknowns, *find_unknowns(observed, restart)))))
    findings = [
        *others,
        *find_links(observed),
        *find_lost(observed),
        *find_logs(observed, restart),
        *find_source_logs(observed, restart),
        *find_state(observed, restart),
        *find_kafka(observed, restart),
        *find_sources(observed, restart),
        *find_sinks(observed, restart),
        *find_advice(observed),
    ]
    findings = [*find_left(observed), *drop_of_the_left(observed, findings)]
    findings = [*find_seal(observed), *drop_of_the_seal(observed, findings)]
    return Report(
        observed,
        position,
        restart,
        chosen,
        tuple(sort_worst_first(findings)),
        tuple(failures),
    )


def _is_different(one: Restart, other: Restart) -> bool:
    return (one.outcome, one.batch, one.leaves_orphan) != (other.outcome, other.batch, other.leaves_orphan)
