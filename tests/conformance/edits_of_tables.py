"""Damage to the Delta table that a query reads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from conformance.folders import entry, ids, write
from conformance.inputs import TABLE, commit_file, newest_version, recreate
from conformance.rows import Parameters, row
from deltalake import DeltaTable


def _cleanups(case: Path) -> Iterator[Parameters]:
    if (case / TABLE).is_dir():
        for below in (1, newest_version(case / TABLE) - 2, newest_version(case / TABLE)):
            yield {"below": below}


@row(_cleanups, weight=4)
def clean_up_table(case: Path, below: int) -> None:
    """Remove the versions below one, as log retention does once there is a checkpoint of the table."""
    DeltaTable(case / TABLE).create_checkpoint()
    for version in range(below):
        commit_file(case / TABLE, version).unlink(missing_ok=True)


def _tables(case: Path) -> Iterator[Parameters]:
    if (case / TABLE).is_dir():
        yield {"how": "recreate"}
        yield {"how": "remove"}


@row(_tables, weight=3)
def replace_table(case: Path, how: str) -> None:
    shutil.rmtree(case / TABLE)
    if how == "recreate":
        recreate(case / TABLE)


_FORMS: dict[str, dict[str, Any]] = {
    "version-0": {"sourceVersion": 0},
    "version-2": {"sourceVersion": 2},
    "version-4": {"sourceVersion": 4},
    "other-table": {"reservoirId": "11111111-2222-3333-4444-555555555555"},
    "base-of-version-3": {"sourceVersion": 3, "index": -1},
}
"""What Delta refuses of its offsets, or takes for something else."""


def _forms(case: Path) -> Iterator[Parameters]:
    if (case / TABLE).is_dir():
        for batch in ids(case, "offsets")[-2:]:
            yield from ({"batch": batch, "how": how} for how in _FORMS)


@row(_forms, weight=3)
def change_table_offset(case: Path, batch: int, how: str) -> None:
    """Write another form into the offset of a Delta table."""
    path = entry(case, "offsets", batch)
    *lines, last = path.read_bytes().split(b"\n")
    head, brace, text = last.partition(b"{")
    try:
        offset = {**json.loads(brace + text), **_FORMS[how]}
    except ValueError:
        return  # an earlier damage has left no offset
    changed = head + json.dumps(offset, separators=(",", ":")).encode()
    write(path, b"\n".join([*lines, changed]), crc="none")
