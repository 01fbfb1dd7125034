"""Two tellings of the same thing made one: in any order and however often told, the result is the same. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from itertools import zip_longest
from typing import Any, TypeVar

_T = TypeVar("_T")
_JOIN = "join"


def join_by(rule: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Metadata of a dataclass field: how two known values of it are joined."""
    return {_JOIN: rule}


def join_facts(one: _T, other: _T) -> _T:
    """Field by field of two dataclasses: what only one knows counts; of two that differ, the one that says more."""
    both = {}
    for field in dataclasses.fields(one):  # type: ignore[arg-type]  # callers pass dataclasses
        left, right = getattr(one, field.name), getattr(other, field.name)
        rule = field.metadata.get(_JOIN, choose_known)
        if left is None:
            both[field.name] = right
        elif right is None:
            both[field.name] = left
        else:
            both[field.name] = rule(left, right)
    return type(one)(**both)


def choose_known(one: Any, other: Any) -> Any:
    """The value that is known; of two, the one that says more."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        return join_facts(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return tuple(choose_known(left, right) for left, right in zip_longest(one, other))
    return max(one, other, key=_rank_amount)


def _rank_amount(value: Any) -> tuple[int, str]:
    """A total order of whatever JSON can hold."""
    text = json.dumps(value, sort_keys=True, default=str)
    return len(text), text
