"""`dataclass` as in the standard library, but cheap to import: a class gets its methods when they are first used. Pure.

The standard library writes and compiles six methods for every frozen class, 0.7 ms each time that the class is
imported; of a few hundred classes a verb uses some dozen. Here nothing is compiled but `__init__`, at the first call;
what compares, hashes and shows a value is the same code for all classes. `fields`, `replace` and `field` of
`dataclasses` work with them. See `docs/why/starting.md`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter, ge, gt, le, lt
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, slots: bool = False, order: bool = False, kw_only: bool = False):
        """As `dataclasses.dataclass`, which also makes what is not both frozen and with slots."""
        if not (frozen and slots):
            return dataclasses.dataclass(frozen=frozen, slots=slots, order=order, kw_only=kw_only)
        without = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)

        def make(cls):
            cls.__doc__ = cls.__doc__ or cls.__name__  # else its signature is read, for the sake of a docstring
            return _add_methods(without(cls), frozenset(vars(cls)), has_order=order)

        return make


def _add_methods(cls: type, own: frozenset[str], *, has_order: bool) -> type:
    """Give a class, whose fields are known, the methods that it has not of its own."""
    fields = dataclasses.fields(cls)
    if not all(each.init and each.hash is None for each in fields):
        raise TypeError(f"{cls.__name__}: fields with `init` or `hash` are for the dataclass of the standard library")
    compared = filter(attrgetter("compare"), fields)
    methods = {
        "__init__": _begin_init(cls),
        **_compare([each.name for each in compared], has_order=has_order),
        "__repr__": _show,
        "__setattr__": _refuse_to_set,
        "__delattr__": _refuse_to_delete,
        "__getstate__": _get_state,
        "__setstate__": _set_state,
    }
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def _begin_init(cls: type) -> Callable[..., None]:
    """An `__init__` that puts the compiled one in its place, and calls it."""

    def compile_and_call(self: object, *args: Any, **kwargs: Any) -> None:
        compiled = _compile_init(cls)
        cls.__init__ = compiled  # type: ignore[misc]
        compiled(self, *args, **kwargs)

    return compile_and_call


def _compile_init(cls: type) -> Callable[..., None]:
    fields = dataclasses.fields(cls)
    names: dict[str, Any] = {"MISSING": MISSING}
    body = []
    for each in fields:
        # What a frozen value is set by: the slot itself, past `__setattr__`.
        names[f"set_{each.name}"] = getattr(cls, each.name).__set__
        value = each.name
        if each.default_factory is not MISSING:
            names[f"make_{each.name}"] = each.default_factory
            value = f"make_{each.name}() if {each.name} is MISSING else {each.name}"
        elif each.default is not MISSING:
            names[f"default_{each.name}"] = each.default
        body.append(f"set_{each.name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    in_order = [_write_parameter(each) for each in fields if not each.kw_only]
    by_name = [_write_parameter(each) for each in fields if each.kw_only]
    if by_name:
        by_name.insert(0, "*")
    parameters = ", ".join(["self", *in_order, *by_name])
    lines = "".join(f"\n  {line}" for line in body or ["pass"])
    made: dict[str, Any] = {}
    exec(f"def __init__({parameters}):{lines}", names, made)  # noqa: S102 - it is made of names of fields alone
    init: Callable[..., None] = made["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _write_parameter(field: Field[Any]) -> str:
    if field.default_factory is not MISSING:
        return f"{field.name}=MISSING"
    if field.default is not MISSING:
        return f"{field.name}=default_{field.name}"
    return field.name


def _compare(names: list[str], *, has_order: bool) -> dict[str, Callable[..., Any]]:
    """What is equal of a class: the same class, with the same values in these fields; they give its order as well."""
    if len(names) > 1:
        read: Callable[[object], object] = attrgetter(*names)
    else:

        def read(value: object) -> object:
            return tuple(getattr(value, name) for name in names)

    def is_equal(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return read(self) == read(other)

    def make_hash(self: object) -> int:
        return hash(read(self))

    methods: dict[str, Callable[..., Any]] = {"__eq__": is_equal, "__hash__": make_hash}
    if has_order:
        methods |= {f"__{each.__name__}__": _make_comparison(each, read) for each in (lt, le, gt, ge)}
    return methods


def _make_comparison(compare: Callable[[Any, Any], object], read: Callable[[object], object]) -> Callable[..., object]:
    def compare_values(self: object, other: object) -> object:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return compare(read(self), read(other))

    return compare_values


def _show(self: Any) -> str:
    names = [each.name for each in dataclasses.fields(self) if each.repr]
    shown = [f"{name}={getattr(self, name)!r}" for name in names]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    del self, value
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    del self
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[object]:
    """What is pickled and copied: the values of the fields, in their order."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[object]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
