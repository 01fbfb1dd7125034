"""How far the rows and the mark of one application can be taken back out of a Delta table. Pure.

A batch goes by a version that removes exactly the files which its own version added, and lowers the mark. That is exact
only while these files are as they were written: nobody has removed or rewritten one of them since.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from lastgood.delta_log.actions import TableCommit
from lastgood.delta_log.table import TableLog
from lastgood.sinks.delta.history import History

_FORBIDDING = ("delta.appendOnly", "delta.enableChangeDataFeed", "delta.enableDeletionVectors")


def find_reach_back(log: TableLog, history: History, obstacles: tuple[str, ...]) -> tuple[int | None, str]:
    """The oldest batch to which the table can be taken back, and what stands against going further.

    Args:
        log: The log of the table.
        history: What it did to the batches of the application.
        obstacles: Why nothing can be committed to the table at all.

    Returns:
        The batch, or None if nothing can be taken back; and why not further, in one line for a person.
    """
    reached, because = _go_back(log, history, obstacles)
    if reached is not None and reached < 0:
        return 0, "it is the first batch"
    return reached, because or f"the version of batch {reached} was not read"


def find_obstacle(log: TableLog, history: History, obstacles: tuple[str, ...]) -> str | None:
    """What stands against taking all batches back, also the first, in one line for a person; None if nothing does.

    A batch may have written nothing, as one without corrupt records into a table of these.
    """
    left = _find_left(log, history)
    if left is not None:
        return left
    reached, because = _go_back(log, history, obstacles)
    if reached is not None and reached < 0:
        return None
    are_all_read = log.oldest_read == 0 and history.unclear is None
    if because is None and not are_all_read:
        return f"the version of batch {reached} was not read"
    return because


def _find_left(log: TableLog, history: History) -> str | None:
    """A version whose batch does not count any more, though files that it added are there; for a person."""
    there: set[str] = set()
    for commit in log.commits:
        there -= commit.removed
        there |= commit.added
    gone = {each.version: each.batch_id for each in history.batches if not each.is_live}
    for commit in log.commits:
        if commit.version in gone and commit.added & there:
            why = history.unclear or "a later version has taken it back"
            return f"files of batch {gone[commit.version]} are there, of which nobody knows whether it counts: {why}"
    return None


def _go_back(log: TableLog, history: History, obstacles: tuple[str, ...]) -> tuple[int | None, str | None]:
    """As `find_reach_back`, but below 0 where also the first batch can be taken back.

    None if in none of the versions that were read anything stands against going further.
    """
    against = (*obstacles, *_list_forbidding(log))
    reached = history.shown.batch_id
    if against or reached is None:
        return None, against[0] if against else "it shows no batch whose version is known"
    live = {each.version: each.batch_id for each in history.batches if each.is_live}
    if any(later <= earlier for earlier, later in itertools.pairwise(live.values())):
        return reached, "newer versions hold older batches"
    touched: dict[str, TableCommit] = {}
    for commit in reversed(log.commits):
        batch_id = live.get(commit.version)
        if batch_id is not None:
            why = _explain_obstacle(commit, touched)
            if why is not None:
                return reached, f"batch {batch_id}: {why}"
            reached = batch_id - 1
        if commit.recovery is None:
            touched |= dict.fromkeys(commit.added | commit.removed, commit)
    return reached, None


def list_versions_above(history: History, batch: int) -> tuple[int, ...]:
    """The versions that hold what is shown above a batch, oldest first."""
    found = (each.version for each in history.batches if each.is_live and each.batch_id > batch)
    return tuple(sorted(version for version in found if version is not None))


def _list_forbidding(log: TableLog) -> tuple[str, ...]:
    configuration = log.metadata.configuration if log.metadata else {}
    found = [name for name in _FORBIDDING if configuration.get(name, "").lower() == "true"]
    return tuple(f"the table has {name} = true" for name in found)


def _explain_obstacle(commit: TableCommit, touched: Mapping[str, TableCommit]) -> str | None:
    """Why what a version added cannot be taken back alone; `touched`: files by a later version of somebody else."""
    if commit.removed:
        return f"version {commit.version} also removed files ({commit.operation or 'no operation is told'})"
    if any(path.startswith("/") or "://" in path for path in commit.added):
        return f"version {commit.version} added a file that lies outside the table"
    later = next((touched[path] for path in sorted(commit.added) if path in touched), None)
    if later is None:
        return None
    who = f"version {later.version} ({later.operation or 'no operation is told'})"
    return f"{who} touched what version {commit.version} added"
