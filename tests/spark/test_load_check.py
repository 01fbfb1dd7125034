"""Rows that differ only in where a null is within a value are not the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.sparks import Sparks

pytestmark = pytest.mark.spark
APP = Path(__file__).with_name("load_app.py")
ROW = "SELECT parsed.* FROM (SELECT from_json('{row}', '{columns}') AS parsed)"
COLUMNS = "a array<int>, s struct<x:int,y:int>, m map<string,int>, n int"
SAME = '{"a":[1,null],"s":{"x":1},"m":{"k":1}}'


@pytest.mark.parametrize(
    ("other", "differing"),
    [
        (SAME, 0),
        (SAME.replace("[1,null]", "[null,1]"), 1),
        (SAME.replace("x", "y"), 1),
        (SAME.replace("}}", '},"n":1}'), 1),
    ],
)
def test_where_a_null_is_counts(sparks: Sparks, other: str, differing: int) -> None:
    one, two = (ROW.format(row=row, columns=COLUMNS) for row in (SAME, other))
    found = sparks.of("4.2.0").call(APP, "compare", one=one, other=two)
    assert (found["records"], found["rows"], found["lost"], found["surplus"]) == (1, 1, differing, differing)
