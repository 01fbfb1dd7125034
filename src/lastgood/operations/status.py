"""`status`: one checkpoint on one screen, or every checkpoint below a folder, graded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lastgood.asked import Asked, downtime
from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.grade import Grade, grade_of
from lastgood.diagnosis.rules_seal import SEALED_BY_LASTGOOD
from lastgood.errors import LastgoodError, StorageError
from lastgood.journal.attempts_file import read_attempts
from lastgood.journal.incident import Incident
from lastgood.journal.incidents import last_incident
from lastgood.observe.advice_facts import query_facts
from lastgood.observe.below import Reach, checkpoints_below
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.exposure import exposure_to_kafka
from lastgood.observe.fleet import look_around_all
from lastgood.observe.observation import BATCHES
from lastgood.observe.open_query import OpenQuery, gather_at, known_left, now_ms, require_checkpoint
from lastgood.observe.surroundings import look_around
from lastgood.operations.diagnose import examine
from lastgood.planning.plan import PlanInvalidError
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.agreement import SinkStanding, sink_standing
from lastgood.query.kafka import Exposure
from lastgood.query.observation import LeftBehind, views_of
from lastgood.query.position import Position
from lastgood.query.prediction.restart import Outcome
from lastgood.settings.config import Config
from lastgood.settings.keys import keys_of
from lastgood.settings.target import Target
from lastgood.signing import NO_KEYS, SignatureStanding
from lastgood.sources.kafka.ranges import Offsets
from lastgood.storage.reading import Location, Storage, open_storage

if TYPE_CHECKING:
    from lastgood.recovery.attempts import FailedBatch
_NOTHING_ASKED = EvidenceOptions()


@dataclass(frozen=True, slots=True)
class DiagnosedStatus:
    """What one checkpoint, its sinks and Kafka come to: the report of `diagnose`, without all that it rests on."""

    grade: Grade
    position: Position
    findings: tuple[Finding, ...]
    """Those of `diagnose` that are errors and warnings, worst first."""
    outcome: Outcome
    """What Spark would do, started as things stand."""
    query_id: str | None
    """From `metadata`, else from the mirror of lost logs."""
    mode: Mode
    is_stateful: bool
    newest: OffsetEntry | None
    """The newest plan that can be read."""
    asked: Asked
    """How `diagnose` would be asked the same."""
    mirrored: BatchIds | None = None
    """Where both logs are lost: the batches that the mirror knows; None where that is not so."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where one query stands."""

    location: Location
    stand: DiagnosedStatus | None
    """None: it cannot be read."""
    error: LastgoodError | None = None
    exposure: Exposure | None = None
    """None if Kafka was not asked."""
    sinks: tuple[SinkStanding, ...] = ()
    left: LeftBehind | None = None
    """The recovery that left the checkpoint behind on purpose, if no batch was planned since."""
    incident: Incident | LastgoodError | None = None
    """The last one; the error, if it cannot be read. None: there was none, or, of many checkpoints, nobody asked."""
    incident_signature: SignatureStanding | None = None
    """What the keys of this machine say of its file; None without a key."""
    failed: FailedBatch | None = None
    """What `recover` has seen fail since the newest commit; None as `incident`."""
    target: str = ""
    """As the user named it."""
    options: EvidenceOptions = _NOTHING_ASKED
    max_downtime_ms: int | None = None
    """How long it may be down, where that was said beside the configuration."""

    @property
    def grade(self) -> Grade:
        """The worst that is known: what `diagnose` finds, at a glance."""
        return Grade.UNREADABLE if self.stand is None else self.stand.grade

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The errors and warnings of `diagnose`, worst first."""
        return () if self.stand is None else self.stand.findings

    @property
    def last_good(self) -> int | None:
        """The newest batch on which logs, state and sinks agree, as far as they are known."""
        return None if self.stand is None else self.stand.position.last_good

    @property
    def orphan(self) -> int | None:
        """The batch that is planned and not committed; None if there is none, or where a seal stands in its place."""
        return None if self.stand is None or self.grade is Grade.SEALED else self.stand.position.orphan

    @property
    def time_ms(self) -> int | None:
        """Processing time of the newest planned batch."""
        newest = None if self.stand is None else self.stand.newest
        return newest.metadata.batch_timestamp_ms if newest and newest.metadata else None

    @property
    def problems(self) -> tuple[str, ...]:
        """What is damaged, missing or lost, each thing one line for a person."""
        if self.error is not None:
            return (self.error.sentence,)
        return tuple(_line(finding) for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not as it is to be, though the query works."""
        return tuple(_line(finding) for finding in self.findings if finding.severity is Severity.WARNING)

    @property
    def next(self) -> str:
        """What to type next: of the worst finding what `diagnose` says; where that is to look here, `diagnose`."""
        if self.worst is not None:
            return self.way or self.asked.command("diagnose")
        if self.left is not None:
            return self.asked.command("recover")
        return self.asked.command("inspect" if self.grade in (Grade.HEALTHY, Grade.EMPTY) else "diagnose")

    @property
    def worst(self) -> Finding | None:
        """The first of the worst findings that says what to type, else the first of them; None if there is none."""
        worst = [finding for finding in self.findings if finding.severity is self.findings[0].severity]
        return next((finding for finding in worst if finding.next is not None), next(iter(worst), None))

    @property
    def way(self) -> str | None:
        """What the worst finding says to type; None if it says nothing, or sends here."""
        told = None if self.worst is None else self.worst.next
        return None if told == self.asked.command("status") else told

    @property
    def asked(self) -> Asked:
        """How it was asked for; the commands that are printed carry the same, as those of the findings do."""
        if self.stand is not None:
            return self.stand.asked
        return Asked(self.target or str(self.location), self.options.words(), downtime=downtime(self.max_downtime_ms))

    @property
    def undo(self) -> str | None:
        """The command that takes a repair back that was begun; None where there is none, or where it is `next`."""
        sealed = (finding for finding in self.findings if finding.condition is SEALED_BY_LASTGOOD)
        undo = next((finding.evidence["undo"] for finding in sealed), None)
        return None if undo is None or undo == self.next else str(undo)

    def next_offsets(self) -> Mapping[str, Offsets]:
        """Kafka sources: where the next batch begins, per source."""
        newest = None if self.stand is None else self.stand.newest
        return {} if newest is None else newest.topics

    def to_json(self) -> dict[str, Any]:
        """What `status --format json` prints of one checkpoint."""
        stand = self.stand
        position = stand.position if stand else None
        mirrored = stand.mirrored if stand else None
        return {
            "checkpoint": str(self.location),
            "grade": self.grade.name.lower(),
            "query_id": stand.query_id if stand else None,
            "mode": stand.mode.value if stand else None,
            "stateful": stand.is_stateful if stand else None,
            "last_planned": position.planned if position else None,
            "last_committed": position.committed if position else None,
            "last_loadable_state": position.state if position else None,
            "last_good": self.last_good,
            "time_ms": self.time_ms,
            "restart": stand.outcome.value if stand else None,
            "problems": list(self.problems),
            "warnings": list(self.warnings),
            "findings": [finding.to_json() for finding in self.findings],
            "mirrored": None if mirrored is None else [mirrored.oldest, mirrored.newest],
            "left_behind": None if self.left is None else _left_json(self.left, self.asked),
            "kafka": None if self.exposure is None else self.exposure.to_json(),
            "sinks": [sink.to_json() for sink in self.sinks],
            "last_incident": self._incident_json(),
            "failed": None if self.failed is None else self.failed.to_json(),
            "next": self.next,
            "undo": self.undo,
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
            "next": self.asked.command("report", incident.id),
            "signature": None if self.incident_signature is None else self.incident_signature.value,
            "error": None,
        }


def status(
    target: Target,
    *,
    query: str | None = None,
    options: EvidenceOptions = _NOTHING_ASKED,
    max_downtime_ms: int | None = None,
    clock_ms: Callable[[], int] = now_ms,
) -> Status:
    """Where one query stands: from its files, and from its sinks and Kafka where these are named.

    Args:
        target: Which query.
        query: `target` is a session-wide checkpoint root; the name of the query in it.
        options: Sinks and Kafka.
        max_downtime_ms: How long it may be down without losing anything; None: as its pipeline says.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        CheckpointMissingError: there is no such folder, or nothing in it, nor a mirror of it.
        StorageError: the storage does not answer (subclasses).
        LastgoodError: an option is not understood; see `look_around`.
    """
    if query is not None:
        below = str(target.location / query)
        target = replace(target, checkpoint=below, typed=below)
    location = target.location
    storage = open_storage(location)
    with ThreadPoolExecutor(2) as beside:
        incident = beside.submit(_last_incident, storage, location)
        found = _with_left(gather_at(target, storage, batches=BATCHES))
        if not (found.seen.copies or found.seen.left):
            require_checkpoint(location, found.checkpoint, options)
        at_ms = clock_ms()
        facts = beside.submit(query_facts, found, max_downtime_ms=max_downtime_ms)
        found = look_around(found, options, now_ms=at_ms, headroom=True)
        judged = _judge(found, facts.result(), options, at_ms, max_downtime_ms)
        last = incident.result()
        return replace(
            judged,
            incident=last,
            incident_signature=_signature(storage, location, last, target.config),
            failed=_failed(found),
            target=target.typed,
            max_downtime_ms=max_downtime_ms,
        )


def status_below(
    root: Target,
    *,
    options: EvidenceOptions = _NOTHING_ASKED,
    max_downtime_ms: int | None = None,
    progress: Callable[[int], None] | None = None,
    reach: Reach | None = None,
    clock_ms: Callable[[], int] = now_ms,
) -> list[Status]:
    """Where every query below a folder stands, worst first.

    Args:
        root: A folder full of checkpoints, such as `spark.sql.streaming.checkpointLocation`.
        options: Sinks and Kafka of them all; each sink tells itself which of the queries write to it.
        max_downtime_ms: How long each of them may be down; None: as the pipeline says whose name this is, if any does.
        progress: Told how many have been read so far.
        reach: How far to look at most; it is told how far that was.
        clock_ms: Gives the time, milliseconds since 1970.

    Raises:
        StorageError: the folder itself cannot be listed.
        LastgoodError: an option is not understood; see `look_around`.
    """
    options = options.of(root)
    wanted_ms = root.max_downtime_ms if max_downtime_ms is None else max_downtime_ms
    location = root.location
    storage = open_storage(location)
    asks = bool(options.sinks) or options.kafka is not None
    with ThreadPoolExecutor(max(2, storage.parallel // 4)) as pool:
        # Where nobody is asked each is judged at once: what a thousand checkpoints hold need not be kept.
        look: Callable[[Storage, Location], OpenQuery | Status | None] = partial(_read, root.config)
        if not asks:
            look = partial(_look, root.config, options=options, max_downtime_ms=wanted_ms, at_ms=clock_ms())
        asked = [pool.submit(_one_of_many, look, storage, each) for each in checkpoints_below(storage, location, reach)]
        looked = []
        for done in as_completed(asked):
            looked.append(done.result())
            if progress is not None:
                progress(len(looked))
        gathered = [each for each in looked if isinstance(each, OpenQuery) and _is_any(each)]
        at_ms = clock_ms()
        gathered = look_around_all(gathered, options, now_ms=at_ms) if asks else []
        again = partial(_look_again, options=options, max_downtime_ms=wanted_ms, at_ms=at_ms)
        found = list(pool.map(again, gathered))
    found += [each for each in looked if isinstance(each, Status)]
    found = [  # of unreadable ones, too
        replace(each, target=str(each.location), options=options, max_downtime_ms=wanted_ms) for each in found
    ]
    return sorted(found, key=lambda each: (-each.grade, str(each.location)))


def _one_of_many(
    look: Callable[[Storage, Location], OpenQuery | Status | None], storage: Storage, location: Location
) -> OpenQuery | Status | None:
    """What is told of a checkpoint that may not let us look: of many, it is one line."""
    try:
        return look(storage, location)
    except StorageError as error:
        return Status(location, None, error)


def _read(config: Config, storage: Storage, location: Location) -> OpenQuery:
    return _with_left(gather_at(Target(str(location), config=config), storage, batches=BATCHES))


def _with_left(query: OpenQuery) -> OpenQuery:
    """The same, knowing whether a recovery has left the checkpoint behind."""
    with contextlib.suppress(PlanInvalidError):  # what cannot be read is the business of whoever repairs
        return known_left(query)
    return query


def _look(
    config: Config,
    storage: Storage,
    location: Location,
    *,
    options: EvidenceOptions,
    max_downtime_ms: int | None,
    at_ms: int,
) -> Status | None:
    """One that nobody else tells of; None if it is none."""
    query = _read(config, storage, location)
    if not _is_any(query):
        return None
    return _look_again(query, options=options, max_downtime_ms=max_downtime_ms, at_ms=at_ms)


def _look_again(query: OpenQuery, *, options: EvidenceOptions, max_downtime_ms: int | None, at_ms: int) -> Status:
    try:
        facts = query_facts(query, max_downtime_ms=max_downtime_ms)
        return _judge(query, facts, options, at_ms, max_downtime_ms)
    except StorageError as error:
        return Status(query.location, None, error)


def _is_any(query: OpenQuery) -> bool:
    """Whether there is a checkpoint, a mirror of one, or the recovery that left it behind."""
    return bool(query.seen.copies or query.seen.left) or query.checkpoint.is_there


def _last_incident(storage: Storage, location: Location) -> Incident | LastgoodError | None:
    """The last incident; why it cannot be read, which is no reason to say nothing of the rest."""
    try:
        return last_incident(storage, location) if location.name else None
    except LastgoodError as error:
        return error


def _signature(
    storage: Storage, location: Location, last: Incident | LastgoodError | None, config: Config
) -> SignatureStanding | None:
    keys = keys_of(config) if isinstance(last, Incident) else NO_KEYS
    if not keys or not isinstance(last, Incident):
        return None
    from lastgood.journal.signed_files import file_of_incident, worst  # noqa: PLC0415 - nobody without a key needs it

    return worst(file_of_incident(storage, location, last.id, keys))


def _failed(query: OpenQuery) -> FailedBatch | None:
    if not query.location.name:
        return None
    try:
        kept = read_attempts(query.storage, query.location)
    except LastgoodError:  # as little a reason to say nothing of the rest
        return None
    if kept is None:
        return None
    from lastgood.recovery.attempts import failed_batch  # noqa: PLC0415 - 50 ms that most queries need not pay

    return failed_batch(kept, query.checkpoint.last_committed)


def _judge(
    query: OpenQuery,
    facts: AdviceFacts,
    options: EvidenceOptions,
    at_ms: int,
    max_downtime_ms: int | None,
) -> Status:
    """What `diagnose` makes of it, and how much of it sinks and Kafka tell."""
    report = examine(query, facts, asked=options, at_ms=at_ms, max_downtime_ms=max_downtime_ms)
    views = views_of(report.world)
    exposure = exposure_to_kafka(query, facts, options, at_ms=at_ms)
    stand = _stand(query, report)
    return Status(
        query.location,
        stand,
        exposure=exposure,
        sinks=tuple(sink_standing(each) for each in views),
        left=report.world.left,
        options=options,
    )


def _left_json(left: LeftBehind, asked: Asked) -> dict[str, Any]:
    return {
        "recovery": left.recovery,
        "at_ms": left.at_ms,
        "start_file": left.file.to_json(),
        "starts": {source: {t: dict(parts) for t, parts in each.items()} for source, each in left.starts.items()},
        "undo": asked.taking_back(left.recovery, left.file.location, *left.undo_words),
    }


def _stand(query: OpenQuery, report: Report) -> DiagnosedStatus:
    checkpoint = query.checkpoint
    return DiagnosedStatus(
        grade_of(report),
        report.position,
        tuple(finding for finding in report.findings if finding.severity > Severity.INFO),
        report.restart.outcome,
        query.query_id,
        checkpoint.mode,
        checkpoint.is_stateful,
        checkpoint.newest_offsets,
        report.world.asked.about(str(query.location)),
        report.world.mirrored,
    )


def _line(finding: Finding) -> str:
    return f"{finding.condition.name} {finding.subject}: {finding.effect}"
