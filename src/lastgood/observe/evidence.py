"""Whom to ask for evidence: the sinks and the Kafka that are named, and the same as words of a command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from lastgood.asked import Asked, make_typeable
from lastgood.errors import LastgoodError, UsageError
from lastgood.frozen import dataclass
from lastgood.redaction import hide_login
from lastgood.settings.target import Target, find_known_here
from lastgood.sources.unasked import REPLAYS

_TOPIC_IS_THE_SAME = "--topic-is-the-same"


@dataclass(frozen=True, slots=True)
class EvidenceOptions:
    """Where else to look than into the checkpoint; the same for all verbs."""

    sinks: tuple[str, ...] = ()
    """As `open_sink` takes them."""
    kafka: str | None = None
    """`bootstrap.servers`, or a file of facts that were written down before (`KafkaFacts.to_json`)."""
    topics: tuple[str, ...] = ()
    """Topics beside those that the logs name."""
    subscribe_pattern: str | None = None
    """Regular expression that matches the whole name of further topics."""
    kafka_config: Path | None = None
    """A `client.properties`, as Kafka's own tools take it."""
    txn_app_id: str | None = None
    """What the application's function gives as `txnAppId`, with the number of the batch as `txnVersion`, when it writes
    to its Delta tables; None: the query id."""
    topic_is_the_same: bool = False
    """Whether a person says that no topic was deleted and created again since the query read it."""
    source_replays: bool = False
    """Whether sources that cannot be asked serve their ranges again: a person's word for it."""

    def of(self, target: Target) -> EvidenceOptions:
        """The same, with what the configuration knows of the target wherever nothing else was said."""
        kafka, config = self.kafka, self.kafka_config
        if target.kafka is not None:
            kafka, config = kafka or target.kafka.bootstrap, config or target.kafka.config
        sinks = self.sinks or ((target.sink,) if target.sink is not None else ())
        return replace(
            self,
            sinks=sinks,
            kafka=kafka,
            kafka_config=config,
            topics=self.topics or target.topics,
            txn_app_id=self.txn_app_id or target.txn_app_id,
            source_replays=self.source_replays or target.source_replays,
        )

    def beyond(self, target: Target) -> EvidenceOptions:
        """What of it is said beyond the configuration, which knows the rest of the target."""
        configured = EvidenceOptions().of(target)
        nothing = EvidenceOptions()
        unsaid = {
            field.name: getattr(nothing, field.name)
            for field in fields(self)
            if getattr(self, field.name) == getattr(configured, field.name)
        }
        return replace(self, **unsaid)

    def words(self) -> tuple[str, ...]:
        """The same as words of a command line, which may be shown and kept: without passwords."""
        config = None if self.kafka_config is None else str(self.kafka_config)
        given = [("--sink", make_typeable(hide_login(sink))) for sink in self.sinks]
        given += [("--kafka", self.kafka or ""), ("--kafka-config", config or "")]
        given += [("--topic", topic) for topic in self.topics]
        given += [("--subscribe-pattern", self.subscribe_pattern or ""), ("--txn-app-id", self.txn_app_id or "")]
        flags = [_TOPIC_IS_THE_SAME] if self.topic_is_the_same else []
        flags += [REPLAYS] if self.source_replays else []
        return (*(word for name, value in given if value for word in (name, value)), *flags)


def make_asked(
    target: Target, options: EvidenceOptions, *, spark: str | None = None, fail_on_data_loss: bool = True
) -> Asked:
    """How a verb was called, for the commands that it prints.

    A pipeline that is known here goes by its name: then its configuration says the rest, also what no command may
    show. Any other is told by its location, which is left open here, and by all that is known of it; but by the name of
    a pipeline here where that alone can say it.

    Args:
        target: What it is about.
        options: Where else it looked.
        spark: The version that will start; None: nobody said it.
        fail_on_data_loss: As the Kafka source has it.
    """
    start = list_start_words(spark, fail_on_data_loss=fail_on_data_loss)
    known = target if target.name is not None else _find_by_whose_name(target, options)
    if known is not None and known.name is not None:
        return Asked(known.name, options.beyond(known).words(), start)
    return Asked(evidence=options.of(target).words(), start=start, policy=target.config.named)


def make_asked_at_location(target: Target, options: EvidenceOptions) -> Asked:
    """The same of a query that is told by its location, with no more said than that and the options.

    Args:
        target: Its location, or its name here.
        options: Where else to look.
    """
    known = _find_by_whose_name(Target(target.typed, config=target.config), options)
    if known is None or known.name is None:
        return Asked(target.typed, options.words())
    return Asked(known.name, options.beyond(known).words())


def _find_by_whose_name(target: Target, options: EvidenceOptions) -> Target | None:
    """The query here whose name says what no command may show, and nothing else; None if there is none, or no need."""
    said = options.of(target)
    if target.config.named is not None or all(hide_login(sink) == sink for sink in said.sinks):
        return None
    try:
        known = find_known_here(target.checkpoint, target.config)
    except LastgoodError:  # whoever types the command is told what is wrong with the configuration
        return None
    return known if known is not None and said.of(known) == said else None


def list_start_words(spark: str | None, *, fail_on_data_loss: bool) -> tuple[str, ...]:
    """What was said of the Spark that will start, as words of a command line."""
    version = () if spark is None else ("--spark", spark)
    return version if fail_on_data_loss else (*version, "--fail-on-data-loss", "false")


def parse_options(words: Sequence[str]) -> EvidenceOptions:
    """The options that `EvidenceOptions.words` has written down.

    Raises:
        UsageError: the words are none.
    """
    given: dict[str, list[str]] = {}
    pairs = [word for word in words if word not in (_TOPIC_IS_THE_SAME, REPLAYS)]
    for name, value in zip(pairs[::2], pairs[1::2], strict=False):
        given.setdefault(name, []).append(value)
    one = {name: values[-1] for name, values in given.items()}
    found = EvidenceOptions(
        sinks=tuple(given.get("--sink", ())),
        kafka=one.get("--kafka"),
        topics=tuple(given.get("--topic", ())),
        subscribe_pattern=one.get("--subscribe-pattern"),
        kafka_config=Path(one["--kafka-config"]) if "--kafka-config" in one else None,
        txn_app_id=one.get("--txn-app-id"),
        topic_is_the_same=_TOPIC_IS_THE_SAME in words,
        source_replays=REPLAYS in words,
    )
    if sorted(found.words()) != sorted(words):
        raise UsageError("the options are not understood", found=" ".join(words))
    return found
