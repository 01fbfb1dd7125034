"""A checkpoint that is left behind, and sinks that go by the numbers of batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from planning import broker, delta, drafted, files, known, query, silent

from lastgood.asked import Asked
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import FreshGoal
from lastgood.planning.leaving import add_newer_partitions
from lastgood.planning.price import Guarantee
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.start_files import StartFile

VIA = StartFile("/etc/start.json")


def at(offset: int, *, told: bool = False) -> FreshGoal:
    offsets = {"0": {"orders": {0: offset, 1: offset}}}
    return FreshGoal(offsets, "where a test says", via=VIA, takes_any_number=told)


def test_every_file_of_the_logs_is_set_aside_and_the_application_told(tmp_path: Path) -> None:
    query(tmp_path, 2, orphan=True)
    (tmp_path / "offsets/.1.crc").write_bytes(b"crc")
    found = drafted(known(tmp_path, delta(1)), at(10))
    named = {"metadata", "sources/0/0", "offsets/.1.crc"}
    assert {edit.path for edit in found.edits} == named | {f"offsets/{n}" for n in range(3)} | {
        "commits/0",
        "commits/1",
    }
    assert all(edit.after is None for edit in found.edits)
    assert found.start is not None
    assert (found.start.file, found.start.offsets) == (VIA, {"orders": {0: 10, 1: 10}})
    assert (found.guarantee, found.is_plain) == (Guarantee.EXACTLY_ONCE, False)


@pytest.mark.parametrize(("offset", "word"), [(5, Guarantee.AT_LEAST_ONCE), (15, Guarantee.LOSSY)])
def test_price_is_that_of_the_offsets(tmp_path: Path, offset: int, word: Guarantee) -> None:
    query(tmp_path, 2)
    assert drafted(known(tmp_path, delta(1)), at(offset)).guarantee is word


@pytest.mark.parametrize(
    "sink",
    [files(1), delta(None, others={"nightly": 4}), silent()],
    ids=["file-sink", "name-that-a-user-chose", "unknown"],
)
def test_sink_that_goes_by_numbers_or_may_do_so_is_refused(tmp_path: Path, sink: SinkEvidence) -> None:
    query(tmp_path, 2)
    with pytest.raises(RepairRefusedError, match="by numbers"):
        drafted(known(tmp_path, sink), at(10))


def test_the_way_that_is_named_instead_starts_at_the_same_place(tmp_path: Path) -> None:
    query(tmp_path, 2)
    fresh = ("--goal", "fresh", "--via", "app-config", "--start-file", "f", "--stable-lag", "1", "--takes-any-number")
    what = known(tmp_path, silent(), asked=Asked("orders", wanted=fresh))
    with pytest.raises(RepairRefusedError) as caught:
        drafted(what, at(10))
    assert caught.value.next == "lastgood plan orders --goal fresh --stable-lag 1"


def test_word_of_a_person_counts_only_where_nobody_knows(tmp_path: Path) -> None:
    query(tmp_path, 2)
    assert drafted(known(tmp_path, silent()), at(10, told=True)).start is not None
    assert drafted(known(tmp_path), at(10, told=True)).start is not None
    with pytest.raises(RepairRefusedError, match="goes by numbers"):
        drafted(known(tmp_path, files(1)), at(10, told=True))


def test_query_without_logs_can_be_told_by_its_configuration_too(tmp_path: Path) -> None:
    found = drafted(known(tmp_path / "lost", delta(None)), at(10))
    assert (found.edits, found.is_plain) == ((), False)
    assert found.start is not None


def test_query_with_state_or_several_sources_is_refused(tmp_path: Path) -> None:
    goal = FreshGoal({"0": {"a": {0: 1}}, "1": {"b": {0: 1}}}, "a test wants it", via=VIA)
    with pytest.raises(RepairRefusedError, match="several sources"):
        drafted(known(tmp_path / "lost", delta(None)), goal)
    query(tmp_path, 2)
    (tmp_path / "state/0/0").mkdir(parents=True)
    with pytest.raises(RepairRefusedError, match="keeps state"):
        drafted(known(tmp_path, delta(1)), at(10))


def test_every_partition_that_kafka_has_is_named() -> None:
    found = add_newer_partitions({"orders": {0: 4}}, broker((0, 9), (0, 3)))
    assert found == {"orders": {0: 4, 1: -2}}
    assert add_newer_partitions({"orders": {0: 4}}, None) == {"orders": {0: 4}}
