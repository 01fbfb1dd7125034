"""`recompute`: what is emptied and read again, on what that rests, and when it is refused."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from planning import (
    COUNT,
    WINDOW,
    append,
    changes,
    delta,
    drafted,
    fence,
    files,
    known,
    make_state_schema,
    query,
    serve,
    windowed,
    written,
)

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.empty_state import EMPTY_SNAPSHOTS
from lastgood.checkpoint.file_logs import SourceFile
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.planning.draft import Draft, RepairRefusedError
from lastgood.planning.goals.values import RecomputeGoal, ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.price import Guarantee
from lastgood.query.observation import Observation
from lastgood.query.prediction.unsound import Unsound
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sources.files.facts import FileFacts, FileState
from lastgood.sources.kafka.facts import KafkaFacts
from lastgood.testing.checkpoints import FileInput

EXACT, TWICE, LOSSY = Guarantee.EXACTLY_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.LOSSY


SERVED = serve((0, 60), (0, 60))


def facts(folder: Path, sizes: dict[str, int], *sinks: SinkEvidence, **others: Any) -> Observation:
    return known(folder, *sinks, state_files=sizes, kafka=others.pop("kafka", SERVED), **others)


def recomputed(folder: Path, sizes: dict[str, int], *sinks: SinkEvidence, **others: Any) -> Draft:
    return drafted(facts(folder, sizes, *sinks, **others), RecomputeGoal())


def offsets(found: Draft, path: str) -> dict[str, dict[int, int]]:
    entry = parse_offset_entry(written(found, path) or b"")
    assert isinstance(entry, OffsetEntry)
    return {topic: dict(parts) for topic, parts in entry.topics["0"].items()}


def test_one_batch_reads_again_all_that_was_read_while_the_watermark_stands_still(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3)
    (tmp_path / "commits/2").write_bytes(CommitEntry.of(1, next_batch_watermark_ms=5000).to_bytes())
    found = recomputed(tmp_path, sizes, append(2))
    assert (found.guarantee, found.is_plain) == (EXACT, False)
    assert changes(found) == dict.fromkeys(("offsets/2", "offsets/3", "commits/2"), "written")
    assert offsets(found, "offsets/2") == {"orders": {0: 0, 1: 0}}
    assert offsets(found, "offsets/3") == {"orders": {0: 15, 1: 15}}
    commit = parse_commit_entry(written(found, "commits/2") or b"")
    assert isinstance(commit, CommitEntry)
    assert commit.next_batch_watermark_ms == 0
    assert [step.path for step in found.renewed] == ["state/0/0/3.snapshot", "state/0/1/3.snapshot"]
    assert {step.after for step in found.renewed} == {EMPTY_SNAPSHOTS["lz4"]}
    assert [step.path for step in found.moves] == [
        "state/0/0/.3.delta.crc", "state/0/0/3.delta", "state/0/0/_metadata/schema",
        "state/0/1/.3.delta.crc", "state/0/1/3.delta", "state/0/_metadata/metadata",
    ]  # fmt: skip
    assert [price.reread for price in found.sources] == [{"orders": {0: ((0, 15),), 1: ((0, 15),)}}]
    assert not any(price.writes_twice or price.lost for price in found.sources)


def test_version_that_is_a_snapshot_already_is_set_aside_by_who_writes_over_it(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3)
    (tmp_path / "state/0/1/3.snapshot").write_bytes(b"LZ4Block" + bytes(20))
    sizes["state/0/1/3.snapshot"] = 28
    found = recomputed(tmp_path, sizes, append(2))
    assert [step.size for step in found.renewed] == [None, 28]
    assert "state/0/1/3.snapshot" not in [step.path for step in found.moves]
    assert found.renewed[1].found_beside == (".3.delta.crc", "3.delta", "3.snapshot")


@pytest.mark.parametrize("sink", [append(2), files(2)])
def test_orphan_that_no_sink_has_is_planned_anew(tmp_path: Path, sink: SinkEvidence) -> None:
    found = recomputed(tmp_path, windowed(tmp_path, 3, orphan=True), sink)
    assert (found.guarantee, offsets(found, "offsets/3")) == (EXACT, {"orders": {0: 15, 1: 15}})
    assert {"state/0/0/4.delta", "state/0/0/3.delta"} < {step.path for step in found.moves}


def test_orphan_that_the_sink_has_is_done(tmp_path: Path) -> None:
    found = recomputed(tmp_path, windowed(tmp_path, 3, orphan=True), append(3))
    assert found.guarantee is EXACT
    assert changes(found) == dict.fromkeys(("offsets/3", "offsets/4", "commits/3"), "written")
    assert offsets(found, "offsets/4") == {"orders": {0: 20, 1: 20}}


def test_state_that_is_to_be_filled_already_is_emptied_once_more(tmp_path: Path) -> None:
    """The old end stands in the plan of the batch that fills it, and nowhere else."""
    sizes = windowed(tmp_path, 3)
    first = recomputed(tmp_path, sizes, append(2))
    for edit in first.edits:
        (tmp_path / edit.path).write_bytes(edit.after or b"")
    again = recomputed(tmp_path, sizes, append(2), rewritten={2: "a recovery"})
    assert again.edits == ()
    assert (len(again.renewed), again.guarantee) == (2, EXACT)
    with pytest.raises(RepairRefusedError, match="fills the state again"):
        drafted(facts(tmp_path, sizes, append(2)), ReplanGoal())


def test_broker_that_has_lost_what_is_read_again_is_no_source(tmp_path: Path) -> None:
    gone = serve((4, 60), (0, 60))
    with pytest.raises(RepairRefusedError, match="would not run"):
        recomputed(tmp_path, windowed(tmp_path, 3), append(2), kafka=gone)


def test_lost_checkpoint_comes_back_from_the_mirror_with_its_state_emptied(tmp_path: Path) -> None:
    was = tmp_path / "was"
    windowed(was, 3)
    kept = [each for each in was.rglob("*") if each.is_file() and "state" not in each.parts]
    mirror = {str(each.relative_to(was)): each.read_bytes() for each in kept}
    (tmp_path / "lost").mkdir()
    whole = known(tmp_path / "lost", written_in("Complete"), mirror=mirror, state_files={}, kafka=SERVED)
    with pytest.raises(RepairRefusedError, match="no mirror holds state") as caught:
        drafted(whole, ResumeGoal())
    assert "--goal recompute" in (caught.value.next or "")
    with pytest.raises(RepairRefusedError, match="a backup has kept it") as caught:
        drafted(replace(whole, repair=replace(whole.repair, is_state_kept=True)), ResumeGoal())
    assert "backup restore" in (caught.value.next or "")
    lost = known(tmp_path / "lost", append(2), mirror=mirror, state_files={}, kafka=SERVED)
    found = drafted(lost, RecomputeGoal(appends_windows=True))
    assert found.guarantee is EXACT
    assert (offsets(found, "offsets/2"), offsets(found, "offsets/3")) == (
        {"orders": {0: 0, 1: 0}},
        {"orders": {0: 15, 1: 15}},
    )
    assert {"metadata", "offsets/1", "commits/1"} < {edit.path for edit in found.edits}
    ahead = known(tmp_path / "lost", append(3), mirror=mirror, state_files={}, kafka=SERVED)
    with pytest.raises(RepairRefusedError, match="numbers that the logs do not know"):
        drafted(ahead, RecomputeGoal(appends_windows=True))


def refused(folder: Path, sizes: dict[str, int], *sinks: SinkEvidence, **others: Any) -> RepairRefusedError:
    with pytest.raises(RepairRefusedError) as caught:
        recomputed(folder, sizes, *sinks, **others)
    return caught.value


def test_nothing_is_emptied_where_nobody_says_what_kafka_has(tmp_path: Path) -> None:
    error = refused(tmp_path, windowed(tmp_path, 3), append(2), kafka=None)
    assert (error.sentence, "--kafka" in (error.next or "")) == (
        "whether Kafka still has what is to be read again is not known",
        True,
    )


@pytest.mark.parametrize("told", [serve((0, 60)), replace(SERVED, topics={})], ids=["a partition", "the topic"])
def test_nor_where_a_broker_answers_and_does_not_tell_of_it(tmp_path: Path, told: KafkaFacts) -> None:
    error = refused(tmp_path, windowed(tmp_path, 3), append(2), kafka=told)
    assert error.sentence == "whether Kafka still has what is to be read again is not known"


def test_compacted_topic_does_not_bring_every_record_again(tmp_path: Path) -> None:
    topics = {name: replace(each, config={"cleanup.policy": "compact"}) for name, each in SERVED.topics.items()}
    assert (
        "compacted"
        in refused(tmp_path, windowed(tmp_path, 3), append(2), kafka=replace(SERVED, topics=topics)).sentence
    )


@pytest.mark.parametrize(
    ("sink", "found"),
    [
        (append(1), "txn 1"),
        (append(3), "txn 3"),
        (append(2, skips_up_to=3), "txn 2"),
        (files(1), "shows batch 1"),
    ],
)
def test_sink_that_is_apart_tells_of_no_windows(tmp_path: Path, sink: SinkEvidence, found: str) -> None:
    assert found in (refused(tmp_path, windowed(tmp_path, 3), sink).found or "")


def test_orphan_is_not_emptied_under_a_sink_that_does_not_tell(tmp_path: Path) -> None:
    goal = RecomputeGoal(appends_windows=True)
    sizes = windowed(tmp_path, 3, orphan=True)
    with pytest.raises(RepairRefusedError, match="which windows are written"):
        drafted(facts(tmp_path, sizes), goal)
    with pytest.raises(RepairRefusedError, match="which windows are written"):
        drafted(facts(tmp_path, sizes, delta(None, known=False, skips_known=False, batches=())), goal)


def test_without_a_sink_nothing_tells_that_none_is_ahead(tmp_path: Path) -> None:
    found = drafted(facts(tmp_path, windowed(tmp_path, 3)), RecomputeGoal(appends_windows=True))
    assert found.guarantee is TWICE
    assert any("your word" in line for line in found.rests_on)


@pytest.mark.parametrize("sink", [delta(2), fence(2)])
def test_output_mode_that_nobody_tells_is_asked_for(tmp_path: Path, sink: SinkEvidence) -> None:
    error = refused(tmp_path, windowed(tmp_path, 3), sink)
    assert "--appends-windows" in (error.expected or "")
    said = drafted(facts(tmp_path, windowed_again(tmp_path), sink), RecomputeGoal(appends_windows=True))
    assert said.guarantee is EXACT


def windowed_again(folder: Path) -> dict[str, int]:
    return {
        str(each.relative_to(folder)): each.stat().st_size for each in (folder / "state").rglob("*") if each.is_file()
    }


def test_no_word_stands_against_what_the_files_tell(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3, key={})
    goal = RecomputeGoal(appends_windows=True)
    with pytest.raises(RepairRefusedError) as caught:
        drafted(facts(tmp_path, sizes, append(2)), goal)
    assert "no window with a watermark" in (caught.value.found or "")
    complete = replace(append(2), batches=tuple(replace(each, output_mode="Complete") for each in append(2).batches))
    (tmp_path / "state/0/0/_metadata/schema").write_bytes(make_state_schema(WINDOW))
    with pytest.raises(RepairRefusedError) as caught:
        drafted(facts(tmp_path, sizes, complete), goal)
    assert "Complete" in (caught.value.found or "")


def written_in(mode: str) -> SinkEvidence:
    """A table that was written in another output mode."""
    table = append(2)
    return replace(table, batches=tuple(replace(each, output_mode=mode) for each in table.batches))


def test_table_that_is_written_whole_is_written_whole_once_more(tmp_path: Path) -> None:
    found = recomputed(tmp_path, windowed(tmp_path, 3, key={}), written_in("Complete"))
    assert (found.guarantee, len(found.renewed)) == (EXACT, 2)
    assert offsets(found, "offsets/2") == {"orders": {0: 0, 1: 0}}
    assert any("order of rows" in line for line in found.rests_on)
    assert not any("windows" in line for line in found.rests_on)


def test_aggregation_without_a_key_has_its_state_in_one_partition(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3)
    shutil.rmtree(tmp_path / "state/0/1")
    sizes = {path: size for path, size in sizes.items() if not path.startswith("state/0/1/")}
    none = b'{"type":"struct","fields":[]}'
    schema = (tmp_path / "state/0/0/_metadata/schema").read_bytes()
    length = int.from_bytes(schema[4:6])
    (tmp_path / "state/0/0/_metadata/schema").write_bytes(
        schema[:4] + len(none).to_bytes(2) + none + schema[6 + length :]
    )
    found = recomputed(tmp_path, sizes, written_in("Complete"))
    assert [each.path for each in found.renewed] == ["state/0/0/3.snapshot"]


def test_what_is_updated_is_sent_again(tmp_path: Path) -> None:
    goal = RecomputeGoal(output_mode="update")
    found = drafted(facts(tmp_path, windowed(tmp_path, 3, key={}), fence(2)), goal)
    assert found.guarantee is TWICE
    assert any("upserts by key" in line for line in found.rests_on)


def test_state_that_holds_everything_is_made_of_everything(tmp_path: Path) -> None:
    later = {"0": '{"orders":{"0":5,"1":5}}'}
    sizes = windowed(tmp_path, 3)
    for sink, goal in (
        (written_in("Complete"), RecomputeGoal(later)),
        (fence(2), RecomputeGoal(later, output_mode="complete")),
        (fence(2), RecomputeGoal(later, output_mode="update")),
    ):
        with pytest.raises(RepairRefusedError, match="all that was read"):
            drafted(facts(tmp_path, sizes, sink), goal)


def test_two_output_modes_or_another_than_is_said_are_none(tmp_path: Path) -> None:
    sizes, table = windowed(tmp_path, 3), append(2)
    both = replace(table, batches=(replace(table.batches[0], output_mode="Complete"), *table.batches[1:]))
    for sink, goal in ((both, RecomputeGoal()), (table, RecomputeGoal(output_mode="complete"))):
        with pytest.raises(RepairRefusedError, match="what of this state is written"):
            drafted(facts(tmp_path, sizes, sink), goal)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dedupe", COUNT),
        (None, [{"name": "groupState", "type": "long"}]),
        (None, [{"name": "__dummy__", "type": "void"}]),
    ],
)
def test_another_operator_with_such_a_key_is_none(
    tmp_path: Path, name: str | None, value: list[dict[str, Any]]
) -> None:
    sizes = windowed(tmp_path, 3)
    told = tmp_path / "state/0/_metadata/metadata"
    if name is None:
        told.unlink()
    else:
        told.write_bytes(told.read_bytes().replace(b"stateStoreSave", name.encode()))
    (tmp_path / "state/0/0/_metadata/schema").write_bytes(make_state_schema(WINDOW, value))
    assert "what of this state is written" in refused(tmp_path, sizes, append(2)).sentence


def test_query_that_gave_up_a_partition_does_not_get_its_records_again(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3)
    plan = tmp_path / "offsets/2"
    plan.write_bytes(plan.read_bytes().replace(b'"1":15', b'"7":15'))
    assert "gave up" in refused(tmp_path, sizes, append(2)).sentence


def files_of(folder: Path, state: FileState) -> dict[str, tuple[FileFacts, ...]]:
    return {
        "0": tuple(
            FileFacts(SourceFile(f"file:///data/input/f{n:03d}.json", n, n), state, because="slow") for n in range(3)
        )
    }


def of_files(folder: Path) -> dict[str, int]:
    return windowed(folder, 3, source=FileInput())


@pytest.mark.parametrize(
    ("state", "word"), [(FileState.PRESENT, EXACT), (FileState.MISSING, LOSSY), (FileState.CHANGED, LOSSY)]
)
def test_files_that_are_gone_or_others_now_are_missed(tmp_path: Path, state: FileState, word: Guarantee) -> None:
    seen = facts(tmp_path, of_files(tmp_path), append(2))
    seen = replace(seen, repair=replace(seen.repair, files_read=files_of(tmp_path, state)))
    found = drafted(seen, RecomputeGoal())
    assert found.guarantee is word
    assert any(price.lost_files for price in found.sources) is (word is LOSSY)


def test_files_that_nobody_has_looked_at_are_no_promise(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError, match="not known") as caught:
        drafted(facts(tmp_path, of_files(tmp_path), append(2)), RecomputeGoal())
    assert "it was not looked at" in (caught.value.found or "")


def test_files_that_nobody_could_look_at_are_no_promise(tmp_path: Path) -> None:
    seen = facts(tmp_path, of_files(tmp_path), append(2))
    seen = replace(seen, repair=replace(seen.repair, files_read=files_of(tmp_path, FileState.UNKNOWN)))
    with pytest.raises(RepairRefusedError, match="not known"):
        drafted(seen, RecomputeGoal())


def test_it_is_offered_where_state_stands_in_the_way(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3)
    for name in ("state/0/1/3.delta", "state/0/1/2.delta"):
        (tmp_path / name).unlink()
        del sizes[name]
    with pytest.raises(RepairRefusedError) as caught:
        drafted(facts(tmp_path, sizes, append(2)), ResumeGoal())
    ways = {each.goal: each.guarantee for each in caught.value.alternatives}
    assert ways["recompute"] is EXACT


def test_it_is_named_where_other_offsets_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(RepairRefusedError) as caught:
        drafted(facts(tmp_path, windowed(tmp_path, 3), append(2)), RepositionGoal({"0": {"orders": {0: 5, 1: 5}}}, "x"))
    assert caught.value.next == "lastgood plan /chk --goal recompute"


def test_old_files_of_the_state_that_are_damaged_are_loaded_no_more(tmp_path: Path) -> None:
    damage = Unsound(Damage(DamageKind.CHECKSUM_MISMATCH, "2.delta"), is_snapshot=False, by_spark=False)
    sizes = windowed(tmp_path, 3)
    found = recomputed(tmp_path, sizes, append(2), unsound={"state/0/0/2.delta": damage})
    assert found.guarantee is EXACT


def test_name_of_a_function_is_not_taken_for_the_query(tmp_path: Path) -> None:
    sink = replace(append(2), dedupe_key=DedupeKey.APP_ID, presumed_app_id="windows")
    with pytest.raises(RepairRefusedError, match="which windows are written"):
        drafted(facts(tmp_path, windowed(tmp_path, 3, orphan=True), sink), RecomputeGoal(appends_windows=True))


@pytest.mark.parametrize(
    ("named", "begins"),
    [('{"orders":{"0":5,"1":7}}', {0: 5, 1: 7}), ('{"orders":{"0":99,"1":0}}', {0: 15, 1: 0}), ("{}", {0: 0, 1: 0})],
)
def test_reading_begins_where_it_was_told_within_what_was_read(
    tmp_path: Path, named: str, begins: dict[int, int]
) -> None:
    goal = RecomputeGoal({"0": named}, "somebody knows", ("their word",))
    found = drafted(facts(tmp_path, windowed(tmp_path, 3), append(2)), goal)
    assert offsets(found, "offsets/2") == {"orders": begins}
    assert {"it reads again from where somebody knows", "their word"} < set(found.rests_on)
    assert found.sources[0].reread == {"orders": {0: ((5, 15),), 1: ((7, 15),)}} or begins != {0: 5, 1: 7}


def test_more_than_is_allowed_is_not_read_again(tmp_path: Path) -> None:
    sizes = windowed(tmp_path, 3)
    seen = facts(tmp_path, sizes, append(2))
    count = sum(price.reread_count for price in drafted(seen, RecomputeGoal()).sources)
    assert count > 1
    assert drafted(seen, RecomputeGoal(max_replay=count)).guarantee is EXACT
    with pytest.raises(RepairRefusedError) as refused:
        drafted(seen, RecomputeGoal(max_replay=count - 1))
    assert (refused.value.subject, refused.value.found) == (
        "--max-replay",
        f"{count} offsets and files, from where the query began",
    )


def test_query_without_state_is_told_so_before_anything_is_asked(tmp_path: Path) -> None:
    query(tmp_path, 3)
    with pytest.raises(RepairRefusedError, match="the query keeps no state") as refused:
        drafted(known(tmp_path, delta(2), kafka=SERVED), RecomputeGoal())
    assert "--output-mode" not in str(refused.value.expected)
