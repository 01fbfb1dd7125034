"""Damage to the Delta table that a query reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

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
