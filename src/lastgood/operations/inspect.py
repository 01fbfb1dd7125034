"""`inspect`: the batches of a query, one in full, its state, and which batch holds an offset, a file or a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from lastgood.checkpoint.layout import SOURCES
from lastgood.errors import UsageError
from lastgood.frozen import dataclass
from lastgood.observe.batch_json import encode_head, encode_row
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.find import read_one
from lastgood.observe.hosts import open_named
from lastgood.observe.open_query import MirrorUse, OpenQuery, gather, read_clock_ms
from lastgood.observe.rows import AllRows, BatchRow, make_rows
from lastgood.observe.shown import SinkComparison
from lastgood.observe.surroundings import look_around
from lastgood.observe.walk import Progress
from lastgood.settings.target import Target
from lastgood.sources.files.facts import FileFacts, Then, predict_file
from lastgood.sources.files.folders import ask_files
from lastgood.values import JsonValue, make_form

_NOTHING_ASKED = EvidenceOptions()
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Inspection(JsonValue):
    """The batches of a query, newest first, and where it stands."""

    json = make_form("*_head known_batches=known batches=_rows")
    """What `inspect --format json` prints."""

    query: OpenQuery
    rows: tuple[BatchRow, ...]
    known: int
    """How many batches are known in all."""
    comparison: SinkComparison
    """The batches held against the sinks; of those that only a sink knows, there is a row as well."""

    @property
    def _head(self) -> dict[str, Any]:
        return encode_head(self.query, self.comparison)

    @property
    def _rows(self) -> list[dict[str, Any]]:
        return [encode_row(row, self.comparison) for row in self.rows]


def inspect_batches(
    target: Target,
    *,
    limit: int | None = 20,
    options: EvidenceOptions = _NOTHING_ASKED,
    clock_ms: Callable[[], int] = read_clock_ms,
) -> Inspection:
    """The newest batches of a query; all that are known if `limit` is None.

    Args:
        target: Which query.
        limit: How many.
        options: The sinks that each batch is held against.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        CheckpointMissingError: there is none.
        StorageError: the storage does not answer (subclasses).
    """
    if limit is None:
        everything = inspect_all(target, options=options)
        rows = list(everything)
        query, known = everything.query, len(rows)
    else:
        query = gather(target, batches=limit + 1, options=options)
        rows = list(make_rows(query))[::-1]
        known = max(len(rows), len(query.checkpoint.offsets.ids))
    query = look_around(query, options, now_ms=clock_ms(), kafka=False)
    comparison = SinkComparison(query, query.seen.sinks)
    return Inspection(query, (*comparison.only_in_sinks(), *rows)[:limit], known, comparison)


def inspect_all(
    target: Target,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Progress | None = None,
) -> AllRows:
    """Every batch that is known, newest first, to iterate over once: a long log is never held as a whole.

    `options` here and below say where the caller looks as well; the commands that errors name carry them.

    Raises:
        CheckpointMissingError: there is none.
        StorageError: the storage does not answer (subclasses); also while iterating.
    """
    return AllRows(gather(target, batches=2, mirror=MirrorUse.ALWAYS, options=options), progress)


def inspect_batch(
    target: Target, batch_id: int, *, options: EvidenceOptions = _NOTHING_ASKED
) -> tuple[BatchRow, OpenQuery]:
    """One batch in full.

    Raises:
        BatchUnknownError: neither checkpoint nor mirror has it.
    """
    return read_one(gather(target, batches=2, options=options), batch_id)


def add_surroundings(
    query: OpenQuery, options: EvidenceOptions, *, kafka: bool = True, clock_ms: Callable[[], int] = read_clock_ms
) -> OpenQuery:
    """The same with what the sinks say, and Kafka if it is asked.

    Raises:
        LastgoodError: see `look_around`.
    """
    return look_around(query, options, now_ms=clock_ms(), kafka=kafka)


@dataclass(frozen=True, slots=True)
class FileNow(JsonValue):
    """An input file that was read, as it is now."""

    json = make_form(
        "path=facts.file.path state=facts.state read_ms=facts.file.timestamp_ms "
        "modified_ms=facts.modified_ms because=facts.because then"
    )
    """`file` of `inspect --file --format json`."""

    facts: FileFacts
    then: Then | None
    """What Spark does with it; None if it is as it was when it was read, gone, or not known."""


def find_file_now(query: OpenQuery, path: str) -> FileNow | None:
    """What became of an input file that a source's log names; None where no log names it.

    Raises:
        ExtraMissingError: the library for its storage is not installed.
    """
    sources = dict.fromkeys((*(log.name for log in query.checkpoint.sources), *_list_mirrored_sources(query)))
    for source_id in sources:
        files = sorted(query.source_files(source_id), key=lambda file: file.log_id)
        named = [file for file in files if file.path == path]
        if named:
            facts = ask_files(named[-1:], open_at=open_named(query))[0]
            return FileNow(facts, predict_file(facts, max(file.timestamp_ms for file in files)))
    return None


def _list_mirrored_sources(query: OpenQuery) -> list[str]:
    return [copy.path.split("/")[1] for copy in query.copies if copy.path.startswith(f"{SOURCES}/")]


def parse_place(text: str) -> tuple[str, int, int]:
    """Topic, partition and offset from `topic/partition/offset`.

    Raises:
        UsageError: it is not of that form.
    """
    topic, _, rest = text.partition("/")
    partition, _, offset = rest.partition("/")
    if not topic or not _NUMBER.fullmatch(partition) or not _NUMBER.fullmatch(offset):
        raise UsageError("the offset is not understood", found=text, expected="TOPIC/PARTITION/OFFSET")
    return topic, int(partition), int(offset)
