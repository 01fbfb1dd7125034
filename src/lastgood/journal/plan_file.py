"""The file of a plan: as `Plan.to_bytes` wrote it, read and judged."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from lastgood.journal.plan_forms import require_forms
from lastgood.notes import read_json
from lastgood.planning.plan import FORMAT, SEALS, Plan, PlanInvalidError
from lastgood.planning.plan import compute_checksum as checksum_of
from lastgood.planning.steps import require_own
from lastgood.signing import NO_KEYS, PLAN, SIGNATURE, KeyRing, Signer
from lastgood.steps.kinds import parse_step
from lastgood.steps.step import Step
from lastgood.storage.reading import Location, LocationInvalidError, parse_location
from lastgood.values import Codec

PLAN_BYTES_MAX = 256 * 1024 * 1024
_RECOVERY = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_LOGS = re.compile(r"offsets|commits|sources/(?!\.{1,2}$)[^/\0]+")
_PLANS: Final = Codec({Step: parse_step})


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
        plan = _parse_plan(told)
        if plan.to_json() != told:
            raise ValueError("fields that contradict each other")  # noqa: TRY301 - told as every other reason
    except (AttributeError, KeyError, TypeError, ValueError, LocationInvalidError) as error:
        raise PlanInvalidError("the plan is not understood", subject=subject, found=str(error)) from error
    if keys:
        checkpoint, recovery = place or (parse_location(plan.checkpoint), plan.recovery)
        Signer.at(keys, checkpoint).require(PLAN, (recovery,), whole, subject)
    return plan


def _parse_plan(told: Mapping[str, Any]) -> Plan:
    require_forms(told)
    plan: Plan = _PLANS.read(Plan, told)
    if not _RECOVERY.fullmatch(plan.recovery):
        raise ValueError(f"{plan.recovery} is no id of a recovery")
    if not all(SEALS.fullmatch(path) for path in plan.seal) or (plan.steps and not plan.seal):
        raise ValueError("the seal is not understood")
    for folder in plan.listings:
        if not _LOGS.fullmatch(folder):
            raise ValueError(f"{folder} is no folder of a checkpoint's logs")
    for path, digest in plan.guards.items():
        require_own(path)
        if digest is not None and not _DIGEST.fullmatch(digest):
            raise ValueError(f"the digest of {path} is none")
    _require_named(plan)
    return plan


def _require_named(plan: Plan) -> None:
    """See that each step touches the checkpoint, one of the plan's sinks, or the one file that the user has named."""
    sinks = {sink.location for sink in plan.sinks}
    start_file = plan.options.get("start_file")
    named = None
    if start_file is not None:
        named = str(parse_location(start_file["location"]))
    for step in plan.steps:
        if step.file_outside not in (None, named):
            raise ValueError(f"{step.file_outside} is outside of the checkpoint, and nobody named it")
        if step.sink is not None and step.sink not in sinks:
            raise ValueError(f"{step.sink} is none of the plan's sinks")
