from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from foreign import KINESIS, Lines

from lastgood.audit.input_files import NotListed
from lastgood.audit.logs import LogAudit, verify_logs
from lastgood.mirror.copies import decode_copies
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.query.history import Seam
from lastgood.query.source_steps import NotCompared
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput, KafkaInput

OTHER_ID = "9818c18b-9839-4690-99f7-f5f3cde02c1d"


def mirror(checkpoint: Path, *, at_ms: int = STARTED_MS) -> None:
    location = parse_location(str(checkpoint))
    MirrorWriter(
        location,
        storage=LocalStorage(),
        folder=locate_mirror(location),
        target=LocalWriter(),
        writer=f"w{at_ms}",
        now_ms=lambda: at_ms,
    ).look()


def test_a_log_of_batches_that_follow_each_other_is_contiguous(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(100)
    query.plan()
    told: list[tuple[int, int]] = []
    found = verify_logs(resolve_target(str(tmp_path / "chk")), progress=lambda *now: told.append(now))
    assert (found.is_contiguous, found.first, found.last, found.batches) == (True, 0, 99, 100)
    assert told[-1] == (101, 101)
    assert len(found.query.records()) < 5  # a log may be long


def test_what_is_read_twice_missing_or_damaged_is_told(tmp_path: Path) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(40)
    query.plan(-7)
    query.commit()
    query.run(40)
    (tmp_path / "chk/offsets/60").write_bytes(b"v1\n{")
    (tmp_path / "chk/commits/70").write_bytes(b"")
    found = verify_logs(resolve_target(str(tmp_path / "chk")))
    assert found.seams == (
        Seam("OVERLAP", 40, "orders", 0, (193, 200)),
        Seam("OVERLAP", 40, "orders", 1, (193, 200)),
        Seam("UNKNOWN", 61),
    )
    assert set(found.to_json()["damaged"]) == {"offsets/60", "commits/70"}
    assert (found.batches, found.last, found.unread) == (80, 80, (60,))


def test_a_query_that_began_anew_is_compared_with_the_one_before(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint, query_id=OTHER_ID).run(9)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    CheckpointBuilder(checkpoint).run(2)
    mirror(checkpoint, at_ms=STARTED_MS + 1)
    found = verify_logs(resolve_target(str(checkpoint)))
    assert found.queries == (OTHER_ID, QUERY_ID)
    assert [seam.condition for seam in found.seams] == ["OVERLAP", "OVERLAP"]


def live(checkpoint: Path, chance: random.Random) -> None:
    """A query to which this and that happens, and its mirror, which is left with most of it."""
    query = CheckpointBuilder(checkpoint, chance.choice([KafkaInput(), FileInput()]))
    for at_ms in range(1, chance.randrange(3, 9)):
        query.run(chance.randrange(1, 12))
        match chance.choice(["nothing", "back", "standing", "at once", "damaged", "uncommitted", "anew", "gone"]):
            case "back":
                query.plan(-2)
                query.commit()
            case "standing":
                query.plan(0)
                query.commit()
            case "at once":
                plan = (checkpoint / f"offsets/{query.planned}").read_bytes().split(b"\n")
                query.plan()
                query.commit()
                again = (checkpoint / f"offsets/{query.planned}").read_bytes().split(b"\n")
                (checkpoint / f"offsets/{query.planned}").write_bytes(b"\n".join([*plan[:2], *again[2:]]))
            case "damaged":
                (checkpoint / chance.choice(["offsets", "commits"]) / str(query.planned)).write_bytes(b"v1\n{")
            case "uncommitted":
                (checkpoint / f"commits/{query.planned}").unlink()
            case "anew":
                mirror(checkpoint, at_ms=STARTED_MS + 1000 * at_ms - 500)
                (checkpoint / f"commits/{query.planned}").unlink()
                query.drop_plan()
                query.plan(1, at_ms=STARTED_MS + 1_000_000 * at_ms)
                query.commit()
            case "gone":
                (checkpoint / f"offsets/{query.planned}").unlink()
        mirror(checkpoint, at_ms=STARTED_MS + 1000 * at_ms)
        query.purge(retain=2)


@pytest.mark.parametrize("seed", range(12))
def test_what_is_found_in_a_mirror_by_runs_is_what_is_found_batch_by_batch(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live(tmp_path / "chk", random.Random(seed))
    target = resolve_target(str(tmp_path / "chk"))
    by_runs = verify_logs(target).to_json()
    monkeypatch.setattr("lastgood.observe.walk.find_plain_runs", lambda *_: iter(()))
    assert by_runs == verify_logs(target).to_json()
    monkeypatch.setattr("lastgood.mirror.mirror.decode_pieces", lambda pieces: decode_copies(b"".join(pieces)))
    assert by_runs == verify_logs(target).to_json()


def test_a_checkpoint_without_a_commit_has_nothing_to_compare(tmp_path: Path) -> None:
    CheckpointBuilder(tmp_path / "chk").plan()
    found = verify_logs(resolve_target(str(tmp_path / "chk")))
    assert (found.is_contiguous, found.first, found.last, found.batches) == (None, None, None, 0)


@pytest.mark.parametrize("lost", [(3,), (0,), (0, 1, 2, 3)], ids=str)
def test_a_committed_batch_whose_plan_is_damaged_is_not_called_contiguous(
    lost: tuple[int, ...], tmp_path: Path
) -> None:
    CheckpointBuilder(tmp_path / "chk").run(4)
    for batch in lost:
        (tmp_path / f"chk/offsets/{batch}").write_bytes(b"v1\n")
    found = verify_logs(resolve_target(str(tmp_path / "chk")))
    assert (found.is_contiguous, found.unread, found.seams) == (None, lost, ())
    assert (found.batches, found.to_json()["unread"]) == (4 - len(lost), list(lost))


def test_a_committed_batch_whose_plan_is_lost_is_not_known_but_old_plans_are_purged_before_their_commits(
    tmp_path: Path,
) -> None:
    CheckpointBuilder(tmp_path / "chk").run(4)
    (tmp_path / "chk/offsets/0").unlink()
    found = verify_logs(resolve_target(str(tmp_path / "chk")))
    assert (found.is_contiguous, found.unread, found.first) == (True, (), 1)
    (tmp_path / "chk/offsets/3").unlink()
    found = verify_logs(resolve_target(str(tmp_path / "chk")))
    assert (found.is_contiguous, found.unread, found.last) == (None, (3,), 2)


def run(folder: Path, *texts: str, began_ms: int | None = None) -> LogAudit:
    CheckpointBuilder(folder, Lines(texts, began_ms)).run(len(texts))
    return verify_logs(resolve_target(str(folder)))


DELTA = '{{"sourceVersion":1,"reservoirId":"{}","reservoirVersion":{},"index":-1,"isStartingVersion":false}}'
ICEBERG = '{{"version":1,"snapshot_id":{},"position":{},"scan_all_files":false}}'


def test_only_sources_whose_offsets_have_an_order_are_called_contiguous(tmp_path: Path) -> None:
    found = run(tmp_path / "delta", *(DELTA.format("a", version) for version in (1, 2, 5)))
    assert (found.is_contiguous, found.compared, found.not_compared) == (True, {"0": "a Delta table"}, ())
    found = run(tmp_path / "rate", "1", "2", "9", began_ms=1_790_000_000_000)
    assert (found.is_contiguous, found.compared) == (True, {"0": "rate"})
    found = run(tmp_path / "foreign", *KINESIS[:3])
    assert (found.is_contiguous, found.compared) == (None, {})
    assert found.not_compared == (NotCompared("0", "Kinesis", 1),)
    alone = run(tmp_path / "alone", KINESIS[0])
    assert (alone.is_contiguous, alone.compared, alone.not_compared) == (None, {}, (NotCompared("0", "Kinesis", 0),))
    told = found.to_json()
    assert (told["contiguous"], told["not_compared"]) == (None, [{"source": "0", "name": "Kinesis", "batch": 1}])


LOAD = '{{"lastgood_load":1,"file":{},"position":{}}}'


def test_a_load_goes_on_from_file_to_file(tmp_path: Path) -> None:
    places = [(0, 10), (0, 2**62), (1, 3), (4, 3)]
    found = run(tmp_path / "onward", *(LOAD.format(*place) for place in places))
    assert (found.is_contiguous, found.compared) == (True, {"0": "files of a load"})
    for back in ((4, 2), (3, 2**62)):
        assert run(tmp_path / str(back), *(LOAD.format(*each) for each in (*places, back))).is_contiguous is False


def test_a_source_that_goes_back_is_told_whatever_it_is(tmp_path: Path) -> None:
    texts = [DELTA.format("a", version) for version in (1, 5, 3)]
    found = run(tmp_path / "delta", *texts)
    assert found.is_contiguous is False
    assert found.seams == (Seam("OVERLAP", 2, source_id="0", positions=(texts[1], texts[2])),)
    assert run(tmp_path / "number", "4", "9", "5").seams[0].positions == ("9", "5")
    assert run(tmp_path / "micro", *(f'{{"offset":{n},"timestamp":1}}' for n in (4, 9, 5))).is_contiguous is False
    assert run(tmp_path / "position", *(ICEBERG.format(7, n) for n in (1, 3, 2))).is_contiguous is False
    back = run(tmp_path / "snapshots", *(ICEBERG.format(n, 0) for n in (7, 8, 7)))
    assert ([seam.batch_id for seam in back.seams], back.not_compared[0].batch_id) == ([2], 1)


def test_a_table_that_was_created_again_is_not_known(tmp_path: Path) -> None:
    found = run(tmp_path / "delta", DELTA.format("a", 7), DELTA.format("a", 8), DELTA.format("b", 0))
    assert (found.is_contiguous, found.not_compared) == (None, (NotCompared("0", "a Delta table", 2),))


def test_a_new_query_on_a_source_that_is_not_kafka_is_not_known(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint, FileInput(), query_id=OTHER_ID).run(3)
    mirror(checkpoint)
    shutil.rmtree(checkpoint)
    CheckpointBuilder(checkpoint, FileInput(), started_ms=STARTED_MS + 1_000_000).run(2)
    mirror(checkpoint, at_ms=STARTED_MS + 2_000_000)
    found = verify_logs(resolve_target(str(checkpoint)))
    assert (found.is_contiguous, found.compared) == (None, {})
    assert found.not_compared == (NotCompared("0", "file", 0),)


def test_a_lost_entry_of_the_log_of_a_file_source_is_not_known(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint, FileInput()).run(5)
    assert verify_logs(resolve_target(str(checkpoint))).is_contiguous is True
    (checkpoint / "sources/0/1").write_bytes(b"")
    (checkpoint / "sources/0/2").unlink()
    found = verify_logs(resolve_target(str(checkpoint)))
    assert (found.is_contiguous, found.not_listed) == (None, (NotListed("0", (1, 3)),))
    assert found.to_json()["not_listed"] == [{"source": "0", "entries": [1, 3]}]
    (checkpoint / "sources/0/4").unlink()
    found = verify_logs(resolve_target(str(checkpoint)))
    assert found.not_listed == (NotListed("0", (1, 3)), NotListed("0", (4, 5)))
    shutil.rmtree(checkpoint / "sources")
    found = verify_logs(resolve_target(str(checkpoint)))
    assert found.not_listed == (NotListed("0", (0, 5)),)


def test_entries_that_a_compaction_or_the_mirror_holds_are_known(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint, FileInput()).run(13)
    (checkpoint / "sources/0/3").unlink()
    assert verify_logs(resolve_target(str(checkpoint))).is_contiguous is True
    mirror(checkpoint)
    (checkpoint / "sources/0/11").unlink()
    assert verify_logs(resolve_target(str(checkpoint))).is_contiguous is True


def test_entries_that_no_committed_batch_has_read_are_not_missed(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    query = CheckpointBuilder(checkpoint, FileInput())
    query.run(3)
    query.plan()
    (checkpoint / "sources/0/3").unlink()
    assert verify_logs(resolve_target(str(checkpoint))).is_contiguous is True


def test_a_file_that_the_log_names_twice_was_read_twice(tmp_path: Path) -> None:
    checkpoint = tmp_path / "chk"
    CheckpointBuilder(checkpoint, FileInput()).run(4)
    first = (checkpoint / "sources/0/1").read_bytes().splitlines()[1]
    third = checkpoint / "sources/0/3"
    third.write_bytes(third.read_bytes().rstrip() + b"\n" + first + b"\n")
    found = verify_logs(resolve_target(str(checkpoint)))
    assert (found.is_contiguous, [each.entries for each in found.files_twice]) == (False, [(1, 3)])
    later = first.replace(b'"timestamp":1790000001000', b'"timestamp":1790000001001')
    third.write_bytes(third.read_bytes().replace(first, later))  # written again since, and read as another one
    assert verify_logs(resolve_target(str(checkpoint))).is_contiguous is True
