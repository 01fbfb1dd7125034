"""The options that say where else to look than into the checkpoint: the same for all verbs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

_F = TypeVar("_F", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--sink",
        "sinks",
        multiple=True,
        metavar="LOCATION",
        help="Where the query writes: a Delta table, or a folder with _spark_metadata; told from what is there, or by"
        " delta: or file: before it. Tells which batches readers see. Repeatable.",
    ),
    click.option(
        "--kafka",
        metavar="SERVERS|FILE",
        help="bootstrap.servers of the source, such as broker:9092; or a JSON file with what a broker said before."
        " Tells what can still be read, and for how long.",
    ),
    click.option(
        "--kafka-config",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="client.properties for --kafka, as Kafka's own tools take it: SASL, TLS.",
    ),
    click.option(
        "--topic",
        "topics",
        multiple=True,
        metavar="NAME",
        help="A topic that the query reads, where no log is left to name it. Repeatable.",
    ),
    click.option(
        "--subscribe-pattern",
        metavar="REGEX",
        help="As Spark's option subscribePattern: topics that no log names yet.",
    ),
    click.option(
        "--txn-app-id",
        metavar="ID",
        help="What the application's foreachBatch function gives as txnAppId, with the batch as txnVersion: its Delta"
        " table knows the query by that name, and not by its id.",
    ),
    click.option(
        "--topic-is-the-same",
        is_flag=True,
        help="You know that no topic of the query was deleted and created again: settles what clocks leave open, not"
        " what an id or offsets disprove.",
    ),
    click.option(
        "--source-replays",
        is_flag=True,
        help="Sources that cannot be asked (Kinesis, Event Hubs, Pulsar, one of your own) serve the same rows again for"
        " the same offsets. Without it nothing is called exactly once for them.",
    ),
)


def add_evidence_options(command: _F) -> _F:
    """Add the options to a command; it gets them as one `EvidenceOptions`, named `options`."""

    @functools.wraps(command)
    def with_options(
        *arguments: Any,
        sinks: tuple[str, ...],
        kafka: str | None,
        kafka_config: Path | None,
        topics: tuple[str, ...],
        subscribe_pattern: str | None,
        txn_app_id: str | None,
        topic_is_the_same: bool,
        source_replays: bool,
        **others: Any,
    ) -> Any:
        from lastgood.observe.evidence import EvidenceOptions

        tell_passwords(sinks)
        options = EvidenceOptions(
            sinks=sinks,
            kafka=kafka,
            topics=topics,
            subscribe_pattern=subscribe_pattern,
            kafka_config=kafka_config,
            txn_app_id=txn_app_id,
            topic_is_the_same=topic_is_the_same,
            source_replays=source_replays,
        )
        return command(*arguments, options=options, **others)

    decorated: Any = with_options
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def tell_passwords(sinks: Iterable[str]) -> None:
    """Say on standard error of which sinks no printed command holds the password, and how it is found then."""
    from lastgood.cli.output import make_console, make_styled
    from lastgood.redaction import describe_left_out_password

    for told in filter(None, map(describe_left_out_password, sinks)):
        make_console(stderr=True).print(make_styled(f"Note: {told}.", style="dim"))
