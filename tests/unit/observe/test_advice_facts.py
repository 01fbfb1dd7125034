from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trips import fewest

from lastgood.observe.advice_facts import find_advice_facts
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.query.advice_facts import AdviceFacts, TableAround
from lastgood.records.record import Progress, Record
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder
from lastgood.testing.storage import RefusingStorage, SlowStorage


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "chk" / "orders"
    CheckpointBuilder(folder).run(5)
    return folder


def mounts(tmp_path: Path, *lines: str) -> Path:
    file = tmp_path / "mounts"
    file.write_text("".join(f"{line} rw 0 0\n" for line in lines))
    return file


def record(folder: Path, *records: Record, name: str = "1795220516284-77.000001.jsonl") -> None:
    place = folder.with_name(f"{folder.name}.lastgood") / "records"
    place.mkdir(parents=True, exist_ok=True)
    with (place / name).open("a") as stream:
        stream.writelines(json.dumps(each.to_json()) + "\n" for each in records)


def progress(batch_id: int, at_ms: int) -> Progress:
    return Progress(batch_id=batch_id, recorded_at_ms=at_ms, query_id=QUERY_ID, run_id="r")


def test_nothing_around_is_nothing_known(checkpoint: Path, tmp_path: Path) -> None:
    assert find_advice_facts(gather(resolve_target(str(checkpoint))), mounts=tmp_path / "none") == AdviceFacts()


def test_what_the_user_says_is_passed_on(checkpoint: Path, tmp_path: Path) -> None:
    found = find_advice_facts(
        gather(resolve_target(str(checkpoint))), max_downtime_ms=7, spark="4.2", mounts=tmp_path / "none"
    )
    assert (found.max_downtime_ms, found.spark) == (7, "4.2")


def test_only_a_disk_of_this_machine_counts_as_one(checkpoint: Path, tmp_path: Path) -> None:
    evidence = gather(resolve_target(str(checkpoint)))
    share = f"nas:/chk {tmp_path}/chk nfs4"
    hidden = f"/dev/b {tmp_path}/chk/orders xfs"
    asked = [
        (("/dev/a / ext4", f"tmpfs {tmp_path}/other tmpfs"), "ext4"),
        (("/dev/a / ext4", share), None),
        ((share, hidden, "/dev/a / ext4"), "xfs"),
        ((hidden, f"s3fs {tmp_path}/chk/orders fuse.s3fs"), None),
        (("broken",), None),
    ]
    for lines, expected in asked:
        assert find_advice_facts(evidence, mounts=mounts(tmp_path, *lines)).filesystem == expected


def test_a_mount_point_with_a_blank_is_understood(tmp_path: Path) -> None:
    folder = tmp_path / "my disk" / "orders"
    CheckpointBuilder(folder).run(1)
    listed = mounts(tmp_path, "/dev/a / nfs", f"/dev/b {tmp_path}/my\\040disk xfs")
    assert find_advice_facts(gather(resolve_target(str(folder))), mounts=listed).filesystem == "xfs"


@pytest.mark.parametrize(
    ("sign", "kind"),
    [
        ("_delta_log/0.json", "delta"),
        ("_spark_metadata/0", "file"),
        ("metadata/v1.metadata.json", "iceberg"),
        ("metadata/v1.metadata.json.gz", "iceberg"),
    ],
)
@pytest.mark.parametrize("above", ["", "chk"])
def test_a_table_around_the_checkpoint_is_seen(
    checkpoint: Path, tmp_path: Path, sign: str, kind: str, above: str
) -> None:
    table = tmp_path / above
    (table / sign).parent.mkdir(parents=True)
    (table / sign).touch()
    assert find_advice_facts(gather(resolve_target(str(checkpoint)))).table == TableAround(str(table), kind)


def test_a_file_that_is_only_called_like_metadata_makes_no_table(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata/orders.metadata.json").touch()
    assert find_advice_facts(gather(resolve_target(str(checkpoint)))).table is None


def test_a_checkpoint_above_another_is_no_table(checkpoint: Path) -> None:
    CheckpointBuilder(checkpoint.parent).run(1)
    assert find_advice_facts(gather(resolve_target(str(checkpoint)))).table is None


def test_times_are_asked_only_where_few_batches_are_left(checkpoint: Path) -> None:
    assert find_advice_facts(gather(resolve_target(str(checkpoint)))).metadata_modified_ms is None
    query = CheckpointBuilder(checkpoint)
    query.run(20)
    query.purge(retain=3)
    found = find_advice_facts(gather(resolve_target(str(checkpoint))))
    assert found.metadata_modified_ms is not None
    assert found.oldest_plan_modified_ms is not None
    assert found.metadata_modified_ms <= found.oldest_plan_modified_ms


def test_batches_and_runs_come_from_the_records_beside_the_checkpoint(checkpoint: Path) -> None:
    record(checkpoint, progress(3, 1000))
    record(checkpoint, progress(4, 2000), name="1795220516999-78.000001.jsonl")
    found = find_advice_facts(gather(resolve_target(str(checkpoint))))
    assert [each.batch_id for each in found.batches] == [3, 4]
    assert [(each.first_ms, each.last_ms) for each in found.runs] == [(1000, 2000)]


def test_what_does_not_answer_is_not_known(checkpoint: Path) -> None:
    record(checkpoint, progress(3, 1000))
    evidence = gather(resolve_target(str(checkpoint)))
    silent = RefusingStorage(
        evidence.location.sibling(".lastgood"), parse_location(str(checkpoint.parent / "_delta_log"))
    )
    found = find_advice_facts(_with(evidence, silent))
    assert (found.batches, found.table) == ((), None)


def test_it_costs_a_few_round_trips(checkpoint: Path) -> None:
    record(checkpoint, progress(3, 1000))
    evidence = gather(resolve_target(str(checkpoint)))

    def measure() -> int:
        slow = SlowStorage(seconds=0.05)
        assert len(find_advice_facts(_with(evidence, slow)).batches) == 1
        return slow.round_trips

    assert fewest(measure, enough=3) <= 3


def test_on_another_storage_the_disks_of_this_machine_do_not_matter(checkpoint: Path, tmp_path: Path) -> None:
    asked = _with(gather(resolve_target(str(checkpoint))), SlowStorage(seconds=0))
    assert find_advice_facts(asked, mounts=mounts(tmp_path, "/dev/a / ext4")).filesystem is None


def _with(evidence: OpenQuery, storage: Any) -> OpenQuery:
    return replace(evidence, storage=storage)
