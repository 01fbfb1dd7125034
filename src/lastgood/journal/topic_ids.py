"""Of which topics the offsets of a query are, by the ids that tell a topic from a later one of the same name.

CHECKPOINT.lastgood/topics.json

Spark writes no id down, and offsets of a topic that was created again look like those of the first. So the ids are kept
here whenever it was judged that the query goes on in these topics, and never because it just did.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.values import JsonValue

_BYTES_MAX = 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Noted(JsonValue):
    query: str | None = None
    topics: Mapping[str, Any] = field(default_factory=dict)


def read_topic_ids(storage: Storage, checkpoint: Location, query_id: str | None) -> dict[str, str]:
    """Topic → id, of the query with this id; of whichever it was if the id is lost. Empty: nobody has noted any down.

    What was noted down before a first start, when the query had no id yet, is of the query that was started then.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    raw = storage.read(_locate_file(checkpoint), limit=_BYTES_MAX)
    if raw:
        noted = _parse(raw)
    else:
        noted = _Noted()
    if None not in (noted.query, query_id) and noted.query != query_id:
        return {}
    return {topic: each for topic, each in noted.topics.items() if isinstance(each, str)}


def write_topic_ids(
    storage: WritableStorage, checkpoint: Location, query_id: str | None, ids: Mapping[str, str]
) -> None:
    """Note them down, in place of what was noted before; without an id before a first start.

    Raises:
        StorageError: it cannot be written (subclasses).
    """
    content = json.dumps(_Noted(query_id, dict(sorted(ids.items()))).to_json()).encode() + b"\n"
    if content != storage.read(_locate_file(checkpoint), limit=_BYTES_MAX):
        storage.write(_locate_file(checkpoint), content)


def _locate_file(checkpoint: Location) -> Location:
    return checkpoint.sibling(WORK_SUFFIX) / "topics.json"


def _parse(raw: bytes) -> _Noted:
    try:
        return _Noted.from_json(read_json(raw))
    except ValueError:  # as if nobody had noted anything down: then the times of records tell
        return _Noted()
