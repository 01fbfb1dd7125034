"""Any of our frozen values as JSON, and back by the types of its fields. Pure.

What comes back was checked: a value of another shape is an error, whoever made the file.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Collection, Mapping
from typing import Any

from lastgood.redaction import HIDDEN, is_secret_name, redacted

CLASS = "class"
"""Key that holds the name of the class: a field may be of one of several."""
FREE_TEXT = frozenset(("message", "message_parameters", "traceback", "user_metadata"))
"""Fields that hold what others wrote: it may be rows of the data, so it is left out."""
_SCALARS = (bool, int, float, str)


class ShapeError(ValueError):
    """A JSON value is not of the type that it is read as."""


def to_json(value: Any) -> Any:
    """The value as JSON, without free text and without secrets.

    Raises:
        TypeError: it holds something that is none of our values.
    """
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | enum.Enum):
        return redacted(value) if isinstance(value, str) else value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init and field.name not in FREE_TEXT]
        return {CLASS: type(value).__name__, **{name: to_json(getattr(value, name)) for name in fields}}
    if isinstance(value, Mapping):
        return {redacted(str(key)): _member(str(key), each) for key, each in value.items() if key not in FREE_TEXT}
    if not isinstance(value, Collection) or isinstance(value, bytes):
        raise TypeError(f"no value that can be written down: {type(value).__name__}")
    return [to_json(each) for each in ((value.start, value.stop, value.step) if isinstance(value, range) else value)]


def _member(key: str, value: Any) -> Any:
    return HIDDEN if isinstance(value, str) and value and is_secret_name(key) else to_json(value)


def from_json(kind: Any, told: Any) -> Any:
    """The value of a type that a JSON value stands for; fields that are missing have their defaults.

    Raises:
        ShapeError: it stands for none.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, str | typing.ForwardRef):  # plain JSON
        return told
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments, told)
    if origin is typing.Literal:
        return _checked(told in arguments, told, kind, told)
    return _plain(kind, told) if origin is None else _collection(kind, origin, arguments, told)


def _collection(kind: Any, origin: Any, arguments: tuple[Any, ...], told: Any) -> Any:
    if issubclass(origin, Mapping):
        _checked(isinstance(told, dict), None, kind, told)
        return {_key(arguments[0], key): from_json(arguments[1], each) for key, each in told.items()}
    _checked(isinstance(told, list), None, kind, told)
    if origin is tuple and arguments[-1] is not Ellipsis:
        _checked(len(told) == len(arguments), None, kind, told)
        return tuple(from_json(argument, each) for argument, each in zip(arguments, told, strict=True))
    items = (from_json(arguments[0], each) for each in told)
    return frozenset(items) if issubclass(origin, frozenset) else tuple(items)


def _plain(kind: Any, told: Any) -> Any:
    if kind in (None, type(None)):
        return _checked(told is None, None, kind, told)
    if kind in _SCALARS:
        fits = isinstance(told, (int, float) if kind is float else kind) and (kind is bool) == isinstance(told, bool)
        return _checked(fits, told, kind, told)
    if kind is range:
        numbers = isinstance(told, list) and len(told) == 3 and all(type(each) is int for each in told) and told[2]
        return range(*_checked(bool(numbers), told, kind, told))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        found = next((each for each in kind if each.value == told), None)
        return _checked(found is not None, found, kind, told)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, told)
    if isinstance(kind, type) and issubclass(kind, tuple):  # a named one
        hints = typing.get_type_hints(kind)
        _checked(isinstance(told, list) and len(told) == len(hints), None, kind, told)
        return kind(*(from_json(hint, each) for hint, each in zip(hints.values(), told, strict=True)))
    raise TypeError(f"no type that can be read: {kind}")


def _dataclass(kind: Any, told: Any) -> Any:
    _checked(isinstance(told, dict), None, kind, told)
    hints = _hints(kind)
    names = [field.name for field in dataclasses.fields(kind) if field.init and field.name in told]
    given = {name: from_json(hints[name], told[name]) for name in names}
    try:
        return kind(**given)
    except TypeError as error:  # a field without a default is missing
        raise ShapeError(f"{kind.__name__}: {error}") from error


@functools.cache
def _hints(kind: Any) -> Mapping[str, Any]:
    return typing.get_type_hints(kind)


def _one_of(kinds: Collection[Any], told: Any) -> Any:
    if told is None and type(None) in kinds:
        return None
    name = told.get(CLASS) if isinstance(told, dict) else None
    named = [kind for kind in kinds if name is not None and getattr(kind, "__name__", None) == name]
    for kind in named or kinds:
        if kind is not type(None):
            try:
                return from_json(kind, told)
            except ShapeError:
                if named:
                    raise
    raise ShapeError(f"{told!r:.80} is none of {', '.join(map(str, kinds))}")


def _key(kind: Any, key: str) -> Any:
    if kind is not int:
        return key
    return int(_checked(key.removeprefix("-").isdecimal() and key.isascii() and len(key) < 20, key, kind, key))


def _checked(fits: bool, value: Any, kind: Any, told: Any) -> Any:  # noqa: FBT001 - the condition is what it checks
    if not fits:
        raise ShapeError(f"{told!r:.80} is no {getattr(kind, '__name__', kind)}")
    return value
