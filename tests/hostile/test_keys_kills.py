"""A signed repair, killed at every change, is finished or taken back with the key, and refused to anybody else."""

from __future__ import annotations

import json

import pytest
from repair.engine_cases import KINDS, OurLease, changes, killed, moments
from repair.engine_cases import Case as UnsignedCase

from lastgood.journal.plan_file import parse_plan
from lastgood.journal.room import RecoveryStage, Room, find_open_recovery
from lastgood.planning.steps import FileStep
from lastgood.recovery.engine import Engine, Surveyor
from lastgood.signing import NO_KEYS, Key, KeyRing, SignatureMissingError, SignatureWrongError
from lastgood.steps.carrying import UndoRefusedError
from lastgood.storage.writing import WritableStorage

OURS = KeyRing((Key(b"o" * 32),), "test")
ROTATED = KeyRing((Key(b"n" * 32), *OURS.keys), "test")
FOREIGN = KeyRing((Key(b"f" * 32),), "test")


class Case(UnsignedCase):
    """The same, on a machine with keys."""

    keys = OURS

    def engine(self, storage: WritableStorage | None = None, *_: object, keys: KeyRing | None = None) -> Engine:
        room = self.room(keys, storage)
        surveyor = Surveyor(sinks=lambda: self.sinks, promise=self.promise)
        return Engine(room, self.plan, OurLease(), surveyor, lambda _: None, lambda: 0)  # type: ignore[arg-type]

    def room(self, keys: KeyRing | None = None, storage: WritableStorage | None = None) -> Room:
        keys = self.keys if keys is None else keys
        return Room(self.location, self.plan.recovery, storage or self.storage, keys)


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_change_a_signed_repair_is_finished_with_the_key_and_with_no_other(kind: str) -> None:
    count = len(changes(Case(kind), lambda engine: engine.apply("proof")))
    for moment in moments(count):
        for ending in ("apply", "undo"):
            case = Case(kind)
            killed(case, lambda engine: engine.apply("proof"), **moment)
            stood = case.files()
            if case.room(NO_KEYS).stage() is not None:
                with pytest.raises(SignatureWrongError):
                    getattr(case.engine(keys=FOREIGN), ending)("proof")
                assert case.files() == stood, moment
                assert case.room().plan() == case.plan
            case.keys = ROTATED
            getattr(case.engine(), ending)("proof")
            assert case.files() == (case.wanted if ending == "apply" else case.before), moment
            assert find_open_recovery(case.storage, case.location) is None


@pytest.mark.parametrize("kind", KINDS)
def test_killed_at_every_change_of_undo_it_is_taken_back_with_the_key_and_with_no_other(kind: str) -> None:
    counted = Case(kind)
    counted.engine().apply("proof")
    for moment in moments(len(changes(counted, lambda engine: engine.undo("proof")))):
        case = Case(kind)
        case.engine().apply("proof")
        killed(case, lambda engine: engine.undo("proof"), **moment)
        stood = case.files()
        with pytest.raises(SignatureWrongError):
            case.engine(keys=FOREIGN).undo("proof")
        assert case.files() == stood, moment
        case.engine().undo("proof")
        assert case.files() == case.before


@pytest.mark.parametrize("kind", KINDS)
def test_an_unsigned_repair_killed_anywhere_is_left_as_it_stands(kind: str) -> None:
    count = len(changes(Case(kind), lambda engine: engine.apply("proof")))
    for moment in moments(count):
        case = Case(kind)
        case.keys = NO_KEYS
        killed(case, lambda engine: engine.apply("proof"), **moment)
        stood = case.files()
        if case.room(NO_KEYS).stage() is None:
            continue
        for ending in ("apply", "undo"):
            with pytest.raises(SignatureMissingError):
                getattr(case.engine(keys=OURS), ending)("proof")
            assert case.files() == stood, moment


def test_a_kept_plan_stays_as_it_is_only_if_a_key_of_ours_has_signed_it() -> None:
    case = Case("cut")
    file = case.room().folder / "plan.json"

    def kept(keys: KeyRing) -> bytes:
        case.room(keys).keep(case.plan)
        return case.storage.read(file, limit=10**6) or b""

    unsigned = kept(NO_KEYS)
    assert "signature" not in json.loads(unsigned)
    ours = kept(OURS)
    assert json.loads(ours)["signature"]["key"] == OURS.keys[0].id
    assert kept(ROTATED) == ours
    assert json.loads(kept(FOREIGN))["signature"]["key"] == FOREIGN.keys[0].id


def test_the_noted_proof_counts_only_where_it_is_signed() -> None:
    case = Case("cut")
    killed(case, lambda engine: engine.apply("it has ended"), before=12)
    stage = case.room().stage()
    assert stage is RecoveryStage.APPLYING
    assert case.room().signed_proof() == "it has ended"
    assert case.room(NO_KEYS).signed_proof() is None
    with pytest.raises(SignatureWrongError):
        case.room(FOREIGN).signed_proof()
    note = case.room().folder / "begun.json"
    told = json.loads(case.storage.read(note, limit=10**6) or b"")
    case.storage.write(note, json.dumps({**told, "proof": "so they say"}).encode())
    with pytest.raises(SignatureWrongError):
        case.room().signed_proof()


@pytest.mark.parametrize(
    "field", ["recovery", "goal", "checkpoint", "guarantee", "steps", "seal", "accepted", "evidence"]
)
def test_no_field_of_a_signed_plan_can_be_changed(field: str) -> None:
    case = Case("cut")
    told = json.loads(case.plan.to_bytes(OURS))
    assert parse_plan(json.dumps(told).encode(), "plan.json", OURS) == case.plan
    assert parse_plan(json.dumps(told).encode(), "plan.json") == case.plan
    other = Case("drop").plan.to_json()
    other |= {"recovery": "20261121-160058-7f3b", "goal": "replan", "checkpoint": "/lake/other"}
    other |= {
        "guarantee": "lossy",
        "accepted": ["loss"],
        "evidence": ["--sink", "/elsewhere"],
        "seal": ["offsets/9", "commits/9"],
    }
    changed = parse_plan(json.dumps(told).encode(), "plan.json").to_json() | {field: other[field]}
    forged = json.loads(unsigned(changed)) | {"signature": told["signature"]}
    with pytest.raises(SignatureWrongError):
        parse_plan(json.dumps(forged).encode(), "plan.json", OURS)
    with pytest.raises(SignatureMissingError):
        parse_plan(unsigned(changed), "plan.json", OURS)


def unsigned(told: dict[str, object]) -> bytes:
    """A plan file as anybody can make it."""
    from lastgood.planning.plan import compute_checksum

    return json.dumps({**told, "checksum": compute_checksum(told)}).encode()


def test_bytes_that_were_exchanged_among_the_backups_are_not_put_back() -> None:
    case = Case("cut")
    case.engine().apply("proof")
    step = next(step for step in case.plan.steps if isinstance(step, FileStep))
    case.storage.write(case.room().before / step.path, b"an attacker's offsets")
    stood = case.files()
    with pytest.raises(UndoRefusedError):
        case.engine().undo("proof")
    assert case.files() == stood
