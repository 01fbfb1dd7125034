"""An incident: what failed, what was done about it and why, and what came of it; as a value and as a file. Pure."""

from __future__ import annotations

import json
import math
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from lastgood.errors import LastgoodError, Retry
from lastgood.notes import read_json
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee, Waiver
from lastgood.signing import INCIDENT, Signer
from lastgood.values import JsonValue
from lastgood.written import as_written

FORMAT: Final = 1
INCIDENT_BYTES_MAX = 64 * 1024 * 1024
DID = ("restart", "repair", "wait", "stop")
OPEN, RECOVERED, PERSON, STOPPED = OUTCOMES = ("open", "recovered", "person", "stopped")
PROMISE_STATES = ("kept", "broken", "unknown")
_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}", re.ASCII)
_UNASKED: Final = Signer()
_CAUSE_TEXTS = ("signal", "error", "class", "because", "condition", "log")
_OF_PLAN = (
    *("recovery", "goal", "guarantee", "rests_on", "needs", "accepted", "position", "from_batch", "promise"),
    *("sources", "sinks", "evidence", "made_at_ms"),
)
_OF_STEP = ("do", "undo", "kind", "path", "effect")


class IncidentDamagedError(LastgoodError):
    """The file of an incident is none, or was damaged."""

    condition = "INCIDENT_DAMAGED"
    exit_code = 37
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(JsonValue):
    """One turn of the ladder: what was done, and why."""

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
    """The plan, by which it was decided; see `kept_plan`."""
    proof: str | None = None
    """Why the driver is dead."""
    file: str | None = None
    """Where a plan waits for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """A failure of a supervised query; or a call of `recover` that changed something, or called a person."""

    id: str
    """From `new_incident_id`."""
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

    @property
    def back_after_seconds(self) -> float | None:
        """From the failure to the first new committed batch."""
        return None if self.first_batch_at_ms is None else (self.first_batch_at_ms - self.failed_at_ms) / 1000

    @property
    def promise_state(self) -> str | None:
        """`kept`, `broken`, `unknown`; None: not looked at yet."""
        return None if self.promise is None else self.promise["state"]

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """The plan that counts: the newest that was carried out, else the newest; None if there was none."""
        plans = [each for each in self.attempts if each.plan is not None]
        done = [each for each in plans if each.recovery is not None]
        return (done or plans)[-1].plan if plans else None

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
        name = told.get("condition") or told.get("class")
        if why is not None:
            return why if name is None or name in why else f"{name}: {why}"
        if told.get("signal") is not None:
            return f"ended by {told['signal']}"
        return name or (None if told.get("exit_code") is None else f"exit code {told['exit_code']}")

    def to_json(self) -> dict[str, Any]:
        """The object in its file, without secrets."""
        told = {
            "format": FORMAT,
            "id": self.id,
            "checkpoint": self.checkpoint,
            "pipeline": self.pipeline,
            "failed_at_ms": self.failed_at_ms,
            "cause": None if self.cause is None else dict(self.cause),
            "position": dict(self.position),
            "attempts": [each.to_json() for each in self.attempts],
            "first_batch": self.first_batch,
            "rerun": self.rerun,
            "first_batch_at_ms": self.first_batch_at_ms,
            "promise": None if self.promise is None else dict(self.promise),
            "outcome": self.outcome,
        }
        return as_written(told)

    def to_bytes(self, signer: Signer = _UNASKED) -> bytes:
        """Its file, signed if there is a key."""
        told = signer.signed(INCIDENT, (self.id,), self.to_json())
        return json.dumps(told, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"


def new_incident_id(at_ms: int) -> str:
    """An id, as those of recoveries: `20261121-160058-7f3a`.

    Args:
        at_ms: The time, milliseconds since 1970.
    """
    when = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y%m%d-%H%M%S")
    return f"{when}-{secrets.token_hex(2)}"


def is_incident_id(text: str) -> bool:
    """Whether a text can be the id of an incident, or of a recovery."""
    return _ID.fullmatch(text) is not None


def kept_plan(plan: Plan) -> dict[str, Any]:
    """What an incident keeps of a plan: all of `Plan.to_json` that a person asks for, without the bytes of any file."""
    told = plan.to_json()
    steps = [{name: step[name] for name in _OF_STEP if name in step} for step in told["steps"]]
    return {**{name: told[name] for name in _OF_PLAN}, "steps": steps}


def ranges_of(priced: Mapping[str, Any], what: str) -> Iterator[tuple[str, int, int, int]]:
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


def files_of(priced: Mapping[str, Any], what: str) -> list[str]:
    """The files of a price, of a source of files; see `ranges_of`."""
    told = priced.get(what)
    return list(told) if isinstance(told, list) else []


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
        incident = _incident(told)
    except ValueError as error:
        raise IncidentDamagedError("the incident is not understood", subject=subject, found=str(error)) from error
    signer.require(INCIDENT, (incident.id,), told, subject)
    return incident


def _incident(told: Mapping[str, Any]) -> Incident:
    if not is_incident_id(_field(told, "id", str)):
        raise ValueError(f"{told['id']!r:.50} is no id of an incident")
    return Incident(
        id=told["id"],
        checkpoint=_field(told, "checkpoint", str),
        pipeline=_field(told, "pipeline", str, type(None)),
        failed_at_ms=_field(told, "failed_at_ms", int),
        cause=_cause(_field(told, "cause", dict, type(None))),
        position=_position(_field(told, "position", dict)),
        attempts=tuple(_attempt(each) for each in _objects(told, "attempts")),
        first_batch=_field(told, "first_batch", int, type(None)),
        rerun=_field(told, "rerun", bool, type(None)),
        first_batch_at_ms=_field(told, "first_batch_at_ms", int, type(None)),
        promise=_promise(_field(told, "promise", dict, type(None))),
        outcome=_one_of(told, "outcome", OUTCOMES),
    )


def _attempt(told: Mapping[str, Any]) -> Attempt:
    seconds = _field(told, "seconds", float, int)
    if not math.isfinite(seconds):
        raise ValueError(f"seconds is {seconds}")
    texts = {name: _field(told, name, str, type(None)) for name in ("recovery", "proof", "file")}
    plan = _field(told, "plan", dict, type(None))
    if plan is not None:
        _require_plan(plan)
    because, did = _field(told, "because", str), _one_of(told, "did", DID)
    return Attempt(at_ms=_field(told, "at_ms", int), did=did, because=because, seconds=seconds, plan=plan, **texts)


def _cause(told: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if told is not None:
        _field(told, "exit_code", int, type(None))
        for name in _CAUSE_TEXTS:
            _field(told, name, str, type(None))
    return told


def _position(told: Mapping[str, Any]) -> Mapping[str, int | None]:
    return {name: _field(told, name, int, type(None)) for name in told}


def _promise(told: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    if told is not None:
        _one_of(told, "state", PROMISE_STATES)
        _texts(told, "because")
    return told


def _require_plan(told: Mapping[str, Any]) -> None:
    """See that what a plan says is as `Plan.to_json` has it, as far as it says it."""
    known: Mapping[str, Callable[[], object]] = {
        "recovery": lambda: _field(told, "recovery", str, type(None)),
        "goal": lambda: _field(told, "goal", str),
        "guarantee": lambda: _one_of(told, "guarantee", tuple(word.value for word in Guarantee)),
        "rests_on": lambda: _texts(told, "rests_on"),
        "needs": lambda: [Waiver(each) for each in _texts(told, "needs")],
        "accepted": lambda: [Waiver(each) for each in _texts(told, "accepted")],
        "from_batch": lambda: _field(told, "from_batch", int, type(None)),
        "evidence": lambda: _texts(told, "evidence"),
        "made_at_ms": lambda: _field(told, "made_at_ms", int),
        "steps": lambda: [_field(step, "do", str) for step in _objects(told, "steps")],
    }
    for name, require in known.items():
        if name in told:
            require()
    for sink in _objects(told, "sinks") if "sinks" in told else ():
        _require_sink(sink)
    for source in _objects(told, "sources") if "sources" in told else ():
        _require_price(source)


def _require_sink(told: Mapping[str, Any]) -> None:
    _field(told, "location", str)
    _field(told, "kind", str)
    _field(told, "batch", int, type(None))


def _require_price(told: Mapping[str, Any]) -> None:
    _field(told, "index", int)
    _field(told, "kind", str)
    _field(told, "bound", bool)
    for what in ("reread", "lost", "duplicated"):
        _field(told, what, dict, list)
        try:
            offsets = [each for _, *place in ranges_of(told, what) for each in place]
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{what} is {told[what]!r:.50}") from error
        if not all(type(each) is int for each in offsets) or not all(
            isinstance(each, str) for each in files_of(told, what)
        ):
            raise ValueError(f"{what} is {told[what]!r:.50}")


def _field(told: Mapping[str, Any], name: str, *kinds: type) -> Any:
    """A field of one of these types; one that is missing counts as None."""
    value = told.get(name)
    if type(value) not in kinds:
        raise ValueError(f"{name} is {value!r:.50}")
    return value


def _one_of(told: Mapping[str, Any], name: str, values: tuple[str, ...]) -> str:
    value: str = _field(told, name, str)
    if value not in values:
        raise ValueError(f"{name} is {value!r:.50}")
    return value


def _texts(told: Mapping[str, Any], name: str) -> list[str]:
    found: list[str] = _field(told, name, list)
    if not all(isinstance(each, str) for each in found):
        raise ValueError(f"{name} holds what is no text")
    return found


def _objects(told: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = _field(told, name, list)
    if not all(isinstance(each, dict) for each in found):
        raise ValueError(f"{name} holds what is no object")
    return found
