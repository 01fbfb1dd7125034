"""Sources as a query on a copy of its logs is to have them, from what the logs and the options tell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.source_offsets import DeltaOffset, FileOffset, KafkaOffset, SourceOffset, VoidOffset
from lastgood.frozen import dataclass
from lastgood.observe.broker import open_broker
from lastgood.observe.open_query import OpenQuery
from lastgood.sources.files.folders import locate_file
from lastgood.sources.kafka.config import read_client_properties

JVM_PARTS = ("kafka", "delta")
"""Formats that a plain Spark does not know."""
_FILES = 100
"""Of so many files the folder is told that holds them all."""


class NoStubError(Exception):
    """A plan cannot be tried; the message is one line for a person."""


@dataclass(frozen=True, slots=True)
class Stub:
    """One source, as `spark.readStream` takes it."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """May hold secrets."""
    paths: tuple[str, ...] = ()


def make_stubs(checkpoint: Checkpoint, found: OpenQuery, *, fail_on_data_loss: bool) -> tuple[Stub, ...]:
    """The sources of a query, in the order of its plan.

    Raises:
        NoStubError: one cannot be had here; the message says why.
    """
    known = _choose_offsets(checkpoint)
    if not known:
        raise NoStubError("no log names the sources of the query")
    if list(known) != [str(index) for index in range(len(known))]:
        raise NoStubError(f"the query names its sources ({', '.join(known)}), which the stub cannot")
    return tuple(
        _stub(source_id, offset, found, fail_on_data_loss=fail_on_data_loss) for source_id, offset in known.items()
    )


def _choose_offsets(checkpoint: Checkpoint) -> dict[str, SourceOffset]:
    """Of each source an offset that tells what it is, by its name in the plan."""
    plans = [entry for _, entry in sorted(checkpoint.offsets.entries.items()) if isinstance(entry, OffsetEntry)]
    initial = {log.name: log.initial.offset for log in checkpoint.sources if log.initial is not None}
    newest = checkpoint.newest_offsets
    if newest:
        names = [line.source_id for line in newest.sources]
    else:
        names = sorted(initial, key=lambda name: (len(name), name))
    found: dict[str, SourceOffset] = {}
    for name in names:
        lines = [line for plan in reversed(plans) if (line := plan.source(name)) is not None]
        told = [line.offset for line in lines if not isinstance(line.offset, VoidOffset)]
        if told:
            found[name] = told[0]
        else:
            found[name] = initial.get(name, VoidOffset())
    return found


def _stub(source_id: str, offset: SourceOffset, found: OpenQuery, *, fail_on_data_loss: bool) -> Stub:
    if isinstance(offset, KafkaOffset):
        return _stub_topics(source_id, offset, found, fail_on_data_loss=fail_on_data_loss)
    if isinstance(offset, FileOffset):
        return Stub("text", {"maxFilesPerTrigger": "1"}, (_find_folder(source_id, found),))
    if isinstance(offset, DeltaOffset):
        table = found.seen.tables.get(source_id)
        if table is None or table.unknown is not None:
            why = "no log tells where it lies" if table is None else table.unknown
            raise NoStubError(f"source {source_id} is a Delta table, and {why}")
        return Stub(
            "delta", {"failOnDataLoss": str(fail_on_data_loss).lower()}, (_require_local(source_id, table.location),)
        )
    raise NoStubError(f"source {source_id} is of the kind {offset.kind}, for which there is no stub")


def _stub_topics(source_id: str, offset: KafkaOffset, found: OpenQuery, *, fail_on_data_loss: bool) -> Stub:
    asked = found.asked
    broker = open_broker(asked.kafka, asked.kafka_config)
    if broker is None:
        raise NoStubError(f"source {source_id} reads Kafka, and no broker is given: --kafka SERVERS")
    if broker.facts is not None:
        raise NoStubError("--kafka names facts that were written down; Spark needs the broker itself")
    if found.seen.kafka is not None and found.seen.kafka.unknown is not None:
        raise NoStubError(f"Kafka does not answer: {found.seen.kafka.unknown}")
    if asked.subscribe_pattern is not None:
        subscription = {"subscribePattern": asked.subscribe_pattern}
    else:
        subscription = {"subscribe": ",".join(dict.fromkeys((*offset.topics, *asked.topics)))}
    if asked.kafka_config is None:
        config = {}
    else:
        config = read_client_properties(asked.kafka_config)
    # Without a group of its own the stub asks as Spark does by itself: under a name that nobody else has.
    kept = {f"kafka.{name}": value for name, value in config.items() if name not in ("bootstrap.servers", "group.id")}
    return Stub(
        "kafka",
        {
            **kept,
            "kafka.bootstrap.servers": broker.bootstrap,
            **subscription,
            "startingOffsets": "earliest",
            "failOnDataLoss": str(fail_on_data_loss).lower(),
        },
    )


def _find_folder(source_id: str, found: OpenQuery) -> str:
    """The folder that holds the newest input files."""
    logged = list(found.source_files(source_id))[-_FILES:]
    if not logged:
        raise NoStubError(f"source {source_id} reads files, and its log names none that would tell from where")
    folders = [os.path.dirname(_require_local(source_id, file.path)) for file in logged]  # noqa: PTH120 - a text, maybe of a URI
    return os.path.commonpath(folders)


def _require_local(source_id: str, uri: str) -> str:
    """The path of a file or folder on this machine: the stub has no keys for any other."""
    location = locate_file(uri)
    if location.scheme != "file":
        raise NoStubError(f"source {source_id} lies on {location.scheme}, for which the stub is not set up")
    return location.path
