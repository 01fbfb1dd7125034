"""What may be written down, outside of the application's own machine, of what a recorder saw. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastgood.redaction import as_told

_TEXTS = ("class_name", "condition", "message", "traceback")
_OWN_PARAMETERS = frozenset({"id", "runId", "batchId"})
"""Spark's own; what the others hold may be a value of the data, and stands in the message as far as it may be told."""


def failure_as_told(failure: Mapping[str, Any]) -> dict[str, Any]:
    """A failure without secrets, and without rows of the data; other fields stay as they are.

    Args:
        failure: As JSON: the fields of `Failure`.
    """
    told = {**failure, **_texts(failure)}
    if failure.get("causes") is not None:
        told["causes"] = [_cause(each) for each in failure["causes"]]
    return told


def record_as_told(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record, as a line of a file holds it, whose failure is so; facts about batches stay as they are."""
    failure = record.get("failure")
    if isinstance(failure, Mapping):
        return {**record, "failure": failure_as_told(failure)}
    return dict(record)


def _cause(cause: Mapping[str, Any]) -> dict[str, Any]:
    parameters = cause.get("message_parameters") or {}
    own = {name: as_told(str(value)) for name, value in parameters.items() if name in _OWN_PARAMETERS}
    return {**cause, **_texts(cause), "message_parameters": own}


def _texts(told: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_told(told[name]) for name in _TEXTS if isinstance(told.get(name), str)}
