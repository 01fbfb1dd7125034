"""Files that stay readable: as two commits of lastgood wrote them, read and written again by today's code.

`written/COMMIT` holds what lay beside five checkpoints in `/lake/chk`, and in the state folder, after repairs that were
carried out, taken back and refused, a supervised run, backups and bundles. Nothing in there is ever changed: a new
format gets a folder beside it. `key` is a key that signs nothing else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lastgood.bundle.shareable import to_json
from lastgood.journal.incident import parse_incident
from lastgood.journal.incidents import Incidents
from lastgood.journal.lease import parse_lease
from lastgood.journal.left_behind import find_left_behind
from lastgood.journal.plan_file import parse_plan
from lastgood.journal.room import RecoveryStage, Room, find_latest_stage, list_recoveries, read_note
from lastgood.journal.signed_files import SignatureStanding
from lastgood.journal.topic_ids import read_topic_ids
from lastgood.ladder.tally import parse_tally
from lastgood.mirror.backups import list_backups, locate_backups, parse_backup, read_backup, write_facts
from lastgood.mirror.copies import decode_lines, decompress_lines, encode_copies
from lastgood.observe.bundle import _encode_fields, open_bundle
from lastgood.planning.plan import Plan
from lastgood.recovery.hold import _make_held_error
from lastgood.recovery.whereabouts import _recall, recall_evidence, recall_whereabouts
from lastgood.settings.config import Config
from lastgood.signing import PLAN, SIGNATURE, Signer, parse_keys
from lastgood.sources.kafka.facts import facts_from_json
from lastgood.sources.kafka.start_files import parse_start
from lastgood.sources.kafka.starting_offsets import StartingOffsets
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable
from lastgood.testing.checkpoints import QUERY_ID

WRITTEN = Path(__file__).parent / "written"
COMMITS = sorted(WRITTEN.iterdir())
NEWEST = WRITTEN / "2d47041"
FILES = [each for commit in COMMITS for each in sorted(commit.rglob("*")) if each.is_file()]


def named(pattern: str) -> list[Path]:
    found = [each for each in FILES if each.match(pattern)]
    assert len({each.relative_to(WRITTEN).parts[0] for each in found}) > 0
    return found


def name_of(file: Path) -> str:
    return str(file.relative_to(WRITTEN))


def plans() -> list[Path]:
    told = [
        each for each in named("*.json") if b'"recovery"' in each.read_bytes()[:100] and b'"steps"' in each.read_bytes()
    ]
    return [each for each in told if "incidents" not in each.parts]


def without_signature(file: Path) -> dict[str, Any]:
    told = json.loads(file.read_bytes())
    told.pop(SIGNATURE, None)
    return told


def since(file: Path) -> dict[str, Any]:
    """What facts of a backup hold since it was written."""
    return {} if NEWEST in file.parents else {"sha256": None}


def says(now: Any, then: Any) -> bool:
    """Whether all that was written is written again; what is new since may stand beside it."""
    if isinstance(then, dict):
        return isinstance(now, dict) and all(name in now and says(now[name], each) for name, each in then.items())
    if isinstance(then, list):
        return isinstance(now, list) and len(now) == len(then) and all(map(says, now, then))
    return type(now) is type(then) and bool(now == then)


def plan_of(told: Mapping[str, Any]) -> bytes:
    return json.dumps(told, indent=1, ensure_ascii=False).encode() + b"\n"


@pytest.mark.parametrize("file", plans(), ids=name_of)
def test_a_plan_is_read_and_written_again_byte_for_byte(file: Path) -> None:
    plan = parse_plan(file.read_bytes(), "plan.json")
    assert plan.to_bytes() == plan_of(without_signature(file))


@pytest.mark.parametrize("file", named("incidents/*.json"), ids=name_of)
def test_an_incident_is_read_and_written_again_byte_for_byte(file: Path) -> None:
    assert parse_incident(file.read_bytes(), "incident").to_bytes() == file.read_bytes()


@pytest.mark.parametrize("file", named("leases/*.json"), ids=name_of)
def test_a_lease_is_read_and_written_again_byte_for_byte(file: Path) -> None:
    record = parse_lease(file.read_bytes())
    assert record is not None
    assert record.to_bytes() == file.read_bytes()


@pytest.mark.parametrize("file", named("attempts.json"), ids=name_of)
def test_what_has_failed_is_read_and_written_again_byte_for_byte(file: Path) -> None:
    assert parse_tally(file.read_bytes()).to_bytes() == file.read_bytes()


@pytest.mark.parametrize("file", named("backups/*.json"), ids=name_of)
def test_a_backup_is_read_and_written_again_byte_for_byte(file: Path, tmp_path: Path) -> None:
    backup = parse_backup(file.read_bytes())
    assert backup is not None
    write_facts(open_writable(parse_location(str(tmp_path))), parse_location(str(tmp_path)), backup)
    assert (tmp_path / file.name).read_bytes() == json.dumps({**without_signature(file), **since(file)}).encode()
    folder = parse_location(str(file.parent))
    assert backup in list_backups(open_writable(folder), folder)
    assert len(read_backup(open_writable(folder), folder, backup)) == backup.files > 0


@pytest.mark.parametrize("file", named("mirror/*.jsonl.gz"), ids=name_of)
def test_a_mirror_is_read_and_written_again_byte_for_byte(file: Path) -> None:
    lines = [*decompress_lines(file.read_bytes(), "mirror")]
    copies = [*decode_lines(lines)]
    assert encode_copies(copies) == b"".join(line + b"\n" for line in b"\n".join(lines).split(b"\n") if line)
    assert len(copies) > 1


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_notes_of_recoveries_are_read_and_entered_again_byte_for_byte(commit: Path, tmp_path: Path) -> None:
    seen = set()
    for checkpoint in [parse_location(str(each).removesuffix(".lastgood")) for each in (commit / "chk").iterdir()]:
        storage = open_writable(checkpoint)
        for recovery in list_recoveries(storage, checkpoint):
            folder = Room(checkpoint, recovery, storage).folder
            assert find_latest_stage(storage, folder) in (RecoveryStage.CLOSED, RecoveryStage.TAKEN_BACK)
            for stage in RecoveryStage:
                note = read_note(storage, folder, stage)
                if not note:
                    continue
                there = Room(parse_location(str(tmp_path / "chk")), recovery, open_writable(checkpoint))
                there.enter(stage, note)
                again = Path((there.folder / f"{stage.value}.json").path).read_bytes()
                file = Path((folder / f"{stage.value}.json").path)
                assert again == json.dumps(without_signature(file)).encode()
                seen.add(stage)
    assert seen == set(RecoveryStage)


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_what_is_left_behind_is_known_by_its_plan(commit: Path) -> None:
    checkpoint = parse_location(str(commit / "chk/left"))
    left = find_left_behind(open_writable(checkpoint), checkpoint, Config())
    assert left is not None
    assert left.file.location == "/lake/start.json"
    assert left.starts == {"0": {"orders": {0: 20, 1: 21}}}
    assert (left.query_id, left.word) == (QUERY_ID, "at_least_once")


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_ids_of_topics_are_read(commit: Path) -> None:
    checkpoint = parse_location(str(commit / "chk/orders"))
    assert read_topic_ids(open_writable(checkpoint), checkpoint, QUERY_ID) == {"orders": "abcdefghijklmnopqrstuv"}


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_incidents_are_found_newest_last(commit: Path) -> None:
    checkpoint = parse_location(str(commit / "chk/clicks"))
    last = Incidents(open_writable(checkpoint), checkpoint).last()
    assert last is not None
    assert (last.outcome, last.checkpoint) == ("person", "/lake/chk/clicks")
    assert last.plan is not None
    assert last.plan["goal"] in ("fresh", "resume")


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_this_machine_remembers_where_recoveries_were(commit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(commit / "state"))
    for file in (commit / "state/lastgood/recoveries").iterdir():
        place = recall_whereabouts(file.stem)
        assert place is not None
        assert str(place).startswith("/lake/chk/")
        assert _recall(file.stem) == json.loads(file.read_bytes())
    words = {recall_evidence(file.stem).words() for file in (commit / "state/lastgood/recoveries").iterdir()}
    assert any("--kafka" in each for each in words) is (commit == NEWEST)  # none were noted down before


@pytest.mark.parametrize("file", named("run.lock"), ids=name_of)
def test_who_holds_a_checkpoint_is_told(file: Path) -> None:
    who = json.loads(file.read_bytes())
    assert f"process {who['pid']} on worker-1, since {who['since']}" in str(
        _make_held_error("x", file.read_bytes()).found
    )


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_facts_about_kafka_and_where_to_start_are_read(commit: Path) -> None:
    told = json.loads((commit / "facts.json").read_bytes())
    facts = facts_from_json(told)
    assert facts.to_json() == told
    start = parse_start((commit / "start.json").read_bytes(), "q", "start.json")
    assert start == StartingOffsets("q", None, {"orders": {0: 20, 1: 21}})


@pytest.mark.parametrize("commit", COMMITS, ids=lambda each: each.name)
def test_a_bundle_is_read_and_its_observation_written_again(commit: Path) -> None:
    with open_bundle(commit / "bundle.zip") as bundle:
        observed = bundle.query(batches=10).seen
        told = bundle._archive.read_json("world.json")
        again = json.loads(json.dumps(_encode_fields(observed)))
        assert says(again, told), "a field of the world is lost, or another one"
        assert to_json(bundle.failures) == bundle._archive.read_json("failures.json")
    assert observed.checkpoint.last_committed == 6


def test_what_a_key_has_signed_is_still_signed() -> None:
    keys = parse_keys((NEWEST / "key").read_text(), "key")
    place = parse_location("/lake/chk/signed")
    signer = Signer.at(keys, place)
    (file,) = (NEWEST / "chk/signed.lastgood/recoveries").glob("*/plan.json")
    plan = parse_plan(file.read_bytes(), "plan.json", keys, (place, file.parent.name))
    assert plan.to_bytes(keys) == file.read_bytes()
    here = parse_location(str(NEWEST / "chk/signed"))
    stages = [each for each in RecoveryStage if (file.parent / f"{each.value}.json").exists()]
    for stage in stages:
        assert read_note(open_writable(here), parse_location(str(file.parent)), stage, signer)
    assert stages[-1] is RecoveryStage.CLOSED
    changed = {**json.loads(file.read_bytes()), "made_at_ms": 1}
    assert signer.standing(PLAN, (plan.recovery,), changed) is SignatureStanding.WRONG
    folder = locate_backups(here)
    (backup,) = list_backups(open_writable(folder), folder)
    signer.require("backup", (backup.id,), json.loads((Path(folder.path) / f"{backup.id}.json").read_bytes()), "x")


def test_no_field_of_a_plan_goes_unseen() -> None:
    found = [parse_plan(file.read_bytes(), "plan.json") for file in plans()]
    goals = {plan.goal for plan in found}
    assert goals >= {"resume", "replan", "reposition", "fresh"} - {"resume"}
    never = {each.name for each in dataclasses.fields(Plan) if not any(getattr(plan, each.name) for plan in found)}
    assert never <= {"needs", "proof", "sinks"}
