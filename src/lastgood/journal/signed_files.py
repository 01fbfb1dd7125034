"""What carries a signature beside a checkpoint, and what the keys of this machine say of each file of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from lastgood.frozen import dataclass
from lastgood.journal.attempts_file import locate_attempts_file
from lastgood.journal.incident import INCIDENT_BYTES_MAX, IncidentDamagedError, parse_incident
from lastgood.journal.incidents import list_incidents, locate_incident
from lastgood.journal.plan_file import PLAN_BYTES_MAX, parse_plan
from lastgood.journal.room import RecoveryStage, list_recoveries, locate_recoveries
from lastgood.mirror.backups import FACTS_BYTES_MAX, compute_digest, list_backup_ids, locate_backups, parse_backup
from lastgood.mirror.copies import decode_lines, decompress_lines
from lastgood.mirror.mirror import FILE_BYTES_MAX
from lastgood.notes import read_json
from lastgood.planning.plan import PlanInvalidError
from lastgood.signing import ATTEMPTS, BACKUP, INCIDENT, PLAN, STAGE, KeyRing, SignatureStanding, Signer, name_place
from lastgood.storage.reading import Location, Storage, parse_location

_NOTE_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SignedFile:
    """One file that carries a signature, or should."""

    purpose: str
    names: tuple[str, ...]
    """Where it belongs at its checkpoint."""
    file: Location
    standing: SignatureStanding
    by: str | None
    """The id of the key that it names."""
    damage: str | None
    """Why it is not what it should be, so that nobody can sign it; None: it is."""
    told: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """As it was read; of a backup with the digest of its content as that is now."""

    @property
    def label(self) -> str:
        """As a person calls it: `plan 20261121-160058-7f3a`."""
        return " ".join((self.purpose, *self.names))


def read_signed_files(storage: Storage, checkpoint: Location, keys: KeyRing) -> Iterator[SignedFile]:
    """All of them; each recovery's plan before its stages.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    signer = Signer.at(keys, checkpoint)
    for recovery in list_recoveries(storage, checkpoint):
        yield from read_files_of_recovery(storage, checkpoint, recovery, keys)
    for incident in list_incidents(storage, checkpoint):
        yield from read_file_of_incident(storage, checkpoint, incident, keys)
    folder = locate_backups(checkpoint)
    for backup in list_backup_ids(storage, folder):
        raw = storage.read(folder / f"{backup}.json", limit=FACTS_BYTES_MAX)
        if raw is not None:
            yield _make_signed_backup(storage, signer, folder, backup, raw)
    raw = storage.read(locate_attempts_file(checkpoint), limit=_NOTE_BYTES_MAX)
    if raw is not None:
        yield _make_signed_file(signer, ATTEMPTS, (), locate_attempts_file(checkpoint), raw)


def read_file_of_incident(storage: Storage, checkpoint: Location, incident: str, keys: KeyRing) -> Iterator[SignedFile]:
    """The file of an incident, if there is one.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    file = locate_incident(checkpoint, incident)
    raw = storage.read(file, limit=INCIDENT_BYTES_MAX)
    if raw is not None:
        yield _make_signed_file(
            Signer.at(keys, checkpoint), INCIDENT, (incident,), file, raw, _find_incident_damage(raw, incident)
        )


def read_files_of_recovery(
    storage: Storage, checkpoint: Location, recovery: str, keys: KeyRing
) -> Iterator[SignedFile]:
    """The plan that a recovery keeps, and each stage that it has noted down.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    signer, folder = Signer.at(keys, checkpoint), locate_recoveries(checkpoint) / recovery
    file = folder / "plan.json"
    raw = storage.read(file, limit=PLAN_BYTES_MAX)
    if raw is not None:
        yield _make_signed_file(signer, PLAN, (recovery,), file, raw, _find_plan_damage(raw, checkpoint, recovery))
    for stage in RecoveryStage:
        file = folder / f"{stage.value}.json"
        raw = storage.read(file, limit=_NOTE_BYTES_MAX)
        if raw is not None:
            yield _make_signed_file(signer, STAGE, (recovery, stage.value), file, raw)


def is_as_it_was(storage: Storage, shown: SignedFile) -> bool:
    """Whether a file still says what a person was shown.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    raw = storage.read(shown.file, limit=PLAN_BYTES_MAX)
    told = None if raw is None else _parse_object(raw)
    if told is not None and shown.purpose == BACKUP:
        told = {**told, "sha256": shown.told.get("sha256")}  # of its content, which was read for it
    return told == shown.told


def find_worst(files: Iterable[SignedFile]) -> SignatureStanding | None:
    """What is to be said of several together; None of none."""
    found = {each.standing for each in files}
    return next((each for each in reversed(SignatureStanding) if each in found), None)


def _make_signed_file(
    signer: Signer, purpose: str, names: tuple[str, ...], file: Location, raw: bytes, damage: str | None = None
) -> SignedFile:
    told = _parse_object(raw)
    if told is None:
        return SignedFile(purpose, names, file, SignatureStanding.WRONG, None, "it is no JSON object")
    signature = told.get("signature")
    by = None
    if isinstance(signature, dict):
        by = signature.get("key")
    standing = signer.standing(purpose, names, told) or SignatureStanding.UNSIGNED
    return SignedFile(purpose, names, file, standing, by if isinstance(by, str) else None, damage, told)


def _parse_object(raw: bytes) -> dict[str, Any] | None:
    try:
        told = read_json(raw)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _find_plan_damage(raw: bytes, checkpoint: Location, recovery: str) -> str | None:
    try:
        plan = parse_plan(raw, "plan.json")
    except PlanInvalidError as error:
        return error.sentence
    if plan.recovery != recovery:
        return f"it is a plan of recovery {plan.recovery}"
    is_ours = name_place(parse_location(plan.checkpoint)) == name_place(checkpoint)
    if is_ours:
        return None
    return f"it is a plan of {plan.checkpoint}"


def _find_incident_damage(raw: bytes, incident: str) -> str | None:
    try:
        found = parse_incident(raw, "incident").id
    except IncidentDamagedError as error:
        return error.sentence
    if found == incident:
        return None
    return f"it is incident {found}"


def _make_signed_backup(storage: Storage, signer: Signer, folder: Location, backup_id: str, raw: bytes) -> SignedFile:
    facts = parse_backup(raw)
    damage = None
    if facts is None or facts.id != backup_id:
        damage = "it tells of no backup, or of another one"
    found = _make_signed_file(signer, BACKUP, (backup_id,), folder / f"{backup_id}.json", raw, damage)
    file = folder / f"{backup_id}.jsonl.gz"
    content = storage.read(file, limit=FILE_BYTES_MAX)
    if content is None:
        return SignedFile(found.purpose, found.names, found.file, found.standing, found.by, "its content is gone")
    digest = compute_digest(decode_lines(decompress_lines(content, str(file))))
    is_same = found.told.get("sha256") == digest
    standing = SignatureStanding.WRONG
    if is_same or found.standing is not SignatureStanding.SIGNED:
        standing = found.standing
    told = {**found.told, "sha256": digest}
    return SignedFile(found.purpose, found.names, found.file, standing, found.by, found.damage, told)
