"""An Iceberg table as a sink, from its metadata files: snapshots carry query id and batch id. Evidence only.

Spark recognises a batch by walking from the table's current snapshot to its parents, also if it writes a branch.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from lastgood.checkpoint.damage import Damage, DamageKind, make_damage
from lastgood.checkpoint.lines import is_long, read_object
from lastgood.checkpoint.reader import read_file
from lastgood.errors import StorageError
from lastgood.frozen import dataclass
from lastgood.sinks.evidence import CommittedBatch, DedupeKey, SinkEvidence, make_silent_evidence, make_unknown_evidence
from lastgood.sinks.iceberg.kind import ICEBERG_SINK, METADATA_FOLDER
from lastgood.storage.parallel import Deadline, ask_one
from lastgood.storage.reading import Location, Storage

TIMEOUT_SECONDS = 10.0
MAIN = "main"
QUERY_ID = "spark.sql.streaming.queryId"
EPOCH_ID = "spark.sql.streaming.epochId"

_METADATA_FILE = re.compile(r"(?:v|0*)?(\d+)(?:-[0-9a-fA-F-]{36})?(?:\.gz)?\.metadata\.json(?:\.gz)?")
_METADATA_SUFFIXES = (".json", ".json.gz")
_OF_HADOOP = "v"
"""Begins the name of a file that is the table as soon as it is there; every other catalog takes it in afterwards."""
_NOT_NAMED = (
    "by the newest of its metadata files, which its catalog may never have taken; the one that it has can be named"
)
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)
_METADATA_BYTES_MAX = 256 * 1024 * 1024
_UNPACKED_BYTES_MAX = 64 * 1024 * 1024
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of an Iceberg table."""

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    """0 in tables of format 1."""
    timestamp_ms: int
    summary: Mapping[str, str]

    @property
    def batch_id(self) -> int | None:
        """The batch that a stream wrote with it; None if it was no stream."""
        return _parse_number(self.summary.get(EPOCH_ID, ""))

    @property
    def is_first(self) -> bool:
        """Whether no snapshot came before it: then nothing was expired."""
        if self.parent_id is not None:
            return False
        if self.sequence_number > 0:
            return self.sequence_number == 1
        total = self.summary.get("total-data-files")
        return total is not None and total == self.summary.get("added-data-files", "0")

    @property
    def row_count(self) -> int | None:
        """Rows that it added; None if it does not say."""
        return _parse_number(self.summary.get("added-records", ""))

    @property
    def is_replacing(self) -> bool:
        """Whether somebody has put other rows in the place of all that there were."""
        total = self.summary.get("total-records")
        is_all = total is not None and total == self.summary.get("added-records", "0") != "0"
        return self.batch_id is None and self.summary.get("operation") == "overwrite" and is_all


@dataclass(frozen=True, slots=True)
class IcebergMetadata:
    """One metadata file of a table."""

    table_id: str
    current_snapshot_id: int | None
    snapshots: Mapping[int, Snapshot]
    refs: Mapping[str, int] = field(default_factory=dict)
    """Snapshot of each branch and tag."""
    written_at_ms: int | None = None
    """When the oldest metadata file was written that it tells of, or itself; None if it does not say."""

    def head(self, ref: str) -> int | None:
        """The snapshot of a branch; None if it has none."""
        if ref == MAIN:
            return self.current_snapshot_id
        return self.refs.get(ref)

    def ancestors(self, snapshot_id: int | None) -> Iterator[Snapshot]:
        """A snapshot and those that it was made from, newest first, as far back as they are kept."""
        unseen = dict(self.snapshots)  # in a damaged file a snapshot may descend from itself
        while snapshot_id is not None and (snapshot := unseen.pop(snapshot_id, None)) is not None:
            yield snapshot
            snapshot_id = snapshot.parent_id


def _unpack(raw: bytes) -> bytes:
    """What a gzip file holds, but for one byte more than may be; piece by piece, since a read makes room for all."""
    pieces: list[bytes] = []
    left = _UNPACKED_BYTES_MAX + 1
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
        while left > 0 and (piece := packed.read(min(left, _PIECE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def parse_iceberg_metadata(raw: bytes) -> IcebergMetadata | Damage:
    """Read a metadata file, compressed or not."""
    if raw[:2] == b"\x1f\x8b":
        try:
            raw = _unpack(raw)
        except (OSError, EOFError, zlib.error) as error:
            return make_damage(DamageKind.BAD_ARCHIVE, str(error))
        if len(raw) > _UNPACKED_BYTES_MAX:
            return make_damage(DamageKind.TOO_LARGE, f"more than {_UNPACKED_BYTES_MAX} bytes unpacked")
    fields = read_object(raw.decode(errors="replace"))
    if isinstance(fields, Damage):
        return fields
    table_id = fields.get("table-uuid") or fields.get("location")
    listed, refs = fields.get("snapshots") or [], fields.get("refs") or {}
    if not isinstance(table_id, str) or not isinstance(listed, list) or not isinstance(refs, dict):
        return make_damage(DamageKind.UNEXPECTED_JSON, "no table metadata")
    snapshots = [snapshot for found in listed if isinstance(found, dict) and (snapshot := _parse_snapshot(found))]
    heads = {name: ref.get("snapshot-id") for name, ref in refs.items() if isinstance(ref, dict)}
    current = fields.get("current-snapshot-id")
    current_snapshot_id = None
    if is_long(current) and current >= 0:
        current_snapshot_id = current
    numbered_heads = {name: head for name, head in heads.items() if is_long(head)}
    log = fields.get("metadata-log")
    files = [fields, *(log if isinstance(log, list) else [])]
    times = [each.get("timestamp-ms", each.get("last-updated-ms")) for each in files if isinstance(each, dict)]
    return IcebergMetadata(
        table_id=table_id,
        current_snapshot_id=current_snapshot_id,
        snapshots={snapshot.snapshot_id: snapshot for snapshot in snapshots},
        refs=numbered_heads,
        written_at_ms=min((time for time in times if is_long(time)), default=None),
    )


def select_newest_metadata(names: Sequence[str]) -> tuple[str, ...]:
    """The metadata files with the highest number; several if a commit was lost in a race, and nobody can tell which."""
    numbered = [(int(found[1]), name) for name in names if (found := _METADATA_FILE.fullmatch(name))]
    highest = max((number for number, _ in numbered), default=None)
    return tuple(sorted(name for number, name in numbered if number == highest))


class IcebergSink:
    """An Iceberg table, or one metadata file of it, which its catalog names."""

    kind = ICEBERG_SINK.name

    def __init__(
        self, storage: Storage, location: Location, *, ref: str = MAIN, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        """Describe a table; nothing is read yet.

        Args:
            storage: From `open_storage(location)`.
            location: The folder of the table, or its current `….metadata.json`.
            ref: The branch that the query writes.
            timeout_seconds: How long reading may take.
        """
        self._storage = storage
        self._location = location
        self._ref = ref
        self._timeout_seconds = timeout_seconds

    @property
    def location(self) -> str:
        """Where the table is."""
        return str(self._location)

    def evidence(self, query_id: str, *, now_ms: int) -> SinkEvidence:
        """What the table says about a query; see `Sink.evidence`."""
        deadline = Deadline.after(self._timeout_seconds)
        try:
            found = ask_one(self._read, deadline=deadline, subject=self.location) or []
        except StorageError as error:
            return make_silent_evidence(self.kind, self.location, DedupeKey.QUERY_ID, error)
        if not found:
            return SinkEvidence(
                "absent", self.location, DedupeKey.QUERY_ID, None, known=True, because="there is no Iceberg table"
            )
        answers = [self._answer(metadata, query_id) for _, metadata in found]
        if len({(answer.last_batch, answer.known, answer.skips_up_to) for answer in answers}) > 1:
            because = f"{len(answers)} metadata files have the same number: give the one that the catalog names"
            return make_unknown_evidence(self.kind, self.location, DedupeKey.QUERY_ID, because)
        is_named = self._location.name.endswith(_METADATA_SUFFIXES)
        if is_named or all(file.name.startswith(_OF_HADOOP) for file, _ in found):
            return answers[0]
        return replace(answers[0], head_untold=_NOT_NAMED)

    def _answer(self, metadata: IcebergMetadata | Damage, query_id: str) -> SinkEvidence:
        if isinstance(metadata, Damage):
            because = f"the metadata is damaged: {metadata}"
            return make_unknown_evidence(self.kind, self.location, DedupeKey.QUERY_ID, because)
        return judge_metadata(metadata, query_id, location=self.location, ref=self._ref)

    def _read(self) -> list[tuple[Location, IcebergMetadata | Damage]]:
        if self._location.name.endswith(_METADATA_SUFFIXES):
            files = [self._location]
        else:
            folder = self._location / METADATA_FOLDER
            files = [folder / name for name in select_newest_metadata(list(self._storage.names(folder) or ()))]
        read = [
            (file, read_file(self._storage, file, parse_iceberg_metadata, limit=_METADATA_BYTES_MAX)) for file in files
        ]
        return [(file, metadata) for file, metadata in read if metadata is not None]


def judge_metadata(metadata: IcebergMetadata, query_id: str, *, location: str, ref: str = MAIN) -> SinkEvidence:
    """What the metadata of a table says about a query. Pure."""
    line = list(metadata.ancestors(metadata.head(ref)))
    marked = _find_marked(line, query_id)
    if ref == MAIN:
        by_spark = marked
    else:
        by_spark = _find_marked(metadata.ancestors(metadata.head(MAIN)), query_id)
    is_whole = not line or line[-1].is_first
    live: dict[int, bool | None] = {snapshot.snapshot_id: True for snapshot in line}
    if not is_whole:  # of what a tag has kept from before the oldest that is kept of the line, it does not tell
        live |= {one.snapshot_id: None for one in metadata.snapshots.values() if _is_before(one, line[-1])}
    unclear = _explain_replaced(line, query_id, live)
    written = sorted(
        (
            one
            for one in metadata.snapshots.values()
            if one.summary.get(QUERY_ID) == query_id and one.batch_id is not None
        ),
        key=lambda one: (one.sequence_number, one.timestamp_ms),
    )
    if marked:
        because = f"snapshot {marked.snapshot_id} of {ref}"
    else:
        because = f"no snapshot of {ref} is of this query"
    if marked is None and not is_whole:
        because = "no snapshot that is kept is of this query, and older ones have expired"
    notes = []
    if ref != MAIN and marked is not None:
        notes.append(f"Spark looks for the marker on {MAIN}, not on {ref}: a batch that is run again is written twice")
    last_batch = marked.batch_id if marked else None
    skips_up_to = by_spark.batch_id if by_spark else None
    complete_from = next((one.batch_id for one in written if one.snapshot_id in live), None)
    if is_whole:
        complete_from = 0
    return SinkEvidence(
        kind=IcebergSink.kind,
        location=location,
        dedupe_key=DedupeKey.QUERY_ID,
        last_batch=last_batch,
        known=marked is not None or is_whole,
        because=because,
        skips_up_to=skips_up_to,
        batches=tuple(_make_batch(snapshot, is_live=live.get(snapshot.snapshot_id, False)) for snapshot in written),
        complete_from=complete_from,
        identity=metadata.table_id,
        created_at_ms=_find_creation_ms(metadata, line) if ref == MAIN else None,
        unclear=unclear,
        others=_collect_others(line, query_id),
        write_obstacles=("lastgood does not write Iceberg tables",),
        notes=tuple(notes),
    )


def _parse_snapshot(fields: Mapping[str, Any]) -> Snapshot | None:
    snapshot_id, parent_id = fields.get("snapshot-id"), fields.get("parent-snapshot-id")
    sequence_number, time_ms, summary = (fields.get(key) for key in ("sequence-number", "timestamp-ms", "summary"))
    if not is_long(snapshot_id):
        return None
    texts = {}
    if isinstance(summary, dict):
        texts = {key: str(value) for key, value in summary.items()}
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_id=_parse_long(parent_id),
        sequence_number=_parse_long(sequence_number) or 0,
        timestamp_ms=_parse_long(time_ms) or 0,
        summary=texts,
    )


def _parse_long(value: object) -> int | None:
    return value if is_long(value) else None


def _find_marked(line: Sequence[Snapshot] | Iterator[Snapshot], query_id: str) -> Snapshot | None:
    """The first snapshot of a query, newest first: what Spark goes by."""
    return next((one for one in line if one.summary.get(QUERY_ID) == query_id and one.batch_id is not None), None)


def _collect_others(line: Sequence[Snapshot], query_id: str) -> dict[str, int]:
    others: dict[str, int] = {}
    for snapshot in line:
        other = snapshot.summary.get(QUERY_ID, query_id)
        if other != query_id and snapshot.batch_id is not None:
            others.setdefault(other, snapshot.batch_id)
    return others


def _is_before(snapshot: Snapshot, other: Snapshot) -> bool:
    return (snapshot.sequence_number, snapshot.timestamp_ms) < (other.sequence_number, other.timestamp_ms)


def _explain_replaced(line: Sequence[Snapshot], query_id: str, live: dict[int, bool | None]) -> str | None:
    """Why rows are missing: somebody has put fewer in the place of all; then `live` says so of the older snapshots."""
    for position, snapshot in enumerate(line):
        if snapshot.is_replacing:
            older = [one for one in line[position + 1 :] if one.summary.get(QUERY_ID) == query_id]
            rows = sum(one.row_count or 0 for one in older)
            if (snapshot.row_count or 0) < rows:
                live |= dict.fromkeys((one.snapshot_id for one in line[position + 1 :]), None)
                by = f"by {snapshot.row_count:,}, where the query had written {rows:,}"
                return f"snapshot {snapshot.snapshot_id} replaced all rows {by}"
    return None


def _find_creation_ms(metadata: IcebergMetadata, line: Sequence[Snapshot]) -> int | None:
    """When the table had no row yet, as far as it tells; None where it may have been made of rows that are older."""
    if not line:
        return metadata.written_at_ms if not metadata.snapshots else None
    first = line[-1]
    is_brought = first.batch_id is None and first.row_count != 0
    if is_brought or not first.is_first:
        return None
    return first.timestamp_ms


def _make_batch(snapshot: Snapshot, *, is_live: bool | None) -> CommittedBatch:
    return CommittedBatch(
        batch_id=snapshot.batch_id or 0,
        version=snapshot.snapshot_id,
        is_live=is_live,
        row_count=snapshot.row_count,
        committed_at_ms=snapshot.timestamp_ms,
    )


def _parse_number(text: str) -> int | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    return None
