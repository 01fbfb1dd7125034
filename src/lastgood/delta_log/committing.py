"""A new version of a Delta table that moves marks and files: its bytes, and how it is put in place.

The file of a version is created where there is none, or not at all: so a version is whole or nothing, of several
writers one has it, and what was read before it is what it goes on from.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lastgood import __version__
from lastgood.checkpoint.lines import split_byte_lines
from lastgood.delta_log.actions import Transaction
from lastgood.delta_log.listing import DELTA_LOG, name_commit
from lastgood.notes import read_json
from lastgood.storage.reading import Location
from lastgood.storage.writing import WritableStorage

Action = Mapping[str, Any]
"""One line of the file of a version."""


def format_version(
    operation: str, parameters: Mapping[str, object], actions: Iterable[Action], *, now_ms: int
) -> bytes:
    """The file of a version.

    Args:
        operation: What the history of the table says was done.
        parameters: Its parameters, which Delta keeps as text.
        actions: What was done.
        now_ms: The time.
    """
    info = {
        "timestamp": now_ms,
        "operation": operation,
        "operationParameters": {name: str(value) for name, value in parameters.items()},
        "isBlindAppend": False,
        "engineInfo": f"lastgood/{__version__}",
    }
    lines = [{"commitInfo": info}, *actions]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()


def put_version(storage: WritableStorage, table: Location, version: int, content: bytes) -> bool:
    """Put a version in place; False if somebody else has made it.

    Raises:
        StorageError: the storage does not answer (subclasses); it may have been made or not.
    """
    return storage.create(table / DELTA_LOG / name_commit(version), content)


def make_mark_action(mark: Transaction) -> Action:
    """The action that says how far an application has written."""
    if mark.last_updated_ms is None:
        updated = {}
    else:
        updated = {"lastUpdated": mark.last_updated_ms}
    return {"txn": {"appId": mark.app_id, "version": mark.version, **updated}}


def make_remove_action(added: Mapping[str, Any], *, now_ms: int) -> Action:
    """The action that takes out a file, from the `add` that put it in."""
    kept = {name: added[name] for name in ("size", "tags") if added.get(name) is not None}
    fields = {"partitionValues": added.get("partitionValues") or {}, **kept}
    body = {"path": added["path"], "deletionTimestamp": now_ms, "dataChange": True, "extendedFileMetadata": True}
    return {"remove": {**body, **fields}}


def list_additions(raw: bytes) -> list[dict[str, Any]]:
    """What a version added: the bodies of its `add` actions, as they stand.

    Raises:
        ValueError: it is no version.
    """
    actions = [read_json(line) for line in split_byte_lines(raw) if line.strip()]
    return [action["add"] for action in actions if "add" in action]
