from __future__ import annotations

from dataclasses import dataclass

import pytest

from lastgood.bundle.shareable import from_json, to_json
from lastgood.values import JsonValue, make_form


@dataclass(frozen=True, slots=True)
class Other:
    n: int
    message: str = ""


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


@dataclass(frozen=True, slots=True)
class Formed(JsonValue):
    json = make_form("number=n double", closed=True, strict=True)
    n: int

    @property
    def double(self) -> int:
        return 2 * self.n


def test_a_value_stands_by_its_fields_there_whatever_its_form_is_elsewhere() -> None:
    assert to_json(Formed(1)) == {"class": "Formed", "n": 1}
    assert from_json(Formed, to_json(Formed(1))) == Formed(1)
    assert Formed(1).to_json() == {"number": 1, "double": 2}
