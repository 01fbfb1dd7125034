"""A plan: all that is to be done, what it rests on and what it costs, as a value and as a file. Pure.

The file says everything that `apply` needs, so that nothing is decided twice. A checksum over all of it tells whether
somebody has changed it since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import UnionType
from typing import Any, Final

from lastgood.asked import Asked
from lastgood.errors import LastgoodError, Retry
from lastgood.notes import read_json
from lastgood.planning.price import Guarantee, SourcePrice, Waiver
from lastgood.planning.proof import Proof
from lastgood.planning.sink_steps import DeltaStep, FileSinkStep
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import Step, parse_step, require_own
from lastgood.signing import NO_KEYS, PLAN, SIGNATURE, KeyRing, Signer
from lastgood.storage.reading import Location, LocationInvalidError, parse_location
from lastgood.written import as_written

FORMAT: Final = 1
ASKED: Final = "asked"
"""Key of the options that holds how it was asked for: words of a command line."""
PLAN_BYTES_MAX = 256 * 1024 * 1024
_RECOVERY = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
SEALS = re.compile(r"(offsets|commits)/(0|[1-9]\d{0,17})")
"""What a part of a seal is called."""
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LOGS = re.compile(r"offsets|commits|sources/(?!\.{1,2}$)[^/\0]+")
_KINDS: Final[Mapping[str, type | UnionType]] = {
    **dict.fromkeys(("goal", "checkpoint", "made_by"), str),
    **dict.fromkeys(("options", "position", "listings", "guards"), dict),
    **dict.fromkeys(("rests_on", "evidence"), list),
    "query_id": str | None,
    "made_at_ms": int,
}
"""Of what is taken over as it stands."""


class PlanInvalidError(LastgoodError):
    """A file is no plan, or was changed after it was made."""

    condition = "PLAN_INVALID"
    exit_code = 50
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class PlannedSink:
    """What a sink showed when the plan was made."""

    index: int
    kind: str
    location: str
    batch: int | None
    """The newest batch that it shows; None if none, or if that is not known."""
    known: bool
    skips_up_to: int | None
    identity: str | None
    fence: str | None = None
    """Delta: the name whose writers are made to fail before anything is done; None: the table takes no such version."""

    def to_json(self) -> dict[str, Any]:
        """One of `sinks` of a plan."""
        return {
            "index": self.index,
            "kind": self.kind,
            "location": self.location,
            "batch": self.batch,
            "known": self.known,
            "skips_up_to": self.skips_up_to,
            "identity": self.identity,
            "fence": self.fence,
        }


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another way, which was not taken."""

    goal: str
    guarantee: Guarantee | None
    """None: it cannot be done; `because` says why."""
    because: str
    command: str | None = None

    def to_json(self) -> dict[str, Any]:
        """One of `alternatives` of a plan."""
        word = None if self.guarantee is None else self.guarantee.value
        return {"goal": self.goal, "guarantee": word, "because": self.because, "command": self.command}

    def __str__(self) -> str:
        cost = "cannot be done" if self.guarantee is None else self.guarantee.value.replace("_", " ")
        return f"{self.goal}: {cost}, {self.because}"


@dataclass(frozen=True, slots=True)
class Promise:
    """What Spark will do once the plan is carried out."""

    spark: str
    outcome: str
    """As `restart.outcome` of `diagnose`."""
    batch: int | None
    because: str
    """One line for a person."""

    def to_json(self) -> dict[str, Any]:
        """The object `promise` of a plan."""
        return {"spark": self.spark, "outcome": self.outcome, "batch": self.batch, "because": self.because}

    def agrees(self, other: Promise) -> bool:
        """Whether both come to the same, whatever the reasons."""
        return (self.outcome, self.batch) == (other.outcome, other.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done. `steps` is empty for a plain restart."""

    recovery: str
    """Its id, fixed when it is made: `20261121-160058-7f3a`."""
    goal: str
    options: Mapping[str, Any] = field(default_factory=dict)
    checkpoint: str
    query_id: str | None
    guarantee: Guarantee
    rests_on: tuple[str, ...]
    """One line each."""
    needs: tuple[Waiver, ...] = ()
    """What a person has to accept before it may be applied."""
    accepted: tuple[Waiver, ...] = ()
    position: Mapping[str, Any] = field(default_factory=dict)
    promise: Promise
    sources: tuple[SourcePrice, ...] = ()
    sinks: tuple[PlannedSink, ...] = ()
    evidence: tuple[str, ...] = ()
    """Where it was looked, as words of a command line; `apply` looks there again."""
    steps: tuple[Step, ...] = ()
    seal: tuple[str, ...] = ()
    """Empty files that keep every driver away while the steps are done; in the order in which they are created."""
    listings: Mapping[str, str] = field(default_factory=dict)
    """Of each folder of the logs a digest of the names in it, when the plan was made."""
    guards: Mapping[str, str | None] = field(default_factory=dict)
    """Files that the plan rests on and does not touch, with their digest; None: no such file."""
    alternatives: tuple[Alternative, ...] = ()
    proof: Proof | None = None
    """None: nobody asked for one."""
    made_at_ms: int
    made_by: str
    """The version of lastgood."""

    @property
    def summary(self) -> str:
        """What its steps are for, in one line; empty for a plain restart."""
        first, *others = dict.fromkeys(step.why for step in self.steps) or [""]
        return f"{first}, and {len(others)} more" if others else first

    @property
    def price(self) -> str:
        """What `--accept` has to say before it may be applied."""
        return ",".join(waiver.value for waiver in (*self.accepted, *self.needs))

    def again(self, *, paying: bool = False) -> str:
        """The command that makes it anew as the world is now; `paying`: with all accepted that it costs."""
        words = self.options.get(ASKED)
        asked = [str(word) for word in words] if isinstance(words, list) else ["--goal", self.goal]
        accepted = (*self.accepted, *self.needs) if paying else self.accepted
        known = Asked(self.checkpoint, self.evidence, accepted=tuple(waiver.value for waiver in accepted))
        return known.command("plan", *asked)

    def said_here(self, checkpoint: str, evidence: tuple[str, ...]) -> Plan:
        """The same for who found it in the lake: it says neither where to look nor what to type.

        Args:
            checkpoint: Its location, as it was named here.
            evidence: Where it is looked, as it was named here.
        """
        options = {name: value for name, value in self.options.items() if name != ASKED}
        return replace(self, checkpoint=checkpoint, evidence=evidence, options=options, alternatives=())

    def to_json(self) -> dict[str, Any]:
        """The object in the plan file and in the output of every verb, without its checksum, and without secrets."""
        told = {
            "format": FORMAT,
            "recovery": self.recovery,
            "goal": self.goal,
            "options": dict(self.options),
            "checkpoint": self.checkpoint,
            "query_id": self.query_id,
            "guarantee": self.guarantee.value,
            "rests_on": list(self.rests_on),
            "needs": [waiver.value for waiver in self.needs],
            "accepted": [waiver.value for waiver in self.accepted],
            "position": dict(self.position),
            "from_batch": self.promise.batch,
            "promise": self.promise.to_json(),
            "sources": [source.to_json() for source in self.sources],
            "sinks": [sink.to_json() for sink in self.sinks],
            "evidence": list(self.evidence),
            "steps": [step.to_json() for step in self.steps],
            "seal": list(self.seal),
            "listings": dict(self.listings),
            "guards": dict(self.guards),
            "alternatives": [each.to_json() for each in self.alternatives],
            "proof": None if self.proof is None else self.proof.to_json(),
            "made_at_ms": self.made_at_ms,
            "made_by": self.made_by,
        }
        return as_written(told)

    def to_bytes(self, keys: KeyRing = NO_KEYS) -> bytes:
        """The plan file, signed if there is a key."""
        told = self.to_json()
        whole: dict[str, Any] = {**told, "checksum": _checksum(told)}
        if keys:
            whole = Signer.at(keys, parse_location(self.checkpoint)).signed(PLAN, (self.recovery,), whole)
        return json.dumps(whole, indent=1, ensure_ascii=False).encode() + b"\n"

    def accepting(self, waivers: tuple[Waiver, ...]) -> Plan:
        """The same with these waivers given."""
        return replace(
            self,
            needs=tuple(waiver for waiver in self.needs if waiver not in waivers),
            accepted=tuple(dict.fromkeys((*self.accepted, *waivers))),
        )


def parse_plan(raw: bytes, subject: str, keys: KeyRing = NO_KEYS, place: tuple[Location, str] | None = None) -> Plan:
    """Read a plan file.

    Args:
        raw: Its content.
        subject: Its name, for errors.
        keys: Of which one has to have signed it; none: nobody need have.
        place: The checkpoint and the recovery that it was found at; None: it is in the hands of a person, and its own
            count.

    Raises:
        PlanInvalidError: it is none, of a format that this lastgood does not know, or changed since it was made.
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
    """
    try:
        told = read_json(raw)
    except ValueError:
        told = None
    if not isinstance(told, dict) or "recovery" not in told or "format" not in told:
        raise PlanInvalidError("this is no plan", subject=subject, expected="a file that `lastgood plan -o` wrote")
    if told["format"] != FORMAT:
        found = f"format {told['format']}, made by lastgood {told.get('made_by')}"
        raise PlanInvalidError(
            "the plan is of a format that this lastgood does not know",
            subject=subject,
            found=found,
            expected=f"format {FORMAT}",
            next="make the plan again",
        )
    whole = dict(told)
    told.pop(SIGNATURE, None)
    checksum = told.pop("checksum", None)
    if checksum != _checksum(told):
        raise PlanInvalidError(
            "the plan was changed after it was made",
            subject=subject,
            found="a checksum that does not fit",
            effect="nothing has been done",
            next="make the plan again; what it may do is chosen by the options of `plan`",
        )
    try:
        plan = _plan(told)
        if plan.to_json() != told:
            raise ValueError("fields that contradict each other")  # noqa: TRY301 - told as every other reason
    except (AttributeError, KeyError, TypeError, ValueError, LocationInvalidError) as error:
        raise PlanInvalidError("the plan is not understood", subject=subject, found=str(error)) from error
    if keys:
        checkpoint, recovery = place or (parse_location(plan.checkpoint), plan.recovery)
        Signer.at(keys, checkpoint).require(PLAN, (recovery,), whole, subject)
    return plan


def _plan(told: Mapping[str, Any]) -> Plan:
    for name, kind in _KINDS.items():
        if not isinstance(told[name], kind):
            raise TypeError(f"{name} is {told[name]!r:.50}")
    if not _RECOVERY.fullmatch(told["recovery"]):
        raise ValueError(f"{told['recovery']} is no id of a recovery")
    seal = tuple(told["seal"])
    steps = _steps(told)
    if not all(isinstance(path, str) and SEALS.fullmatch(path) for path in seal) or (steps and not seal):
        raise ValueError("the seal is not understood")
    if not all(isinstance(each, str) for each in (*told["rests_on"], *told["evidence"], *told["listings"].values())):
        raise TypeError("rests_on, evidence and listings hold texts")
    for folder in told["listings"]:
        if not _LOGS.fullmatch(folder):
            raise ValueError(f"{folder} is no folder of a checkpoint's logs")
    for path, digest in told["guards"].items():
        require_own(path)
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise ValueError(f"the digest of {path} is none")
    return Plan(
        recovery=told["recovery"],
        goal=told["goal"],
        options=told["options"],
        checkpoint=told["checkpoint"],
        query_id=told["query_id"],
        guarantee=Guarantee(told["guarantee"]),
        rests_on=tuple(told["rests_on"]),
        needs=tuple(Waiver(each) for each in told["needs"]),
        accepted=tuple(Waiver(each) for each in told["accepted"]),
        position=told["position"],
        promise=Promise(**told["promise"]),
        sources=tuple(_source(each) for each in told["sources"]),
        sinks=tuple(PlannedSink(**each) for each in told["sinks"]),
        evidence=tuple(told["evidence"]),
        steps=steps,
        seal=seal,
        listings=told["listings"],
        guards=told["guards"],
        alternatives=tuple(_alternative(each) for each in told["alternatives"]),
        proof=None if told.get("proof") is None else Proof.of(told["proof"]),
        made_at_ms=told["made_at_ms"],
        made_by=told["made_by"],
    )


def _steps(told: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps; each touches the checkpoint, one of the plan's sinks, or the one file that the user has named."""
    steps = tuple(parse_step(step) for step in told["steps"])
    sinks = {sink["location"] for sink in told["sinks"]}
    start_file = told["options"].get("start_file")
    named = None if start_file is None else str(parse_location(start_file["location"]))
    for step in steps:
        if isinstance(step, StartFileStep) and step.path != named:
            raise ValueError(f"{step.path} is outside of the checkpoint, and nobody named it")
        sink = step.table if isinstance(step, DeltaStep) else step.sink if isinstance(step, FileSinkStep) else None
        if sink is not None and sink not in sinks:
            raise ValueError(f"{sink} is none of the plan's sinks")
    return steps


def _source(told: Mapping[str, Any]) -> SourcePrice:
    found: dict[str, Any] = {}
    for name in ("reread", "lost", "duplicated"):
        value = told[name]
        if isinstance(value, list):
            found[f"{name}_files"] = tuple(value)
        else:
            found[name] = {
                topic: {int(each): tuple((first, end) for first, end in spans) for each, spans in partitions.items()}
                for topic, partitions in value.items()
            }
    for name in ("reread_from", "duplicated_from"):
        begins = told.get(name, {})  # a plan of an older lastgood has none
        found[name] = {topic: {int(each): at for each, at in parts.items()} for topic, parts in begins.items()}
    return SourcePrice(index=told["index"], kind=told["kind"], bound=told["bound"], **found)


def _alternative(told: Mapping[str, Any]) -> Alternative:
    word = told["guarantee"]
    return Alternative(told["goal"], None if word is None else Guarantee(word), told["because"], told["command"])


def _checksum(told: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
