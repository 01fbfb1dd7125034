"""The last incident of a query, and what the keys of this machine say of its file."""

from __future__ import annotations

from lastgood.errors import LastgoodError
from lastgood.journal.incident import Incident
from lastgood.journal.incidents import find_last_incident
from lastgood.settings.config import Config
from lastgood.settings.keys import find_keys
from lastgood.signing import NO_KEYS, SignatureStanding
from lastgood.storage.reading import Location, Storage


def read_last_incident(storage: Storage, location: Location) -> Incident | LastgoodError | None:
    """The last incident; why it cannot be read, which is no reason to say nothing of the rest."""
    try:
        if not location.name:
            return None
        return find_last_incident(storage, location)
    except LastgoodError as error:
        return error


def judge_signature(
    storage: Storage, location: Location, last: Incident | LastgoodError | None, config: Config
) -> SignatureStanding | None:
    """What the keys of this machine say of its file; None without a key, or without an incident that can be read."""
    if isinstance(last, Incident):
        keys = find_keys(config)
    else:
        keys = NO_KEYS
    if not keys or not isinstance(last, Incident):
        return None
    from lastgood.journal.signed_files import find_worst, read_file_of_incident  # noqa: PLC0415 - nobody without a key needs it

    return find_worst(read_file_of_incident(storage, location, last.id, keys))
