"""`fresh`: a checkpoint that is lost, or to be left behind, seeded in place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from planning import (
    broker,
    carried_out,
    changes,
    delta,
    drafted,
    files,
    known,
    mirror_of,
    query,
    silent,
    written,
)

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.goals.values import Extent, FreshGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.spark_version import SPARK_4_2
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sources.kafka.ranges import Offsets
from lastgood.sources.kafka.start_files import StartFile
from lastgood.testing.checkpoints import PINNED_CONF, QUERY_ID, FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY
OTHER_ID = "0b7e60a2-1111-4222-8333-944445555666"
MIRROR = FreshGoal()


def at(offset: int, **others: Any) -> FreshGoal:
    return FreshGoal({"0": {"orders": {0: offset, 1: offset}}}, "where a test says", **others)


def up_to(least: int, most: int | None = None, word: Guarantee = EXACT) -> Extent:
    """How far the sinks have come, as somebody says."""

    def both(offset: int) -> dict[str, Offsets]:
        return {"0": {"orders": {0: offset, 1: offset}}}

    return Extent(both(least), None if most is None else both(most), word, ("its own columns",))


def lost(folder: Path, batches: int = 3, *, orphan: bool = False) -> dict[str, bytes]:
    """What the mirror holds of a query whose checkpoint is gone."""
    query(folder / "before", batches, orphan=orphan)
    return mirror_of(folder / "before")


def test_mirror_brings_every_file_back(tmp_path: Path) -> None:
    mirror = lost(tmp_path, orphan=True)
    found = drafted(known(tmp_path / "lost", delta(3), mirror=mirror), MIRROR)
    assert {edit.path: edit.after for edit in found.edits} == mirror
    assert found.guarantee is EXACT


def test_mirror_leaves_alone_what_is_as_it_holds_it(tmp_path: Path) -> None:
    query(tmp_path, 3)
    mirror = mirror_of(tmp_path)
    (tmp_path / "offsets/2").write_bytes(b"")
    (tmp_path / "offsets/7").write_bytes(b"")
    found = drafted(known(tmp_path, delta(2), mirror=mirror), MIRROR)
    assert changes(found).items() >= {"offsets/2": "written", "offsets/7": "set aside"}.items()
    assert "offsets/1" not in changes(found)
    assert "metadata" not in changes(found)


def test_mirror_that_the_sink_is_ahead_of_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError, match="older than it"):
        drafted(known(tmp_path / "lost", delta(8), mirror=lost(tmp_path)), MIRROR)


def test_mirror_that_is_ahead_of_the_sink_is_cut(tmp_path: Path) -> None:
    found = drafted(known(tmp_path / "lost", delta(0), mirror=lost(tmp_path)), MIRROR)
    assert not {"offsets/1", "offsets/2", "commits/1", "commits/2"}.intersection(
        path for path, what in changes(found).items() if what == "written"
    )
    assert found.guarantee is EXACT


def test_mirror_replaces_a_checkpoint_that_began_anew_and_says_what_that_wrote(tmp_path: Path) -> None:
    mirror = lost(tmp_path, 5)
    folder = tmp_path / "anew"
    query(folder, 7).folder.joinpath("metadata").write_text(json.dumps({"id": OTHER_ID}))
    table = delta(6, others={QUERY_ID: 4})
    found = drafted(known(folder, table, mirror=mirror), MIRROR)
    assert found.guarantee is TWICE
    assert changes(found).items() >= {"offsets/6": "set aside", "commits/5": "set aside", "metadata": "written"}.items()
    assert predict(Observation(carried_out(folder, found)), SPARK_4_2).batch == 5


def test_there_is_no_fresh_start_without_a_mirror_or_offsets(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError, match="no mirror"):
        drafted(known(tmp_path), MIRROR)


def test_mirror_of_a_query_with_a_watermark_is_refused_once_its_state_is_gone(tmp_path: Path) -> None:
    mirror = lost(tmp_path)
    mirror["offsets/2"] = mirror["offsets/2"].replace(b'"batchWatermarkMs":0', b'"batchWatermarkMs":7')
    with pytest.raises(RepairRefusedError, match="the state of the query is gone"):
        drafted(known(tmp_path / "lost", mirror=mirror), MIRROR)


def test_row_15_seeds_above_the_numbers_of_a_file_sink(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, files(8), topic_ids={"orders": "one"}), at(15, extent=up_to(15, 15)))
    assert changes(found) == {
        **{f"{log}/{n}": "set aside" for log in ("offsets", "commits") for n in range(3)},
        **dict.fromkeys(("offsets/7", "offsets/8", "commits/8"), "written"),
    }
    assert (found.guarantee, found.rests_on) == (EXACT, ("its own columns",))
    restart = predict(Observation(carried_out(tmp_path, found), sinks=(files(8),)), SPARK_4_2)
    assert (restart.stop, restart.batch) == (None, 9)


def test_offsets_of_rows_rest_on_their_topic_being_the_same(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, files(8)), at(15, extent=up_to(15, 15)))
    assert found.rests_on[-1].endswith("never deleted and created again, of which no id is kept: orders")


def test_seed_copies_the_pinned_confs_and_keeps_the_id(tmp_path: Path) -> None:
    found = drafted(known(tmp_path / "lost", delta(2), mirror=lost(tmp_path)), at(15))
    assert json.loads(written(found, "metadata") or b"") == {"id": QUERY_ID}
    entry = parse_offset_entry(written(found, "offsets/2") or b"")
    assert isinstance(entry, OffsetEntry)
    assert (entry.conf, [line.text for line in entry.sources]) == (PINNED_CONF, ['{"orders":{"0":15,"1":15}}'])
    assert found.guarantee is EXACT


@pytest.mark.parametrize(("offset", "word"), [(10, TWICE), (15, EXACT), (20, LOSSY)])
def test_row_16_is_exact_only_where_the_sink_ends(tmp_path: Path, offset: int, word: Guarantee) -> None:
    query(tmp_path, 3)
    assert drafted(known(tmp_path, delta(2)), at(offset)).guarantee is word


@pytest.mark.parametrize(
    ("extent", "word"),
    [
        (None, TWICE),
        (up_to(15, 15), EXACT),
        (up_to(15, 20), TWICE),
        (up_to(10, 10), LOSSY),
        (up_to(15, 15, TWICE), TWICE),
        (up_to(15, 15, LOSSY), LOSSY),
        (up_to(15), LOSSY),
    ],
    ids=["nothing", "exact", "sinks-ahead", "jumped-over", "doubted", "distrusted", "open-without-broker"],
)
def test_offsets_of_a_sink_that_nobody_can_place_are_only_as_good_as_what_tells_of_it(
    tmp_path: Path, extent: Extent | None, word: Guarantee
) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, silent()), at(15, extent=extent))
    assert (found.guarantee, found.sources[0].bound) == (word, word is not EXACT)


def test_logs_tell_what_a_stable_start_costs_where_no_sink_does(tmp_path: Path) -> None:
    planned = query(tmp_path, 3)
    planned.plan()
    found = drafted(known(tmp_path, silent()), at(10))
    (price,) = found.sources
    assert (found.guarantee, price.lost, price.bound) == (TWICE, {}, True)
    assert price.duplicated == {"orders": {0: ((10, 20),), 1: ((10, 20),)}}
    assert any("commits/2 and offsets/3" in line for line in found.rests_on)
    assert drafted(known(tmp_path, silent()), at(20)).guarantee is LOSSY
    (tmp_path / "offsets/2").unlink()
    assert drafted(known(tmp_path, silent()), at(10)).guarantee is LOSSY


def test_price_says_what_is_written_twice_and_what_is_jumped_over(tmp_path: Path) -> None:
    query(tmp_path, 3)
    twice = drafted(known(tmp_path, silent()), at(15, extent=up_to(15, 20))).sources[0]
    assert (twice.duplicated, twice.lost) == ({"orders": {0: ((15, 20),), 1: ((15, 20),)}}, {})
    lost = drafted(known(tmp_path, silent()), at(15, extent=up_to(10, 12))).sources[0]
    assert (lost.duplicated, lost.lost) == ({}, {"orders": {0: ((10, 15),), 1: ((10, 15),)}})


def test_what_lies_above_an_open_end_is_bounded_by_kafka(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, silent(), kafka=broker((0, 40), (0, 15))), at(15, extent=up_to(15, word=TWICE)))
    assert (found.guarantee, found.sources[0].duplicated) == (TWICE, {"orders": {0: ((15, 40),)}})
    assert found.sources[0].bound


def test_offsets_that_have_expired_cost_what_lies_between(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, silent(), kafka=broker((18, 40), (0, 40))), at(15, extent=up_to(15, 15)))
    assert (found.guarantee, found.sources[0].lost) == (LOSSY, {"orders": {0: ((15, 18),)}})


def test_partition_for_which_nothing_is_chosen_begins_at_its_earliest(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(2)), FreshGoal({"0": {"orders": {0: 15}}}, "a test wants it"))
    assert b'{"orders":{"0":15,"1":-2}}' in (written(found, "offsets/2") or b"")
    assert found.guarantee is LOSSY


def test_new_id_is_taken_only_where_the_old_one_is_lost(tmp_path: Path) -> None:
    query(tmp_path, 3)
    assert "metadata" not in changes(drafted(known(tmp_path), at(15, new_query_id=OTHER_ID)))
    (tmp_path / "metadata").unlink()
    found = drafted(known(tmp_path), at(15, new_query_id=OTHER_ID))
    assert json.loads(written(found, "metadata") or b"") == {"id": OTHER_ID}
    with pytest.raises(RepairRefusedError, match="id of the query is lost"):
        drafted(known(tmp_path), at(15))


def test_query_of_which_no_log_is_left_begins_at_batch_0_where_its_source_is_told(tmp_path: Path) -> None:
    found = drafted(known(tmp_path / "lost", delta(None)), at(15, new_query_id=OTHER_ID, extent=up_to(15, 15)))
    assert changes(found) == {"metadata": "written", "sources/0/0": "written"}
    assert json.loads(written(found, "metadata") or b"") == {"id": OTHER_ID}
    assert written(found, "sources/0/0") == b'\0v1\n{"orders":{"0":15,"1":15}}'
    assert found.guarantee is EXACT
    assert found.rests_on[-1].startswith("the assumption that the query reads nothing else and keeps no state")
    restart = predict(Observation(carried_out(tmp_path / "lost", found)), SPARK_4_2)
    assert (restart.stop, restart.batch) == (None, 0)


def test_query_that_begins_at_batch_0_knows_no_earliest(tmp_path: Path) -> None:
    goal = at(-2, new_query_id=OTHER_ID, extent=up_to(0, word=TWICE))
    found = drafted(known(tmp_path / "lost", delta(None), kafka=broker((3, 9), (0, 9))), goal)
    assert written(found, "sources/0/0") == b'\0v1\n{"orders":{"0":3,"1":0}}'
    assert (found.guarantee, found.sources[0].lost) == (LOSSY, {"orders": {0: ((0, 3),)}})
    with pytest.raises(RepairRefusedError, match="only Kafka can tell"):
        drafted(known(tmp_path / "lost", delta(None)), goal)


def test_query_known_to_its_table_begins_at_batch_0_as_another_one(tmp_path: Path) -> None:
    query(tmp_path, 3)
    for log in ("offsets", "commits"):
        for n in range(3):
            (tmp_path / log / str(n)).unlink()
    found = drafted(known(tmp_path, delta(2)), at(15, new_query_id=OTHER_ID, extent=up_to(15, 15)))
    assert json.loads(written(found, "metadata") or b"") == {"id": OTHER_ID}
    assert found.guarantee is EXACT


@pytest.mark.parametrize(
    "sink",
    [files(8), delta(None, others={"nightly": 4})],
    ids=["file-sink", "name-that-a-user-chose"],
)
def test_query_without_logs_is_refused_where_a_sink_goes_by_numbers(tmp_path: Path, sink: SinkEvidence) -> None:
    with pytest.raises(RepairRefusedError, match="goes by numbers"):
        drafted(known(tmp_path / "lost", sink), at(15, new_query_id=OTHER_ID))


def test_query_without_logs_is_refused_if_it_has_several_sources(tmp_path: Path) -> None:
    goal = FreshGoal({"0": {"a": {0: 1}}, "1": {"b": {0: 1}}}, "a test wants it", new_query_id=OTHER_ID)
    with pytest.raises(RepairRefusedError, match="settings that Spark pinned"):
        drafted(known(tmp_path / "lost"), goal)


def test_numbers_go_on_above_a_mark_under_a_name_that_a_user_chose(tmp_path: Path) -> None:
    query(tmp_path, 3)
    found = drafted(known(tmp_path, delta(None, others={"nightly": 9})), at(15))
    assert changes(found)["commits/9"] == "written"


def test_seed_of_another_source_than_kafka_is_refused(tmp_path: Path) -> None:
    query(tmp_path, 3, source=FileInput())
    with pytest.raises(RepairRefusedError):
        drafted(known(tmp_path), at(15))


def test_row_17_refuses_a_fresh_start_of_a_query_with_state(tmp_path: Path) -> None:
    query(tmp_path, 3)
    (tmp_path / "state/0/0").mkdir(parents=True)
    with pytest.raises(RepairRefusedError, match="keeps state"):
        drafted(known(tmp_path, delta(2)), at(15))


def test_query_with_a_watermark_in_its_mirror_is_refused_once_its_checkpoint_is_gone(tmp_path: Path) -> None:
    mirror = lost(tmp_path)
    mirror["offsets/2"] = mirror["offsets/2"].replace(b'"batchWatermarkMs":0', b'"batchWatermarkMs":7')
    for goal in (at(15), at(15, via=StartFile("/etc/start.json"))):
        with pytest.raises(RepairRefusedError, match="keeps state"):
            drafted(known(tmp_path / "lost", delta(2), mirror=mirror), goal)


def test_left_over_checksum_of_a_seeded_file_goes(tmp_path: Path) -> None:
    query(tmp_path, 1)
    (tmp_path / "offsets/.0.crc").write_bytes(b"crc")
    assert changes(drafted(known(tmp_path), at(3)))["offsets/.0.crc"] == "set aside"
