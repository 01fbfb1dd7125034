"""A plan: all that is to be done, what it rests on and what it costs, as a value and as a file. Pure.

The file says everything that `apply` needs, so that nothing is decided twice. A checksum over all of it tells whether
somebody has changed it since.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, Final

from lastgood.asked import Asked
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.planning.price import Guarantee, SourcePrice, Waiver
from lastgood.planning.proof import Proof
from lastgood.signing import NO_KEYS, PLAN, KeyRing, Signer
from lastgood.steps.step import Step
from lastgood.storage.location import resolve_location
from lastgood.values import JsonValue, make_form
from lastgood.written import redact_written

FORMAT: Final = 1
ASKED: Final = "asked"
"""Key of the options that holds how it was asked for: words of a command line."""
SEALS = re.compile(r"(offsets|commits)/(0|[1-9]\d{0,17})")
"""What a part of a seal is called."""


class PlanInvalidError(LastgoodError):
    """A file is no plan, or was changed after it was made."""

    condition = "PLAN_INVALID"
    exit_code = 50
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class PlannedSink(JsonValue):
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


@dataclass(frozen=True, slots=True)
class Alternative(JsonValue):
    """Another way, which was not taken."""

    goal: str
    guarantee: Guarantee | None
    """None: it cannot be done; `because` says why."""
    because: str
    command: str | None = None

    def __str__(self) -> str:
        if self.guarantee is None:
            cost = "cannot be done"
        else:
            cost = self.guarantee.value.replace("_", " ")
        return f"{self.goal}: {cost}, {self.because}"


@dataclass(frozen=True, slots=True)
class Promise(JsonValue):
    """What Spark will do once the plan is carried out."""

    spark: str
    outcome: str
    """As `restart.outcome` of `diagnose`."""
    batch: int | None
    because: str
    """One line for a person."""

    def agrees(self, other: Promise) -> bool:
        """Whether both come to the same, whatever the reasons."""
        return (self.outcome, self.batch) == (other.outcome, other.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(JsonValue):
    """What is to be done. `steps` is empty for a plain restart."""

    json = make_form(
        "format recovery goal options checkpoint query_id guarantee rests_on needs accepted position "
        "from_batch=promise.batch promise sources sinks evidence steps seal listings guards alternatives proof "
        "made_at_ms made_by",
        strict=True,
        finish=redact_written,
    )
    """The object in the plan file and in the output of every verb, without its checksum, and without secrets."""
    format: ClassVar = FORMAT

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
        if not others:
            return first
        return f"{first}, and {len(others)} more"

    @property
    def price(self) -> str:
        """What `--accept` has to say before it may be applied."""
        return ",".join(waiver.value for waiver in (*self.accepted, *self.needs))

    def make_plan_command(self, *, paying: bool = False) -> str:
        """The command that makes it anew as the world is now; `paying`: with all accepted that it costs."""
        words = self.options.get(ASKED)
        if isinstance(words, list):
            asked = [str(word) for word in words]
        else:
            asked = ["--goal", self.goal]
        if paying:
            accepted = (*self.accepted, *self.needs)
        else:
            accepted = self.accepted
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

    def to_bytes(self, keys: KeyRing = NO_KEYS) -> bytes:
        """The plan file, signed if there is a key."""
        told = self.to_json()
        whole: dict[str, Any] = {**told, "checksum": compute_checksum(told)}
        if keys:
            whole = Signer.at(keys, resolve_location(self.checkpoint)).signed(PLAN, (self.recovery,), whole)
        return json.dumps(whole, indent=1, ensure_ascii=False).encode(errors="backslashreplace") + b"\n"

    def accept(self, waivers: tuple[Waiver, ...]) -> Plan:
        """The same with these waivers given."""
        return replace(
            self,
            needs=tuple(waiver for waiver in self.needs if waiver not in waivers),
            accepted=tuple(dict.fromkeys((*self.accepted, *waivers))),
        )


def compute_checksum(told: Mapping[str, Any]) -> str:
    """What tells whether a plan was changed, of all its fields but this one and its signature."""
    return hashlib.sha256(json.dumps(told, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
