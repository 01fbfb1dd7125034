"""An incident: what failed, what was done about it and why, and what came of it; as a value and as a file. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, ClassVar, Final, Literal

from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.ids import is_id
from lastgood.notes import read_json
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee, SourcePrice, Waiver
from lastgood.signing import INCIDENT, Signer
from lastgood.values import JsonValue, from_json, make_form
from lastgood.written import redact_written

FORMAT: Final = 1
INCIDENT_BYTES_MAX = 64 * 1024 * 1024
COLD, ARCHIVE, STANDBY, SESSION = WAYS = ("cold", "archive", "standby", "session")
_WAYS = {
    COLD: "by a new process",
    ARCHIVE: "by a new process, with a class archive",
    STANDBY: "by the driver that stood by",
    SESSION: "in the same session",
}
_REPAIR = "repair"
DID = ("restart", _REPAIR, "wait", "stop")
OPEN, RECOVERED, PERSON, STOPPED = OUTCOMES = ("open", "recovered", "person", "stopped")
_UNASKED: Final = Signer()
_OF_PLAN = (
    *("recovery", "goal", "guarantee", "rests_on", "needs", "accepted", "position", "from_batch", "promise"),
    *("sources", "sinks", "evidence", "made_at_ms"),
)
_OF_STEP = ("do", "undo", "kind", "path", "effect")


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptStep:
    do: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptSink(JsonValue):
    json = make_form(strict=True)
    location: str
    kind: str
    batch: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptPlan:
    """What is read of a plan in an incident, as far as it says it; the rest is nobody's."""

    recovery: str | None = None
    goal: str = ""
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    rests_on: tuple[str, ...] = ()
    needs: tuple[Waiver, ...] = ()
    accepted: tuple[Waiver, ...] = ()
    from_batch: int | None = None
    evidence: tuple[str, ...] = ()
    made_at_ms: int = 0
    steps: tuple[_KeptStep, ...] = ()
    sinks: tuple[_KeptSink, ...] = ()
    sources: tuple[SourcePrice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptCause(JsonValue):
    """What is read of a cause, as far as it says it."""

    json = make_form("exit_code signal error class=cls because condition log")
    exit_code: int | None = None
    signal: str | None = None
    error: str | None = None
    cls: str | None = None
    because: str | None = None
    condition: str | None = None
    log: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptPromise(JsonValue):
    json = make_form(strict=True)
    state: Literal["kept", "broken", "unknown"]
    because: tuple[str, ...]


class IncidentDamagedError(LastgoodError):
    """The file of an incident is none, or was damaged."""

    condition = "INCIDENT_DAMAGED"
    exit_code = 37
    retry = Retry.AFTER_CHANGE


def _require_attempt(attempt: Attempt) -> None:
    if not math.isfinite(attempt.seconds):
        raise ValueError(f"seconds is {attempt.seconds}")
    if attempt.did not in DID:
        raise ValueError(f"did is {attempt.did!r:.50}")
    if attempt.plan is not None:
        from_json(_KeptPlan, attempt.plan)


def _require_incident(incident: Incident) -> None:
    if not is_id(incident.id):
        raise ValueError(f"{incident.id!r:.50} is no id of an incident")
    if incident.outcome not in OUTCOMES:
        raise ValueError(f"outcome is {incident.outcome!r:.50}")
    if incident.cause is not None:
        from_json(_KeptCause, incident.cause)
    if incident.promise is not None:
        from_json(_KeptPromise, incident.promise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(JsonValue):
    """One turn of the ladder: what was done, and why."""

    json = make_form(strict=True, check=_require_attempt)

    at_ms: int
    did: str
    """`restart`: as it stands · `repair`: a plan was carried out · `wait`: not now · `stop`: left to a person."""
    because: str
    """One line for a person."""
    seconds: float
    """Lastgood's own work."""
    recovery: str | None = None
    """Id of the plan that was carried out."""
    plan: Mapping[str, Any] | None = None
    """The plan, by which it was decided; see `shorten_plan`."""
    proof: str | None = None
    """Why the driver is dead."""
    file: str | None = None
    """Where a plan waits for a person."""


def _require_coming_back(back: ComingBack) -> None:
    if back.way not in WAYS:
        raise ValueError(f"way is {back.way!r:.50}")
    if back.noticed_seconds is not None and not math.isfinite(back.noticed_seconds):
        raise ValueError(f"noticed_seconds is {back.noticed_seconds}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingBack(JsonValue):
    """How a query came to run again."""

    json = make_form(strict=True, check=_require_coming_back)

    way: str
    """`cold`: a new process · `archive`: one that took Spark's classes from an archive · `standby`: one that had waited
    for it · `session`: the same process."""
    noticed_seconds: float | None
    """From the end of the process that failed until all that it had started had ended as well; None: nobody saw it."""
    process_at_ms: int
    """When the process was started, or let go."""
    query_at_ms: int | None
    """When the query began in it; None: nobody told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(JsonValue):
    """A failure of a supervised query; or a call of `recover` that changed something, or called a person."""

    json = make_form(
        "format id checkpoint pipeline failed_at_ms cause position attempts first_batch rerun first_batch_at_ms "
        "promise outcome back",
        left_out="back",
        strict=True,
        finish=redact_written,
        check=_require_incident,
    )
    format: ClassVar = FORMAT

    id: str
    """From `make_id`."""
    checkpoint: str
    pipeline: str | None = None
    failed_at_ms: int
    """When the run ended; of a call of `recover`: when it was called."""
    cause: Mapping[str, Any] | None = None
    """`exit_code`, `signal`, `error`, `class`, `because`, `condition`, `log`, as far as known; None: nobody told."""
    position: Mapping[str, int | None] = field(default_factory=dict)
    """`planned`, `committed`: where the query stood."""
    attempts: tuple[Attempt, ...] = ()
    """In their order."""
    first_batch: int | None = None
    """The first batch that was committed afterwards; None: none yet."""
    rerun: bool | None = None
    """Whether that batch had been planned before."""
    first_batch_at_ms: int | None = None
    promise: Mapping[str, Any] | None = None
    """`state` (`kept`, `broken`, `unknown`) and `because`, a line each; None: not looked at yet."""
    outcome: str = OPEN
    """`open`: no new batch yet · `recovered` · `person`: somebody was called · `stopped`: it is not started again."""

    back: ComingBack | None = None
    """How it came to run again; None: it did not, or by others."""

    @property
    def parts(self) -> Mapping[str, float]:
        """The seconds of each part of the way back, in their order; but for `noticed`: since the failure was known."""
        back = self.back
        if back is None or self.first_batch_at_ms is None:
            return {}
        parts = {}
        if back.noticed_seconds is not None:
            parts["noticed"] = back.noticed_seconds
        parts |= {"judged": 0.0, "repaired": 0.0}
        for attempt in self.attempts:
            doing = "repaired" if attempt.did == _REPAIR else "judged"
            parts[doing] += attempt.seconds
        between = (back.process_at_ms - self.failed_at_ms) / 1000
        parts["waited"] = max(0.0, between - parts["judged"] - parts["repaired"])
        first_at_ms = back.process_at_ms
        if back.query_at_ms is not None:
            parts["started"] = (back.query_at_ms - back.process_at_ms) / 1000
            first_at_ms = back.query_at_ms
        parts["first batch"] = (self.first_batch_at_ms - first_at_ms) / 1000
        return {name: round(seconds, 3) for name, seconds in parts.items()}

    @property
    def back_after_seconds(self) -> float | None:
        """From the failure to the first new committed batch."""
        if self.first_batch_at_ms is None:
            return None
        return (self.first_batch_at_ms - self.failed_at_ms) / 1000

    @property
    def promise_state(self) -> str | None:
        """`kept`, `broken`, `unknown`; None: not looked at yet."""
        return None if self.promise is None else self.promise["state"]

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """The plan that counts: the newest that was carried out, else the newest; None if there was none."""
        plans = [each for each in self.attempts if each.plan is not None]
        done = [each for each in plans if each.recovery is not None]
        if not plans:
            return None
        return (done or plans)[-1].plan

    @property
    def recoveries(self) -> tuple[str, ...]:
        """Ids of all plans that were made, in their order: also of one that a person has carried out later."""
        found = (each.recovery or (each.plan or {}).get("recovery") for each in self.attempts)
        return tuple(dict.fromkeys(each for each in found if each is not None))

    @property
    def cause_line(self) -> str | None:
        """Why, in one line for a person; None if nobody told."""
        if self.cause is None:
            return None
        told = self.cause
        why = told.get("because") or told.get("error")
        name: str | None = told.get("condition") or told.get("class")
        if why is not None:
            return why if name is None or name in why else f"{name}: {why}"
        if told.get("signal") is not None:
            return f"ended by {told['signal']}"
        if name:
            return name
        if told.get("exit_code") is None:
            return None
        return f"exit code {told['exit_code']}"

    def to_bytes(self, signer: Signer = _UNASKED) -> bytes:
        """Its file, signed if there is a key."""
        told = signer.signed(INCIDENT, (self.id,), self.to_json())
        return json.dumps(told, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def describe_way_back(way: str, parts: Mapping[str, float]) -> str:
    """How a query came to run again, in one line for a person."""
    seconds = ", ".join(f"{name} {each:.1f} s" for name, each in parts.items())
    return f"{_WAYS[way]} ({seconds})"


def shorten_plan(plan: Plan) -> dict[str, Any]:
    """What an incident keeps of a plan: all of `Plan.to_json` that a person asks for, without the bytes of any file."""
    told = plan.to_json()
    steps = [{name: step[name] for name in _OF_STEP if name in step} for step in told["steps"]]
    return {**{name: told[name] for name in _OF_PLAN}, "steps": steps}


def list_ranges(priced: Mapping[str, Any], what: str) -> Iterator[tuple[str, int, int, int]]:
    """Topic, partition, and `[from, to)` of each range of a price.

    Args:
        priced: One of `sources` of a plan, as JSON.
        what: `reread`, `lost`, `duplicated`.
    """
    told = priced.get(what)
    if isinstance(told, Mapping):
        for topic, partitions in told.items():
            for partition, spans in partitions.items():
                yield from ((topic, int(partition), first, end) for first, end in spans)


def list_files(priced: Mapping[str, Any], what: str) -> list[str]:
    """The files of a price, of a source of files; see `list_ranges`."""
    told = priced.get(what)
    if not isinstance(told, list):
        return []
    return list(told)


def parse_incident(raw: bytes, subject: str, signer: Signer = _UNASKED) -> Incident:
    """Read the file of an incident; fields of a newer lastgood are left out.

    Args:
        raw: Its content.
        subject: Its name, for errors.
        signer: Whose key has to have signed it; without a key nobody need have.

    Raises:
        IncidentDamagedError: it is none, or of a format that this lastgood does not know.
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
    """
    try:
        told = read_json(raw)
    except ValueError:
        told = None
    if not isinstance(told, dict) or "id" not in told or "format" not in told:
        raise IncidentDamagedError(
            "this is no incident, or not a whole one", subject=subject, found=f"{len(raw):,} bytes that are none"
        )
    if told["format"] != FORMAT:
        raise IncidentDamagedError(
            "the incident is of a format that this lastgood does not know",
            subject=subject,
            found=f"format {told['format']!r:.20}",
            expected=f"format {FORMAT}",
        )
    try:
        incident = Incident.from_json(told)
    except ValueError as error:
        raise IncidentDamagedError("the incident is not understood", subject=subject, found=str(error)) from error
    signer.require(INCIDENT, (incident.id,), told, subject)
    return incident
