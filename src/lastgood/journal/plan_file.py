"""The file of a plan: as `Plan.to_bytes` wrote it, read and judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final

from lastgood.journal.plan_forms import require_forms
from lastgood.notes import read_json
from lastgood.planning.plan import FORMAT, SEALS, Alternative, Plan, PlanInvalidError, PlannedSink, Promise
from lastgood.planning.plan import checksum as checksum_of
from lastgood.planning.price import Guarantee, SourcePrice, Waiver
from lastgood.planning.proof import Proof
from lastgood.planning.steps import require_own
from lastgood.signing import NO_KEYS, PLAN, SIGNATURE, KeyRing, Signer
from lastgood.steps.kinds import parse_step
from lastgood.steps.step import Step
from lastgood.storage.reading import Location, LocationInvalidError, parse_location

PLAN_BYTES_MAX = 256 * 1024 * 1024
_RECOVERY = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
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
    if checksum != checksum_of(told):
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
    require_forms(told)
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
        if step.file_outside not in (None, named):
            raise ValueError(f"{step.file_outside} is outside of the checkpoint, and nobody named it")
        if step.sink is not None and step.sink not in sinks:
            raise ValueError(f"{step.sink} is none of the plan's sinks")
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
