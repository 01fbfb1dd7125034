"""Words of the page; what it holds stands in test_report.py."""

from __future__ import annotations

import pytest

from lastgood.incident.report_page import _escape_text, _format_code, _format_span, _format_time


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\tand  blanks ", "two lines and blanks"),
        ("a|b", "a\\|b"),
        ("`x` *y* _z_ [l](u) <b> # h", "\\`x\\` \\*y\\* \\_z\\_ \\[l\\](u) \\<b\\> \\# h"),
        ("back\\slash", "back\\\\slash"),
    ],
)
def test_text_means_itself(told: str, shown: str) -> None:
    assert _escape_text(told) == shown


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("/chk", "`/chk`"),
        ("a|b", "`a\\|b`"),
        ("one\ntwo", "`one two`"),
        ("`x`", "`` `x` ``"),
        ("``x", "``` ``x ```"),
    ],
)
def test_code_stays_code_on_one_line(told: str, shown: str) -> None:
    assert _format_code(told) == shown


def test_times_are_told_also_where_no_calendar_has_them() -> None:
    assert _format_time(1_795_220_516_284) == "2026-11-21 00:21:56 UTC"
    assert _format_time(10**18) == f"{10**18} ms"
    assert [_format_span(each) for each in (-2.04, 0.04, 59.96, 61, 7200, 200_000)] == [
        "-2.0 s",
        "0.0 s",
        "60.0 s",
        "1.0 min",
        "2.0 h",
        "2.3 d",
    ]
