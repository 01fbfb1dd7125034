"""`reposition`: chosen offsets, their price, and the numbers under which the query goes on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from planning import (
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
    recreated,
    silent,
    written,
)

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.values import RepositionGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation, RepairFacts
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.facts import FoundRecord
from lastgood.testing.checkpoints import FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY


def to(offset: int, second: int | None = None) -> RepositionGoal:
    """Both partitions to these offsets."""
    return RepositionGoal({"0": {"orders": {0: offset, 1: offset if second is None else second}}}, "a test wants it")


def only(partition: int, offset: int) -> RepositionGoal:
    return RepositionGoal({"0": {"orders": {partition: offset}}}, "a test wants it")


@dataclass(frozen=True)
class Case:
    """Batches of five offsets; three are committed ([0, 15) of both partitions), and mostly 3 is an orphan to 20."""

    name: str
    goal: RepositionGoal
    word: Guarantee
    changes: dict[str, str]
    lost: dict[int, list[tuple[int, int]]]
    duplicated: dict[int, list[tuple[int, int]]]
    sinks: tuple[SinkEvidence, ...] = ()
    orphan: bool = True
    kafka: Any = None


EDITED = {"offsets/2": "written"}
DROPPED = {"offsets/3": "set aside", **EDITED}
USED_UP = {"offsets/3": "written", "commits/3": "written"}
RUN_EMPTY = {"offsets/2": "written", "offsets/3": "written"}
CASES = [
    Case("the sink's own position", to(15), EXACT, {"offsets/3": "set aside"}, {}, {}, (delta(2),)),
    Case("back, sink known", to(10), TWICE, DROPPED, {}, {0: [(10, 15)], 1: [(10, 15)]}, (delta(2),)),
    Case("ahead, sink known", to(18), LOSSY, DROPPED, {0: [(15, 18)], 1: [(15, 18)]}, {}, (delta(2),)),
    Case("one partition alone", only(1, 12), TWICE, DROPPED, {}, {1: [(12, 15)]}, (delta(2),)),
    Case("the sink has the orphan", to(20), EXACT, {"commits/3": "written"}, {}, {}, (delta(3),)),
    Case("back, and the sink has the orphan", to(18), TWICE, USED_UP, {}, {0: [(18, 20)], 1: [(18, 20)]}, (delta(3),)),
    Case("unknown, committed end", to(15), TWICE, RUN_EMPTY, {}, {0: [(15, 20)], 1: [(15, 20)]}, (silent(),)),
    Case("unknown, planned end", to(20), LOSSY, {"offsets/2": "written"}, {0: [(15, 20)], 1: [(15, 20)]}, {}),
    Case("unknown, no orphan, where it stands", to(15), TWICE, {}, {}, {}, orphan=False),
    Case("unknown, no orphan, back", to(10), TWICE, EDITED, {}, {0: [(10, 15)], 1: [(10, 15)]}, orphan=False),
    Case(
        "sinks that differ",
        to(17),
        LOSSY,
        RUN_EMPTY,
        {0: [(15, 17)], 1: [(15, 17)]},
        {0: [(17, 20)], 1: [(17, 20)]},
        (delta(3), files(2)),
    ),
    Case("the sink went back", to(10), EXACT, EDITED, {}, {}, (delta(1),), orphan=False),
    Case(
        "the sink went back, and one partition stays",
        only(0, 10),
        LOSSY,
        EDITED,
        {1: [(10, 15)]},
        {},
        (delta(1),),
        orphan=False,
    ),
    Case(
        "expired range and orphan: clamped",
        RepositionGoal({}, "it stands"),
        LOSSY,
        DROPPED,
        {0: [(15, 18)]},
        {},
        (delta(2),),
        kafka=broker((18, 40), (0, 40)),
    ),
    Case(
        "clamped below what the sink has",
        to(5),
        TWICE,
        EDITED,
        {},
        {0: [(12, 15)], 1: [(5, 15)]},
        (delta(2),),
        orphan=False,
        kafka=broker((12, 40), (0, 40)),
    ),
    Case(
        "earliest, whatever it is",
        to(-2),
        TWICE,
        EDITED,
        {},
        {0: [(12, 15)], 1: [(4, 15)]},
        (delta(2),),
        orphan=False,
        kafka=broker((12, 40), (4, 40)),
    ),
    Case(
        "earliest, and it is beyond the sink",
        only(0, -2),
        LOSSY,
        EDITED,
        {0: [(15, 18)]},
        {},
        (delta(2),),
        orphan=False,
        kafka=broker((18, 40), (4, 40)),
    ),
    Case(
        "earliest, and nobody asked", to(-2), LOSSY, EDITED, {}, {0: [(0, 15)], 1: [(0, 15)]}, (delta(2),), orphan=False
    ),
    Case(
        "latest",
        to(-1),
        LOSSY,
        EDITED,
        {0: [(15, 40)], 1: [(15, 50)]},
        {},
        (delta(2),),
        orphan=False,
        kafka=broker((0, 40), (0, 50)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_chosen_offsets_have_their_price(tmp_path: Path, case: Case) -> None:
    query(tmp_path, 3, orphan=case.orphan)
    found = drafted(known(tmp_path, *case.sinks, kafka=case.kafka), case.goal)
    assert (found.guarantee, changes(found)) == (case.word, case.changes)
    (price,) = found.sources
    assert price.lost == ({"orders": {p: tuple(s) for p, s in case.lost.items()}} if case.lost else {})
    assert price.duplicated == (
        {"orders": {p: tuple(s) for p, s in case.duplicated.items()}} if case.duplicated else {}
    )
    after = Observation(carried_out(tmp_path, found), kafka=case.kafka)
    restart = predict(after, SPARK_4_2)
    assert restart.stop is None, restart
    assert restart.batch is not None
    following = restart.batch + (restart.outcome is Outcome.RERUNS)
    assert following > max((sink.skips_up_to or 0 for sink in case.sinks), default=0)


def ends_of(found: Draft, path: str) -> object:
    entry = parse_offset_entry(written(found, path) or b"")
    assert isinstance(entry, OffsetEntry)
    assert entry.conf
    return [line.text for line in entry.sources]


def test_edited_plan_keeps_all_but_the_chosen_partitions(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(2)), only(1, 12))
    before, after = (tmp_path / "offsets/2").read_bytes(), written(found, "offsets/2")
    assert after == before.replace(b'"1":15', b'"1":12')


def test_earliest_is_written_as_it_is_and_bounded(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(2), kafka=broker((12, 40), (0, 40))), only(0, -2))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":-2,"1":15}}']
    assert found.sources[0].bound


def test_new_partition_that_no_longer_begins_at_zero_starts_at_its_beginning(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(2), kafka=broker((0, 40), (0, 40), (4, 9), (0, 9))), to(15))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":15,"1":15,"2":4}}']
    assert (found.guarantee, found.sources[0].lost) == (LOSSY, {"orders": {2: ((0, 4),)}})


def test_partition_that_was_new_to_the_dropped_plan_is_read_from_its_beginning_again(tmp_path: Path) -> None:
    """The offsets after the batch before name it as the earliest, since whoever begins with them has to name all."""
    query(tmp_path, 3, orphan=True)
    plan = tmp_path / "offsets/3"
    plan.write_bytes(plan.read_bytes().replace(b'"1":20}', b'"1":20,"2":5}'))
    found = drafted(known(tmp_path), RepositionGoal({"0": {"orders": {0: 15, 1: 15, 2: -2}}}, "after batch 2"))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":15,"1":15}}']
    assert found.sources[0].duplicated["orders"][2] == ((0, 5),)
    assert found.sources[0].bound


def test_partition_that_is_gone_is_left_out_and_called_lost(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(2), kafka=broker((0, 40))), only(0, 15))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":15}}']
    assert (found.guarantee, found.sources[0].bound) == (LOSSY, True)
    assert "orders-1 is gone: what was unread of it is lost" in found.rests_on


def test_topic_that_was_created_again_is_read_from_its_beginning_and_called_lossy(tmp_path: Path) -> None:
    query(tmp_path, 3)
    facts = recreated(broker((0, 60), (0, 60), topic_id="new"))
    found = drafted(known(tmp_path, delta(2), kafka=facts), to(0))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":0,"1":0}}']
    (price,) = found.sources
    assert (found.guarantee, price.lost, price.bound) == (LOSSY, {}, True)
    with pytest.raises(RepairRefusedError, match="cannot start"):
        drafted(known(tmp_path, delta(2), kafka=facts), only(0, 0))


def test_topic_that_was_created_again_stands_at_its_beginning(tmp_path: Path) -> None:
    query(tmp_path, 3)
    facts = recreated(broker((4, 60), (0, 5), topic_id="new"))
    found = drafted(known(tmp_path, delta(2), kafka=facts), RepositionGoal({}, "it stands"))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":4,"1":0}}']
    assert (found.guarantee, found.sources[0].bound) == (LOSSY, True)


def test_what_may_have_been_read_of_a_topic_since_it_was_created_again_may_come_twice(tmp_path: Path) -> None:
    query(tmp_path, 3)
    facts = recreated(broker((0, 60), (0, 9), topic_id="new"))
    stands = RepositionGoal({}, "it stands")
    found = drafted(known(tmp_path, delta(2), kafka=facts), stands)
    assert found.sources[0].duplicated == {"orders": {0: ((0, 15),), 1: ((0, 9),)}}
    newer = {"orders": {0: FoundRecord(12), 1: FoundRecord(0)}}
    found = drafted(known(tmp_path, delta(2), kafka=replace(facts, first_after_batch={2: newer})), stands)
    assert found.sources[0].duplicated == {"orders": {0: ((0, 12),)}}


@pytest.mark.parametrize(
    ("goal", "subject"),
    [
        (RepositionGoal({"1": {"orders": {0: 1}}}, ""), "source 1"),
        (RepositionGoal({"0": {"other": {0: 1}}}, ""), "other-0"),
        (only(7, 1), "orders-7"),
        (only(0, 41), "orders-0"),
        (only(0, -3), "orders-0"),
    ],
    ids=["source", "topic", "partition", "beyond the end", "no offset"],
)
def test_offsets_that_are_not_there_are_refused_by_name(tmp_path: Path, goal: RepositionGoal, subject: str) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path, delta(2), kafka=broker((0, 40), (0, 40))), goal)
    assert refused.value.subject == subject


def test_latest_needs_a_broker(tmp_path: Path) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path), to(-1))


def test_orphan_goes_with_its_checksum(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    (tmp_path / "offsets/.3.crc").write_bytes(b"crc")
    facts = RepairFacts(checksums=frozenset({"offsets/.3.crc"}))
    found = drafted(replace(known(tmp_path, delta(2)), repair=facts), to(10))
    gone = dict.fromkeys(("offsets/3", "offsets/.3.crc"), "set aside")
    assert changes(found) == {**gone, "offsets/2": "written"}


def test_number_goes_on_above_a_mark_that_was_left_high(tmp_path: Path) -> None:
    """Row 12: the rows were taken back to batch 1, the mark says 5."""
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(1, skips_up_to=5)), to(10))
    assert changes(found) == dict.fromkeys(("offsets/4", "offsets/5", "commits/5"), "written")
    assert found.guarantee is EXACT
    assert predict(Observation(carried_out(tmp_path, found)), SPARK_4_2).batch == 6


def test_row_8_goes_on_after_a_sink_that_is_ahead(tmp_path: Path) -> None:
    query(tmp_path, 6)
    mirror = mirror_of(tmp_path)
    for name in ("commits/5", "commits/4", "offsets/5", "offsets/4"):
        (tmp_path / name).unlink()
    found = drafted(known(tmp_path, delta(5), mirror=mirror), to(30))
    assert changes(found) == dict.fromkeys(("offsets/4", "offsets/5", "commits/5"), "written")
    assert found.guarantee is EXACT


def test_sink_that_is_ahead_by_nobody_knows_how_much_needs_a_broker(tmp_path: Path) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError, match="ahead of the logs"):
        drafted(known(tmp_path, delta(5)), to(15))
    found = drafted(known(tmp_path, delta(5), kafka=broker((0, 40), (0, 40))), to(15))
    assert (found.guarantee, found.sources[0].bound) == (TWICE, True)
    assert found.sources[0].duplicated == {"orders": {0: ((15, 40),), 1: ((15, 40),)}}


def test_partition_that_ends_before_the_position_holds_other_records(tmp_path: Path) -> None:
    """The topic was created again, and nobody had written its id down."""
    query(tmp_path, 3)
    what = known(tmp_path, delta(2), kafka=broker((0, 5), (0, 40)))
    with pytest.raises(RepairRefusedError) as refused:
        drafted(what, RepositionGoal({}, "it stands"))
    assert refused.value.subject == "orders-0"
    found = drafted(what, only(0, -2))
    assert (found.guarantee, found.sources[0].bound) == (LOSSY, True)


def test_topic_that_shrank_when_it_was_created_again_starts_with_what_it_has(tmp_path: Path) -> None:
    query(tmp_path, 3)
    facts = recreated(broker((0, 60), topic_id="new"))
    found = drafted(known(tmp_path, delta(2), kafka=facts), only(0, -2))
    assert ends_of(found, "offsets/2") == ['{"orders":{"0":-2}}']
    assert found.guarantee is LOSSY


def test_query_without_a_committed_batch_is_moved_by_the_note_of_its_source(tmp_path: Path) -> None:
    query(tmp_path, 0, orphan=True)
    found = drafted(known(tmp_path, files(None)), to(3))
    assert changes(found) == {"offsets/0": "set aside", "sources/0/0": "written"}
    assert written(found, "sources/0/0") == b'\0v1\n{"orders":{"0":3,"1":3}}'
    assert (found.guarantee, found.sources[0].lost) == (LOSSY, {"orders": {0: ((0, 3),), 1: ((0, 3),)}})


def test_stateful_query_is_not_repositioned(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (tmp_path / "state/0/0").mkdir(parents=True)
    with pytest.raises(RepairRefusedError, match="keeps state"):
        drafted(known(tmp_path), to(10))


def test_source_that_is_not_kafka_is_named(tmp_path: Path) -> None:
    query(tmp_path, 3, source=FileInput())
    with pytest.raises(RepairRefusedError) as refused:
        drafted(known(tmp_path), to(10))
    assert (refused.value.subject, refused.value.found) == ("source 0", "0: file")


def test_function_that_marks_no_empty_batch_leaves_only_a_bound(tmp_path: Path) -> None:
    query(tmp_path, 3, orphan=True)
    found = drafted(known(tmp_path, fence(1)), to(10))
    assert (found.guarantee, found.sources[0].bound) == (TWICE, True)
