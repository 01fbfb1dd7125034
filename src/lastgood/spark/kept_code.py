"""What a checkpoint tells of the code that wrote it, and the code that is noted beside it.

CHECKPOINT.lastgood/code.json    sources, stateful operators and windows of the code that ran last; its version; when
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lastgood.checkpoint.contents import Checkpoint
from lastgood.checkpoint.file_logs import FileLogEntry
from lastgood.checkpoint.layout import SOURCES, STATE
from lastgood.checkpoint.lines import is_long
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.checkpoint.operators import STORE_DEFAULT, StateSchema, list_fields, parse_state_schema
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.checkpoint.state import StateOperator
from lastgood.journal.endings import find_endings
from lastgood.notes import read_json
from lastgood.spark.agent.fit import FORMAT_VERSION
from lastgood.storage.reading import Location, Storage
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage
from lastgood.written import redact_written

NOTE_BYTES_MAX = 1024 * 1024
NOTHING_KEPT: dict[str, Any] = {"sources": [], "operators": [], "noted": None}
"""All code goes with it."""
_FILES_MAX = 1_000


def read_kept(storage: Storage, location: Location, *, is_state_lost: bool = False) -> dict[str, Any]:
    """What the checkpoint at a location keeps, as `agent.fit.compare` takes it.

    Args:
        storage: Of the checkpoint.
        location: Where it is.
        is_state_lost: Whether the code is to make anew what is lost: then what is noted tells what that was.

    Raises:
        StorageError: the storage does not answer (subclasses).
    """
    checkpoint = read_checkpoint(storage, location)
    operators = list(_list_operators(storage, location, checkpoint))
    noted = _read_noted(storage, location, checkpoint) if operators or is_state_lost else None
    if noted is not None and not operators:
        operators = noted["operators"]
    return {"sources": list(_list_sources(checkpoint)), "operators": operators, "noted": noted}


def note_code(
    storage: WritableStorage, location: Location, code: Mapping[str, Any], *, now_ms: int, version: str | None = None
) -> None:
    """Note down the code that runs from now on.

    Args:
        storage: Of the checkpoint.
        location: Where it is.
        code: See `agent.shape.describe`.
        now_ms: The clock, milliseconds since 1970.
        version: What the application calls itself.

    Raises:
        StorageError: it cannot be written (subclasses).
    """
    query = read_checkpoint(storage, location).query
    query_id = query.query_id if isinstance(query, QueryMetadata) else None
    told = {"format": FORMAT_VERSION, "at_ms": now_ms, "query_id": query_id, "version": version, "code": code}
    storage.write(locate_note(location), json.dumps(redact_written(told)).encode())


def locate_note(location: Location) -> Location:
    """Where the code is noted down."""
    return location.sibling(WORK_SUFFIX) / "code.json"


def _list_sources(checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    newest = checkpoint.offsets.newest_entry
    if not isinstance(newest, OffsetEntry):
        return
    logs = {log.folder: log for log in checkpoint.sources}
    for line in newest.sources:
        log = logs.get(f"{SOURCES}/{line.source_id}")
        if isinstance(line.offset, KafkaOffset):
            yield {"topics": sorted(line.offset.topics)}
        elif log is not None:
            entries = [entry for entry in log.entries.values() if isinstance(entry, FileLogEntry)]
            files = (file.path for entry in reversed(entries) for file in entry)
            yield {"files": [path for path, _ in zip(files, range(_FILES_MAX), strict=False)]}
        else:
            yield {}


def _list_operators(storage: Storage, location: Location, checkpoint: Checkpoint) -> Iterator[dict[str, Any]]:
    """Those of which anything is told; a state that was emptied tells nothing, and anything may fill it."""
    for operator in () if checkpoint.state is None else checkpoint.state.operators:
        schema = operator.schema or _read_schema(storage, location, operator)
        if schema is None and operator.name is None:
            continue
        families = () if schema is None else schema.families
        is_plain = len(families) == 1 and all(each.name == STORE_DEFAULT for each in operator.stores)
        keys, values = (families[0].key, families[0].value) if is_plain else (None, None)
        yield {
            "id": operator.operator,
            "name": operator.name,
            "keys": _list_columns(keys),
            "values": _list_columns(values),
        }


def _read_schema(storage: Storage, location: Location, operator: StateOperator) -> StateSchema | None:
    path = f"{STATE}/{operator.operator}/0/_metadata/schema"
    raw = storage.read(location / path, limit=NOTE_BYTES_MAX)
    schema = None if raw is None else parse_state_schema(raw)
    return schema if isinstance(schema, StateSchema) else None


def _list_columns(schema: str | None) -> list[list[Any]] | None:
    fields = None if schema is None else list_fields(schema)
    if fields is None:
        return None
    return [[str(field.get("name")), field.get("type")] for field in fields]


def _read_noted(storage: Storage, location: Location, checkpoint: Checkpoint) -> dict[str, Any] | None:
    """The code that is noted, if the state is from it: of the same query, and not made anew since."""
    raw = storage.read(locate_note(location), limit=NOTE_BYTES_MAX)
    if raw is None:
        return None
    try:
        told = read_json(raw)
    except ValueError:
        return None  # it is none of ours: what it would tell is not known
    query = checkpoint.query
    is_ours = isinstance(told, dict) and told.get("format") == FORMAT_VERSION and _is_code(told.get("code"))
    if not is_ours or not isinstance(query, QueryMetadata) or told.get("query_id") != query.query_id:
        return None
    at_ms = told.get("at_ms")
    if not isinstance(at_ms, int) or any(ending.at_ms >= at_ms for ending in find_endings(storage, location)):
        return None
    code: dict[str, Any] = told["code"]
    return code


def _is_code(told: object) -> bool:
    """Whether it has the form of `agent.shape.describe`: anybody who writes to the lake may have written it."""
    if not isinstance(told, dict) or not isinstance(told.get("spark"), str):
        return False
    operators, windows = told.get("operators"), told.get("windows")
    return _is_list_of(operators, _is_operator) and _is_list_of(windows, _is_window)


def _is_operator(told: Mapping[str, Any]) -> bool:
    columns = (told.get("keys"), told.get("values"))
    are_columns = all(each is None or _is_list_of_pairs(each) for each in columns)
    is_named = is_long(told.get("id")) and isinstance(told.get("name"), str | None)
    computes = told.get("computes")
    return are_columns and is_named and isinstance(computes, list) and all(isinstance(each, str) for each in computes)


def _is_window(told: Mapping[str, Any]) -> bool:
    if "gap" in told:
        return isinstance(told["gap"], str)
    return all(is_long(told.get(name)) for name in ("length_us", "slide_us", "begin_us"))


def _is_list_of(told: object, is_one: Callable[[Mapping[str, Any]], bool]) -> bool:
    return isinstance(told, list) and all(isinstance(each, dict) and is_one(each) for each in told)


def _is_list_of_pairs(told: Sequence[object]) -> bool:
    pairs = isinstance(told, list) and all(isinstance(each, list) and len(each) == 2 for each in told)
    return pairs and all(isinstance(each[0], str) for each in told if isinstance(each, list))
