"""What a plan says of what was asked for, and reckoned with: of the form that those expect who read it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from lastgood.checkpoint.lines import is_long
from lastgood.planning.plan import ASKED
from lastgood.sources.kafka.starting_offsets import read_offsets


def require_understood(options: Mapping[str, Any]) -> None:
    """See that whoever goes by an option of a plan finds what he looks for; options that nobody reads may be anything.

    Raises:
        ValueError: one is of another form (and what `read_offsets` raises).
    """
    for name, is_understood in _FORMS.items():
        if name in options and not is_understood(options[name]):
            raise ValueError(f"option {name} is {options[name]!r:.50}")
    if options.get("starts_at") is not None:
        read_offsets(options["starts_at"])
        if not isinstance(options.get("offsets"), dict):
            raise ValueError("it is told where to start, and not of which source")
    if options.get("left_by") is not None and "has_begun" not in options:
        raise ValueError("it is not told whether the query has begun")


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _are_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(map(is_long, value.values()))


def _are_ids(value: object) -> bool:
    return isinstance(value, dict) and all(each is None or isinstance(each, str) for each in value.values())


_FORMS: Final[Mapping[str, Callable[[object], bool]]] = {
    ASKED: _are_texts,
    "tables": _are_numbers,
    "topic_ids": _are_ids,
    "topic_ids_before": _are_ids,
    "left_out": lambda value: value is None or _are_texts(value),
    "left_by": lambda value: value is None or isinstance(value, str),
    "offsets": lambda value: value is None or isinstance(value, dict),
    "starts_at": lambda value: value is None or isinstance(value, dict),
    "marks": lambda value: isinstance(value, dict) and all(map(_are_numbers, value.values())),
}
