"""`status`: one checkpoint on one screen, or every checkpoint below a folder, graded."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.errors import LastgoodError, StorageError, command_line
from lastgood.operations.evidence import Evidence, lineage, now_ms, require_checkpoint
from lastgood.operations.exposure import Exposure, Losing, SinkStanding, exposure_of, sink_standing
from lastgood.operations.fleet import look_around_all
from lastgood.operations.surroundings import EvidenceOptions, Surroundings, look_around, reading
from lastgood.operations.target import Target, resolve_target
from lastgood.position import locate
from lastgood.recovery.attempts_file import read_attempts
from lastgood.recovery.copies import batch_of
from lastgood.recovery.incident import Incident
from lastgood.recovery.incidents import last_incident
from lastgood.recovery.mirror import WORK_SUFFIX
from lastgood.recovery.topic_ids import read_topic_ids
from lastgood.sources.kafka_ranges import Offsets
from lastgood.storage import Location, Storage, open_storage, parse_location

if TYPE_CHECKING:
    from lastgood.operations.attempts import FailedBatch

_DEPTH_MAX = 6
_NEVER_INSIDE = ("_delta_log", "_spark_metadata", "metadata", "state")
_NOTHING_ASKED = EvidenceOptions()


class Grade(enum.IntEnum):
    """How bad it looks, from the files and from whoever was asked; worse is larger."""

    HEALTHY = 0
    """Every planned batch is committed, and all that a restart reads is there."""
    IN_FLIGHT = 1
    """One batch is planned and not committed: it is running, or the query died in it and a restart runs it again."""
    EMPTY = 2
    """No batch has been planned yet."""
    UNREADABLE = 3
    """The storage does not let us look, or does not answer."""
    DAMAGED = 4
    """Something that a restart reads is missing or damaged."""
    LOSING = 5
    """Unread records are gone from Kafka, or committed rows from the sink, or the sink would drop the next ones."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where one query stands."""

    location: Location
    checkpoint: Checkpoint | None
    error: LastgoodError | None = None
    query_id: str | None = None
    """From `metadata`, else from the mirror of lost logs."""
    mirrored: BatchIds | None = None
    """Where both logs are lost: the batches that the mirror knows; None where that is not so."""
    exposure: Exposure | None = None
    """None if Kafka was not asked."""
    sinks: tuple[SinkStanding, ...] = ()
    incident: Incident | LastgoodError | None = None
    """The last one; the error, if it cannot be read. None: there was none, or, of many checkpoints, nobody asked."""
    failed: FailedBatch | None = None
    """What `recover` has seen fail since the newest commit; None as `incident`."""
    target: str = ""
    """As the user named it."""
    options: EvidenceOptions = _NOTHING_ASKED

    @property
    def grade(self) -> Grade:
        """The worst that is known."""
        if self.checkpoint is None:
            return Grade.UNREADABLE
        is_losing = self.exposure is not None and self.exposure.losing is Losing.YES
        if is_losing or any(sink.is_bad for sink in self.sinks):
            return Grade.LOSING
        if self.checkpoint.damage or self.checkpoint.absent or self.mirrored is not None:
            return Grade.DAMAGED
        if self.checkpoint.last_planned is None:
            return Grade.EMPTY
        return Grade.HEALTHY if self.checkpoint.orphan is None else Grade.IN_FLIGHT

    @property
    def last_good(self) -> int | None:
        """The newest batch on which logs, state and sinks agree, as far as they are known."""
        if self.checkpoint is None:
            return None
        return locate(self.checkpoint, [sink.evidence for sink in self.sinks]).last_good

    @property
    def time_ms(self) -> int | None:
        """Processing time of the newest planned batch."""
        newest = self.checkpoint.newest_offsets if self.checkpoint else None
        return newest.metadata.batch_timestamp_ms if newest and newest.metadata else None

    @property
    def problems(self) -> tuple[str, ...]:
        """What is damaged, missing or lost, each thing one line for a person."""
        if self.checkpoint is None:
            return () if self.error is None else (self.error.sentence,)
        found = []
        if self.mirrored is not None:
            found = [f"both logs are lost; the mirror holds batches {self.mirrored.oldest} to {self.mirrored.newest}"]
        found += [f"{path}: {damage}" for path, damage in self.checkpoint.damage.items()]
        found += [f"{path}: not there" for path in self.checkpoint.absent]
        found += self.exposure.problems if self.exposure else ()
        found += [f"sink {sink.evidence.location}: {sink.sentence}" for sink in self.sinks if sink.is_bad]
        return tuple(found)

    @property
    def next(self) -> str:
        """What to type next."""
        if self.mirrored is not None:
            return command_line("backup", "restore", self.target)
        verb = "inspect" if self.grade in (Grade.HEALTHY, Grade.EMPTY) else "diagnose"
        return command_line(verb, self.target, *self.options.words())

    def next_offsets(self) -> Mapping[str, Offsets]:
        """Kafka sources: where the next batch begins, per source."""
        newest = self.checkpoint.newest_offsets if self.checkpoint else None
        lines = newest.sources if isinstance(newest, OffsetEntry) else ()
        return {line.source_id: line.offset.topics for line in lines if isinstance(line.offset, KafkaOffset)}

    def to_json(self) -> dict[str, Any]:
        """What `status --format json` prints of one checkpoint."""
        checkpoint = self.checkpoint
        return {
            "checkpoint": str(self.location),
            "grade": self.grade.name.lower(),
            "query_id": self.query_id,
            "mode": checkpoint.mode.value if checkpoint else None,
            "stateful": checkpoint.is_stateful if checkpoint else None,
            "last_planned": checkpoint.last_planned if checkpoint else None,
            "last_committed": checkpoint.last_committed if checkpoint else None,
            "last_loadable_state": checkpoint.last_loadable if checkpoint else None,
            "last_good": self.last_good,
            "time_ms": self.time_ms,
            "problems": list(self.problems),
            "mirrored": None if self.mirrored is None else [self.mirrored.oldest, self.mirrored.newest],
            "kafka": None if self.exposure is None else self.exposure.to_json(),
            "sinks": [sink.to_json() for sink in self.sinks],
            "last_incident": self._incident_json(),
            "failed": None if self.failed is None else self.failed.to_json(),
            "next": self.next,
        }

    def _incident_json(self) -> dict[str, Any] | None:
        incident = self.incident
        if incident is None:
            return None
        if isinstance(incident, LastgoodError):
            return {"error": incident.to_json()}
        newest = incident.attempts[-1] if incident.attempts else None
        return {
            "id": incident.id,
            "failed_at_ms": incident.failed_at_ms,
            "cause": incident.cause_line,
            "did": None if newest is None else newest.did,
            "because": None if newest is None else newest.because,
            "outcome": incident.outcome,
            "first_batch": incident.first_batch,
            "back_after_seconds": incident.back_after_seconds,
            "promise": incident.promise_state,
            "next": command_line("report", incident.id, "--checkpoint", self.target or str(self.location)),
            "error": None,
        }


def status(
    target: str,
    *,
    query: str | None = None,
    options: EvidenceOptions = _NOTHING_ASKED,
    config: Path | None = None,
    clock_ms: Callable[[], int] = now_ms,
) -> Status:
    """Where one query stands: from its files, and from its sinks and Kafka where these are named.

    Args:
        target: Location, or name in `lastgood.toml`.
        query: `target` is a session-wide checkpoint root; the name of the query in it.
        options: Sinks and Kafka.
        config: Another configuration than `lastgood.toml` here.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        CheckpointMissingError: there is no such folder, or nothing in it, nor a mirror of it.
        StorageError: the storage does not answer (subclasses).
        LastgoodError: an option is not understood; see `look_around`.
    """
    resolved = resolve_target(target) if config is None else resolve_target(target, config)
    if query is not None:
        target = str(parse_location(resolved.checkpoint) / query)
        resolved = replace(resolved, checkpoint=target)
    location = parse_location(resolved.checkpoint)
    storage = open_storage(location)
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(_last_incident, storage, location)
        evidence = _read(storage, location, resolved)
        incident = asked.result()
    if not evidence.mirror:
        require_checkpoint(location, evidence.checkpoint)
    at_ms = clock_ms()
    around = look_around(evidence, options, now_ms=at_ms, headroom=True)
    found = _judge(evidence, around, at_ms)
    return replace(found, incident=incident, failed=_failed(evidence), target=target, options=options)


def is_root(target: str) -> bool:
    """True for a folder that is no checkpoint itself, and may hold some."""
    location = parse_location(resolve_target(target).checkpoint)
    names = list(open_storage(location).names(location) or ())
    return bool(names) and not _is_checkpoint(names)


def status_below(
    root: str,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    progress: Callable[[int], None] | None = None,
    clock_ms: Callable[[], int] = now_ms,
) -> list[Status]:
    """Where every query below a folder stands, worst first.

    Args:
        root: A folder full of checkpoints, such as `spark.sql.streaming.checkpointLocation`, or a name in
            `lastgood.toml`.
        options: Sinks and Kafka of them all; each sink tells itself which of the queries write to it.
        progress: Told how many have been read so far.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        StorageError: the folder itself cannot be listed.
        LastgoodError: an option is not understood; see `look_around`.
    """
    resolved = resolve_target(root)
    options = options.of(resolved)
    location = parse_location(resolved.checkpoint)
    storage = open_storage(location)
    with ThreadPoolExecutor(max(2, storage.parallel // 4)) as pool:
        asked = [pool.submit(_look, storage, each) for each in checkpoints_below(storage, location)]
        looked = []
        for done in as_completed(asked):
            looked.append(done.result())
            if progress is not None:
                progress(len(looked))
    at_ms = clock_ms()
    read = [each for each in looked if isinstance(each, Evidence) and not _is_nothing(each)]
    around = look_around_all(read, options, now_ms=at_ms)
    found = [_judge(evidence, told, at_ms) for evidence, told in zip(read, around, strict=True)]
    found += [each for each in looked if isinstance(each, Status)]
    found = [replace(each, target=str(each.location), options=options) for each in found]
    return sorted(found, key=lambda each: (-each.grade, str(each.location)))


def checkpoints_below(storage: Storage, folder: Location) -> Iterator[Location]:
    """Every checkpoint below a folder, and whatever may be one.

    That is a folder that cannot be listed, and one that is gone or empty while its work folder is still there. Nothing
    is sought inside a checkpoint or in a work folder.

    Raises:
        StorageError: the folder itself cannot be listed.
    """

    def listed(place: Location) -> list[str] | None:
        try:
            return list(storage.names(place) or ())
        except StorageError:
            if place == folder:
                raise
            return None

    level, worked_on = [folder], set[Location]()
    with ThreadPoolExecutor(storage.parallel) as pool:
        for _ in range(_DEPTH_MAX):
            found = zip(level, pool.map(listed, level), strict=True)
            level = []
            for place, names in found:
                if names is None or _is_checkpoint(names) or (not names and place in worked_on):
                    yield place
                    continue
                inside = {place / name[:-1] for name in names if name.endswith("/") and _may_hold(name[:-1])}
                suffix = f"{WORK_SUFFIX}/"
                owners = {place / name.removesuffix(suffix) for name in names if name.endswith(suffix)}
                yield from sorted(owners - inside, key=str)
                worked_on |= owners
                level += sorted(inside, key=str)


def _may_hold(name: str) -> bool:
    return not name.endswith(WORK_SUFFIX) and not name.startswith(".") and name not in _NEVER_INSIDE


def _is_checkpoint(names: list[str]) -> bool:
    present = set(names)
    return METADATA in present or {f"{OFFSETS}/", f"{COMMITS}/"} <= present


def _look(storage: Storage, location: Location) -> Evidence | Status:
    try:
        return _read(storage, location, Target(str(location)))
    except StorageError as error:
        return Status(location, None, error)


def _read(storage: Storage, location: Location, target: Target) -> Evidence:
    """The checkpoint, and its mirror where both logs are lost."""
    checkpoint = read_checkpoint(storage, location, batches=2)
    evidence = Evidence(target, location, storage, checkpoint, ())
    is_lost = checkpoint.last_planned is None and checkpoint.last_committed is None
    return evidence.with_mirror() if is_lost else evidence


def _last_incident(storage: Storage, location: Location) -> Incident | LastgoodError | None:
    """The last incident; why it cannot be read, which is no reason to say nothing of the rest."""
    try:
        return last_incident(storage, location) if location.name else None
    except LastgoodError as error:
        return error


def _failed(evidence: Evidence) -> FailedBatch | None:
    if not evidence.location.name:
        return None
    try:
        kept = read_attempts(evidence.storage, evidence.location)
    except LastgoodError:  # as little a reason to say nothing of the rest
        return None
    if kept is None:
        return None
    from lastgood.operations.attempts import failed_batch  # noqa: PLC0415 - 50 ms that most queries need not pay

    return failed_batch(kept, evidence.checkpoint.last_committed)


def _is_nothing(evidence: Evidence) -> bool:
    """Whether there is neither a checkpoint nor a mirror of one."""
    checkpoint = evidence.checkpoint
    return not evidence.mirror and checkpoint.query is None and not checkpoint.offsets.listing.exists


def _judge(evidence: Evidence, around: Surroundings, at_ms: int) -> Status:
    checkpoint = evidence.checkpoint
    standings = [
        sink_standing(each, last_planned=checkpoint.last_planned, last_committed=checkpoint.last_committed)
        for each in around.sinks
    ]
    exposure = None
    if around.kafka is not None:
        noted = read_topic_ids(evidence.storage, evidence.location, evidence.query_id)
        exposure = exposure_of(reading(evidence), around.kafka, now_ms=at_ms, recorded_ids=noted)
    return Status(
        evidence.location,
        checkpoint,
        query_id=evidence.query_id,
        mirrored=_mirrored(evidence),
        exposure=exposure,
        sinks=tuple(standings),
    )


def _mirrored(evidence: Evidence) -> BatchIds | None:
    """The batches of the newest query in the mirror of lost logs."""
    checkpoint = evidence.checkpoint
    if checkpoint.last_planned is not None or checkpoint.last_committed is not None:
        return None
    copies = [copy for query in lineage(evidence)[-1:] for copy in query.copies]
    planned = [batch_of(copy.path, OFFSETS) for copy in copies]
    ids = BatchIds.of([batch_id for batch_id in planned if batch_id is not None])
    return ids or None
