from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from samples import classes

from lastgood.bundle import shareable
from lastgood.values import (
    AtMost,
    Between,
    Codec,
    JsonValue,
    ShapeError,
    from_json,
    list_attributes,
    make_form,
    to_json,
)


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
    told = json.loads(json.dumps(shareable.to_json(WHOLE)))
    assert shareable.from_json(Whole, told) == WHOLE
    without = dataclasses.replace(WHOLE, one_of=None)
    assert from_json(Whole, json.loads(json.dumps(to_json(without)))) == without


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch(JsonValue):
    """A value that stands otherwise than by its fields."""

    json = make_form("format number=id word content parts", left_out="parts", strict=True)
    format = 1

    id: Annotated[int, Between(0, 9)]
    content: bytes | None = None
    parts: tuple[Part, ...] = ()
    note: Annotated[str, AtMost(3)] | None = None

    @property
    def word(self) -> str:
        return f"batch {self.id}"


@dataclass(frozen=True, slots=True)
class Closed(JsonValue):
    json = make_form(closed=True)
    n: int


@dataclass(frozen=True, slots=True)
class Node:
    below: tuple[Node, ...] = ()


def require_even(value: Even) -> None:
    if value.n % 2:
        raise ValueError(f"{value.n} is odd")


@dataclass(frozen=True, slots=True)
class Even(JsonValue):
    json = make_form(check=require_even)
    n: int


BATCH = Batch(id=7, content=b"\xff")


def test_a_form_says_which_keys_there_are_and_in_which_order() -> None:
    assert list(BATCH.to_json().items()) == [("format", 1), ("number", 7), ("word", "batch 7"), ("content", "/w==")]
    assert list(Batch(id=7, parts=(Part(1),)).to_json()) == ["format", "number", "word", "content", "parts"]
    assert Batch.from_json({"number": 7, "content": "/w==", "parts": []}) == BATCH


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"number": 10, "parts": []}, "number: 10 is no number from 0 to 9"),
        ({"number": 1, "parts": [{"n": 1}, {"n": "x"}]}, "parts[1].n: 'x' is no int"),
        ({"number": 1, "parts": [], "content": "?"}, "content: '?' is no base64"),
        ({"number": 1, "parts": [], "note": "long"}, "note: 'long' is no value of at most 3"),
        ({"number": 1}, "parts: None is no tuple[test_values.Part, ...]"),
        ([], "[] is no Batch"),
    ],
)
def test_an_error_names_the_place_what_was_found_and_what_was_expected(told: Any, said: str) -> None:
    with pytest.raises(ShapeError) as refused:
        Batch.from_json(told)
    assert str(refused.value).replace(f"{__name__}.", "test_values.") == said


def test_a_field_that_is_missing_counts_as_null_only_where_a_form_is_strict() -> None:
    assert Batch.from_json({"number": 7, "parts": []}).content is None
    with pytest.raises(ShapeError, match="number: None is no int"):
        Batch.from_json({"parts": []})
    with pytest.raises(ShapeError, match="missing 1 required"):
        from_json(Part, {})


def test_a_closed_form_refuses_a_key_that_is_none_of_its_fields() -> None:
    assert Closed.from_json({"n": 1}) == Closed(1)
    with pytest.raises(ShapeError, match="'m' is no key of Closed"):
        Closed.from_json({"n": 1, "m": 2})


def test_a_class_that_holds_itself_is_read() -> None:
    assert from_json(Node, {"below": [{"below": []}]}) == Node((Node(),))


def test_what_the_noun_refuses_is_told_in_its_words() -> None:
    with pytest.raises(ShapeError, match=r"^\[0\]: 3 is odd$"):
        from_json(tuple[Even, ...], [{"n": 3}])


def test_a_hook_reads_what_no_type_tells() -> None:
    def read(told: Any) -> Part:
        if told != "one":
            raise ValueError("neither one nor two")
        return Part(1)

    codec = Codec({Part: read})
    assert codec.read(tuple[Part, ...], ["one"]) == (Part(1),)
    with pytest.raises(ShapeError, match=r"\[1\]: neither one nor two"):
        codec.read(tuple[Part, ...], ["one", "two"])


def test_what_is_nested_as_deep_as_a_reader_can_go_is_refused_and_not_followed() -> None:
    told: Any = 1
    for _ in range(50_000):
        told = [told]
    with pytest.raises(ShapeError):
        from_json(tuple[int, ...], told)


def test_every_key_of_every_form_is_there() -> None:
    for kind in classes("to_json"):
        if issubclass(kind, JsonValue):
            names = {each.name for each in dataclasses.fields(kind)}
            roots = {each.partition(".")[0] for each in list_attributes(kind).values()}
            assert {each for each in roots if each not in names and not hasattr(kind, each)} == set(), kind


def test_what_is_no_value_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        to_json(object())
