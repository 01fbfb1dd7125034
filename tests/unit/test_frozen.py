"""Classes of `lastgood.frozen` do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lastgood
from lastgood import frozen


def _define(dataclass: Callable[..., Any]) -> tuple[type, type, type]:
    """The same classes, by one or the other: with each kind of field, by name only, and one below another."""

    @dataclass(frozen=True, slots=True)
    class Read:
        source: str
        first: int
        last: int = 7
        told: Mapping[str, int] = field(default_factory=dict)
        raw: bytes | None = field(default=None, compare=False, repr=False)

        @property
        def count(self) -> int:
            return self.last - self.first

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        name: str
        number: int = 0

        def __post_init__(self) -> None:
            if self.number < 0:
                raise ValueError("below zero")

    @dataclass(frozen=True, slots=True)
    class Below(Read):
        more: tuple[int, ...] = ()

    return Read, Named, Below


OURS = _define(frozen.dataclass)
THEIRS = _define(dataclasses.dataclass)
VALUES = st.one_of(st.integers(0, 2), st.text(max_size=1), st.none(), st.floats(allow_nan=False))
CALLS = st.tuples(
    st.sampled_from([0, 1, 2]),
    st.lists(VALUES, max_size=6),
    st.dictionaries(
        st.sampled_from(["source", "first", "last", "raw", "name", "number", "more", "nothing"]), VALUES, max_size=3
    ),
)


def _call(classes: tuple[type, type, type], call: tuple[int, list[object], dict[str, object]]) -> tuple[object, str]:
    """What is made, and how it is shown; or the error."""
    which, words, names = call
    try:
        made = classes[which](*words, **names)
    except (TypeError, ValueError) as error:
        return None, f"{type(error).__name__}: {error}"
    return made, repr(made)


@given(CALLS, CALLS)
def test_values_are_made_shown_compared_and_hashed_as_by_the_standard_library(
    first: tuple[int, list[object], dict[str, object]], second: tuple[int, list[object], dict[str, object]]
) -> None:
    (ours, shown), (theirs, expected) = _call(OURS, first), _call(THEIRS, first)
    assert shown == expected
    other, other_theirs = _call(OURS, second)[0], _call(THEIRS, second)[0]
    assert (ours == other) is (theirs == other_theirs)
    if ours is not None and ours == other and getattr(ours, "told", {}) == {}:
        assert _hash(ours) == _hash(other)


def _hash(value: object) -> int:
    try:
        return hash(value)
    except TypeError:
        return 0


def test_value_cannot_be_changed() -> None:
    made = OURS[0]("a", 1)
    with pytest.raises(FrozenInstanceError, match="first"):
        made.first = 2
    with pytest.raises(FrozenInstanceError, match="first"):
        del made.first
    with pytest.raises(FrozenInstanceError, match="else"):
        setattr(made, "else", 2)
    assert made.first == 1


@dataclasses.dataclass(frozen=True)
class _Other:
    first: int


@frozen.dataclass(frozen=True, slots=True)
class Kept:
    """One that can be found by its name, as what is pickled must be."""

    first: int
    second: tuple[str, ...] = ()


@pytest.mark.parametrize("take", [copy.copy, copy.deepcopy, lambda kept: pickle.loads(pickle.dumps(kept)), replace])
def test_value_can_be_copied_pickled_and_replaced(take: Callable[[Kept], Kept]) -> None:
    kept = Kept(1, ("a",))
    taken = take(kept)
    assert taken == kept
    assert taken is not kept
    assert not hasattr(taken, "__dict__")
    assert replace(kept, first=2) == Kept(2, ("a",))
    assert kept != _Other(1)
    assert [each.name for each in dataclasses.fields(Kept)] == ["first", "second"]


def test_class_has_its_own_methods_where_it_defines_them() -> None:
    @frozen.dataclass(frozen=True, slots=True)
    class Own:
        first: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2)
    assert (hash(Own(1)), repr(Own(1))) == (5, "own")


def test_class_that_is_not_frozen_is_the_standard_librarys() -> None:
    @frozen.dataclass(slots=True)
    class Changing:
        first: int

    changing = Changing(1)
    changing.first = 2
    assert changing == Changing(2)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers()), min_size=2, max_size=2))
def test_values_have_the_order_that_those_of_the_standard_library_have(values: list[tuple[int, int, int]]) -> None:
    def define(dataclass: Callable[..., Any]) -> type:
        @dataclass(frozen=True, slots=True, order=True)
        class Ordered:
            first: int
            second: int
            third: int = field(compare=False)

        return Ordered

    def compare(kind: Callable[..., Any]) -> list[object]:
        one, other = (kind(*each) for each in values)
        return [one < other, one <= other, one > other, one >= other, one == other, max(one, other) is one]

    ours = define(frozen.dataclass)
    assert compare(ours) == compare(define(dataclasses.dataclass))
    with pytest.raises(TypeError, match="'<' not supported"):
        assert ours(1, 2, 3) < (1, 2)


@pytest.mark.parametrize("more", [{"init": False}, {"hash": False}])
def test_what_it_does_not_know_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="Odd: fields with"):

        @frozen.dataclass(frozen=True, slots=True)
        class Odd:
            first: int = field(default=1, **more)


def test_signature_is_told_once_a_value_was_made() -> None:
    Kept(1)
    assert list(inspect.signature(Kept).parameters) == ["first", "second"]


def test_classes_of_lastgood_come_from_here() -> None:
    """All but those of the agent, which runs in the application and imports nothing else of lastgood."""
    ours = Path(lastgood.__file__).parent
    others = [file for file in ours.rglob("*.py") if ours / "spark" / "agent" not in file.parents]
    imports = re.compile(r"^from dataclasses import .*\bdataclass\b", re.MULTILINE)
    assert [file for file in others if imports.search(file.read_text())] == []
