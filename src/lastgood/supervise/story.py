"""What becomes of one query under `run`, written down beside its checkpoint while it happens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TypeAlias

from lastgood.errors import LastgoodError
from lastgood.failures.ending import Cause
from lastgood.ids import make_id
from lastgood.incident.closing import close_incident, list_carried_out
from lastgood.incident.notes import make_attempt
from lastgood.incident.promise import Kept
from lastgood.journal.incident import PERSON, RECOVERED, STOPPED, Attempt, ComingBack, Incident
from lastgood.journal.incidents import Incidents
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import read_clock_ms
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee
from lastgood.recovery.decision import Decision, Verdict
from lastgood.recovery.topic_notes import note_first_topics
from lastgood.recovery.whereabouts import note_whereabouts
from lastgood.settings.config import Pipeline
from lastgood.settings.keys import find_keys
from lastgood.settings.target import Target
from lastgood.storage.reading import Location
from lastgood.storage.writing import open_writable
from lastgood.supervise.events import Ended, Event, Noticed, PromiseChecked

RowsOf: TypeAlias = Callable[[Location, int], int | None]

_ROWS_SECONDS = 10.0
_POLL_SECONDS = 0.5


class Story:
    """The incidents of one query, one at a time; a thread of its own writes them, and nobody waits for it."""

    def __init__(
        self,
        checkpoint: Location,
        evidence: EvidenceOptions,
        pipeline: Pipeline,
        *,
        tell: Callable[[Event], None],
        rows_of: RowsOf,
    ) -> None:
        """Begin; nothing is written before something happens.

        Args:
            checkpoint: Of the query.
            evidence: Its sinks.
            pipeline: Whose query it is.
            tell: Gets each event.
            rows_of: How many rows a batch read; None as long as nobody knows.
        """
        self._checkpoint = checkpoint
        self._evidence = evidence
        self._pipeline = pipeline
        self._target = Target(str(checkpoint), config=pipeline.config)
        self._tell = tell
        self._rows_of = rows_of
        self._is_closing = threading.Event()
        self._open: Incident | None = None
        self._has_trouble = False
        self._incidents: Incidents | None = None
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"story-{checkpoint.name}")

    def note_failure(self, ended: Ended, cause: Cause, position: Mapping[str, int | None]) -> None:
        """The command has failed."""
        told = {**asdict(cause), "class": cause.cls.value, "error": cause.line}
        for name in ("cls", "line", "passes_by_itself", "is_of_old_plan", "checkpoint"):
            del told[name]
        told |= {"exit_code": ended.exit_code, "signal": ended.signal}
        if self._open is None:
            self._open = self._new(int(ended.at * 1000), told, position)
            self._write()

    def note_restart(self, because: str, plan: Plan | None, seconds: float) -> None:
        """It is started as it stands; where that loses records, since somebody accepted it, that is told anyhow."""
        is_lossy = plan is not None and plan.guarantee is Guarantee.LOSSY
        if self._open is not None or is_lossy:
            start = Decision(Verdict.START, because, plan)
            self._add(make_attempt(start, at_ms=read_clock_ms(), seconds=seconds))

    def note_decision(self, decision: Decision, seconds: float) -> None:
        """A plan was carried out, or a person is needed."""
        self._add(make_attempt(decision, at_ms=read_clock_ms(), seconds=seconds))
        if decision.recovery is None:
            self._end(PERSON)

    def note_giving_up(self, because: str, waiting: Decision | None) -> None:
        """Nothing is left to try, but what a person might allow."""
        if self._open is not None:
            if waiting is None:
                left = Decision(Verdict.PERSON, because)
            else:
                left = replace(waiting, because=because)
            self._add(make_attempt(left, at_ms=read_clock_ms(), seconds=0.0))
            self._end(STOPPED if waiting is None else PERSON)

    def note_first_batch(self, batch: int, plan: Plan | None, *, rerun: bool, back: ComingBack) -> None:
        """The first new batch is committed: see whether it is the one that was promised."""
        self._writer.submit(self._note_topics)
        incident, self._open = self._open, None
        if incident is not None:
            seen = replace(
                incident,
                first_batch=batch,
                rerun=rerun,
                first_batch_at_ms=read_clock_ms(),
                outcome=RECOVERED,
                back=back,
            )
            self._writer.submit(self._close, seen, batch, plan)

    def close(self) -> None:
        """Wait until all is written."""
        self._is_closing.set()
        self._writer.shutdown(wait=True)

    def _new(self, at_ms: int, cause: Mapping[str, object] | None, position: Mapping[str, int | None]) -> Incident:
        incident_id = make_id(at_ms)
        note_whereabouts(incident_id, str(self._checkpoint), self._evidence.words())
        return Incident(
            id=incident_id,
            checkpoint=str(self._checkpoint),
            pipeline=self._pipeline.name,
            failed_at_ms=at_ms,
            cause=cause,
            position=position,
        )

    def _add(self, attempt: Attempt) -> None:
        incident = self._open or self._new(attempt.at_ms, None, {})
        self._open = replace(incident, attempts=(*incident.attempts, attempt))
        self._write()

    def _end(self, outcome: str) -> None:
        if self._open is not None:
            self._open = replace(self._open, outcome=outcome)
            self._write()
            self._open = None

    def _write(self) -> None:
        if self._open is not None:
            self._writer.submit(self._put, self._open)

    def _put(self, incident: Incident) -> None:
        try:
            if self._incidents is None:
                self._incidents = Incidents(
                    open_writable(self._checkpoint), self._checkpoint, find_keys(self._target.config)
                )
            self._incidents.write(incident)
            self._has_trouble = False
        except LastgoodError as error:
            if not self._has_trouble:  # said once, not at every turn
                self._has_trouble = True
                sentence = f"the history of {self._checkpoint} is not kept: {error.sentence}"
                self._tell(Noticed(at=time.time(), condition=error.condition, sentence=sentence))

    def _note_topics(self) -> None:
        try:
            note_first_topics(self._target, self._evidence)
        except LastgoodError as error:
            sentence = f"of which topics the offsets of {self._checkpoint} are is not noted down: {error.sentence}"
            self._tell(Noticed(at=time.time(), condition=error.condition, sentence=sentence))

    def _close(self, incident: Incident, batch: int, plan: Plan | None) -> None:
        rows = self._await_rows(batch)
        try:
            found = self._closed(incident, plan, rows)
        except LastgoodError as error:
            found = replace(incident, promise={"state": Kept.UNKNOWN.value, "because": [error.sentence]})
        self._put(found)
        if found.promise is not None:
            self._tell(PromiseChecked(at=time.time(), checkpoint=str(self._checkpoint), batch=batch, **found.promise))

    def _closed(self, incident: Incident, plan: Plan | None, rows: int | None) -> Incident:
        checkpoint, config = self._checkpoint, self._target.config
        storage = open_writable(checkpoint)
        return close_incident(
            incident,
            list_carried_out(storage, checkpoint, incident.recoveries, config),
            storage,
            target=self._target,
            options=self._evidence,
            started_by=plan,
            rows=rows,
        )

    def _await_rows(self, batch: int) -> int | None:
        """How many rows a batch read: Spark tells a little after it has committed it."""
        deadline = time.monotonic() + _ROWS_SECONDS
        while (rows := self._rows_of(self._checkpoint, batch)) is None and time.monotonic() < deadline:
            if self._is_closing.wait(_POLL_SECONDS):
                break
        return rows
