from __future__ import annotations

from rotated import ALL, rotated


def test_each_thing_is_met_and_the_verbs_take_turns() -> None:
    assert rotated("abc", [1, 2, 3, 4], 2) == [("a", [1, 2]), ("b", [3, 4]), ("c", [1, 2])]


def test_all_is_the_whole_product() -> None:
    assert rotated("ab", [1, 2, 3], ALL) == [("a", [1, 2, 3]), ("b", [1, 2, 3])]
