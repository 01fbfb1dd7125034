from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.errors import UsageError
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.batch_json import encode_batch
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.find import NotFoundInHistoryError, find_file, find_offset, find_time
from lastgood.observe.open_query import BatchUnknownError
from lastgood.observe.state_sizes import inspect_state
from lastgood.operations.inspect import add_surroundings, inspect_batch, inspect_batches, parse_place
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import PINNED_CONF, QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput, KafkaInput

CASES = Path(__file__).parents[2] / "corpus" / "cases"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def mirror(checkpoint: Path) -> None:
    location = parse_location(str(checkpoint))
    MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer="w",
        now_ms=lambda: STARTED_MS,
    ).look()


def notes(checkpoint: Path) -> dict[int, tuple[str, ...]]:
    return {
        row.batch: row.notes for row in inspect_batches(resolve_target(str(checkpoint)), limit=None).rows if row.notes
    }


def test_batches_are_shown_newest_first_as_many_as_asked_for(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(30)
    query.plan()
    found = inspect_batches(resolve_target(str(checkpoint)), limit=3)
    assert [(row.batch, row.planned, row.committed) for row in found.rows] == [
        (30, True, False),
        (29, True, True),
        (28, True, True),
    ]
    assert found.known == 31
    assert found.rows[-1].reads[0].count == 10  # the batch before the last one shown is read as well
    assert found.rows[0].time_ms == STARTED_MS + 30_000
    assert len(inspect_batches(resolve_target(str(checkpoint)), limit=None).rows) == 31


def test_the_json_names_every_field(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    assert inspect_batches(resolve_target(str(checkpoint))).to_json() == {
        "checkpoint": str(checkpoint),
        "query_id": QUERY_ID,
        "mode": "micro_batch",
        "spark": "4.2 up to before 4.3",
        "stateful": False,
        "last_planned": 0,
        "last_committed": 0,
        "last_loadable_state": None,
        "damaged": {},
        "absent": [],
        "sinks": [],
        "known_batches": 1,
        "batches": [
            {
                "batch": 0,
                "planned": True,
                "committed": True,
                "time_ms": STARTED_MS,
                "watermark_ms": None,
                "sources": [
                    {
                        "source": "0",
                        "kind": "kafka",
                        "end": '{"orders":{"0":5,"1":5}}',
                        "count": 10,
                        "unit": "offsets",
                        "ranges": {"orders": {"0": [[0, 5]], "1": [[0, 5]]}},
                        "file_log": None,
                        "went_back": {},
                        "added": {},
                        "gone": {},
                    }
                ],
                "from": "checkpoint",
                "notes": [],
                "sinks": [],
            }
        ],
    }


def test_purged_batches_come_from_the_mirror(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(10)
    mirror(checkpoint)
    query.purge(retain=2)
    found = inspect_batches(resolve_target(str(checkpoint)))
    assert [row.batch for row in found.rows if row.mirrored] == [6, 5, 4, 3, 2, 1, 0]
    assert all(row.committed and row.reads[0].count == 10 for row in found.rows)
    assert found.rows[-1].to_json()["from"] == "mirror"


def test_the_oldest_known_batch_does_not_claim_what_it_read(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint, FileInput())
    query.run(10)
    query.purge(retain=2)
    oldest = inspect_batches(resolve_target(str(checkpoint))).rows[-1]
    assert (oldest.batch, oldest.reads[0].files, oldest.reads[0].count) == (7, None, None)


def test_what_is_out_of_the_ordinary_is_noted(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(3)
    query.plan(0)
    query.commit()
    query.run(2)
    query.plan()
    (checkpoint / "offsets/1").write_bytes(b"")
    (checkpoint / "commits/2").write_bytes(b"v9")
    (checkpoint / "commits/4").unlink()
    (checkpoint / "offsets/0").unlink()
    assert notes(checkpoint) == {
        0: ("committed without a plan",),
        1: ("plan damaged: empty",),
        2: ("commit damaged: version too new in line 1: v9",),
        3: ("no data",),
        4: ("planned, never committed: passed over",),
        6: ("planned, not committed: runs again",),
    }


def test_offsets_that_went_back_and_partitions_that_are_gone_are_noted(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(1)
    query.plan(-2)
    query.commit()
    entry = checkpoint / "offsets/0"
    entry.write_bytes(entry.read_bytes().replace(b'"1":5}', b'"1":5,"2":5}'))
    assert notes(checkpoint) == {
        0: ("begins at earliest",),
        1: ("offsets went back", "partitions gone", "no data"),
    }


def test_batches_that_were_taken_back_are_marked(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(6)
    mirror(checkpoint)
    query.drop_plan()
    query.drop_plan()
    (checkpoint / "commits/3").unlink()
    gone = "no longer in the checkpoint: taken back or lost"
    assert notes(checkpoint) == {3: ("planned, not committed: runs again",), 4: (gone,), 5: (gone,)}


def test_one_batch_is_shown_in_full_with_how_to_read_it_again(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, KafkaInput(partitions=1)).run(300)
    row, evidence = inspect_batch(resolve_target(str(checkpoint)), 7)
    facts = encode_batch(row, evidence)
    assert facts["conf"] == dict(sorted(PINNED_CONF.items()))
    assert facts["next_batch_watermark_ms"] == 0
    assert facts["again"][0] == (
        """spark.read.format("kafka").option("kafka.bootstrap.servers", …).option("assign", '{"orders": [0]}')"""
        """.option("startingOffsets", '{"orders": {"0": 35}}')"""
        """.option("endingOffsets", '{"orders": {"0": 40}}').load()"""
    )
    assert len(evidence.records()) < 10  # a log may be long


def test_a_batch_of_files_names_them(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint, FileInput(compact_interval=5))
    query.run(3)
    query.plan(2)
    query.commit()
    query.run(9)
    row, evidence = inspect_batch(resolve_target(str(checkpoint)), 3)
    assert encode_batch(row, evidence)["again"] == [
        'spark.read…load(["file:///data/input/f003.json", "file:///data/input/f004.json"])'
    ]


def test_a_batch_without_data_has_nothing_to_read_again(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(1)
    query.plan(0)
    row, evidence = inspect_batch(resolve_target(str(checkpoint)), 1)
    assert encode_batch(row, evidence)["again"] == []


def test_a_purged_batch_is_shown_from_the_mirror(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(10)
    mirror(checkpoint)
    query.purge(retain=2)
    row, _ = inspect_batch(resolve_target(str(checkpoint)), 4)
    assert (row.mirrored, row.committed, row.reads[0].count) == (True, True, 10)
    with pytest.raises(BatchUnknownError) as unknown:
        inspect_batch(resolve_target(str(checkpoint)), 10)
    assert unknown.value.found == "batches 0 to 9"


def test_the_batch_that_read_an_offset_is_found(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(10)
    mirror(checkpoint)
    query.purge(retain=2)
    for offset, batch_id in ((0, 0), (4, 0), (5, 1), (37, 7), (49, 9)):
        row, _ = find_offset(resolve_target(str(checkpoint)), "orders", 1, offset)
        assert row.batch == batch_id
    with pytest.raises(NotFoundInHistoryError) as beyond:
        find_offset(resolve_target(str(checkpoint)), "orders", 1, 50)
    assert (beyond.value.found, beyond.value.expected) == ("offsets 0 to 49", "an offset below 50")
    with pytest.raises(NotFoundInHistoryError) as unknown:
        find_offset(resolve_target(str(checkpoint)), "orders", 2, 1)
    assert unknown.value.found == "no offset of that partition"


def test_of_several_batches_that_read_an_offset_the_newest_is_meant(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(2)
    query.plan(-10)
    query.commit()
    query.run(2)
    row, _ = find_offset(resolve_target(str(checkpoint)), "orders", 0, 3)
    assert row.batch == 3


def test_the_batch_that_read_a_file_is_found_by_the_end_of_its_path(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, FileInput("file:///data/new%20flights", per_batch=2, compact_interval=3)).run(8)
    row, path, _ = find_file(resolve_target(str(checkpoint)), "new flights/f005.json")
    assert (row.batch, path) == (2, "file:///data/new%20flights/f005.json")
    assert find_file(resolve_target(str(checkpoint)), "f015.json")[0].batch == 7
    with pytest.raises(NotFoundInHistoryError):
        find_file(resolve_target(str(checkpoint)), "f016.json")


def test_a_file_is_found_after_the_checkpoint_was_lost(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint, FileInput()).run(3)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    assert find_file(resolve_target(str(checkpoint)), "f001.json")[0].batch == 1


def test_the_batch_of_a_time_is_the_newest_planned_before_it(checkpoint: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(10)
    mirror(checkpoint)
    query.purge(retain=2)
    for batch_id in (0, 6, 7, 9):  # the mirror's and the checkpoint's
        row, _ = find_time(resolve_target(str(checkpoint)), STARTED_MS + 1000 * batch_id + 500)
        assert row.batch == batch_id
    with pytest.raises(NotFoundInHistoryError) as early:
        find_time(resolve_target(str(checkpoint)), STARTED_MS - 1)
    assert early.value.found == "the oldest is batch 0"


def test_a_place_in_a_topic_is_read() -> None:
    assert parse_place("clicks/3/1200345") == ("clicks", 3, 1200345)


@pytest.mark.parametrize("text", ["clicks", "clicks/3", "clicks/x/5", "clicks/3/-1", "/3/5", "clicks/3/5/7", ""])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_place(text)


def test_the_state_is_measured_per_operator_and_partition() -> None:
    case = CASES / "3.5-agg-hdfs-healthy" / "checkpoint"
    sizes = inspect_state(resolve_target(str(case)))
    assert [(store.operator, store.partition, store.format) for store in sizes.stores] == [
        (0, 0, "hdfs_backed"),
        (0, 1, "hdfs_backed"),
    ]
    for store in sizes.stores:
        files = [path for path in (case / f"state/0/{store.partition}").iterdir() if path.name[0] not in "._"]
        assert (store.files, store.size) == (len(files), sum(path.stat().st_size for path in files))
        versions = [int(path.stem) for path in files]
        assert store.versions == (min(versions), max(versions))
        newest = case / f"state/0/{store.partition}/{max(versions)}.delta"
        assert store.newest_change == newest.stat().st_size
    facts = sizes.to_json()
    total = [store.size for store in sizes.stores]
    assert facts["size"] == sum(total)
    assert facts["skew"] == {"0": pytest.approx(max(total) * 2 / sum(total))}
    assert facts["loadable"] == [[0, 7]]


def test_batches_as_of_which_the_state_can_be_loaded_are_told(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    shutil.copytree(CASES / "3.5-agg-hdfs-healthy" / "checkpoint", checkpoint)
    (checkpoint / "state/0/1/3.delta").unlink()
    told = inspect_state(resolve_target(str(checkpoint))).to_json()["loadable"]
    assert told == [[0, 1], [3, 7]]
    shutil.rmtree(checkpoint / "state/0")
    assert inspect_state(resolve_target(str(checkpoint))).to_json()["loadable"] == []


@pytest.mark.parametrize(
    "case", ["3.5-join-hdfs", "4.0-transform-with-state", "4.3-agg-rocksdb-ckptv2-healthy", "3.5-agg-rocksdb-healthy"]
)
def test_every_format_of_state_adds_up_to_what_lies_there(case: str) -> None:
    root = CASES / case / "checkpoint" / "state"
    sizes = inspect_state(resolve_target(str(root.parent)))
    lying = [path for path in root.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    stored = [path for path in lying if not {"_metadata", "_stateSchema"} & set(path.relative_to(root).parts)]
    assert sum(store.files for store in sizes.stores) == len(stored)
    assert sum(store.size for store in sizes.stores) == sum(path.stat().st_size for path in stored)


def test_the_name_of_an_operator_is_told_where_spark_wrote_it_down() -> None:
    sizes = inspect_state(resolve_target(str(CASES / "4.3-agg-rocksdb-ckptv2-healthy" / "checkpoint")))
    assert {store.to_json()["operator_name"] for store in sizes.stores} == {"stateStoreSave"}


def test_a_query_without_state_has_none(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(1)
    sizes = inspect_state(resolve_target(str(checkpoint)))
    assert (sizes.stores, sizes.to_json()["size"], sizes.to_json()["skew"]) == ((), 0, {})
    assert sizes.skews == {}


@pytest.mark.parametrize("name", ["offsets", "commits"])
def test_the_summary_names_what_is_damaged_and_absent(name: str, checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(3)
    (checkpoint / name / "2").write_bytes(b"")
    (checkpoint / "metadata").unlink()
    verbs: list[Callable[[], dict[str, object]]] = [
        lambda: inspect_batches(resolve_target(str(checkpoint))).to_json(),
        lambda: inspect_state(resolve_target(str(checkpoint))).to_json(),
        inspect_batches(resolve_target(str(checkpoint))).query.to_json,
    ]
    for verb in verbs:
        facts = verb()
        assert (facts["damaged"], facts["absent"]) == ({f"{name}/2": "empty"}, ["metadata"])


def test_a_batch_is_shown_committed_where_commits_are_ahead_of_plans(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint).run(9)
    (checkpoint / "offsets/8").unlink()
    for batch_id in range(8):
        assert inspect_batch(resolve_target(str(checkpoint)), batch_id)[0].committed


# --- sinks and Kafka ----------------------------------------------------------------------------------------------


def file_sink(folder: Path, batches: Iterable[int]) -> EvidenceOptions:
    log = folder / "_spark_metadata"
    log.mkdir(parents=True)
    for batch_id in batches:
        (log / str(batch_id)).write_text("v1")
    return EvidenceOptions(sinks=(str(folder),))


@pytest.mark.parametrize("limit", [20, None])
def test_batches_are_held_against_the_sink(limit: int | None, checkpoint: Path, tmp_path: Path) -> None:
    query = CheckpointBuilder(checkpoint)
    query.run(4)
    query.plan()
    options = file_sink(tmp_path / "table", (0, 1, 3, 4, 5, 6))
    found = inspect_batches(resolve_target(str(checkpoint)), limit=limit, options=options)
    told = {
        row["batch"]: [(each["shown"], each["difference"]) for each in row["sinks"]]
        for row in found.to_json()["batches"]
    }
    assert told == {
        6: [("live", "in the sink only")],
        5: [("live", "in the sink only")],
        4: [("live", None)],
        3: [("live", None)],
        2: [("unknown", None)],
        1: [("live", None)],
        0: [("live", None)],
    }
    assert found.known == 5
    assert found.to_json()["sinks"][0]["last_batch"] == 6
    assert [row.batch for row in inspect_batches(resolve_target(str(checkpoint)), limit=2, options=options).rows] == [
        6,
        5,
    ]


def test_one_batch_is_held_against_sink_and_kafka(checkpoint: Path, tmp_path: Path) -> None:
    CheckpointBuilder(checkpoint).run(4)
    facts = tmp_path / "facts.json"
    parts = {"0": {"earliest": 12, "latest": 20}, "1": {"earliest": 0, "latest": 20}}
    facts.write_text(f'{{"bootstrap": "b:9092", "topics": {{"orders": {{"partitions": {json.dumps(parts)}}}}}}}')
    options = replace(file_sink(tmp_path / "table", range(4)), kafka=str(facts))
    row, evidence = find_offset(resolve_target(str(checkpoint)), "orders", 0, 11)
    told = encode_batch(row, add_surroundings(evidence, options))
    assert told["batch"] == 2
    assert [(each["shown"], each["versions"]) for each in told["sinks"]] == [("live", [])]
    assert told["expired"] == {"orders": {"0": [[10, 12]]}}
    assert '.option("kafka.bootstrap.servers", "b:9092")' in told["again"][0]
    asked_nobody = encode_batch(row, evidence)
    assert (asked_nobody["sinks"], asked_nobody["expired"]) == ([], None)
    assert '.option("kafka.bootstrap.servers", …)' in asked_nobody["again"][0]


def test_what_kafka_has_of_a_batch_is_unknown_where_it_does_not_say(checkpoint: Path, tmp_path: Path) -> None:
    CheckpointBuilder(checkpoint).run(2)
    (tmp_path / "facts.json").write_text('{"topics": {"orders": {"partitions": {"0": {"earliest": 0, "latest": 9}}}}}')
    row, evidence = inspect_batch(resolve_target(str(checkpoint)), 1)
    options = EvidenceOptions(kafka=str(tmp_path / "facts.json"))
    assert encode_batch(row, add_surroundings(evidence, options))["expired"] is None
