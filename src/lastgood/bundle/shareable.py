"""Our values as JSON that may be given to others: without what others wrote, and without secrets. Pure."""

from __future__ import annotations

from typing import Any, Final

from lastgood import values
from lastgood.redaction import HIDDEN, is_secret_name, redact

FREE_TEXT = frozenset(("message", "message_parameters", "traceback", "user_metadata"))
"""Fields that hold what others wrote: it may be rows of the data, so it is left out."""


def _hide(name: str, text: str) -> str:
    if text and is_secret_name(name):
        return HIDDEN
    return text


_SHAREABLE: Final = values.Style(is_by_fields=True, text=redact, hidden=_hide, left_out=FREE_TEXT)
_CODEC: Final = values.Codec(is_by_fields=True)


def to_json(value: Any) -> Any:
    """The value as JSON, without free text and without secrets; `from_json` reads it.

    Raises:
        TypeError: it holds something that is none of our values.
    """
    return values.to_json(value, _SHAREABLE)


def from_json(kind: Any, told: object) -> Any:
    """The value of a type that `to_json` has written; fields that are missing have their defaults.

    Raises:
        ShapeError: it is something else.
    """
    return _CODEC.read(kind, told)
