"""Whether what a plan says has the form that those expect who go by it: its checksum is anybody's. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from lastgood.checkpoint.lines import is_long
from lastgood.planning.plan import ASKED
from lastgood.sources.kafka.starting_offsets import read_offsets

_Form: TypeAlias = Callable[[object], bool]


def require_forms(told: Mapping[str, Any]) -> None:
    """See that options, position, promise, sinks and prices are what their readers take them for.

    What nobody reads may be anything.

    Raises:
        ValueError, TypeError, AttributeError, KeyError: something is of another form.
    """
    _require("option", told["options"], _OPTIONS)
    _require("position", told["position"], _POSITION)
    _require("promise", told["promise"], _PROMISE)
    for sink in told["sinks"]:
        _require("sink", sink, _SINK)
    for source in told["sources"]:
        _require("source", source, _SOURCE)
    _require_start(told["options"])


def _require(what: str, told: Mapping[str, Any], forms: Mapping[str, _Form]) -> None:
    for name, is_of_form in forms.items():
        if name in told and not is_of_form(told[name]):
            raise ValueError(f"{what}: {name} is {told[name]!r:.50}")


def _require_start(options: Mapping[str, Any]) -> None:
    """See that what is told of where to start goes together."""
    if options.get("starts_at") is not None:
        read_offsets(options["starts_at"])
        if not isinstance(options.get("offsets"), dict):
            raise ValueError("it is told where to start, and not of which source")
    if options.get("left_by") is not None and "has_begun" not in options:
        raise ValueError("it is not told whether the query has begun")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _allow_none(is_of_form: _Form) -> _Form:
    return lambda value: value is None or is_of_form(value)


def _allow_each(is_of_form: _Form) -> _Form:
    return lambda value: isinstance(value, dict) and all(map(is_of_form, value.values()))


def _is_range(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(is_long, value))


def _are_ranges(value: object) -> bool:
    """Of offsets, by topic and partition; or the names of files."""
    return _are_texts(value) or _allow_each(
        _allow_each(lambda spans: isinstance(spans, list) and all(map(_is_range, spans)))
    )(value)


_OPTIONS: Final[Mapping[str, _Form]] = {
    ASKED: _are_texts,
    "tables": _allow_each(is_long),
    "topic_ids": _allow_each(_allow_none(_is_text)),
    "topic_ids_before": _allow_each(_allow_none(_is_text)),
    "left_out": _allow_none(_are_texts),
    "left_by": _allow_none(_is_text),
    "offsets": _allow_none(_is_object),
    "starts_at": _allow_none(_is_object),
    "marks": _allow_each(_allow_each(is_long)),
}
_POSITION: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(("planned", "committed", "sink", "skipped_up_to"), _allow_none(is_long)),
    "sink_known": _is_flag,
}
_PROMISE: Final[Mapping[str, _Form]] = {
    **dict.fromkeys(("spark", "outcome", "because"), _is_text),
    "batch": _allow_none(is_long),
}
_SINK: Final[Mapping[str, _Form]] = {
    "index": is_long,
    **dict.fromkeys(("kind", "location"), _is_text),
    **dict.fromkeys(("batch", "skips_up_to"), _allow_none(is_long)),
    **dict.fromkeys(("identity", "fence"), _allow_none(_is_text)),
    "known": _is_flag,
}
_SOURCE: Final[Mapping[str, _Form]] = {
    "index": is_long,
    "kind": _is_text,
    "bound": _is_flag,
    **dict.fromkeys(("reread", "lost", "duplicated"), _are_ranges),
    **dict.fromkeys(("reread_from", "duplicated_from"), _allow_each(_allow_each(is_long))),
}
