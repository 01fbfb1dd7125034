"""Where the incidents of a query are kept: beside its checkpoint, one object each.

CHECKPOINT.lastgood/incidents/ID.json

An incident is written again as it goes on, by the one who holds the checkpoint; whoever reads it sees one version or
the next.
"""

from __future__ import annotations

from typing import TypeAlias

from lastgood.ids import is_id
from lastgood.journal.incident import (
    INCIDENT_BYTES_MAX,
    Incident,
    IncidentDamagedError,
    parse_incident,
)
from lastgood.journal.room import RecoveryUnknownError
from lastgood.signing import NO_KEYS, KeyRing, Signer
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage

INCIDENTS_MAX = 1000
"""The oldest ones go when there are more."""
_SUFFIX = ".json"

Ids: TypeAlias = list[str]


class Incidents:
    """The incidents of one query."""

    def __init__(self, storage: WritableStorage, checkpoint: Location, keys: KeyRing = NO_KEYS) -> None:
        """Keep them beside `checkpoint`, signed if there is a key; nothing is done yet."""
        self._keys = keys
        self._storage = storage
        self._checkpoint = checkpoint
        self._written: set[str] = set()

    def write(self, incident: Incident) -> None:
        """Keep an incident as it stands now; one of the same id is replaced.

        Raises:
            StorageError: it cannot be written (subclasses).
        """
        self._storage.write(
            locate_incident(self._checkpoint, incident.id), incident.to_bytes(Signer.at(self._keys, self._checkpoint))
        )
        if incident.id not in self._written:
            self._written.add(incident.id)
            for surplus in self.list()[:-INCIDENTS_MAX]:
                # Safe: it is the oldest of a thousand stories; what a recovery is finished or taken back by lies in a
                # folder of its own. But never the one that was just written, which counts as the oldest where a clock
                # was set back, or where somebody has put a thousand files of later years here.
                if surplus != incident.id:
                    self._storage.remove(locate_incident(self._checkpoint, surplus))

    def read(self, id: str) -> Incident:  # noqa: A002 - the name the user reads
        """One of them; see `read_incident`."""
        return read_incident(self._storage, self._checkpoint, id, self._keys)

    def last(self) -> Incident | None:
        """The newest of them; see `find_last_incident`."""
        return find_last_incident(self._storage, self._checkpoint, self._keys)

    def list(self) -> Ids:
        """Their ids, oldest first; see `list_incidents`."""
        return list_incidents(self._storage, self._checkpoint)


def locate_incidents(checkpoint: Location) -> Location:
    """Where the incidents of a checkpoint are."""
    return checkpoint.sibling(WORK_SUFFIX) / "incidents"


def locate_incident(checkpoint: Location, incident_id: str) -> Location:
    """The file of one."""
    return locate_incidents(checkpoint) / f"{incident_id}{_SUFFIX}"


def list_incidents(storage: Storage, checkpoint: Location) -> Ids:
    """The ids of the incidents of a checkpoint, oldest first; what is none of ours is left out.

    Raises:
        StorageError: the folder cannot be listed (subclasses).
    """
    names = storage.names(locate_incidents(checkpoint)) or ()
    ids = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(each for each in ids if is_id(each))


def find_last_incident(storage: Storage, checkpoint: Location, keys: KeyRing = NO_KEYS) -> Incident | None:
    """The newest incident of a checkpoint, by one listing and one reading; None if there is none.

    Raises:
        IncidentDamagedError: its file is none.
        StorageError: it cannot be read (subclasses).
    """
    known = list_incidents(storage, checkpoint)
    if not known:
        return None
    return read_incident(storage, checkpoint, known[-1], keys)


def read_incident(storage: Storage, checkpoint: Location, incident_id: str, keys: KeyRing = NO_KEYS) -> Incident:
    """One incident of a checkpoint; with keys, one of them has to have signed it.

    Raises:
        RecoveryUnknownError: there is none of this id.
        IncidentDamagedError: its file is none.
        SignatureMissingError, SignatureWrongError: as `Signer.require`.
        StorageError: it cannot be read (subclasses).
    """
    file = locate_incident(checkpoint, incident_id)
    raw = None
    if is_id(incident_id):
        raw = storage.read(file, limit=INCIDENT_BYTES_MAX)
    if raw is None:
        raise RecoveryUnknownError(f"there is no incident {incident_id}", subject=str(locate_incidents(checkpoint)))
    incident = parse_incident(raw, str(file), Signer.at(keys, checkpoint))
    if incident.id != incident_id:
        raise IncidentDamagedError(
            "the incident is another one", subject=str(file), found=incident.id, expected=incident_id
        )
    return incident
