from __future__ import annotations

from collections.abc import Iterable

import pytest

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.contents import (
    Checkpoint,
    Mode,
    Presence,
    find_pinned_partitions,
    recognise_mode,
    take_log_in_mode,
)
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.logs import BatchIds, BatchLog, SourceLog, list_log
from lastgood.checkpoint.offsets import OffsetEntry, SparkVersions, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.state import Obstacle, State, StateOperator

CUT = Damage(DamageKind.TRUNCATED, line=3)
QUERY = QueryMetadata("9818c18b-9839-4690-99f7-f5f3cde02c1d")


def entry(*lines: str, metadata: str = '{"conf":{"spark.sql.shuffle.partitions":"2"}}') -> OffsetEntry:
    parsed = parse_offset_entry("\n".join(["v1", metadata, *lines]).encode())
    assert isinstance(parsed, OffsetEntry)
    return parsed


def offsets(ids: Iterable[int], *newest: OffsetEntry | Damage) -> BatchLog[OffsetEntry]:
    listing = list_log(map(str, ids))
    return BatchLog("offsets", listing, dict(zip(listing.ids.last(len(newest)), newest, strict=True)))


def commits(ids: Iterable[int], *newest: CommitEntry | Damage) -> BatchLog[CommitEntry]:
    listing = list_log(map(str, ids))
    return BatchLog("commits", listing, dict(zip(listing.ids.last(len(newest)), newest, strict=True)))


def checkpoint(
    planned: BatchLog[OffsetEntry],
    committed: BatchLog[CommitEntry],
    *,
    mode: Mode = Mode.MICRO_BATCH,
    query: QueryMetadata | Damage | None = QUERY,
    sources: tuple[SourceLog, ...] = (),
    state: State | None = None,
) -> Checkpoint:
    return Checkpoint(
        location="/chk",
        presence=Presence.PRESENT,
        mode=mode,
        query=query,
        offsets=planned,
        commits=committed,
        sources=sources,
        state=state,
    )


def test_a_healthy_checkpoint_lacks_nothing() -> None:
    source = SourceLog("0", list_log(map(str, range(6))))
    found = checkpoint(offsets(range(6), entry('{"logOffset":5}')), commits(range(6)), sources=(source,))
    assert (found.last_planned, found.last_committed, found.orphan) == (5, 5, None)
    assert (found.absent, found.damage) == ((), {})
    assert (found.is_stateful, found.last_loadable, found.shuffle_partitions) == (False, None, 2)


@pytest.mark.parametrize(
    ("planned", "committed", "expected"),
    [(range(6), range(5), 5), (range(1), (), 0), (range(5), range(6), None), ((), (), None)],
)
def test_an_orphan_is_planned_and_not_committed(
    planned: Iterable[int], committed: Iterable[int], expected: int | None
) -> None:
    assert checkpoint(offsets(planned), commits(committed)).orphan == expected


@pytest.mark.parametrize(
    ("planned", "committed", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 7], range(6), ("offsets/6",)),
        (range(5), range(6), ("offsets/5",)),
        (range(4), range(6), ("offsets/4", "offsets/5")),
        ((), range(3), ("offsets/0", "offsets/1", "offsets/2")),
        ([0], (), ()),
        ([7], [7], ("offsets/6",)),
        ([0, 1, 2, 4, 5], range(6), ()),  # a hole further down is never noticed
        ([0, 1, 2, 3, 4, 5], [0, 1, 5], ()),
    ],
)
def test_offsets_that_the_next_start_looks_for_are_named(
    planned: Iterable[int], committed: Iterable[int], expected: tuple[str, ...]
) -> None:
    assert checkpoint(offsets(planned), commits(committed)).absent == expected


def test_only_the_newest_thousand_of_what_is_absent_are_named() -> None:
    assert len(checkpoint(offsets(()), commits([10**12])).absent) == 1001


def test_holes_are_normal_with_async_progress() -> None:
    found = checkpoint(offsets([0, 24, 47]), commits([0, 24, 47]), mode=Mode.ASYNC_PROGRESS)
    assert found.absent == ()


@pytest.mark.parametrize(("planned", "expected"), [([0, 1], ("offsets/2",)), ([0, 1, 2], ()), ([2], ())])
def test_continuous_mode_needs_the_offsets_of_its_newest_commit(planned: list[int], expected: tuple[str, ...]) -> None:
    assert checkpoint(offsets(planned), commits([0, 1, 2]), mode=Mode.CONTINUOUS).absent == expected
    assert checkpoint(offsets([]), commits([]), mode=Mode.CONTINUOUS).absent == ()


def test_a_missing_query_id_is_absent_and_a_damaged_one_is_damaged() -> None:
    missing = checkpoint(offsets([0]), commits([0]), query=None)
    assert (missing.absent, missing.damage) == (("metadata",), {})
    damaged = checkpoint(offsets([0]), commits([0]), query=CUT)
    assert (damaged.absent, damaged.damage) == ((), {"metadata": CUT})


@pytest.mark.parametrize(
    ("names", "log_offset", "expected"),
    [
        (["0", "1", "2"], 3, ("sources/0/3",)),
        (["0", "2"], 2, ("sources/0/1",)),
        (["0", "1", "2", "3"], 2, ()),  # Spark sweeps entry 3 into the next batch
        (["8.compact", "9", "10", "11.compact"], 11, ()),
        (["2.compact", "5.compact", "7"], 7, ("sources/0/6",)),
        (["2.compact", "6", "7"], 7, ("sources/0/5",)),  # the newest compaction is gone
        (["0", "1"], -1, ()),
        ([], 10**18, 1001),
    ],
)
def test_a_file_source_needs_its_log_from_the_newest_compaction_on(
    names: list[str], log_offset: int, expected: tuple[str, ...] | int
) -> None:
    source = SourceLog("0", list_log(names, compactible=True))
    found = checkpoint(offsets([0], entry(f'{{"logOffset":{log_offset}}}')), commits([0]), sources=(source,)).absent
    assert (len(found) if isinstance(expected, int) else found) == expected


def test_the_log_of_a_file_source_may_be_gone_altogether() -> None:
    newest = entry('{"logOffset":5}', '{"t":{"0":1}}', '{"logOffset":-1}')
    assert checkpoint(offsets([0], newest), commits([0])).absent == ("sources/0/5",)


def test_other_sources_need_no_log() -> None:
    source = SourceLog("0", list_log(["0"]))
    assert checkpoint(offsets([0], entry('{"t":{"0":7}}')), commits([0]), sources=(source,)).absent == ()


def test_what_state_lacks_is_absent_and_what_is_broken_is_damaged() -> None:
    operator = StateOperator(0, CUT, "state/0/_metadata/metadata", ())
    obstacles = (Obstacle("state/0/0/8.delta", None), Obstacle("state/0/1/5.snapshot", CUT))
    found = checkpoint(offsets(range(8)), commits(range(8)), state=State((operator,), BatchIds.of([6, 7]), obstacles))
    assert found.absent == ("state/0/0/8.delta",)
    assert found.damage == {"state/0/_metadata/metadata": CUT, "state/0/1/5.snapshot": CUT}
    assert (found.is_stateful, found.last_loadable) == (True, 6)


def test_commits_show_that_there_was_state_when_its_folder_is_gone() -> None:
    commit = CommitEntry.of(2, next_batch_watermark_ms=0, state_unique_ids={0: (("x",),)})
    assert checkpoint(offsets([0]), commits([0], commit)).is_stateful
    assert not checkpoint(offsets([0]), commits([0], CUT)).is_stateful
    assert checkpoint(offsets([0]), commits([0]), state=State((), BatchIds(), ())).is_stateful


def test_the_newest_offsets_that_can_be_parsed_tell_spark_and_confs() -> None:
    older = entry("5", metadata='{"conf":{"spark.sql.streaming.stateStore.encodingFormat":"unsaferow"}}')
    found = checkpoint(offsets([3, 4], older, CUT), commits([3]))
    assert (found.newest_offsets, found.spark_versions) == (older, SparkVersions("4.0", "4.2"))
    assert found.damage == {"offsets/4": CUT}
    nothing = checkpoint(offsets([]), commits([]))
    assert (nothing.newest_offsets, nothing.spark_versions, nothing.shuffle_partitions) == (None, None, None)


def test_a_checkpoint_without_metadata_line_tells_no_spark() -> None:
    assert checkpoint(offsets([0], entry("5", metadata="")), commits([0])).spark_versions is None


@pytest.mark.parametrize("value", ["", "many", "-1", "99999999999"])
def test_pinned_partitions_are_a_number_or_nothing(value: str) -> None:
    assert (
        find_pinned_partitions(entry("5", metadata=f'{{"conf":{{"spark.sql.shuffle.partitions":"{value}"}}}}')) is None
    )


RATE = '{"0":{"value":4,"runTimeMs":5}}'


@pytest.mark.parametrize(
    ("planned", "committed", "has_state", "expected"),
    [
        (range(6), range(6), False, Mode.MICRO_BATCH),
        ([0, 24, 47], [0, 24, 47], False, Mode.ASYNC_PROGRESS),
        ([0, 24, 47, 70], [0, 24, 47], False, Mode.ASYNC_PROGRESS),
        ([24, 47, 70], [0, 24, 47, 70], False, Mode.ASYNC_PROGRESS),  # one log is purged before the other
        ([0, 4, 7, 11, 14], [0, 4], False, Mode.ASYNC_PROGRESS),  # what one log has lost, the other tells
        ([14], [0, 4, 7, 11, 14], False, Mode.ASYNC_PROGRESS),
        ([0, 4, 11, 14], [0, 4, 7, 11], False, Mode.ASYNC_PROGRESS),
        ([0, 4, 7], [0, 4, 7, 10], False, Mode.ASYNC_PROGRESS),
        ([0, 4], [0, 4], False, Mode.MICRO_BATCH),  # a single small hole may be a loss
        ([0, 24, 47], [0, 24, 47], True, Mode.MICRO_BATCH),  # async progress keeps no state
        ([0, 1, 2, 3, 4, 5, 7], range(6), False, Mode.MICRO_BATCH),
        (range(6), [0, 1, 2, 4, 5], False, Mode.MICRO_BATCH),
        ([0, 1, 3, 4], range(5), False, Mode.MICRO_BATCH),
        ([0, 2, 4, 6], range(7), False, Mode.MICRO_BATCH),  # each of them was written down
        ([], [0, 2], False, Mode.MICRO_BATCH),
        ([5, 6], [0, 5, 6], False, Mode.MICRO_BATCH),
    ],
)
def test_async_progress_shows_in_holes_that_both_logs_have(
    planned: Iterable[int], committed: Iterable[int], has_state: bool, expected: Mode
) -> None:
    assert recognise_mode(offsets(planned), commits(committed), has_state=has_state) is expected


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([entry(RATE, metadata="")], Mode.CONTINUOUS),
        ([entry('{"t":{"0":7}}', metadata=""), CUT], Mode.CONTINUOUS),
        ([entry('{"logOffset":5}', metadata="")], Mode.MICRO_BATCH),  # files cannot be read continuously
        ([entry(RATE), entry(RATE, metadata="")], Mode.MICRO_BATCH),
        ([CUT], Mode.MICRO_BATCH),
    ],
)
def test_continuous_mode_shows_in_empty_metadata_lines(entries: list[OffsetEntry | Damage], expected: Mode) -> None:
    log = offsets(range(len(entries)), *entries)
    assert recognise_mode(log, commits([0]), has_state=False) is expected


def test_a_micro_batch_without_metadata_is_damaged() -> None:
    blank, good = entry(RATE, metadata=""), entry(RATE)
    log = offsets([0, 1, 2], good, blank, CUT)
    assert take_log_in_mode(log, Mode.MICRO_BATCH) == {
        0: good,
        1: Damage(DamageKind.BLANK_METADATA_LINE, line=2),
        2: CUT,
    }
    assert take_log_in_mode(log, Mode.CONTINUOUS) == {0: good, 1: blank, 2: CUT}
