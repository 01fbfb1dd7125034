"""Carries out what a plan does to a Delta table, and takes it back. Whether it is done is told by the table itself.

A version of a Delta table names the recovery that made it. It is put in place as the very next one after what was read,
or not at all; so whatever it goes by is still so at the instant at which it counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.actions import FENCE, PUT_BACK, RENEW, TAKE_BACK, USE_UP, TableCommit, Transaction
from lastgood.delta_log.committing import (
    Action,
    format_version,
    list_additions,
    make_mark_action,
    make_remove_action,
    put_version,
)
from lastgood.delta_log.listing import DELTA_LOG, name_commit
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.errors import StorageError
from lastgood.frozen import dataclass
from lastgood.sinks.delta.sink import write_obstacles
from lastgood.sinks.delta.step import DeltaStep
from lastgood.steps.carrying import Carrying, CheckpointChangedError, Site, UndoRefusedError
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage, require_exclusive_create

_SECONDS = 120.0
_ATTEMPTS_MAX = 50
"""Others may be writing to the table all the time; each attempt that fails means that one of them has."""
_VERSION_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class TableWork:
    """What one recovery does to one Delta table."""

    storage: WritableStorage
    table: Location
    recovery: str
    now_ms: int

    @classmethod
    def at(cls, site: Site, table: str) -> TableWork:
        """The work of the recovery of a site."""
        location = parse_location(table)
        return cls(site.open_other(location), location, site.recovery, site.now_ms)

    def log(self, since: int | None) -> TableLog:
        """The log of the table, whole as far as it counts.

        Args:
            since: The version after which every one has to be read; None: the newest is enough.

        Raises:
            CheckpointChangedError: there is no table, or not all of these versions are there.
            StorageError: the storage does not answer, or the log does not tell all (subclasses).
        """
        if since is None:
            more = {"commits_max": 1}
        else:
            more = {"since": since}
        log = read_table_log(self.storage, self.table, deadline=Deadline.after(_SECONDS), **more)
        if log is None or isinstance(log, Damage):
            raise self.changed("no table" if log is None else str(log), "the table of the plan")
        untold = log.unknown or log.unjudged
        if untold is not None:
            raise StorageError("the log of the table does not tell all", subject=str(self.table), found=untold)
        if since is not None and log.oldest_read > since + 1:
            raise self.changed(f"versions from {log.oldest_read} on", f"versions from {since + 1} on")
        return log

    def put(
        self, log: TableLog, operation: str, mark: Transaction, told: dict[str, object], files: list[Action]
    ) -> bool:
        """Put the version in place that follows a log; False if somebody else was quicker."""
        parameters = {"recovery": self.recovery, "appId": mark.app_id, **told}
        content = format_version(operation, parameters, [make_mark_action(mark), *files], now_ms=self.now_ms)
        # Safe, though no version ever goes again: it is created under the number right after what was read and judged,
        # by a storage on which of several who create one file only one does (`require_means`); so nothing is written
        # over, and nothing came in between. It only adds to the history. The files that it takes out stay on the disk,
        # and `undo` adds them again by one more version. Killed before or after, the table has it whole or not at all,
        # and by the name of the recovery in it we know it as ours.
        return put_version(self.storage, self.table, log.newest_version + 1, content)

    def changed(self, found: str, expected: str, subject: Location | None = None) -> CheckpointChangedError:
        """The error for a table that is not as it was when the plan was made."""
        return CheckpointChangedError(
            "a sink was changed by somebody else since the plan was made",
            subject=str(subject or self.table),
            found=found,
            expected=expected,
            effect="the checkpoint stays sealed; no driver can start on it",
            next="see who writes there; then finish or undo the recovery",
        )

    def too_busy(self) -> CheckpointChangedError:
        """The error for a table to which others never let us commit."""
        return self.changed(f"others who were quicker {_ATTEMPTS_MAX} times", "a version of our own")


def require_means(site: Site, table: str) -> None:
    """See that of several who commit a version to a table only one does.

    Raises:
        ExclusiveCreateUnsupportedError: no.
        StorageError: the table cannot be written to (subclasses).
    """
    folder = parse_location(table) / DELTA_LOG
    require_exclusive_create(site.open_other(folder), folder)


def fence_off(site: Site, table: str, app_id: str) -> str | None:
    """Make every writer fail that has begun to write under a name and has not committed yet.

    The mark stays as it is: nothing that is shown changes, nor what would be skipped.

    Returns:
        None, or why nothing can be committed to the table.

    Raises:
        CheckpointChangedError: others never let us.
        StorageError: the storage does not answer (subclasses).
    """
    work = TableWork.at(site, table)
    for _ in range(_ATTEMPTS_MAX):
        log = work.log(None)
        obstacles = write_obstacles(log)
        if obstacles:
            return obstacles[0]
        mark = log.transactions.get(app_id, Transaction(app_id, -1))
        if work.put(log, FENCE, mark, {}, []):
            return None
    raise work.too_busy()


class CarriedDeltaStep(Carrying):
    """A step on its table; all that it takes out stays in the table's own history, from which `undo` has it."""

    def __init__(self, step: DeltaStep, site: Site) -> None:
        """Find the table; nothing is read yet."""
        self._step = step
        self._site = site
        self._work = TableWork.at(site, step.table)

    def require_means(self) -> None:
        """See that of several who commit a version only one does."""
        require_means(self._site, self._step.table)

    def is_as_planned(self, seal: Collection[str]) -> bool:
        """Whether the step can still be done: somebody may have rewritten its files, as OPTIMIZE does."""
        try:
            log = self._work.log(self._step.version)
            if self._own(log) is None:
                self._require_same(log, {added["path"] for added in self._added()}, self._done_by)
        except CheckpointChangedError:
            return False
        return True

    def do(self, seal: Collection[str]) -> None:
        """Move the mark, and take the files out."""
        self._reach(self._done_by)

    def undo(self, seal: Collection[str]) -> None:
        """Put mark and files back, if that was done."""
        self._reach(PUT_BACK)

    def is_done(self, seal: Collection[str] = ()) -> bool:
        """Whether it is done, and nobody has written under its name, or touched its files, since."""
        log = self._work.log(self._step.version)
        newest = self._own(log)
        files = {added["path"] for added in self._added()}
        return newest is not None and newest.operation == self._done_by and self._change(log, files) is None

    def require_done(self) -> None:
        """See that our version is still there: on a local disk Spark may write over one that it has not seen yet."""
        if not self.is_done():
            raise self._work.changed("another version in the place of ours, or a newer one of the query", "our version")

    def require_backup(self) -> None:
        """See that the files are there which would be shown again."""
        paths = [added["path"] for added in self._added()]
        storage, table = self._work.storage, self._work.table
        answers = ask_all(
            [partial(storage.stat, table / unquote(path)) for path in paths],
            parallel=storage.parallel,
            deadline=Deadline.after(_SECONDS),
            subject=str(table),
        )
        gone = [path for path, answer in zip(paths, answers, strict=True) if answer.or_raise() is None]
        if gone:
            found = f"no {gone[0]}"
            if len(gone) > 1:
                found += f" and {len(gone) - 1} more"
            raise UndoRefusedError(
                "files that would be shown again were deleted, as VACUUM does",
                subject=self._step.path,
                found=found,
                effect="nothing has been changed",
            )

    @property
    def _done_by(self) -> str:
        """The operation that does it."""
        if self._step.renews:
            return RENEW
        return USE_UP if self._step.uses_up else TAKE_BACK

    def _reach(self, wanted: str) -> None:
        """Have the newest version of ours be of this operation."""
        step, work = self._step, self._work
        for _ in range(_ATTEMPTS_MAX):
            log = work.log(step.version)
            newest = self._own(log)
            if newest is None and wanted == PUT_BACK:
                return
            if newest is not None and self._is_reached(newest, wanted):
                return
            added = self._added()
            self._require_fit(log, {each["path"] for each in added}, wanted)
            mark = step.mark
            files: list[Action] = [{"add": {**each, "dataChange": True}} for each in added]
            told: dict[str, object] = {"version": step.version}
            if wanted != PUT_BACK:
                mark = replace(mark, version=step.batch, last_updated_ms=work.now_ms)
                files = [make_remove_action(each, now_ms=work.now_ms) for each in added]
                told = {"batch": step.batch}
            if work.put(log, wanted, mark, told, files):
                return
        raise work.too_busy()

    def _is_reached(self, newest: TableCommit, wanted: str) -> bool:
        if wanted != RENEW:
            return newest.operation == wanted
        # Made by an attempt that was interrupted, it may have expired again since.
        mark = newest.by_app.get(self._step.mark.app_id)
        return newest.operation == wanted and mark is not None and (mark.last_updated_ms or 0) >= self._work.now_ms

    def _require_fit(self, log: TableLog, files: set[str], wanted: str) -> None:
        obstacles = write_obstacles(log)
        if obstacles:
            raise self._work.changed(obstacles[0], "a table that can be committed to")
        self._require_same(log, files, wanted)

    def _require_same(self, log: TableLog, files: set[str], wanted: str) -> None:
        step, changed = self._step, self._work.changed
        found = log.metadata.table_id if log.metadata else None
        if found != step.table_id:
            raise changed(f"table {found}", f"table {step.table_id}")
        change = self._change(log, files)
        if change is not None:
            raise changed(change, f"nothing of {step.mark.app_id} since version {step.version}")
        mark = log.transactions.get(step.mark.app_id)
        if step.renews and (mark is None or mark.version < 0):
            return  # it has expired, and the log may have dropped it
        expected = step.batch if wanted == PUT_BACK else step.mark.version
        if mark is None or mark.version != expected:
            raise changed(f"mark {mark.version if mark else None}", f"mark {expected}")

    def _change(self, log: TableLog, files: set[str]) -> str | None:
        """What somebody else has done to the name or the files of the step since it was planned; None for nothing."""
        for commit in self._since(log):
            is_own = commit.recovery == self._work.recovery or commit.operation == FENCE
            touches = not files.isdisjoint(commit.added | commit.removed) or self._step.mark.app_id in commit.by_app
            if touches and not is_own:
                return f"version {commit.version} ({commit.operation or 'no operation is told'})"
        return None

    def _own(self, log: TableLog) -> TableCommit | None:
        """The newest version by which this recovery did the step, or took it back."""
        own = [c for c in self._since(log) if c.recovery == self._work.recovery and c.operation != FENCE]
        if not own:
            return None
        return own[-1]

    def _since(self, log: TableLog) -> Iterator[TableCommit]:
        return (commit for commit in log.commits if commit.version > self._step.version)

    def _added(self) -> list[dict[str, Any]]:
        """What the versions added whose files go, as they say it."""
        storage, found = self._work.storage, []
        for version in self._step.versions:
            file = self._work.table / DELTA_LOG / name_commit(version)
            raw = storage.read(file, limit=_VERSION_BYTES_MAX)
            if raw is None:
                raise self._work.changed(f"no version {version} any more", "the log of the table as it was", file)
            found += list_additions(raw)
        return found
