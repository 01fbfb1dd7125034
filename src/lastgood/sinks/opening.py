"""Which kind of sink a location is: told by a prefix, else from what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lastgood.errors import Retry, StorageError, explain_error
from lastgood.frozen import dataclass
from lastgood.redaction import hide_login
from lastgood.sinks.evidence import DedupeKey, Sink, SinkEvidence, make_unknown_evidence
from lastgood.sinks.files.kind import FILE_SINK
from lastgood.sinks.kind import Opening, SinkKind
from lastgood.sinks.kinds import ABSENT, SINK_KINDS, UNKNOWN, UNRECOGNISED
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import Location, Storage, open_storage, parse_location

TIMEOUT_SECONDS = 10.0


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
        if self.kind == ABSENT:
            return SinkEvidence(self.kind, self.location, DedupeKey.NONE, None, known=True, because=self.because)
        return make_unknown_evidence(self.kind, self.location, DedupeKey.NONE, self.because, is_silent=self.is_silent)


def is_database(text: str) -> bool:
    """Whether a sink lies in no storage, but in a database, told by its URL."""
    return _find_claiming(text) is not None


def _find_claiming(text: str) -> SinkKind | None:
    return next((kind for kind in SINK_KINDS.values() if kind.claims(text)), None)


def normalise_sink(text: str) -> str:
    """The same text for each way to name one sink: without its password, and a database whatever table of it is meant.

    Nothing is opened.

    Raises:
        LocationInvalidError: the location is not understood.
    """
    if is_database(text):
        return hide_login(text.partition("#")[0])
    return split_kind(text)[1].identity


def open_sink(
    text: str,
    *,
    storage_options: Mapping[str, Any] | None = None,
    app_id: str | None = None,
    ref: str | None = None,
    sink_name: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Sink:
    """Give access to a sink; without a prefix its kind is told from what is there, which is looked up now.

    Args:
        text: `delta:LOCATION`, `file:LOCATION`, `iceberg:LOCATION`, `sqlite:///FILE`, `postgresql://…`, or a location.
            `file:` before a path is Spark's scheme as well: there a Delta or Iceberg table is recognised all the same.
        storage_options: Passed on to the storage.
        app_id: Delta: what a `foreachBatch` function gives as `txnAppId`; None: the query id.
        ref: Iceberg: the branch that the query writes; None: the main one.
        sink_name: Fence: which of several sinks.
        timeout_seconds: How long looking, and each reading later, may take.

    Raises:
        LocationInvalidError: the location is not understood.
        ExtraMissingError: the library for the storage or the database is not installed.
        StorageError: the storage cannot be had on this machine.
    """
    opening = Opening(app_id=app_id, ref=ref, sink_name=sink_name, timeout_seconds=timeout_seconds)
    claiming = _find_claiming(text)
    if claiming is not None and claiming.open_text is not None:
        return claiming.open_text(text, opening)
    name, location = split_kind(text)
    storage = open_storage(location, storage_options)
    kind = None
    if name is not None:
        kind = SINK_KINDS[name]
    if kind is None:
        found = _look(storage, location, timeout_seconds)
        if isinstance(found, OtherSink) and (found.kind == UNKNOWN or not text.startswith("file:")):
            return found
        kind = FILE_SINK if isinstance(found, OtherSink) else found
    assert kind.open_at is not None  # only such kinds are looked for, or named by a prefix
    return kind.open_at(storage, location, opening)


def split_kind(text: str) -> tuple[str | None, Location]:
    """The kind of a sink that is no database, if the prefix settles it, and the location.

    Raises:
        LocationInvalidError: the location is not understood.
    """
    prefix, colon, rest = text.partition(":")
    if not colon or all(kind.name != prefix for kind in _list_in_folders()):
        return None, parse_location(text)
    if prefix == FILE_SINK.name and rest.startswith("/"):
        return None, parse_location(text)
    return prefix, parse_location(rest)


def _list_in_folders() -> list[SinkKind]:
    """The kinds whose sinks lie in a storage."""
    return [kind for kind in SINK_KINDS.values() if kind.open_at is not None]


def _look(storage: Storage, location: Location, timeout_seconds: float) -> SinkKind | OtherSink:
    kinds = [kind for kind in _list_in_folders() if kind.is_at is not None]
    named = next((kind for kind in kinds if kind.is_named is not None and kind.is_named(location)), None)
    if named is not None:
        return named
    questions: list[Callable[[], object]] = [partial(kind.is_at, storage, location) for kind in kinds if kind.is_at]
    questions.append(lambda: storage.stat(location) is not None)
    answers = ask_all(
        questions, parallel=len(questions), deadline=Deadline.after(timeout_seconds), subject=str(location)
    )
    try:
        *there, is_there = [bool(answer.or_raise()) for answer in answers]
    except StorageError as error:
        return OtherSink(UNKNOWN, str(location), explain_error(error), is_silent=error.retry is Retry.LATER)
    for kind, is_it in zip(kinds, there, strict=True):
        if is_it:
            return kind
    if not is_there:
        return OtherSink(ABSENT, str(location), "there is nothing")
    what = f"neither {' nor '.join(kind.sign for kind in kinds)}"
    return OtherSink(UNRECOGNISED, str(location), f"no sink that can tell its batches: {what}")
