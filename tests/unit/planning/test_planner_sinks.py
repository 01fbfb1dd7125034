"""The rows of the decision table for sinks that the goals `resume` and `replan` touch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from planning import (
    LATER_MS,
    broker,
    carried_out,
    changes,
    delta,
    drafted,
    fence,
    files,
    known,
    mirror_of,
    query,
    read,
    silent,
    written,
)

from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import ReplanGoal, ResumeGoal
from lastgood.planning.plan import Alternative
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_0
from lastgood.sinks.evidence import DedupeKey, SinkEvidence, UnmarkedRows
from lastgood.testing.checkpoints import QUERY_ID, FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
RESUME = ResumeGoal()
EXPIRED = broker((18, 40), (18, 40))
"""Batch 3, [15, 20), can no longer be read whole."""


GONE = broker((18, 40), (20, 40))
FENCE = fence(3)


@dataclass(frozen=True)
class Row:
    """A query of three committed batches and, if not said otherwise, an orphan 3; and what is planned for it."""

    name: str
    sinks: tuple[SinkEvidence, ...]
    word: Guarantee | None
    """None: it is refused."""
    changes: dict[str, str]
    goal: ResumeGoal | ReplanGoal = RESUME
    orphan: bool = True
    kafka: Any = None


ROWS = [
    Row("healthy and nothing known of the sink", (), TWICE, {}, orphan=False),
    Row("healthy and the sink agrees", (delta(2),), EXACT, {}, orphan=False),
    Row("healthy and one sink is silent", (delta(2), silent()), TWICE, {}, orphan=False),
    Row("row 1: orphan, and Delta has it", (delta(3),), EXACT, {}),
    Row("row 1: orphan, and the file sink has it", (files(3),), EXACT, {}),
    Row("row 2: orphan, and Delta lacks it", (delta(2),), EXACT, {}),
    Row("row 2: orphan, and only one of two sinks has it", (delta(3), files(2)), EXACT, {}),
    Row("row 3: its range is gone, and Delta drops it unread", (delta(3),), EXACT, {}, kafka=GONE),
    Row(
        "row 3: its range is gone, and a function has written it", (FENCE,), EXACT, {"commits/3": "written"}, kafka=GONE
    ),
    Row("row 3 with a sink that lacks it", (delta(3), fence(2)), None, {}, kafka=GONE),
    Row("row 3 without the sink: what follows is lossy", (delta(2),), None, {}, kafka=EXPIRED),
    Row(
        "row 5: another range is wanted, and the sink lacks it",
        (delta(2),),
        EXACT,
        {"offsets/3": "set aside"},
        ReplanGoal(),
    ),
    Row(
        "row 5: another range is wanted, and both lack it",
        (delta(2), files(2)),
        EXACT,
        {"offsets/3": "set aside"},
        ReplanGoal(),
    ),
    Row("row 6: another range is wanted, and the sink has it", (delta(3),), None, {}, ReplanGoal()),
    Row("row 6: one of two sinks has it", (delta(2), files(3)), None, {}, ReplanGoal()),
    Row("row 7 without a mirror", (delta(5),), None, {}),
    Row(
        "row 11: the sink went back to 1",
        (delta(1),),
        EXACT,
        {"commits/2": "set aside", "offsets/2": "set aside", "offsets/3": "set aside"},
    ),
    Row("row 11: two sinks went back to different batches", (delta(1), files(0)), None, {}),
    Row("row 11: what it needs is expired", (delta(1),), None, {}, kafka=broker((12, 40), (0, 40))),
    Row("row 12: restored by hand, the mark is still high", (delta(1, skips_up_to=3),), None, {}),
    Row(
        "row 13: the mark expired, and the sink has the orphan",
        (delta(3, skips_up_to=None),),
        EXACT,
        {"commits/3": "written"},
    ),
    Row("row 18: nothing tells whether the sink has it", (), TWICE, {}),
    Row("row 18: a sink without a mark", (silent(),), TWICE, {}),
    Row(
        "replan, and nothing is known of the sink",
        (),
        TWICE,
        {"offsets/3": "written"},
        ReplanGoal(),
    ),
    Row("replan without an orphan", (delta(2),), EXACT, {}, ReplanGoal(), orphan=False),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_row_of_the_decision_table(tmp_path: Path, row: Row) -> None:
    query(tmp_path, 3, orphan=row.orphan)
    what = known(tmp_path, *row.sinks, kafka=row.kafka)
    if row.word is None:
        with pytest.raises(RepairRefusedError) as refused:
            drafted(what, row.goal)
        assert refused.value.to_json()["sentence"]
        return
    found = drafted(what, row.goal)
    assert (found.guarantee, changes(found), found.is_plain) == (row.word, row.changes, not row.changes)
    assert found.rests_on
    after = Observation(carried_out(tmp_path, found), sinks=row.sinks, kafka=row.kafka)
    assert predict(after, SPARK_4_0).outcome in (Outcome.RESUMES, Outcome.RERUNS)


def test_word_names_the_mark_it_rests_on(tmp_path: Path) -> None:
    query(tmp_path, 3)
    assert drafted(known(tmp_path, delta(2)), ResumeGoal()).rests_on == (
        "commits/2",
        f"delta txn 2 of query {QUERY_ID} in /lake/out",
    )


def test_orphan_that_may_be_in_the_sink_is_priced_as_a_bound(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (price,) = drafted(known(tmp_path), ResumeGoal()).sources
    expected = {"orders": {"0": [[15, 20]], "1": [[15, 20]]}}
    assert price.to_json() == {
        "index": 0, "kind": "kafka", "reread": expected, "lost": {}, "duplicated": expected, "bound": True,
    }  # fmt: skip


def test_orphan_that_the_sink_recognises_is_read_again_and_not_shown_twice(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (price,) = drafted(known(tmp_path, delta(2)), ResumeGoal()).sources
    assert (price.reread, price.duplicated) == ({"orders": {0: ((15, 20),), 1: ((15, 20),)}}, {})


def test_number_that_a_silent_sink_may_drop_is_used_up_by_an_empty_batch(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path), ReplanGoal())
    assert written(found, "offsets/3") == (tmp_path / "offsets/2").read_bytes()
    restart = predict(Observation(carried_out(tmp_path, found)), SPARK_4_0)
    assert (restart.outcome, restart.batch) == (Outcome.RERUNS, 3)  # committed by hand, a file sink would lack it


def test_row_7_lifts_the_logs_to_the_sink_with_the_mirror(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    for name in ("commits/5", "commits/4", "offsets/5", "offsets/4", "commits/3"):
        (tmp_path / name).unlink()
    found = drafted(known(tmp_path, delta(5), mirror=mirror), ResumeGoal())
    assert changes(found) == dict.fromkeys(("offsets/4", "offsets/5", "commits/3", "commits/4", "commits/5"), "written")
    assert (found.guarantee, found.rests_on[0]) == (EXACT, "the mirror's copy of offsets/5")
    assert predict(Observation(carried_out(tmp_path, found)), SPARK_4_0).batch == 6


def test_row_7_is_refused_when_the_mirror_knows_another_newest_plan(tmp_path: Path) -> None:
    query(tmp_path, 5)
    mirror = {**mirror_of(tmp_path), "offsets/3": (tmp_path / "offsets/2").read_bytes()}
    for name in ("commits/4", "offsets/4"):
        (tmp_path / name).unlink()
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(4), mirror=mirror), ResumeGoal())
    assert refused.value.found == "another newest plan in the mirror"


def test_row_11_reads_again_what_the_sink_lost(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = drafted(known(tmp_path, delta(1), kafka=broker((0, 30), (0, 30))), ResumeGoal())
    assert found.guarantee is EXACT
    assert found.sources[0].reread == {"orders": {0: ((10, 20),), 1: ((10, 20),)}}
    assert found.sources[0].duplicated == {}


def test_row_11_counts_as_twice_what_may_be_there_without_a_mark(tmp_path: Path) -> None:
    query(tmp_path, 4)
    sink = delta(1, unmarked=(UnmarkedRows(2, 10), UnmarkedRows(3, 10)))
    found = drafted(known(tmp_path, sink, kafka=broker((0, 30), (0, 30))), ResumeGoal())
    assert found.guarantee is TWICE
    assert found.sources[0].duplicated == {"orders": {0: ((10, 20),), 1: ((10, 20),)}}
    assert found.rests_on[-1] == (
        "/lake/out may have rows of batch 2, 3 under no mark of the query: versions 2 to 3 brought rows without a mark"
    )


def test_orphan_that_may_be_there_without_a_mark_is_taken_twice(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    fitting, other = (delta(2, unmarked=(UnmarkedRows(3, rows),)) for rows in (10, 11))
    for goal in (ResumeGoal(), ReplanGoal()):
        assert drafted(known(tmp_path, fitting), goal).guarantee is TWICE
        exact = drafted(known(tmp_path, other), goal)
        assert exact.guarantee is EXACT
        assert "the assumption that /lake/out has no row of batch 3, though" in "\n".join(exact.rests_on)


def test_row_11_is_refused_for_files_that_nobody_has_looked_at(tmp_path: Path) -> None:
    query(tmp_path, 4, source=FileInput())
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(1)), ResumeGoal())
    assert refused.value.expected == "every file as it was logged"


def test_row_11_does_not_take_a_function_that_skips_empty_batches_for_a_sink_that_went_back(tmp_path: Path) -> None:
    query(tmp_path, 4)
    found = drafted(known(tmp_path, fence(1)), ResumeGoal())
    assert (found.is_plain, found.guarantee, found.rests_on[0]) == (True, TWICE, "commits/3")


def test_row_14_takes_the_lost_id_from_the_one_query_that_stands_where_the_logs_do(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (tmp_path / "metadata").unlink()
    others = {QUERY_ID: 3, "0b7e60a2-1111-4222-8333-944445555666": 9}
    table = delta(None, others=others, others_at_ms={QUERY_ID: LATER_MS})
    found = drafted(known(tmp_path, table), ResumeGoal())
    assert json.loads(written(found, "metadata") or b"") == {"id": QUERY_ID}
    assert (changes(found), found.guarantee) == ({"metadata": "written"}, EXACT)


@pytest.mark.parametrize(
    "others",
    [{}, {QUERY_ID: 1}, {QUERY_ID: 2, "0b7e60a2-1111-4222-8333-944445555666": 3}, {"an application": 2}],
    ids=["none", "elsewhere", "two", "no id"],
)
def test_row_14_is_refused_unless_exactly_one_query_stands_there(tmp_path: Path, others: dict[str, int]) -> None:
    query(tmp_path, 3, orphan=True)
    (tmp_path / "metadata").unlink()
    with pytest.raises(RepairRefusedError, match="the id of the query is lost"):
        drafted(known(tmp_path, delta(None, others=others)), ResumeGoal())


def test_lost_id_is_restored_even_for_a_spark_that_would_make_a_new_one(tmp_path: Path) -> None:
    query(tmp_path, 3)
    mirror = mirror_of(tmp_path)
    (tmp_path / "metadata").unlink()
    found = drafted(known(tmp_path, mirror=mirror), ResumeGoal(), SPARK_4_0)
    assert (changes(found), found.rests_on[0]) == ({"metadata": "written"}, "the mirror's copy of metadata")


def test_committed_query_whose_table_is_not_there_is_no_plain_restart(tmp_path: Path) -> None:
    query(tmp_path, 3)
    absent = SinkEvidence("absent", "/lake/gone", DedupeKey.QUERY_ID, None, known=True, because="there is no table")
    with pytest.raises(RepairRefusedError, match="there is no sink"):
        drafted(known(tmp_path, absent), ResumeGoal())


def test_rows_that_a_sink_lost_before_are_not_called_exactly_once(tmp_path: Path) -> None:
    query(tmp_path, 3)
    sink = delta(2)
    gone = tuple(type(each)(each.batch_id, each.version, is_live=each.batch_id != 1) for each in sink.batches)
    found = drafted(known(tmp_path, delta(2, batches=gone)), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, LOSSY)


def test_several_open_plans_are_dropped_down_to_what_the_sink_lacks(tmp_path: Path) -> None:
    query(tmp_path, 5)
    for name in ("commits/4", "commits/3", "commits/2"):
        (tmp_path / name).unlink()
    found = drafted(known(tmp_path, delta(1)), ResumeGoal())
    assert (changes(found), found.guarantee) == ({"offsets/3": "set aside", "offsets/4": "set aside"}, EXACT)


@pytest.mark.parametrize(("sinks", "word"), [((delta(4),), EXACT), ((), LOSSY)])
def test_several_open_plans_are_left_to_spark_where_the_sink_has_them_or_nobody_knows(
    tmp_path: Path, sinks: tuple[SinkEvidence, ...], word: Guarantee
) -> None:
    query(tmp_path, 5)
    for name in ("commits/4", "commits/3"):
        (tmp_path / name).unlink()
    found = drafted(known(tmp_path, *sinks), ResumeGoal())
    assert (found.is_plain, found.guarantee) == (True, word)


def test_refusal_and_doubt_name_other_ways_and_certainty_names_none(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2), kafka=EXPIRED), ResumeGoal())
    ways = {each.goal: each for each in refused.value.alternatives}
    assert ways["replan"].guarantee is None
    assert ways["reposition"] == Alternative(
        "reposition",
        LOSSY,
        "2 files change; rests on the assumption that orders is the topic that was read: it was not asked by time",
        "lastgood plan /chk --goal reposition --stable-lag 1",
    )
    assert [each.goal for each in drafted(known(tmp_path), ResumeGoal()).alternatives] == ["replan", "reposition"]
    assert drafted(known(tmp_path, delta(2)), ResumeGoal()).alternatives == ()


def test_planning_changes_nothing(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    before = mirror_of(tmp_path)
    drafted(known(tmp_path, delta(2)), ReplanGoal())
    assert (mirror_of(tmp_path), read(tmp_path).orphan) == (before, 3)
