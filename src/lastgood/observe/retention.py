"""Whether Kafka keeps what a query has not read for as long as its pipeline says that it may be down."""

from __future__ import annotations

from lastgood.diagnosis.advice_topics import advise_on_topics
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.observe.broker import open_broker
from lastgood.observe.open_query import gather_at, read_clock_ms
from lastgood.observe.surroundings import ONE_SECONDS, make_reading
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.observation import Observation
from lastgood.settings.config import Kafka
from lastgood.settings.target import Target
from lastgood.storage.reading import open_storage, parse_location


@dataclass(frozen=True, slots=True)
class Retention:
    """What the topics of one query come to; nothing where nobody says how long it may be down, or it reads none."""

    warnings: tuple[Finding, ...] = ()
    unknown: str | None = None
    """Why nobody can tell; None where everybody has answered."""


def ask_retention(target: Target) -> Retention:
    """Ask the broker, by what the logs and the configuration name; the checkpoint need not be there yet.

    Whatever hinders it is an answer: nothing waits for this longer than a broker may take, and nothing fails for it.
    """
    if target.max_downtime_ms is None:
        return Retention()
    if target.kafka is None:
        return Retention(unknown="the pipeline names no broker, kafka = { bootstrap = … }")
    try:
        return _ask(target, target.kafka)
    except LastgoodError as error:
        return Retention(unknown=error.sentence if error.found is None else f"{error.sentence} ({error.found})")


def _ask(target: Target, kafka: Kafka) -> Retention:
    location = parse_location(target.checkpoint)
    query = gather_at(target, open_storage(location), batches=1)
    topics = tuple(dict.fromkeys((*make_reading(query).topics, *target.topics)))
    broker = open_broker(kafka.bootstrap, kafka.config)
    if broker is None or (not topics and query.checkpoint.newest_offsets is not None):
        return Retention()  # it reads something else
    facts = broker.ask(topics, now_ms=read_clock_ms(), timeout_seconds=ONE_SECONDS)
    advice = AdviceFacts(max_downtime_ms=target.max_downtime_ms)
    found = advise_on_topics(Observation(query.checkpoint, location=str(location), kafka=facts, advice=advice))
    silent = [f"{name}: {topic.config_unknown}" for name, topic in facts.topics.items() if topic.config_unknown]
    return Retention(
        tuple(finding for finding in found if finding.severity > Severity.INFO),
        facts.unknown or next(iter(silent), None),
    )
