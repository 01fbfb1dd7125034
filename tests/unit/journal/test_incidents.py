from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.journal import incidents as module
from lastgood.journal.incident import Incident, IncidentDamagedError
from lastgood.journal.incidents import Incidents, find_last_incident, locate_incident
from lastgood.journal.room import RecoveryUnknownError
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter
from lastgood.testing.storage import MemoryWriter, SlowStorage

FIRST, SECOND = "20261121-002156-0001", "20261121-002157-0001"


def incident(incident_id: str = FIRST) -> Incident:
    return Incident(
        id=incident_id,
        checkpoint="/chk",
        pipeline=None,
        failed_at_ms=1,
        cause=None,
        position={},
        attempts=(),
        first_batch=None,
        rerun=None,
        first_batch_at_ms=None,
        promise=None,
        outcome="open",
    )


@pytest.fixture
def checkpoint(tmp_path: Path) -> Location:
    return parse_location(str(tmp_path / "chk"))


@pytest.fixture
def incidents(checkpoint: Location) -> Incidents:
    return Incidents(LocalWriter(), checkpoint)


def test_incident_stands_beside_the_checkpoint_and_is_written_again_as_it_goes_on(
    incidents: Incidents, checkpoint: Location
) -> None:
    assert (incidents.list(), incidents.last()) == ([], None)
    incidents.write(incident())
    incidents.write(replace(incident(), outcome="recovered"))
    assert Path(f"{checkpoint}.lastgood/incidents/{FIRST}.json").exists()
    assert incidents.list() == [FIRST]
    assert incidents.read(FIRST).outcome == "recovered"


def test_last_is_the_newest_whatever_else_lies_there(incidents: Incidents, checkpoint: Location) -> None:
    incidents.write(incident(SECOND))
    incidents.write(incident())
    folder = Path(f"{checkpoint}.lastgood/incidents")
    (folder / "zzz.json").write_bytes(b"{}")
    (folder / f".{SECOND}.json.crc").write_bytes(b"")
    assert incidents.list() == [FIRST, SECOND]
    assert incidents.last() == incident(SECOND)


@pytest.mark.parametrize("incident_id", [FIRST, "last", "../../etc/passwd", ""])
def test_incident_that_is_not_there_is_unknown(incidents: Incidents, incident_id: str) -> None:
    with pytest.raises(RecoveryUnknownError):
        incidents.read(incident_id)


def test_damaged_file_is_told_with_its_name_and_hides_no_other(incidents: Incidents, checkpoint: Location) -> None:
    incidents.write(incident())
    file = locate_incident(checkpoint, SECOND)
    Path(file.path).write_bytes(incident(SECOND).to_bytes()[:-20])
    with pytest.raises(IncidentDamagedError) as caught:
        incidents.last()
    assert caught.value.subject == str(file)
    assert incidents.list() == [FIRST, SECOND]
    assert incidents.read(FIRST) == incident()
    Path(file.path).write_bytes(incident(FIRST).to_bytes())
    with pytest.raises(IncidentDamagedError, match="another one"):
        incidents.read(SECOND)


def test_oldest_ones_go_when_there_are_too_many(incidents: Incidents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INCIDENTS_MAX", 3)
    ids = [f"20261121-00215{n}-0001" for n in range(5)]
    for each in ids:
        incidents.write(incident(each))
    assert incidents.list() == ids[2:]


def test_one_that_was_just_written_stays_where_a_clock_was_set_back(
    incidents: Incidents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "INCIDENTS_MAX", 3)
    later = [f"20261121-00215{n}-0001" for n in range(3)]
    for each in later:
        incidents.write(incident(each))
    earlier = "20251121-002150-0001"
    incidents.write(incident(earlier))
    assert incidents.list() == [earlier, *later]


def test_last_one_takes_one_listing_and_one_reading(incidents: Incidents, checkpoint: Location) -> None:
    incidents.write(incident())
    slow = SlowStorage(seconds=0)
    assert find_last_incident(slow, checkpoint) == incident()
    assert slow.requests == 2


def test_incidents_are_kept_in_an_object_store_too() -> None:
    kept = Incidents(MemoryWriter(), parse_location("s3a://lake/chk"))
    kept.write(incident())
    kept.write(incident(SECOND))
    assert (kept.list(), kept.last()) == ([FIRST, SECOND], incident(SECOND))
