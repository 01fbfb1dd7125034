"""Which batches run again, by the plans that are there."""

from __future__ import annotations

import pytest

from lastgood.query.replays import find_gathering, find_replay_start


@pytest.mark.parametrize(
    ("loadable", "needed", "known", "begins", "gathering"),
    [
        (set(), 6, {0, 1, 2, 3, 4, 5}, 0, None),
        ({4}, 6, {3, 4, 5}, 4, 2),
        ({4}, 6, {4, 5}, None, 3),
        (set(), 6, {3, 4, 5}, None, 2),
        (set(), 6, {0, 1, 3, 4, 5}, None, 2),
        (set(), 6, {5}, None, 4),
        (set(), 6, {1, 2, 3, 4, 5}, None, None),
        (set(), 6, {0, 1, 2, 3, 4}, None, None),
        (set(), 6, set(), None, None),
    ],
)
def test_a_replay_begins_where_every_plan_is_there(
    loadable: set[int], needed: int, known: set[int], begins: int | None, gathering: int | None
) -> None:
    assert find_replay_start(loadable, needed, known) == begins
    assert find_gathering(needed, known) == gathering
