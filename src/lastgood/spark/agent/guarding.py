"""The guard in the driver: a query whose code does not go with its checkpoint is not started.

What the checkpoints keep lies in a file of the agent's folder, which lastgood writes before each start of the command;
what the code is made of is told to lastgood in a file beside it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .driver import FILE, make_file_stem, make_private
from .fit import CODE_SUFFIX, KEPT_FILE, REUSED, compare
from .sessions import is_connect
from .starts import NotToStartError, Start, identify

_CONDITION = "CODE_DOES_NOT_FIT"
_ORDER = ("sources", "windows", "state")
"""What is told first, and so decides what lastgood does about it."""


class CodeGuard:
    """Compares each query that starts with its checkpoint; belongs to one agent."""

    def __init__(self, folder: Path) -> None:
        """Take the folder of the agent."""
        self._folder = folder
        self._told = 0

    def check(self, start: Start, outcomes: Sequence[str] = (REUSED,)) -> None:
        """See that a query goes with its checkpoint.

        Args:
            start: Of the query.
            outcomes: Of `fit.compare`: with which it must not start. Where Spark stops by itself, that is left to it.

        Raises:
            NotToStartError: it does not.
        """
        checkpoint = start.checkpoint
        kept = None if checkpoint is None else self._find_kept(checkpoint)
        if kept is None or is_connect(start.session):
            return
        from . import shape  # noqa: PLC0415 - a client of Spark Connect has no py4j

        frame = start.writer._df  # noqa: SLF001 - a writer has no other way to its DataFrame
        if kept["operators"] or shape.may_keep_state(frame):
            code = shape.describe(frame, shape.find_output_mode(start.writer))
            noted: dict[str, Any] | None = code
        else:
            code = {"sources": shape.describe_sources(frame), "operators": [], "windows": []}
            noted = None
        misfits = compare(kept, code)
        severe = [each for each in misfits if each["outcome"] in outcomes]
        if severe:
            severe.sort(key=_rank)
            told = "; ".join(f"{each['subject']}: {each['found']}; there: {each['expected']}" for each in severe)
            raise NotToStartError(f"[{_CONDITION}] {told}")
        self._put({"checkpoint": checkpoint, "code": noted, "misfits": misfits})

    def _find_kept(self, checkpoint: str) -> dict[str, Any] | None:
        file = self._folder / KEPT_FILE
        if not file.exists():
            return None
        for each in json.loads(file.read_text()):
            if identify(each["checkpoint"]) == identify(checkpoint):
                kept: dict[str, Any] = each["kept"]
                return kept
        return None

    def _put(self, told: dict[str, Any]) -> None:
        make_private(self._folder)
        file = self._folder / f"{make_file_stem()}.{self._told:06d}{CODE_SUFFIX}"
        self._told += 1
        draft = file.with_suffix(".tmp")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE), "w") as stream:  # noqa: PTH123 - a descriptor
            stream.write(json.dumps(told))
        # Safe: the name is of this start alone.
        draft.replace(file)


def _rank(misfit: dict[str, str]) -> int:
    return _ORDER.index(misfit["subject"].partition("/")[0])
