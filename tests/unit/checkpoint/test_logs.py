from __future__ import annotations

import pytest

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.logs import BatchIds, BatchLog, LogListing, SourceLog, list_log
from lastgood.checkpoint.source_offsets import NumberOffset

A = "68ed4850-d346-4756-94d9-8f64625f261a"
IDS = BatchIds.of([7, 3, 5, 4, 3, 9])


def test_ids_are_kept_as_runs() -> None:
    assert IDS.runs == (range(3, 6), range(7, 8), range(9, 10))
    assert (IDS.oldest, IDS.newest, len(IDS), list(IDS)) == (3, 9, 5, [3, 4, 5, 7, 9])
    assert IDS.gaps == (range(6, 7), range(8, 9))
    assert BatchIds.of(range(100_000)).runs == (range(100_000),)


def test_no_ids_have_neither_first_nor_last() -> None:
    empty = BatchIds.of([])
    assert (empty.oldest, empty.newest, empty.gaps, empty.last(3), empty.before(5)) == (None, None, (), [], None)
    assert 5 not in empty


@pytest.mark.parametrize(("batch_id", "there"), [(2, False), (3, True), (5, True), (6, False), (9, True), (10, False)])
def test_an_id_is_found_in_its_run(batch_id: int, there: bool) -> None:
    assert (batch_id in IDS) is there


def test_only_numbers_are_ids() -> None:
    assert "3" not in IDS


@pytest.mark.parametrize(
    ("count", "expected"), [(0, []), (1, [9]), (2, [7, 9]), (4, [4, 5, 7, 9]), (9, [3, 4, 5, 7, 9])]
)
def test_the_newest_ids_come_ascending(count: int, expected: list[int]) -> None:
    assert IDS.last(count) == expected


@pytest.mark.parametrize(("batch_id", "expected"), [(-1, 0), (0, 1), (3, 7), (5, 7), (6, 7), (9, None), (90, None)])
def test_the_batch_after_is_the_next_that_is_there(batch_id: int, expected: int | None) -> None:
    assert BatchIds.of([0, 1, 2, 3, 7, 8, 9]).after(batch_id) == expected


@pytest.mark.parametrize(
    ("batch_id", "expected"), [(3, None), (4, 3), (6, 5), (7, 5), (8, 7), (9, 7), (10, 9), (99, 9)]
)
def test_the_batch_before_is_the_next_that_is_there(batch_id: int, expected: int | None) -> None:
    assert IDS.before(batch_id) == expected


def test_a_folder_that_is_not_there_is_told_from_an_empty_one() -> None:
    assert list_log(None) == LogListing()
    assert list_log([]) == LogListing(exists=True)
    assert list_log(None) != list_log([])


def test_a_listing_is_sorted_into_what_spark_sees_and_what_not() -> None:
    names = ["0", "1", ".1.crc", ".2.crc", "006", "-5", "6.bak", "9/", f".3.{A}.tmp", f"..3.{A}.tmp.crc", ".x.crc"]
    listing = list_log(names)
    assert list(listing.ids) == [0, 1]
    assert listing.noncanonical == {"006": 6, "-5": -5}
    assert list(listing.checksums) == [1, 2]
    assert listing.stale_checksums == (".2.crc", ".x.crc")
    assert listing.temporary == (f".3.{A}.tmp",)
    assert listing.foreign == ("6.bak", "9/")
    assert listing.newest_listed == 6


def test_compact_files_count_in_logs_that_are_compacted_only() -> None:
    names = ["8", "9.compact", ".9.compact.crc", ".19.compact.crc", "09.compact", ".9.crc"]
    listing = list_log(names, compactible=True)
    assert (list(listing.ids), list(listing.compact)) == ([8, 9], [9])
    assert listing.noncanonical == {"09.compact": 9}
    assert listing.stale_checksums == (".9.crc", ".19.compact.crc")
    assert "9.compact" in list_log(names).foreign


def test_the_newest_of_nothing_is_none() -> None:
    assert LogListing().newest_listed is None
    assert list_log(["3"]).newest_listed == 3


def test_a_batch_log_shows_its_newest_entry_and_its_damage() -> None:
    entry, empty = CommitEntry.of(1, next_batch_watermark_ms=0), Damage(DamageKind.EMPTY)
    log = BatchLog("commits", list_log(["3", "4"]), {3: empty, 4: entry})
    assert (log.newest, log.newest_entry, list(log.ids)) == (4, entry, [3, 4])
    assert log.damage == {"commits/3": empty}
    assert BatchLog("commits", LogListing()).newest_entry is None


def test_a_source_log_knows_its_beginning_and_the_names_of_its_files() -> None:
    begin, cut = InitialOffset(NumberOffset(5), has_nul=False), Damage(DamageKind.TRUNCATED)
    listing = list_log(["0", "9.compact", "10"], compactible=True)
    log = SourceLog("1", listing, {0: begin, 9: Damage(DamageKind.TOO_LARGE), 10: cut})
    assert (log.folder, log.initial) == ("sources/1", begin)
    assert [log.entry_name(n) for n in (9, 10)] == ["9.compact", "10"]
    assert log.damage == {"sources/1/10": cut}  # one that was not looked into is not damaged
    assert SourceLog("0", LogListing()).initial is None
