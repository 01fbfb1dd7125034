"""A ledger filled from mirror, checkpoint and records, and what it gives back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledgers import NOON_MS, progress

from lastgood.errors import ExtraMissingError
from lastgood.ledger.facts import Teller
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.schema import LedgerMissingError
from lastgood.ledger.store import Ledger
from lastgood.ledger.url import LedgerUrlError, parse_place
from lastgood.mirror.mirror import MirrorWriter, locate_mirror
from lastgood.observe.ledger import (
    Filled,
    add_copies,
    choose_ledger,
    fill_from_mirror,
    fill_from_records,
    fill_ledger,
    open_asked_ledger,
    read_filled_until,
    take_snapshot,
)
from lastgood.observe.open_query import BatchUnknownError
from lastgood.settings.target import Target, resolve_target
from lastgood.spark.agent.files import RecordFileWriter, encode_records
from lastgood.spark.record_sinks import locate_records
from lastgood.storage.reading import LocalStorage, Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.checkpoints import QUERY_ID, STARTED_MS, CheckpointBuilder, FileInput

HOUR_MS = 3_600_000


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with open_ledger(str(tmp_path / "ledger.db")) as opened:
        yield opened


class Mirrored:
    """A query and a mirror that sees what it is told to see."""

    def __init__(self, folder: Path) -> None:
        self.query = CheckpointBuilder(folder)
        self.location = parse_location(str(folder))
        self.now_ms = STARTED_MS

    def look(self, writer: str = "w") -> None:
        self.now_ms += HOUR_MS
        MirrorWriter(
            self.location,
            storage=LocalStorage(),
            folder=locate_mirror(self.location),
            target=LocalWriter(),
            writer=writer,
            now_ms=lambda: self.now_ms,
        ).look()


@pytest.fixture
def mirrored(tmp_path: Path) -> Mirrored:
    return Mirrored(tmp_path / "checkpoint")


def ids(ledger: Ledger, location: Location) -> list[int]:
    return [batch_id for query in ledger.queries(location.identity) for batch_id in ledger.batch_ids(query)]


def test_ledger_knows_what_checkpoint_and_mirror_know(mirrored: Mirrored, ledger: Ledger) -> None:
    mirrored.query.run(10)
    mirrored.look()
    mirrored.query.purge(retain=4)
    mirrored.query.plan()
    assert fill_ledger(resolve_target(str(mirrored.query.folder)), ledger).records == 0
    (query,) = ledger.queries(mirrored.location.identity)
    found = ledger.batches(query, range(12))
    assert (query.query_id, sorted(found)) == (QUERY_ID, list(range(11)))
    assert [batch_id for batch_id, batch in found.items() if not batch.is_committed] == [10]
    assert found[3].told_by is Teller.MIRROR
    assert found[9].told_by is Teller.CHECKPOINT
    assert [found[at].plan and found[at].plan.planned_at_ms for at in (0, 10)] == [STARTED_MS, STARTED_MS + 10_000]
    assert found[9].committed_at_ms is not None
    holding = {offset: [each.batch_id for each in ledger.holding("orders", 1, offset)] for offset in (0, 49, 50, 55)}
    assert holding == {0: [0], 49: [9], 50: [10], 55: []}
    assert (query.first_seen_ms, query.last_seen_ms) == (STARTED_MS, STARTED_MS + 10_000)


def test_filling_again_changes_nothing(mirrored: Mirrored, ledger: Ledger) -> None:
    mirrored.query.run(3)
    mirrored.look()
    fill_ledger(resolve_target(str(mirrored.query.folder)), ledger)
    (query,) = ledger.queries()
    before = ledger.batches(query, range(3))
    fill_ledger(resolve_target(str(mirrored.query.folder)), ledger)
    after = ledger.batches(query, range(3))
    for batch_id, batch in before.items():
        assert (batch.plan, batch.is_committed, batch.committed_at_ms) == (
            after[batch_id].plan,
            after[batch_id].is_committed,
            after[batch_id].committed_at_ms,
        )


def test_only_what_the_mirror_has_seen_since_is_given_again(mirrored: Mirrored, ledger: Ledger) -> None:
    mirrored.query.run(3)
    mirrored.look()
    assert fill_from_mirror(mirrored.location, ledger, LocalStorage()) == 8
    assert read_filled_until(mirrored.location, ledger) == mirrored.now_ms
    mirrored.look()
    mirrored.query.run(1)
    mirrored.look()
    seen_ms = mirrored.now_ms
    assert fill_from_mirror(mirrored.location, ledger, LocalStorage()) == 10  # what came within an hour comes again
    mirrored.look()
    assert fill_from_mirror(mirrored.location, ledger, LocalStorage()) == 2
    assert read_filled_until(mirrored.location, ledger) == seen_ms
    assert ids(ledger, mirrored.location) == [0, 1, 2, 3]


def test_filling_that_is_stopped_begins_there_again(mirrored: Mirrored, ledger: Ledger) -> None:
    mirrored.query.run(3)
    mirrored.look()
    assert fill_from_mirror(mirrored.location, ledger, LocalStorage(), go_on=lambda: False) == 0
    assert (ids(ledger, mirrored.location), read_filled_until(mirrored.location, ledger)) == ([], -1)
    assert fill_from_mirror(mirrored.location, ledger, LocalStorage()) == 8


def test_query_that_was_begun_anew_is_another(mirrored: Mirrored, ledger: Ledger, tmp_path: Path) -> None:
    mirrored.query.run(3)
    mirrored.look("a")
    shutil.rmtree(mirrored.query.folder)
    other = "9818c18b-9839-4690-99f7-f5f3cde02c1d"
    mirrored.query = CheckpointBuilder(mirrored.query.folder, query_id=other, started_ms=STARTED_MS + HOUR_MS)
    mirrored.query.run(1)
    mirrored.look("b")
    fill_ledger(resolve_target(str(mirrored.query.folder)), ledger)
    queries = ledger.queries(mirrored.location.identity)
    assert [(query.query_id, ledger.batch_ids(query)) for query in queries] == [(QUERY_ID, [0, 1, 2]), (other, [0])]


def test_batch_that_was_planned_anew_is_known_as_it_is_now(mirrored: Mirrored, ledger: Ledger) -> None:
    mirrored.query.run(3)
    mirrored.look("a")
    mirrored.query.drop_plan()
    mirrored.query.plan(9)
    mirrored.look("b")
    fill_from_mirror(mirrored.location, ledger, LocalStorage())
    (query,) = ledger.queries()
    batch = ledger.batches(query, [2])[2]
    assert (batch.is_committed, dict(batch.ends)) == (False, {"0": '{"orders":{"0":19,"1":19}}'})


def test_damaged_and_foreign_files_say_nothing(mirrored: Mirrored, ledger: Ledger) -> None:
    mirrored.query.run(2)
    (mirrored.query.folder / "offsets/1").write_bytes(b"v1\n{")
    (mirrored.query.folder / "commits/0").write_bytes(b"")
    add_copies(mirrored.location, take_snapshot(mirrored.location), ledger, Teller.CHECKPOINT)
    (query,) = ledger.queries()
    found = ledger.batches(query, [0, 1])
    assert (found[0].plan is not None, found[0].commit) == (True, None)
    assert (found[1].plan, found[1].commit is not None) == (None, True)


def test_files_are_a_source_without_ranges(tmp_path: Path, ledger: Ledger) -> None:
    CheckpointBuilder(tmp_path / "files", FileInput()).run(2)
    fill_ledger(resolve_target(str(tmp_path / "files")), ledger)
    (query,) = ledger.queries()
    assert dict(ledger.batches(query, [1])[1].ends) == {"0": '{"logOffset":1}'}


@pytest.fixture
def records(tmp_path: Path) -> Location:
    return locate_records(parse_location(str(tmp_path / "checkpoint")))


def test_records_are_read_on_from_where_reading_ended(records: Location, ledger: Ledger) -> None:
    sink = RecordFileWriter(Path(records.path))
    sink.write([progress(0).to_json(), progress(1).to_json()])
    assert fill_from_records(records, ledger, LocalStorage()) == 2
    sink.write([progress(2).to_json()])
    (file,) = Path(records.path).iterdir()
    with file.open("ab") as stream:
        stream.write(encode_records([progress(3).to_json()])[:40])
    assert fill_from_records(records, ledger, LocalStorage()) == 1
    assert fill_from_records(records, ledger, LocalStorage()) == 0
    with file.open("ab") as stream:
        stream.write(encode_records([progress(3).to_json()])[40:])
    assert fill_from_records(records, ledger, LocalStorage()) == 1
    assert [ledger.batch_ids(query) for query in ledger.queries()] == [[0, 1, 2, 3]]


def test_records_of_a_file_that_is_gone_are_forgotten(records: Location, ledger: Ledger) -> None:
    RecordFileWriter(Path(records.path)).write([progress(0).to_json()])
    fill_from_records(records, ledger, LocalStorage())
    (file,) = Path(records.path).iterdir()
    file.rename(file.with_name(f"{NOON_MS}-1.000001.jsonl"))
    assert fill_from_records(records, ledger, LocalStorage()) == 1
    assert list(ledger.filled(records.identity)) == [f"{NOON_MS}-1.000001.jsonl"]
    assert fill_from_records(records.sibling("-none"), ledger, LocalStorage()) == 0


def test_records_beside_the_checkpoint_are_filled_in(mirrored: Mirrored, records: Location, ledger: Ledger) -> None:
    mirrored.query.run(1)
    told = progress(0, query_id=QUERY_ID, checkpoint=str(mirrored.query.folder), recorded_at_ms=STARTED_MS + 1)
    RecordFileWriter(Path(records.path)).write([told.to_json()])
    assert fill_ledger(resolve_target(str(mirrored.query.folder)), ledger) == Filled(copies=4, records=1)
    (query,) = ledger.queries()
    batch = ledger.batches(query, [0])[0]
    assert (query.name, batch.is_committed, batch.committed_at_ms) == ("orders", True, STARTED_MS + 1)
    assert batch.progress is not None
    assert batch.progress.num_input_rows == 10


def test_ledger_is_the_one_named_else_configured_else_in_the_environment() -> None:
    configured = Target("/chk", ledger=parse_place("/b.db"))
    env = {"LASTGOOD_LEDGER": "/c.db"}
    assert str(choose_ledger("/a.db", configured, env)) == "sqlite:////a.db"
    assert str(choose_ledger(None, configured, env)) == "sqlite:////b.db"
    assert str(choose_ledger(None, Target("/chk"), env)) == "sqlite:////c.db"
    assert choose_ledger(None, Target("/chk"), {}) is None
    with pytest.raises(LedgerUrlError):
        choose_ledger("mysql://db", Target("/chk"), {})


def test_ledger_that_is_not_named_may_be_missing(tmp_path: Path) -> None:
    env = {"LASTGOOD_LEDGER": str(tmp_path / "none.db")}
    with open_asked_ledger(resolve_target("/chk"), None, environment=env) as opened:
        assert opened is None
    with (
        pytest.raises(BatchUnknownError) as unknown,
        open_asked_ledger(resolve_target("/chk"), None, environment=env),
    ):
        raise BatchUnknownError("batch 7 is not known")
    assert unknown.value.effect == f"the ledger sqlite:///{tmp_path}/none.db could not be asked: there is no ledger"
    with (
        pytest.raises(LedgerMissingError),
        open_asked_ledger(resolve_target("/chk"), str(tmp_path / "none.db"), environment={}),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_ledger_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with (
        pytest.raises(ExtraMissingError),
        open_asked_ledger(resolve_target("/chk"), "postgresql://db/streams", environment={}),
    ):
        pass
