from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from lastgood.checkpoint.damage import Damage
from lastgood.sinks.evidence import SinkEvidence
from lastgood.sinks.iceberg.sink import (
    EPOCH_ID,
    QUERY_ID,
    IcebergMetadata,
    IcebergSink,
    judge_metadata,
    parse_iceberg_metadata,
    select_newest_metadata,
)
from lastgood.storage.reading import LocalStorage, parse_location

Q = "query"


def snapshot(number: int, parent: int | None, epoch: int | None = None, query: str = Q) -> dict[str, object]:
    marks = {} if epoch is None else {QUERY_ID: query, EPOCH_ID: str(epoch)}
    return {
        "snapshot-id": number,
        **({} if parent is None else {"parent-snapshot-id": parent}),
        "sequence-number": number,
        "timestamp-ms": 1000 * number,
        "summary": {"operation": "append", "added-records": "3", **marks},
    }


def table(current: int | None, *snapshots: dict[str, object], **refs: int) -> dict[str, object]:
    heads = {name: {"snapshot-id": head, "type": "branch"} for name, head in refs.items()}
    return {"table-uuid": "t", "current-snapshot-id": current, "snapshots": list(snapshots), "refs": heads}


def metadata(fields: dict[str, object]) -> IcebergMetadata:
    parsed = parse_iceberg_metadata(json.dumps(fields).encode())
    assert isinstance(parsed, IcebergMetadata)
    return parsed


def evidence(fields: dict[str, object], query_id: str = Q, ref: str = "main") -> SinkEvidence:
    return judge_metadata(metadata(fields), query_id, location="t", ref=ref)


EPOCHS = (snapshot(1, None, 0), snapshot(2, 1, 1), snapshot(3, 2, 2))


def test_newest_marked_ancestor_is_the_last_batch() -> None:
    found = evidence(table(3, *EPOCHS))
    assert (found.last_batch, found.known, found.skips_up_to, found.complete_from) == (2, True, 2, 0)
    assert [(batch.batch_id, batch.version, batch.row_count, batch.committed_at_ms) for batch in found.batches] == [
        (0, 1, 3, 1000),
        (1, 2, 3, 2000),
        (2, 3, 3, 3000),
    ]
    assert found.identity == "t"
    assert found.write_obstacles


def test_foreign_snapshot_on_top_does_not_hide_the_marker() -> None:
    found = evidence(table(5, *EPOCHS, snapshot(4, 3), snapshot(5, 4, 9, "other")))
    assert (found.last_batch, found.others) == (2, {"other": 9})


def test_rollback_lowers_rows_and_marker_together() -> None:
    found = evidence(table(1, *EPOCHS))
    assert (found.last_batch, found.skips_up_to) == (0, 0)
    assert [batch.is_live for batch in found.batches] == [True, False, False]


def test_batch_that_is_written_again_lives_in_its_new_snapshot() -> None:
    found = evidence(table(4, *EPOCHS, snapshot(4, 2, 2)))
    assert (found.versions(2), found.live_version(2)) == ((3, 4), 4)


def test_query_that_never_wrote_is_known_to_have_nothing_while_nothing_expired() -> None:
    found = evidence(table(3, *EPOCHS), "another")
    assert (found.last_batch, found.known, found.skips_up_to, found.others) == (None, True, None, {Q: 2})
    assert evidence(table(None)).known
    assert evidence(table(-1)).known


@pytest.mark.parametrize("parent", [3, None])
def test_expired_marker_is_unknown_and_is_written_again(parent: int | None) -> None:
    found = evidence(table(4, snapshot(4, parent)))
    assert (found.last_batch, found.known, found.skips_up_to, found.skips_known) == (None, False, None, True)
    assert found.complete_from is None


def test_tables_of_format_1_tell_their_first_snapshot_from_its_totals() -> None:
    first = {"snapshot-id": 7, "timestamp-ms": 1, "summary": {"total-data-files": "1", "added-data-files": "1"}}
    assert evidence(table(7, first)).known
    later = {"snapshot-id": 7, "timestamp-ms": 1, "summary": {"total-data-files": "4", "added-data-files": "1"}}
    assert not evidence(table(7, later)).known


def test_batches_of_a_branch_are_not_recognised_by_spark() -> None:
    fields = table(1, snapshot(1, None), snapshot(2, 1, 10), audit=2)
    branch = evidence(fields, ref="audit")
    assert (branch.last_batch, branch.known, branch.skips_up_to) == (10, True, None)
    assert len(branch.notes) == 1
    main = evidence(fields)
    assert (main.last_batch, main.known, main.batches[0].is_live) == (None, True, False)


@pytest.mark.parametrize(
    ("names", "newest"),
    [
        (["v1.metadata.json", "v2.metadata.json", "v10.metadata.json", "version-hint.text"], ("v10.metadata.json",)),
        (["00009-3a0d65cd-4056-49b8-937b-95f9e3ee90e5.metadata.json"] * 1, None),
        (["00001-3a0d65cd-4056-49b8-937b-95f9e3ee90e5.gz.metadata.json", "snap-1.avro"], None),
        (["3.metadata.json", "03.metadata.json"], ("03.metadata.json", "3.metadata.json")),
        (["metadata.json", "x.json"], ()),
    ],
)
def test_newest_metadata_file_has_the_highest_number(names: list[str], newest: tuple[str, ...] | None) -> None:
    assert select_newest_metadata(names) == (tuple(names[:1]) if newest is None else newest)


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"a": 1}', b"\x1f\x8bno", b'{"table-uuid": "t", "snapshots": 3}'])
def test_what_is_no_metadata_is_a_damage(raw: bytes) -> None:
    assert isinstance(parse_iceberg_metadata(raw), Damage)


def test_compressed_metadata_is_read() -> None:
    raw = gzip.compress(json.dumps(table(3, *EPOCHS)).encode())
    assert isinstance(parse_iceberg_metadata(raw), IcebergMetadata)


def write(folder: Path, name: str, fields: dict[str, object]) -> Path:
    file = folder / "metadata" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(fields))
    return file


def ask(location: Path) -> SinkEvidence:
    return IcebergSink(LocalStorage(), parse_location(str(location))).evidence(Q, now_ms=0)


def test_table_is_read_from_its_newest_metadata_file(tmp_path: Path) -> None:
    old = write(tmp_path, "v1.metadata.json", table(1, *EPOCHS))
    write(tmp_path, "v2.metadata.json", table(3, *EPOCHS))
    assert ask(tmp_path).last_batch == 2
    assert ask(old).last_batch == 0


def test_two_files_with_the_highest_number_must_say_the_same(tmp_path: Path) -> None:
    write(tmp_path, "00002-aaaaaaaa-4056-49b8-937b-95f9e3ee90e5.metadata.json", table(3, *EPOCHS))
    write(tmp_path, "00002-bbbbbbbb-4056-49b8-937b-95f9e3ee90e5.metadata.json", table(3, *EPOCHS))
    assert ask(tmp_path).last_batch == 2
    write(tmp_path, "00002-bbbbbbbb-4056-49b8-937b-95f9e3ee90e5.metadata.json", table(1, *EPOCHS))
    found = ask(tmp_path)
    assert (found.last_batch, found.known, found.skips_known) == (None, False, False)


@pytest.mark.parametrize(
    ("name", "asked", "is_sure"),
    [
        ("v1.metadata.json", "", True),
        ("00002-aaaaaaaa-4056-49b8-937b-95f9e3ee90e5.metadata.json", "", False),
        ("00002-aaaaaaaa-4056-49b8-937b-95f9e3ee90e5.metadata.json", "metadata/{}", True),
    ],
)
def test_that_a_catalog_has_taken_the_newest_file_is_told_as_not_known(
    tmp_path: Path, name: str, asked: str, *, is_sure: bool
) -> None:
    write(tmp_path, name, table(3, *EPOCHS))
    found = ask(tmp_path / asked.format(name))
    assert (found.last_batch is not None, found.head_untold is None) == (True, is_sure)


def test_damaged_and_missing_metadata_are_answers(tmp_path: Path) -> None:
    assert (ask(tmp_path).kind, ask(tmp_path).known) == ("absent", True)
    write(tmp_path, "v1.metadata.json", {}).write_text("{")
    found = ask(tmp_path)
    assert (found.known, found.skips_known) == (False, False)
    assert "damaged" in found.because


def test_table_was_made_no_later_than_its_first_rows() -> None:
    assert evidence(table(3, *EPOCHS)).created_at_ms == 1000
    brought = evidence(table(2, snapshot(1, None), snapshot(2, 1, 6)))
    expired = evidence(table(3, *EPOCHS[1:]))
    assert (brought.created_at_ms, expired.created_at_ms) == (None, None)
    empty = {**table(None), "last-updated-ms": 9, "metadata-log": [{"timestamp-ms": 7, "metadata-file": "x"}, 8]}
    assert evidence(empty).created_at_ms == 7
    assert evidence({**table(None), "last-updated-ms": "9", "metadata-log": 8}).created_at_ms is None


def replacing(number: int, parent: int, rows: int, total: int | None = None) -> dict[str, object]:
    counts = {"added-records": str(rows), "total-records": str(rows if total is None else total)}
    return {**snapshot(number, parent), "summary": {"operation": "overwrite", **counts}}


@pytest.mark.parametrize(
    ("by", "lives"),
    [
        (replacing(4, 3, 2), [None, None, None]),
        (replacing(4, 3, 9), [True, True, True]),  # as many as there were: moved, for all that is known
        (replacing(4, 3, 2, total=8), [True, True, True]),  # the others stay
    ],
)
def test_rows_that_somebody_has_replaced_by_fewer_may_be_gone(by: dict[str, object], lives: list[bool | None]) -> None:
    found = evidence(table(5, *EPOCHS, by, snapshot(5, 4, 3)))
    assert (found.last_batch, [batch.is_live for batch in found.batches]) == (3, [*lives, True])
    assert (found.unclear is None) is (None not in lives)


def test_batch_that_only_a_tag_has_kept_is_not_taken_for_one_that_was_taken_back() -> None:
    kept = [snapshot(1, None, 0), snapshot(4, 3, 3), snapshot(5, 4, 4), snapshot(9, 4, 8)]
    found = evidence(table(5, *kept, monthly=1))
    assert [(batch.batch_id, batch.is_live) for batch in found.batches] == [(0, None), (3, True), (4, True), (8, False)]
    assert found.holes == ()
