"""-1 and -2 in the logs are "latest" and "earliest": no verb counts with them, and what they hide is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from planning import broker, delta, drafted, known, query
from predicting import change, line

from lastgood.audit.committed import NoCommittedBatchError, read_committed
from lastgood.audit.logs import verify_logs
from lastgood.observe.batch_json import list_commands_again
from lastgood.observe.find import NotFoundInHistoryError, find_offset
from lastgood.observe.offsets import find_offsets_after
from lastgood.observe.surroundings import make_reading
from lastgood.operations.inspect import inspect_batch, inspect_batches
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.history import Seam
from lastgood.query.kafka import Losing, judge_exposure
from lastgood.settings.target import resolve_target
from lastgood.sources.kafka.facts import KafkaFacts

EARLIEST, LATEST = '{"orders":{"0":-2,"1":15}}', '{"orders":{"0":-1,"1":15}}'


@pytest.fixture(params=[EARLIEST, LATEST])
def moved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Five committed batches of five offsets; the end of batch 2 was replaced."""
    query(tmp_path, 5)
    change("offsets/2", line(2, request.param))(tmp_path)
    return tmp_path


def at_the_end(folder: Path, text: str) -> Path:
    """The same query, whose newest batch is the one whose end was replaced."""
    query(folder, 3)
    change("offsets/2", line(2, text))(folder)
    return folder


def numbers(value: object) -> list[int]:
    """Every number in some JSON."""
    if isinstance(value, dict):
        return [each for key, part in value.items() if key != "end" for each in numbers(part)]
    if isinstance(value, list):
        return [each for part in value for each in numbers(part)]
    return [value] if isinstance(value, int) else []


def test_a_batch_that_begins_or_ends_there_has_no_count(moved: Path) -> None:
    rows = {row.batch: row for row in inspect_batches(resolve_target(str(moved))).rows}
    name = "earliest" if "-2" in (moved / "offsets/2").read_text() else "latest"
    counts = {number: read.count for number, row in rows.items() for read in row.reads}
    assert counts == {0: 10, 1: 10, 2: None, 3: None, 4: 10}
    assert rows[2].notes == (f"its end was set to {name}",)
    assert rows[3].notes == (f"begins at {name}",)
    told = rows[3].to_json()
    assert min(numbers(told)) >= 0
    assert told["sources"][0]["unresolved"] == {"orders": {"0": [name, 20]}}
    assert rows[2].to_json()["sources"][0]["unresolved"] == {"orders": {"0": [10, name]}}


def test_its_input_is_read_again_from_the_earliest(tmp_path: Path) -> None:
    query(tmp_path, 5)
    change("offsets/2", line(2, EARLIEST))(tmp_path)
    (text,) = list_commands_again(*inspect_batch(resolve_target(str(tmp_path)), 3))
    assert '"startingOffsets", \'{"orders": {"1": 15, "0": -2}}\'' in text


@pytest.mark.parametrize("offset", [12, 17])
def test_whether_such_a_batch_read_an_offset_is_not_known(moved: Path, offset: int) -> None:
    with pytest.raises(NotFoundInHistoryError) as caught:
        find_offset(resolve_target(str(moved)), "orders", 0, offset)
    assert caught.value.found is not None
    assert "earliest or latest" in caught.value.found
    row, _ = find_offset(resolve_target(str(moved)), "orders", 1, offset)
    assert row.batch == offset // 5


@pytest.mark.parametrize(("offset", "batch"), [(3, 0), (7, 1), (22, 4)])
def test_an_offset_that_another_batch_surely_read_is_found(moved: Path, offset: int, batch: int) -> None:
    assert find_offset(resolve_target(str(moved)), "orders", 0, offset)[0].batch == batch


def test_an_offset_that_no_batch_can_have_read_is_in_none(moved: Path) -> None:
    with pytest.raises(NotFoundInHistoryError) as caught:
        find_offset(resolve_target(str(moved)), "orders", 1, 99)
    assert caught.value.found == "offsets 0 to 24"


def test_verify_says_that_it_does_not_know(moved: Path) -> None:
    audit = verify_logs(resolve_target(str(moved)))
    assert audit.seams == (Seam("UNRESOLVED", 2, "orders", 0), Seam("UNRESOLVED", 3, "orders", 0))
    assert not audit.is_contiguous


@pytest.mark.parametrize(("text", "name"), [(EARLIEST, "earliest"), (LATEST, "latest")])
def test_offsets_names_what_the_plan_holds(tmp_path: Path, text: str, name: str) -> None:
    standing = find_offsets_after(resolve_target(str(at_the_end(tmp_path, text))))
    assert standing.starting_offsets() == json.loads(text)  # as Spark takes it
    assert standing.unresolved == {"orders": {0: name}}
    assert standing.to_json()["unresolved"] == {"orders": {"0": name}}
    assert standing.expired == {}


@pytest.mark.parametrize(("text", "unread"), [(EARLIEST, {0: ((4, 30),)}), (LATEST, {})])
def test_lag_is_counted_from_where_the_query_will_begin(
    tmp_path: Path, text: str, unread: dict[int, tuple[tuple[int, int]]]
) -> None:
    from lastgood.observe.open_query import gather

    where = make_reading(gather(resolve_target(str(at_the_end(tmp_path, text))), batches=2))
    found = judge_exposure(where, broker((4, 30), (4, 15)), now_ms=1)
    assert (found.lost, found.unread) == ({}, {"orders": unread} if unread else {})
    assert found.losing is not Losing.YES


@pytest.mark.parametrize("text", [EARLIEST, LATEST])
def test_nothing_is_compared_up_to_where_nobody_knows(tmp_path: Path, text: str) -> None:
    with pytest.raises(NoCommittedBatchError) as caught:
        read_committed(str(at_the_end(tmp_path, text)))
    assert caught.value.condition == "NO_COMMITTED_BATCH"


def test_a_query_that_began_at_the_earliest_is_compared_from_what_is_there(tmp_path: Path) -> None:
    query(tmp_path, 2)
    (tmp_path / "sources/0/0").write_bytes(b'\x00v1\n{"orders":{"0":-2,"1":-2}}')
    found = read_committed(str(tmp_path))
    assert [(each.start, each.end) for each in found.ranges] == [(5, 10), (5, 10)]
    assert not found.is_start_known


# --- prices ---------------------------------------------------------------------------------------------------------


def test_a_restart_from_the_earliest_is_not_exactly_once(tmp_path: Path) -> None:
    found = drafted(known(at_the_end(tmp_path, EARLIEST), delta(2), kafka=broker((0, 30), (0, 30))), ResumeGoal())
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert "orders-0 stood at earliest: how far it was read is not known" in found.rests_on
    (price,) = found.sources
    assert (price.duplicated, price.lost, price.bound) == ({"orders": {0: ((0, 30),)}}, {}, True)


@pytest.mark.parametrize("kafka", [None, broker((4, 30), (0, 30))])
def test_what_kafka_has_deleted_may_never_have_been_read(tmp_path: Path, kafka: KafkaFacts | None) -> None:
    what = known(at_the_end(tmp_path, EARLIEST), delta(2), kafka=kafka)
    assert drafted(what, ResumeGoal()).guarantee is Guarantee.LOSSY


def test_a_recovery_that_chose_the_earliest_has_said_what_is_lost(tmp_path: Path) -> None:
    what = known(at_the_end(tmp_path, EARLIEST), delta(2), kafka=broker((4, 30), (0, 30)), rewritten={2: "a-recovery"})
    found = drafted(what, ResumeGoal())
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert any("where recovery a-recovery has put it" in line for line in found.rests_on)


def test_offsets_chosen_over_the_earliest_are_priced_as_if_all_and_nothing_had_been_read(tmp_path: Path) -> None:
    what = known(at_the_end(tmp_path, EARLIEST), delta(2), kafka=broker((0, 30), (0, 30)))
    found = drafted(what, RepositionGoal({"0": {"orders": {0: 12}}}, "12"))
    (price,) = found.sources
    assert (found.guarantee, price.bound) == (Guarantee.LOSSY, True)
    assert (price.lost, price.duplicated) == ({"orders": {0: ((0, 12),)}}, {"orders": {0: ((12, 30),)}})


def test_a_partition_that_stays_at_the_earliest_is_priced_too(tmp_path: Path) -> None:
    what = known(at_the_end(tmp_path, EARLIEST), delta(2), kafka=broker((0, 30), (0, 30)))
    found = drafted(what, RepositionGoal({"0": {"orders": {1: 12}}}, "12"))
    (price,) = found.sources
    assert found.guarantee is Guarantee.AT_LEAST_ONCE
    assert price.duplicated == {"orders": {0: ((0, 30),), 1: ((12, 15),)}}


def test_nobody_knows_how_much_is_read_again_where_the_latest_is_told_by_nobody(tmp_path: Path) -> None:
    what = known(at_the_end(tmp_path, LATEST), delta(2))
    found = drafted(what, RepositionGoal({"0": {"orders": {0: 7}}}, "7"))
    (price,) = found.sources
    assert (price.reread_from, price.duplicated_from) == ({"orders": {0: 7}}, {"orders": {0: 7}})
    assert price.writes_twice
    assert "source 0: written twice, and nobody wrote down how much: orders/0 from 7 on" in price.lines
    assert price.to_json()["duplicated_from"] == {"orders": {"0": 7}}


def test_a_broker_tells_how_much_is_read_again_at_most(tmp_path: Path) -> None:
    what = known(at_the_end(tmp_path, LATEST), delta(2), kafka=broker((0, 30), (0, 30)))
    (price,) = drafted(what, RepositionGoal({"0": {"orders": {0: 7}}}, "7")).sources
    assert (price.reread, price.reread_from) == ({"orders": {0: ((7, 30),)}}, {})


def test_the_latest_is_called_by_its_name_where_no_broker_tells_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError) as caught:
        drafted(known(at_the_end(tmp_path, LATEST), delta(2)), RepositionGoal({"0": {"orders": {1: -1}}}, "latest"))
    assert caught.value.found == "latest, and no broker that tells where that is"
