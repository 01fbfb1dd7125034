from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lastgood.checkpoint.file_logs import SinkFile, make_sink_log_entry
from lastgood.sinks.evidence import DedupeKey, SinkEvidence
from lastgood.sinks.files.sink import FileSink, FileSinkLog
from lastgood.storage.reading import Entry, LocalStorage, Location, StorageDeniedError, parse_location


def file(batch_id: int, part: int = 0, action: str = "add") -> SinkFile:
    return SinkFile(f"file:///out/part-{batch_id}-{part}", 10, 1000 * batch_id, action=action)


def write(folder: Path, names: Sequence[str]) -> None:
    """Entries such as `3`, and `5.compact` with the files of all batches up to 5."""
    log = folder / "_spark_metadata"
    log.mkdir(parents=True, exist_ok=True)
    for name in names:
        batch_id = int(name.removesuffix(".compact"))
        batches = range(batch_id + 1) if name.endswith(".compact") else [batch_id]
        (log / name).write_bytes(make_sink_log_entry(file(one) for one in batches).to_bytes())


def sink(folder: Path, **how: int) -> FileSink:
    return FileSink(LocalStorage(), parse_location(str(folder)), **how)


def evidence(folder: Path, **how: int) -> SinkEvidence:
    return sink(folder, **how).evidence("any query", now_ms=0)


def read(folder: Path, **how: int) -> FileSinkLog:
    log = sink(folder, **how).read()
    assert log is not None
    return log


def test_newest_entry_is_the_last_batch_and_what_is_skipped_up_to(tmp_path: Path) -> None:
    write(tmp_path, ["0", "1", "2"])
    found = evidence(tmp_path)
    assert (found.kind, found.last_batch, found.known, found.skips_up_to) == ("file", 2, True, 2)
    assert found.dedupe_key is DedupeKey.DIRECTORY
    assert found.complete_from == 0
    assert [(batch.batch_id, batch.committed_at_ms) for batch in found.batches] == [(0, 0), (1, 1000), (2, 2000)]
    assert found.notes == ()


def test_batch_without_files_counts(tmp_path: Path) -> None:
    write(tmp_path, ["0"])
    (tmp_path / "_spark_metadata" / "1").write_bytes(b"v1")
    found = evidence(tmp_path)
    assert (found.last_batch, found.batches[1].committed_at_ms) == (1, None)


def test_folder_without_a_log_shows_nothing(tmp_path: Path) -> None:
    assert (evidence(tmp_path).last_batch, evidence(tmp_path).known, evidence(tmp_path).notes) == (None, True, ())
    assert sink(tmp_path).read() is None


def test_files_without_a_log_may_be_batches_whose_log_was_deleted(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1")
    found = evidence(tmp_path)
    assert (found.last_batch, found.known, found.would_skip(0), found.complete_from) == (None, False, False, None)


def test_log_that_is_there_and_empty_is_a_trap(tmp_path: Path) -> None:
    write(tmp_path, [])
    found = evidence(tmp_path)
    assert (found.last_batch, found.known, found.would_skip(0)) == (None, True, False)
    assert found.notes == ("_spark_metadata is there and empty: Spark reads the folder as an empty table",)


def test_compaction_holds_the_files_of_all_batches(tmp_path: Path) -> None:
    write(tmp_path, ["0", "1", "2.compact", "3", "4", "5.compact", "6", "7"])
    log = read(tmp_path)
    assert (log.interval, list(log.needed), log.missing) == (3, [5, 6, 7], ())
    assert len(log.listed_files or ()) == 8
    assert log.files_of(5) == (file(5),)
    assert log.files_of(7) == (file(7),)


def test_files_of_a_compaction_are_not_told_apart_once_older_entries_are_gone(tmp_path: Path) -> None:
    write(tmp_path, ["2.compact", "5.compact", "6"])
    log = read(tmp_path)
    assert log.files_of(5) is None
    assert len(log.listed_files or ()) == 7
    found = evidence(tmp_path)
    assert (found.last_batch, found.complete_from, found.notes) == (6, 5, ())


def test_log_that_was_never_compacted_counts_whole(tmp_path: Path) -> None:
    write(tmp_path, [str(batch_id) for batch_id in range(15)])
    log = read(tmp_path)
    assert (len(log.listed_files or ()), log.missing, log.oldest_boundary) == (15, (), 0)


def test_file_that_was_taken_out_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, ["0", "1"])
    (tmp_path / "_spark_metadata" / "2").write_bytes(make_sink_log_entry([file(0, action="delete")]).to_bytes())
    assert read(tmp_path).listed_files == (file(1),)


@pytest.mark.parametrize(
    ("names", "boundaries"),
    [
        (["0", "1", "2"], [0, 1, 2]),
        (["0", "1", "2.compact", "3"], [0, 1, 2, 3]),
        (["2.compact", "3", "4", "5.compact", "6"], [2, 3, 4, 5, 6]),
        (["3", "4", "5.compact", "6"], [5, 6]),
        (["2.compact", "4", "5.compact", "6"], [2, 5, 6]),
        (["1", "2"], []),
    ],
)
def test_log_can_be_cut_to_where_all_before_can_still_be_told(
    tmp_path: Path, names: list[str], boundaries: list[int]
) -> None:
    write(tmp_path, names)
    log = read(tmp_path)
    assert [batch_id for batch_id in range(9) if log.can_be_cut_to(batch_id)] == boundaries
    assert log.oldest_boundary == (boundaries[0] if boundaries else None)


def test_hole_since_the_last_compaction_is_named(tmp_path: Path) -> None:
    write(tmp_path, ["2.compact", "3", "5.compact", "7"])
    found = evidence(tmp_path)
    assert found.last_batch == 7
    assert found.notes == ("entries 6 of _spark_metadata are missing: Spark cannot read the folder",)
    assert found.unreadable == (6,)
    assert read(tmp_path).listed_files is None


def test_log_that_began_anew_at_a_later_batch_is_named(tmp_path: Path) -> None:
    write(tmp_path, ["4"])
    assert evidence(tmp_path).notes == (
        "entries 0, 1, 2, 3 of _spark_metadata are missing: Spark cannot read the folder",
    )


def test_damaged_entry_is_named_and_the_number_still_counts(tmp_path: Path) -> None:
    write(tmp_path, ["0"])
    (tmp_path / "_spark_metadata" / "1").write_bytes(b"")
    found = evidence(tmp_path)
    assert (found.last_batch, found.skips_up_to) == (1, 1)
    assert found.notes == ("entries 1 of _spark_metadata are damaged",)
    assert found.unreadable == (1,)
    assert read(tmp_path).listed_files is None


def test_number_that_spark_cannot_open_is_skipped_up_to_all_the_same(tmp_path: Path) -> None:
    write(tmp_path, ["0"])
    (tmp_path / "_spark_metadata" / "007").write_bytes(b"v1")
    found = evidence(tmp_path)
    assert found.skips_up_to == 7
    assert found.notes == ("Spark counts 007 in _spark_metadata and cannot open them",)


def test_side_files_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, ["0"])
    log = tmp_path / "_spark_metadata"
    (log / ".0.crc").write_bytes(b"crc")
    (log / ".1.b1d3f6ba-3b1c-4fcd-b1b7-0d6ee6a0a4d4.tmp").write_bytes(b"")
    assert (evidence(tmp_path).last_batch, evidence(tmp_path).notes) == (0, ())


def test_only_the_newest_entries_are_read_beside_those_that_spark_needs(tmp_path: Path) -> None:
    write(tmp_path, ["0", "1", "2.compact", "3", "4", "5.compact", "6", "7"])
    assert sorted(read(tmp_path, entries_max=1).entries) == [5, 6, 7]
    assert sorted(read(tmp_path, entries_max=5).entries) == [3, 4, 5, 6, 7]


def test_log_that_we_may_not_look_into_is_an_answer(tmp_path: Path) -> None:
    class Denied(LocalStorage):
        def names(self, folder: object) -> None:
            raise StorageDeniedError("the storage does not let us look", subject=str(folder))

    found = FileSink(Denied(), parse_location(str(tmp_path))).evidence("q", now_ms=0)
    assert (found.known, found.would_skip(0)) == (False, None)
    assert "does not let us look" in found.because


def in_place(folder: Path, *names: str) -> None:
    """A log whose files lie below the folder, as Spark writes it."""
    for number, name in enumerate(names):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(b"ten bytes.")
        entry = make_sink_log_entry([SinkFile(place.as_uri(), 10, 1000)])
        (folder / "_spark_metadata").mkdir(exist_ok=True)
        (folder / "_spark_metadata" / str(number)).write_bytes(entry.to_bytes())


def test_files_that_count_and_are_gone_are_named(tmp_path: Path) -> None:
    in_place(tmp_path, "part-0", "day=1/part 1", "day=2/part-2")
    assert evidence(tmp_path).files_gone == ()
    (tmp_path / "part-0").unlink()
    (tmp_path / "day=1/part 1").unlink()
    assert evidence(tmp_path).files_gone == ("day=1/part 1", "part-0")


def test_files_that_are_cut_short_are_named(tmp_path: Path) -> None:
    in_place(tmp_path, "part-0", "day=1/part-1", "part-2")
    (tmp_path / "day=1/part-1").write_bytes(b"")
    found = evidence(tmp_path)
    assert (found.files_gone, found.files_damaged, found.broken_from) == ((), ("day=1/part-1",), 1)
    assert [found.has_broken_file(number) for number in (0, 1, 2)] == [False, True, True]


def test_files_of_a_compaction_are_of_no_known_batch(tmp_path: Path) -> None:
    in_place(tmp_path, "part-0", "part-1")
    log = tmp_path / "_spark_metadata"
    files = [SinkFile((tmp_path / f"part-{number}").as_uri(), 10, 1000) for number in range(2)]
    (log / "1").unlink()
    (log / "0").unlink()
    (log / "1.compact").write_bytes(make_sink_log_entry(files).to_bytes())
    (tmp_path / "part-0").unlink()
    found = evidence(tmp_path)
    assert (found.files_gone, found.broken_from, found.has_broken_file(0)) == (("part-0",), None, True)


def test_newest_files_are_looked_for_where_there_are_many_folders(tmp_path: Path) -> None:
    in_place(tmp_path, *(f"day={number}/part" for number in range(30)))
    for number in (0, 29):
        (tmp_path / f"day={number}/part").unlink()
    assert evidence(tmp_path).files_gone == ("day=29/part",)


def test_files_of_a_folder_that_was_moved_are_not_looked_for(tmp_path: Path) -> None:
    write(tmp_path, ["0", "1"])
    assert evidence(tmp_path).files_gone == ()


def test_folder_that_cannot_be_listed_leaves_its_files_open(tmp_path: Path) -> None:
    in_place(tmp_path, "day=1/part-0")

    class Denied(LocalStorage):
        def scan(self, folder: Location, *, facts: bool = True) -> Iterator[Entry] | None:
            if folder.name == "day=1":
                raise StorageDeniedError("the storage does not let us look", subject=str(folder))
            return super().scan(folder, facts=facts)

    found = FileSink(Denied(), parse_location(str(tmp_path))).evidence("any query", now_ms=0)
    assert (found.last_batch, found.files_gone) == (0, ())
    assert found.files_untold is not None
    assert "does not let us look" in found.files_untold
