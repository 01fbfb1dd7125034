"""What may be written down, outside of the application's own machine, of what a recorder saw. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastgood.redaction import redact_told

_TEXTS = ("class_name", "condition", "message", "traceback")
_OWN_PARAMETERS = frozenset({"id", "runId", "batchId"})
"""Spark's own; what the others hold may be a value of the data, and stands in the message as far as it may be told."""


def redact_failure(failure: Mapping[str, Any]) -> dict[str, Any]:
    """A failure without secrets, and without rows of the data; other fields stay as they are.

    Args:
        failure: As JSON: the fields of `Failure`.
    """
    told = {**failure, **_redact_texts(failure)}
    if failure.get("causes") is not None:
        told["causes"] = [_redact_cause(each) for each in failure["causes"]]
    return told


def redact_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record, as a line of a file holds it, whose failure is so; facts about batches stay as they are."""
    failure = record.get("failure")
    if isinstance(failure, Mapping):
        return {**record, "failure": redact_failure(failure)}
    return dict(record)


def _redact_cause(cause: Mapping[str, Any]) -> dict[str, Any]:
    parameters = cause.get("message_parameters") or {}
    own = {name: redact_told(str(value)) for name, value in parameters.items() if name in _OWN_PARAMETERS}
    return {**cause, **_redact_texts(cause), "message_parameters": own}


def _redact_texts(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: redact_told(told[name]) for name in _TEXTS if isinstance(told.get(name), str)}
