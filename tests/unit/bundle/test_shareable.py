from __future__ import annotations

from dataclasses import dataclass

import pytest

from lastgood.bundle.shareable import to_json


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
