from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations

import pytest

from lastgood.ledger.joining import choose_known, join_by, join_facts


@dataclass(frozen=True)
class Told:
    at: int | None = field(default=None, metadata=join_by(min))
    name: str | None = None
    inner: Told | None = None
    parts: tuple[Told | None, ...] = ()


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (None, None, None),
        (None, 0, 0),
        ("a", "a", "a"),
        ("short", "longer text", "longer text"),
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1}, {"a": 2}, {"a": 2}),
        ((1,), (None, 2), (1, 2)),
    ],
)
def test_what_says_more_counts(one: object, other: object, both: object) -> None:
    assert choose_known(one, other) == choose_known(other, one) == both


def test_dataclasses_are_joined_field_by_field_in_any_order() -> None:
    tellings = [
        Told(at=3, name="a", inner=Told(at=7)),
        Told(at=2, inner=Told(name="x"), parts=(Told(at=1),)),
        Told(name="ab", parts=(None, Told(name="y"))),
    ]
    for first, second, third in permutations(tellings):
        assert join_facts(join_facts(first, second), third) == Told(
            at=2, name="ab", inner=Told(at=7, name="x"), parts=(Told(at=1), Told(name="y"))
        )
