"""Where one query stands: the value that `status` prints of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lastgood.asked import Asked, format_downtime
from lastgood.checkpoint.contents import Mode
from lastgood.checkpoint.logs import BatchIds
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.diagnosis.engine import Report
from lastgood.diagnosis.engine import diagnose as judge
from lastgood.diagnosis.findings import Finding, Severity
from lastgood.diagnosis.grade import Grade, choose_grade
from lastgood.diagnosis.rules_seal import SEALED_BY_LASTGOOD
from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.journal.holding import CheckpointHolder
from lastgood.journal.incident import Incident
from lastgood.ladder.tally import FailedBatch
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.exposure import judge_exposure_to_kafka
from lastgood.observe.files_again import find_files_again
from lastgood.observe.load_standing import LoadStanding
from lastgood.observe.observation import DiagnoseOptions, add_advice_facts, observe
from lastgood.observe.open_query import OpenQuery
from lastgood.query.advice_facts import AdviceFacts
from lastgood.query.agreement import SinkStanding, judge_sink_standing
from lastgood.query.kafka import Exposure
from lastgood.query.observation import LeftBehind, make_views
from lastgood.query.position import Position
from lastgood.query.prediction.restart import Outcome
from lastgood.signing import SignatureStanding
from lastgood.sources.kafka.ranges import Offsets
from lastgood.storage.reading import Location
from lastgood.values import JsonValue, make_form

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
    unknowns: tuple[str, ...]
    """What nobody was asked, or did not tell, and may change the answer; one line each."""
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
class Status(JsonValue):
    """Where one query stands."""

    json = make_form(
        "checkpoint=location grade=_grade query_id=stand.query_id mode=stand.mode stateful=stand.is_stateful "
        "last_planned=stand.position.planned last_committed=stand.position.committed "
        "last_loadable_state=stand.position.state last_good time_ms restart=stand.outcome unknowns problems warnings "
        "findings mirrored=_mirrored left_behind=_left_behind kafka=exposure sinks last_incident=_last_incident failed "
        "outage load held next undo",
        left_out="load held",
        texts="checkpoint",
    )
    """What `status --format json` prints of one checkpoint."""

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
    outage: str | None = None
    """What `recover` and `run` would do of `after_outage` if the query is down, in one line; None: nothing, or as
    `incident`."""
    load: LoadStanding | None = None
    """How far it has come, if it is a load; None if it is none, or as `incident`."""
    held: CheckpointHolder | None = None
    """Which process of lastgood works on it; None if none is known to, or as `incident`."""
    target: str = ""
    """As the user named it."""
    options: EvidenceOptions = _NOTHING_ASKED
    max_downtime_ms: int | None = None
    """How long it may be down, where that was said beside the configuration."""

    @property
    def unknowns(self) -> tuple[str, ...]:
        """What nobody was asked, or did not tell, and may change the answer; one line each."""
        return () if self.stand is None else self.stand.unknowns

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
        return tuple(_format_line(finding) for finding in self.findings if finding.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is not as it is to be, though the query works."""
        return tuple(_format_line(finding) for finding in self.findings if finding.severity is Severity.WARNING)

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
        return Asked(
            self.target or str(self.location), self.options.words(), downtime=format_downtime(self.max_downtime_ms)
        )

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

    @property
    def _grade(self) -> str:
        return self.grade.name.lower()

    @property
    def _mirrored(self) -> tuple[int | None, int | None] | None:
        mirrored = None if self.stand is None else self.stand.mirrored
        return None if mirrored is None else (mirrored.oldest, mirrored.newest)

    @property
    def _left_behind(self) -> dict[str, Any] | None:
        return None if self.left is None else _encode_left(self.left, self.asked)

    @property
    def _last_incident(self) -> dict[str, Any] | None:
        incident = self.incident
        if incident is None:
            return None
        if isinstance(incident, LastgoodError):
            return {"error": incident.to_json()}
        did = because = signature = None
        if incident.attempts:
            newest = incident.attempts[-1]
            did, because = newest.did, newest.because
        if self.incident_signature is not None:
            signature = self.incident_signature.value
        return {
            "id": incident.id,
            "failed_at_ms": incident.failed_at_ms,
            "cause": incident.cause_line,
            "did": did,
            "because": because,
            "outcome": incident.outcome,
            "first_batch": incident.first_batch,
            "back_after_seconds": incident.back_after_seconds,
            "way": None if incident.back is None else incident.back.way,
            "parts": incident.parts,
            "promise": incident.promise_state,
            "next": self.asked.command("report", incident.id),
            "signature": signature,
            "error": None,
        }


def _encode_left(left: LeftBehind, asked: Asked) -> dict[str, Any]:
    return {
        "recovery": left.recovery,
        "at_ms": left.at_ms,
        "start_file": left.file.to_json(),
        "starts": {source: {t: dict(parts) for t, parts in each.items()} for source, each in left.starts.items()},
        "undo": asked.make_undo_command(left.recovery, left.file.location, *left.undo_words),
    }


def _format_line(finding: Finding) -> str:
    return f"{finding.condition.name} {finding.subject}: {finding.effect}"


def examine(
    query: OpenQuery,
    facts: AdviceFacts,
    *,
    asked: EvidenceOptions,
    at_ms: int,
    max_downtime_ms: int | None = None,
) -> Report:
    """The same diagnosis for who has looked around already: `status`, of one checkpoint or of many.

    Args:
        query: With `BATCHES` of the newest batches, and the mirror where `gather` reads it; its sinks and Kafka were
            asked, with `headroom`.
        facts: From `select_query_facts` at least; with less than `find_advice_facts` tells there is less advice, and no
            more.
        asked: By what options they were asked.
        at_ms: The time, milliseconds since 1970.
        max_downtime_ms: How long the query may be down, as it was said beside the configuration; the commands that are
            printed say it as well.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    observed = observe(query, DiagnoseOptions(asked, max_downtime_ms=max_downtime_ms))
    observed = replace(observed, files_again=find_files_again(query))
    return judge(replace(add_advice_facts(observed, facts), now_ms=at_ms))


def judge_status(
    query: OpenQuery,
    facts: AdviceFacts,
    options: EvidenceOptions,
    at_ms: int,
    max_downtime_ms: int | None,
) -> Status:
    """What `diagnose` makes of it, and how much of it sinks and Kafka tell."""
    report = examine(query, facts, asked=options, at_ms=at_ms, max_downtime_ms=max_downtime_ms)
    views = make_views(report.observed)
    exposure = judge_exposure_to_kafka(query, facts, options, at_ms=at_ms)
    stand = _judge_standing(query, report)
    return Status(
        query.location,
        stand,
        exposure=exposure,
        sinks=tuple(judge_sink_standing(each) for each in views),
        left=report.observed.left,
        options=options,
    )


def _judge_standing(query: OpenQuery, report: Report) -> DiagnosedStatus:
    checkpoint = query.checkpoint
    return DiagnosedStatus(
        choose_grade(report),
        report.position,
        tuple(finding for finding in report.findings if finding.severity > Severity.INFO),
        report.restart.outcome,
        report.restart.unknowns,
        query.query_id,
        checkpoint.mode,
        checkpoint.is_stateful,
        checkpoint.newest_offsets,
        report.observed.asked.about(str(query.location)),
        report.observed.mirrored,
    )
