"""`recompute` with changes on the way: how the state is kept from then on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from planning import append, changes, drafted, known, read, serve, windowed, written

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.empty_state import EMPTY_SNAPSHOTS, make_empty_archive
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.values import RecomputeGoal
from lastgood.planning.pinned_confs import CHANGELOG, HDFS_BACKED, ROCKSDB, make_conf
from lastgood.planning.price import Guarantee
from lastgood.query.prediction.state_partitions import find_repinned
from lastgood.query.refills import is_refill
from lastgood.query.windows import is_state_lost

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
CODEC = "spark.sql.streaming.stateStore.compression.codec"
EXACT = Guarantee.EXACTLY_ONCE


def sizes_of(folder: Path) -> dict[str, int]:
    """The files of the state as they lie there."""
    found = (each for each in (folder / "state").rglob("*") if each.is_file())
    return {str(each.relative_to(folder)): each.stat().st_size for each in found}


def repinned(folder: Path, rewritten: Mapping[int, str] | None = None, **said: object) -> Draft:
    """What is planned for a query as it lies there."""
    files = sizes_of(folder)
    seen = known(folder, append(2), state_files=files, kafka=serve((0, 60), (0, 60)), rewritten=rewritten or {})
    goal = RecomputeGoal(conf=make_conf(**said))  # type: ignore[arg-type]
    return drafted(seen, goal)


def entry(found: Draft, path: str) -> OffsetEntry:
    parsed = parse_offset_entry(written(found, path) or b"")
    assert isinstance(parsed, OffsetEntry)
    return parsed


def carry_out(folder: Path, found: Draft) -> None:
    """As the engine does, in no order."""
    for move in found.moves:
        (folder / move.path).unlink()
    for edit in found.edits:
        if edit.after is None:
            (folder / edit.path).unlink()
        else:
            (folder / edit.path).write_bytes(edit.after)
    for step in found.renewed:
        (folder / step.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / step.path).write_bytes(step.after)


def pin(folder: Path, conf: Mapping[str, str] | None) -> None:
    """Have every plan pin this instead of what it pins; None: nothing at all."""
    for path in folder.glob("offsets/[0-9]*"):
        plan = parse_offset_entry(path.read_bytes())
        assert isinstance(plan, OffsetEntry)
        if conf is None:
            metadata = plan.metadata
            assert metadata is not None
            path.write_bytes(replace(plan, metadata=metadata.with_fields(conf={}), raw=None).to_bytes())
        else:
            path.write_bytes(plan.with_conf(conf).to_bytes())


@pytest.mark.parametrize("count", [1, 2, 5])
def test_both_plans_pin_the_number_and_there_is_a_state_for_each(tmp_path: Path, count: int) -> None:
    windowed(tmp_path, 3)
    found = repinned(tmp_path, shuffle_partitions=count)
    begins, fills = entry(found, "offsets/2"), entry(found, "offsets/3")
    assert (begins.conf[PARTITIONS], fills.conf[PARTITIONS]) == (str(count), str(count))
    assert is_refill(begins, fills)
    assert [step.path for step in found.renewed] == [f"state/0/{number}/3.snapshot" for number in range(count)]
    assert found.guarantee is EXACT
    told = [line for line in found.rests_on if line.startswith(PARTITIONS)]
    assert [line.partition(":")[0] for line in told] == [
        f"{PARTITIONS}=2, as the log has it already"
        if count == 2
        else f"{PARTITIONS}={count} in the log, where it was 2"
    ]
    steps = [edit.why for edit in found.edits if PARTITIONS in edit.why]
    assert len(steps) == (0 if count == 2 else 2)


@pytest.mark.parametrize(("store", "name"), [("rocksdb", "3.zip"), ("hdfs", "3.snapshot")])
def test_state_without_a_row_is_of_the_provider_that_was_said(tmp_path: Path, store: str, name: str) -> None:
    windowed(tmp_path, 3)
    found = repinned(tmp_path, state_store=store)
    content = make_empty_archive() if store == "rocksdb" else EMPTY_SNAPSHOTS["lz4"]
    assert [(step.path, step.after) for step in found.renewed] == [(f"state/0/{n}/{name}", content) for n in (0, 1)]
    assert entry(found, "offsets/3").conf[PROVIDER] == (ROCKSDB if store == "rocksdb" else HDFS_BACKED)


def test_snapshot_is_written_by_the_codec_that_was_said(tmp_path: Path) -> None:
    windowed(tmp_path, 3)
    found = repinned(tmp_path, others=[(CODEC, "zstd")])
    assert {step.after for step in found.renewed} == {EMPTY_SNAPSHOTS["zstd"]}
    assert entry(found, "offsets/2").conf[CODEC] == "zstd"


def test_changelog_is_pinned_by_nothing_and_said_to_whoever_starts(tmp_path: Path) -> None:
    windowed(tmp_path, 3)
    found = repinned(tmp_path, state_store="rocksdb", changelog=True)
    assert CHANGELOG not in entry(found, "offsets/3").conf
    assert any(f"{CHANGELOG}=true" in line and "start" in line for line in found.rests_on)


@pytest.mark.parametrize(
    "said",
    [{"shuffle_partitions": 5}, {"shuffle_partitions": 1}, {"state_store": "rocksdb"}, {"others": [(CODEC, "zstd")]}],
)
def test_query_is_seen_as_it_is_to_be_before_and_after_it_is_carried_out(
    tmp_path: Path, said: dict[str, object]
) -> None:
    """Also where partitions that nobody loads any more keep what they had."""
    windowed(tmp_path, 3)
    carry_out(tmp_path, repinned(tmp_path, **said))
    checkpoint = read(tmp_path)
    assert find_repinned(checkpoint) == []
    assert checkpoint.state is not None
    assert (is_state_lost(checkpoint), 3 in checkpoint.state.loadable) == (False, True)


@pytest.mark.parametrize("then", [{}, {"shuffle_partitions": 1}, {"shuffle_partitions": 7}, {"state_store": "rocksdb"}])
@pytest.mark.parametrize("has_failed", [False, True])
def test_second_time_goes_on_from_what_the_first_has_pinned(
    tmp_path: Path, then: dict[str, object], *, has_failed: bool
) -> None:
    """What the first has made of the state, and a batch that failed, goes with all of its partitions."""
    windowed(tmp_path, 3)
    carry_out(tmp_path, repinned(tmp_path, shuffle_partitions=5))
    if has_failed:
        (tmp_path / "state/0/4/4.delta").write_bytes(b"half")
    second = repinned(tmp_path, {2: "the first"}, **then)
    count = int(str(then.get("shuffle_partitions", 5)))
    assert len(second.renewed) == count
    carry_out(tmp_path, second)
    plans = [parse_offset_entry((tmp_path / f"offsets/{number}").read_bytes()) for number in (2, 3)]
    assert is_refill(*plans)
    assert isinstance(plans[1], OffsetEntry)
    assert plans[1].conf[PARTITIONS] == str(count)
    left = {path.split("/")[2] for path in sizes_of(tmp_path) if path.rpartition("/")[2].startswith(("3.", "4."))}
    assert left == {str(number) for number in range(count)}
    assert find_repinned(read(tmp_path)) == []


def test_ids_of_versions_are_named_for_each_partition(tmp_path: Path) -> None:
    windowed(tmp_path, 3)
    pin(tmp_path, {PROVIDER: ROCKSDB})
    ids = {0: (("00000000-0000-0000-0000-000000000000",), ("00000000-0000-0000-0000-000000000001",))}
    commit = CommitEntry.of(2, next_batch_watermark_ms=0, state_unique_ids=ids)
    (tmp_path / "commits/2").write_bytes(commit.to_bytes())
    found = repinned(tmp_path, shuffle_partitions=5)
    then = parse_commit_entry(written(found, "commits/2") or b"")
    assert isinstance(then, CommitEntry)
    assert len((then.state_unique_ids or {})[0]) == 5
    assert "HDFS-backed" in refused(tmp_path, state_store="hdfs").sentence


def refused(folder: Path, **said: object) -> RepairRefusedError:
    with pytest.raises(RepairRefusedError) as caught:
        repinned(folder, **said)
    return caught.value


def test_changelog_is_none_of_the_hdfs_backed_store(tmp_path: Path) -> None:
    windowed(tmp_path, 3)
    error = refused(tmp_path, changelog=True)
    assert (error.subject, error.expected) == ("--changelog", "--state-store rocksdb with it")


@pytest.mark.parametrize("said", [{}, {"state_store": "rocksdb"}, {"shuffle_partitions": 5}])
def test_state_of_a_provider_that_is_not_known_is_left_alone(tmp_path: Path, said: dict[str, object]) -> None:
    """Also of one that has the same name in another package."""
    windowed(tmp_path, 3)
    pin(tmp_path, {PROVIDER: "com.acme.RocksDBStateStoreProvider"})
    assert "com.acme" in (refused(tmp_path, **said).found or "")


def test_log_that_pins_nothing_pins_what_was_said_from_then_on(tmp_path: Path) -> None:
    windowed(tmp_path, 3)
    pin(tmp_path, None)
    assert "--shuffle-partitions" in (refused(tmp_path).expected or "")
    assert "--state-store" in (refused(tmp_path, shuffle_partitions=5).expected or "")
    found = repinned(tmp_path, shuffle_partitions=5, state_store="rocksdb")
    assert entry(found, "offsets/3").conf == {PARTITIONS: "5", PROVIDER: ROCKSDB}
    assert CODEC in (refused(tmp_path, others=[(CODEC, "zstd")]).subject or "")


def test_nothing_said_changes_nothing_of_the_metadata(tmp_path: Path) -> None:
    windowed(tmp_path, 3)
    line = (tmp_path / "offsets/2").read_bytes().splitlines()[1]
    found = repinned(tmp_path)
    assert {(written(found, path) or b"").splitlines()[1] for path in ("offsets/2", "offsets/3")} == {line}
    assert set(changes(found)) == {"offsets/2", "offsets/3"}


def test_partition_that_nobody_loads_any_more_stops_nobody(tmp_path: Path) -> None:
    """It keeps what it had, as it was, damaged or not, and is not measured."""
    windowed(tmp_path, 3)
    carry_out(tmp_path, repinned(tmp_path, shuffle_partitions=1, state_store="rocksdb"))
    (tmp_path / "state/0/0/4.changelog").write_bytes(b"a batch")
    seen = known(tmp_path, append(2), state_files=sizes_of(tmp_path), kafka=serve((0, 60), (0, 60)))
    state = seen.checkpoint.state
    assert state is not None
    assert {store.partition for store in state.operators[0].stores} == {0, 1}
    assert [store.folder for store in state.list_loaded(state.operators[0])] == ["state/0/0"]
