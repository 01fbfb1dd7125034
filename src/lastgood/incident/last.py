"""The last incident of a query, and what the keys of this machine say of its file."""

from __future__ import annotations

from lastgood.errors import LastgoodError
from lastgood.journal.incident import Incident
from lastgood.journal.incidents import last_incident
from lastgood.settings.config import Config
from lastgood.settings.keys import keys_of
from lastgood.signing import NO_KEYS, SignatureStanding
from lastgood.storage.reading import Location, Storage


def read_last_incident(storage: Storage, location: Location) -> Incident | LastgoodError | None:
    """The last incident; why it cannot be read, which is no reason to say nothing of the rest."""
    try:
        if not location.name:
            return None
        return last_incident(storage, location)
    except LastgoodError as error:
        return error


def judge_signature(
    storage: Storage, location: Location, last: Incident | LastgoodError | None, config: Config
) -> SignatureStanding | None:
    """What the keys of this machine say of its file; None without a key, or without an incident that can be read."""
    if isinstance(last, Incident):
        keys = keys_of(config)
    else:
        keys = NO_KEYS
    if not keys or not isinstance(last, Incident):
        return None
    from lastgood.journal.signed_files import file_of_incident, worst  # noqa: PLC0415 - nobody without a key needs it

    return worst(file_of_incident(storage, location, last.id, keys))
