"""Whether what a run that has ended left in this Java may still write state beside that of the next run.

The state of a query stays in the memory of executors when its run has ended, and a thread of theirs writes snapshots of
it until it is unloaded, a minute later or more. Of batches that are committed these hold what there is already. Of one
that is not, the next run makes its own state, which need not be the same (a random number, a function of Python) and
bears the same name. Only what was also written as a change of the state is written as a snapshot: so where no file of
that batch's state is there, none comes.
"""

from __future__ import annotations

import re
from typing import Any

_STORES = ("state/*/*/", "state/*/*/*/")
"""An operator's partitions; some have several stores each."""
_GLOB_SIGNS = re.compile(r"([\\{}\[\]*?])")
_ASYNCHRONOUS = "AsyncProgressTracking"
"""How the name of an execution begins whose logs are written by threads of their own."""


def find_unsettled(jvm: Any, java_query: Any) -> str | None:
    """Why a next run would not be alone with the state and the logs of a query whose run has ended; None: it would be.

    Args:
        jvm: Java's classes.
        java_query: The run; no task of it is left.
    """
    execution = java_query.streamingQuery()
    if str(execution.getClass().getSimpleName()).startswith(_ASYNCHRONOUS):
        return "its logs are written by other threads, and nobody knows whether these have ended"
    checkpoint = _Checkpoint(jvm, java_query.sparkSession(), str(execution.resolvedCheckpointRoot()))
    if not checkpoint.list_names("state/*"):
        return None
    if str(java_query.sparkSession().version()).startswith("3.") and checkpoint.has_state("*.changelog"):
        return "Spark 3 makes snapshots of state with a changelog before that is written"
    committed = max(map(int, filter(str.isdecimal, checkpoint.list_names("commits/*"))), default=-1)
    # The state behind a batch has the next number.
    if checkpoint.has_state(f"{committed + 2}.*"):
        return f"state of batch {committed + 1}, which is not committed, was written, and may be written once more"
    return None


class _Checkpoint:
    """The files of a checkpoint, as Spark sees them."""

    def __init__(self, jvm: Any, java_session: Any, root: str) -> None:
        self._path = jvm.org.apache.hadoop.fs.Path
        self._root = _GLOB_SIGNS.sub(r"\\\1", root)
        self._storage = self._path(root).getFileSystem(java_session.sessionState().newHadoopConf())

    def list_names(self, pattern: str) -> list[str]:
        """Names of the files that fit."""
        found = self._storage.globStatus(self._path(f"{self._root}/{pattern}"))
        return [str(each.getPath().getName()) for each in found or ()]

    def has_state(self, name: str) -> bool:
        """Whether a store has a file of such a name."""
        return any(self.list_names(store + name) for store in _STORES)
