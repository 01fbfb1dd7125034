"""Ids of recoveries, incidents and backups."""

from __future__ import annotations

from lastgood.ids import is_id, make_id

AT_MS = 1795220516_000
"""2026-11-21, 00:21:56."""


def test_id_tells_when_it_was_made() -> None:
    made = make_id(AT_MS)
    assert made.startswith("20261121-002156-")
    assert is_id(made)


def test_what_is_no_id_is_none() -> None:
    made = make_id(AT_MS)
    for text in ("", "last", f"{made}x", f"../{made}", "20261121-002156-7F3A", "\u0662\u0660261121-002156-7f3a"):
        assert not is_id(text)


def test_ids_of_one_second_sort_by_the_millisecond() -> None:
    made = [make_id(AT_MS + each) for each in range(1000)]
    assert made == sorted(made)
    assert all(map(is_id, made))
