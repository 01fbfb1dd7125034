"""Failures for want of something: means that do not suffice, or somebody who does not answer. Pure."""

from __future__ import annotations

from lastgood.failures.classify import Failure
from lastgood.failures.failure_class import FailureClass

TRANSIENT = FailureClass.TRANSIENT.value
_KINDS = (FailureClass.TRANSIENT, FailureClass.RESOURCES)


def explain_lack(failure: Failure | None) -> dict[str, str] | None:
    """Its class as `kind`, and what was `found`: that means did not suffice, or that nobody answered.

    None of every other: what the error itself says tells more then, as where there is none.
    """
    if failure is None or failure.cls not in _KINDS:
        return None
    return {"kind": failure.cls.value, "found": f"{failure.because}: {failure.message}"}
