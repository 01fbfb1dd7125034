"""Values of any of our types, filled by the types of their fields: always the same, and none of them empty."""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lastgood
from lastgood.planning.steps import FileStep
from lastgood.steps.step import Step

WORDS: Mapping[str, Any] = {
    "checkpoint": "/lake/chk/orders",
    "location": "/lake/orders",
    "recovery": "20261121-160058-7f3a",
    "id": "20261121-160058-7f3a",
    "because": "der Fahrer läuft; postgresql://etl:x@db/o does not answer",
    "entry": "_spark_metadata/7",
    "folder": "/lake/files",
    "table": "/lake/orders",
    "key": "spark.start.é",
}
"""What fields of these names hold, where their type is text."""

TIME = "a time in milliseconds"
_PLAIN: Mapping[Any, tuple[Any, Any]] = {
    TIME: (1_795_220_516_284, 0),
    int: (7, 0),
    bool: (True, False),
    float: (1.25, 0.0),
    bytes: (b"v1\n\xff\0", b""),
    Path: (Path("/lake/file"), Path("/lake/file")),
    range: (range(2, 5), range(2, 5)),
    Any: ({"käse": [1, None, 2.5, "x"]}, None),
    object: ({"käse": [1, None, 2.5, "x"]}, None),
}
"""Filled, and bare."""


def classes(method: str) -> Iterator[type]:
    """Every dataclass of lastgood that has this method, in the order of their names."""
    found = set()
    for each in pkgutil.walk_packages(lastgood.__path__, "lastgood."):
        if not each.name.startswith(("lastgood.spark.agent.site", "lastgood.ledger.migrations")):
            module = importlib.import_module(each.name)
            named = inspect.getmembers(module, inspect.isclass)
            found |= {cls for _, cls in named if cls.__module__ == each.name and hasattr(cls, method)}
    yield from sorted(
        (cls for cls in found if dataclasses.is_dataclass(cls)), key=lambda cls: (cls.__module__, cls.__qualname__)
    )


def sample(kind: Any, name: str = "", *, bare: bool = False) -> Any:
    """A value of a type.

    Args:
        kind: The type.
        name: Of the field.
        bare: Whether what may be missing is.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if bare and types.NoneType in arguments:
            return None
        return sample(next(each for each in arguments if each is not types.NoneType), name, bare=bare)
    if origin is typing.Literal:
        return arguments[0]
    if origin is typing.Annotated:
        return sample(arguments[0], name, bare=bare)
    if origin is not None:
        return _collection(origin, arguments, name, bare=bare)
    return _plain(kind, name, bare=bare)


def _collection(origin: Any, arguments: tuple[Any, ...], name: str, *, bare: bool) -> Any:
    if issubclass(origin, Mapping):
        keys = [7, 10] if arguments[0] is int else ["orders", "käse"]
        return {} if bare else {key: sample(arguments[1], "", bare=at == 1) for at, key in enumerate(keys)}
    if origin is tuple and arguments[-1:] != (...,):
        return tuple(sample(each, name, bare=bare) for each in arguments)
    items = () if bare else (sample(arguments[0], name), sample(arguments[0], name, bare=True))
    return list(items) if origin is list else frozenset(items) if origin is frozenset else tuple(items)


def _plain(kind: Any, name: str, *, bare: bool) -> Any:
    if kind is int and name.endswith("_ms"):
        kind = TIME
    if kind in _PLAIN:
        return _PLAIN[kind][bare]
    if kind is str:
        return WORDS.get(name, "" if bare else f"{name} é")
    if kind is Step:
        return FileStep("offsets/7", None if bare else "a" * 64, None if bare else b"v1\n\xff", "it is dropped")
    if dataclasses.is_dataclass(kind):
        return filled(kind, bare=bare)
    if issubclass(kind, enum.Enum):
        return list(kind)[0 if bare else -1]
    if not hasattr(kind, "_fields"):
        raise TypeError(f"no sample of {kind} for {name}")
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(*(sample(hints[each], each, bare=bare) for each in kind._fields))


def filled(kind: Any, *, bare: bool = False, **given: Any) -> Any:
    """A value of a dataclass, each field filled, but for those that are given."""
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = [each for each in dataclasses.fields(kind) if each.init and each.name not in given]
    return kind(**given, **{each.name: sample(hints[each.name], each.name, bare=bare) for each in fields})
