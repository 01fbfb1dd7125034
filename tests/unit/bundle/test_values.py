from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import pytest

from lastgood.bundle.values import ShapeError, from_json, to_json


class Colour(enum.Enum):
    RED = "red"


class Pair(NamedTuple):
    name: str
    size: int | None


@dataclass(frozen=True, slots=True)
class Part:
    n: int


@dataclass(frozen=True, slots=True)
class Other:
    n: int
    message: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    flag: bool
    ratio: float
    colour: Colour
    parts: tuple[Part, ...] = ()
    pair: Pair | None = None
    by_number: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    one_of: Part | Other | None = None
    either: int | str | None = None
    span: range = range(0)
    two: tuple[int, str] = (0, "")
    names: frozenset[str] = frozenset()
    plain: Any = None
    word: Literal["a", "b"] = "a"


WHOLE = Whole(
    True,
    0.5,
    Colour.RED,
    (Part(1), Part(2)),
    Pair("a", None),
    {7: ("x",), -1: ()},
    Other(3),
    "text",
    range(2, 5),
    (1, "b"),
    frozenset(["z"]),
    {"any": [1, None]},
    "b",
)


def test_a_value_comes_back_as_it_was() -> None:
    told = json.loads(json.dumps(to_json(WHOLE)))
    assert from_json(Whole, told) == WHOLE


def test_missing_fields_have_their_defaults_and_unknown_ones_are_left() -> None:
    assert from_json(Whole, {"flag": False, "ratio": 1, "colour": "red", "new": 1}) == Whole(False, 1, Colour.RED)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Whole, {"flag": True}),
        (Whole, []),
        (Part, {"n": "1"}),
        (Part, {"n": True}),
        (Colour, "blue"),
        (bool, 1),
        (str, None),
        (float, "1"),
        (range, [1, 2]),
        (range, [1, 2, 0]),
        (Pair, ["a"]),
        (tuple[int, str], [1]),
        (tuple[int, ...], {}),
        (Mapping[int, str], {"x": "y"}),
        (Mapping[str, int], []),
        (int | None, "x"),
        (Literal["a"], "b"),
        (Literal["a"], []),
        (Part | Other, {"class": "Other", "n": "x"}),
    ],
)
def test_another_shape_is_an_error(kind: Any, told: Any) -> None:
    with pytest.raises(ShapeError):
        from_json(kind, told)


def test_what_others_wrote_and_what_is_secret_is_left_out() -> None:
    told = to_json(
        {"message": "row", "user_metadata": "row", "a": Other(1, "row"), "sasl.password": "x", "url": "a://u:p@h"}
    )
    assert told == {"a": {"class": "Other", "n": 1}, "sasl.password": "***", "url": "a://u:***@h"}


def test_what_is_no_value_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        to_json({"a": b"bytes"})
    with pytest.raises(TypeError):
        to_json(object())
