"""Which kind of sink a location is: told by a prefix, else from what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lastgood.checkpoint.layout import SINK_LOG
from lastgood.delta_log.listing import DELTA_LOG
from lastgood.errors import Retry, StorageError
from lastgood.redaction import without_login
from lastgood.sinks.delta.sink import DeltaSink
from lastgood.sinks.evidence import DedupeKey, Sink, SinkEvidence, unknown_evidence
from lastgood.sinks.fence.sink import open_fence
from lastgood.sinks.files.sink import FileSink
from lastgood.sinks.iceberg.sink import MAIN, METADATA_FOLDER, IcebergSink, newest_metadata
from lastgood.storage.parallel import Deadline, ask_all, reason
from lastgood.storage.reading import Location, Storage, open_storage, parse_location

TIMEOUT_SECONDS = 10.0
_KINDS = (DeltaSink.kind, FileSink.kind, IcebergSink.kind)
_DATABASES = ("sqlite:", "postgresql")


@dataclass(frozen=True, slots=True)
class OtherSink:
    """A location that is no sink we know, or that could not be looked at."""

    kind: str
    """`absent`, `unrecognised`, or `unknown`."""
    location: str
    because: str
    is_silent: bool = False
    """As `SinkEvidence.is_silent`."""

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        """That there is nothing, or nothing to tell; see `Sink.evidence`."""
        if self.kind == "absent":
            return SinkEvidence(self.kind, self.location, DedupeKey.NONE, None, known=True, because=self.because)
        return unknown_evidence(self.kind, self.location, DedupeKey.NONE, self.because, is_silent=self.is_silent)


def is_database(text: str) -> bool:
    """Whether a sink is a fence in a database, told by its URL."""
    return text.startswith(_DATABASES)


def same_sink(text: str) -> str:
    """The same text for each way to name one sink: without its password, and a database whatever table of it is meant.

    Nothing is opened.

    Raises:
        LocationInvalidError: the location is not understood.
    """
    return without_login(text.partition("#")[0]) if is_database(text) else split_kind(text)[1].identity


def open_sink(
    text: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    app_id: str | None = None,
    ref: str = MAIN,
    sink_name: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Sink:
    """Give access to a sink; without a prefix its kind is told from what is there, which is looked up now.

    Args:
        text: `delta:LOCATION`, `file:LOCATION`, `iceberg:LOCATION`, `sqlite:///FILE`, `postgresql://…`, or a location.
            `file:` before a path is Spark's scheme as well: there a Delta or Iceberg table is recognised all the same.
        storage_options: Passed on to the storage.
        app_id: Delta: what a `foreachBatch` function gives as `txnAppId`; None: the query id.
        ref: Iceberg: the branch that the query writes.
        sink_name: Fence: which of several sinks.
        timeout_seconds: How long looking, and each reading later, may take.

    Raises:
        LocationInvalidError: the location is not understood.
        ExtraMissingError: the library for the storage or the database is not installed.
        StorageError: the storage cannot be had on this machine.
    """
    if is_database(text):
        return open_fence(text, sink_name=sink_name, timeout_seconds=timeout_seconds)
    kind, location = split_kind(text)
    storage = open_storage(location, storage_options)
    if kind is None:
        found = _look(storage, location, timeout_seconds)
        if isinstance(found, OtherSink) and (found.kind == "unknown" or not text.startswith("file:")):
            return found
        kind = found if isinstance(found, str) else FileSink.kind
    if kind == DeltaSink.kind:
        return DeltaSink(storage, location, app_id=app_id, timeout_seconds=timeout_seconds)
    if kind == IcebergSink.kind:
        return IcebergSink(storage, location, ref=ref, timeout_seconds=timeout_seconds)
    return FileSink(storage, location, timeout_seconds=timeout_seconds)


def split_kind(text: str) -> tuple[str | None, Location]:
    """The kind of a sink that is no database, if the prefix settles it, and the location.

    Raises:
        LocationInvalidError: the location is not understood.
    """
    prefix, colon, rest = text.partition(":")
    if not colon or prefix not in _KINDS:
        return None, parse_location(text)
    if prefix == FileSink.kind and rest.startswith("/"):
        return None, parse_location(text)
    return prefix, parse_location(rest)


def _look(storage: Storage, location: Location, timeout_seconds: float) -> str | OtherSink:
    if location.name.endswith((".metadata.json", ".metadata.json.gz")):
        return IcebergSink.kind
    metadata = location / METADATA_FOLDER
    questions: list[Callable[[], object]] = [
        lambda: _has(storage, location / DELTA_LOG),
        lambda: _has(storage, location / SINK_LOG),
        lambda: bool(newest_metadata(list(storage.names(metadata) or ()))),
        lambda: storage.stat(location) is not None,
    ]
    answers = ask_all(
        questions, parallel=len(questions), deadline=Deadline.after(timeout_seconds), subject=str(location)
    )
    try:
        is_delta, is_file, is_iceberg, is_there = [bool(answer.or_raise()) for answer in answers]
    except StorageError as error:
        return OtherSink("unknown", str(location), reason(error), is_silent=error.retry is Retry.LATER)
    for kind, is_it in zip(_KINDS, (is_delta, is_file, is_iceberg), strict=True):
        if is_it:
            return kind
    if not is_there:
        return OtherSink("absent", str(location), "there is nothing")
    what = f"neither {DELTA_LOG} nor {SINK_LOG} nor {METADATA_FOLDER}"
    return OtherSink("unrecognised", str(location), f"no sink that can tell its batches: {what}")


def _has(storage: Storage, folder: Location) -> bool:
    found = storage.stat(folder)
    return found is not None and found.is_folder
