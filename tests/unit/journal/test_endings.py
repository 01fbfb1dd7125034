"""What of a mirror counts after recoveries, by what they took away and what they wrote."""

from __future__ import annotations

from lastgood.checkpoint.copies import Copy, select_standing
from lastgood.journal.endings import Ending, select_as_left
from lastgood.planning.steps import compute_digest
from lastgood.testing.checkpoints import QUERY_ID


def copy(path: str, content: bytes = b"x", *, seen_ms: int) -> Copy:
    return Copy(QUERY_ID, path, seen_ms, seen_ms, content)


def paths(copies: list[Copy], *endings: Ending) -> set[tuple[str, int]]:
    return {(each.path, each.seen_ms) for each in select_as_left(copies, endings)}


COPIES = [copy(f"{log}/{n}", seen_ms=n) for n in range(10) for log in ("offsets", "commits")]


def test_what_was_seen_before_a_recovery_counts_up_to_where_it_left_the_query() -> None:
    left = paths([*COPIES, copy("offsets/6", seen_ms=50)], Ending(20, None, planned=5, committed=4))
    assert left == {
        *((f"offsets/{n}", n) for n in range(6)),
        *((f"commits/{n}", n) for n in range(5)),
        ("offsets/6", 50),
    }


def test_what_a_recovery_wrote_counts_though_nobody_looked() -> None:
    ending = Ending(20, None, 5, 5, {"offsets/5": compute_digest(b"x")}, (copy("offsets/5", b"edited", seen_ms=20),))
    found = select_standing(select_as_left([*COPIES, copy("offsets/5", seen_ms=21)], [ending]))
    assert found["offsets/5"].content == b"edited"


def test_commit_that_is_made_anew_with_the_same_bytes_counts_and_a_plan_that_is_seen_late_does_not() -> None:
    ending = Ending(20, None, 4, 4, {"offsets/5": compute_digest(b"x"), "commits/5": compute_digest(b"x")})
    late = [copy("offsets/5", seen_ms=30), copy("offsets/5", b"anew", seen_ms=31), copy("commits/5", seen_ms=31)]
    assert paths(late, ending) == {("offsets/5", 31), ("commits/5", 31)}


def test_of_a_recovery_that_was_taken_back_only_its_own_traces_do_not_count() -> None:
    ending = Ending(20, 10, planned=5, committed=5, gone={"offsets/3": compute_digest(b"edited")})
    inside = [copy("offsets/9", b"own", seen_ms=15), copy("offsets/3", b"edited", seen_ms=15)]
    late = [copy("offsets/3", b"edited", seen_ms=22), copy("offsets/6", b"anew", seen_ms=25)]
    assert paths([*COPIES, *inside, *late], ending) == {
        *((each.path, each.seen_ms) for each in COPIES),
        ("offsets/6", 25),
    }


def test_what_an_older_recovery_wrote_does_not_count_after_a_newer_one() -> None:
    first = Ending(20, None, 9, 9, written=(copy("offsets/9", seen_ms=20),))
    assert paths([], first, Ending(30, None, 8, 8)) == set()
