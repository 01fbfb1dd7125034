"""Carries out what a plan does to a sink, and takes it back. Whether it is done is told by the sink itself.

A version of a Delta table names the recovery that made it. It is put in place as the very next one after what was read,
or not at all; so whatever it goes by is still so at the instant at which it counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.actions import FENCE, PUT_BACK, RENEW, TAKE_BACK, USE_UP, TableCommit, Transaction
from lastgood.delta_log.committing import Action, additions, marking, put_version, removing, version_bytes
from lastgood.delta_log.listing import DELTA_LOG, commit_name
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.errors import StorageError
from lastgood.journal.room import CheckpointChangedError
from lastgood.planning.sink_steps import DeltaStep, FileSinkStep
from lastgood.sinks.delta.sink import write_obstacles
from lastgood.storage.parallel import Deadline, ask_all
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage

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
    def of(cls, step: DeltaStep, storage: WritableStorage, recovery: str, now_ms: int) -> TableWork:
        """The work for a step."""
        return cls(storage, parse_location(step.table), recovery, now_ms)

    def fence(self, app_id: str) -> str | None:
        """Make every writer fail that has begun to write under a name and has not committed yet.

        The mark stays as it is: nothing that is shown changes, nor what would be skipped.

        Returns:
            None, or why nothing can be committed to the table.

        Raises:
            CheckpointChangedError: others never let us.
            StorageError: the storage does not answer (subclasses).
        """
        for _ in range(_ATTEMPTS_MAX):
            log = self._log(None)
            obstacles = write_obstacles(log)
            if obstacles:
                return obstacles[0]
            mark = log.transactions.get(app_id, Transaction(app_id, -1))
            if self._put(log, FENCE, mark, {}, []):
                return None
        raise self._too_busy()

    def take_back(self, step: DeltaStep) -> None:
        """Do a step; once more changes nothing.

        Raises:
            CheckpointChangedError: the table is not as it was when the plan was made.
            StorageError: the storage does not answer (subclasses).
        """
        self._reach(step, _done_by(step))

    def put_back(self, step: DeltaStep) -> None:
        """Take a step back, if it was done; once more changes nothing.

        Raises:
            CheckpointChangedError, StorageError: as `take_back`.
        """
        self._reach(step, PUT_BACK)

    def is_taken_back(self, step: DeltaStep) -> bool:
        """Whether a step is done, and nobody has written under its name, or touched its files, since."""
        log = self._log(step.version)
        newest = self._own(log, step)
        files = {added["path"] for added in self._added(step)}
        return newest is not None and newest.operation == _done_by(step) and self._change(log, step, files) is None

    def require_taken_back(self, step: DeltaStep) -> None:
        """See that our version is still there: on a local disk Spark may write over one that it has not seen yet.

        Raises:
            CheckpointChangedError: it is not, or somebody has written since.
        """
        if not self.is_taken_back(step):
            raise self._changed("another version in the place of ours, or a newer one of the query", "our version")

    def files_gone(self, step: DeltaStep) -> list[str]:
        """Files that taking it back would show again, and that are not there any more."""
        paths = [added["path"] for added in self._added(step)]
        answers = ask_all(
            [partial(self.storage.stat, self.table / unquote(path)) for path in paths],
            parallel=self.storage.parallel,
            deadline=Deadline.after(_SECONDS),
            subject=str(self.table),
        )
        return [path for path, answer in zip(paths, answers, strict=True) if answer.or_raise() is None]

    def _reach(self, step: DeltaStep, wanted: str) -> None:
        for _ in range(_ATTEMPTS_MAX):
            log = self._log(step.version)
            newest = self._own(log, step)
            if (newest is None and wanted == PUT_BACK) or (newest is not None and self._is_done(newest, step, wanted)):
                return
            added = self._added(step)
            self._require_fit(log, step, {each["path"] for each in added}, wanted)
            mark = step.mark
            files: list[Action] = [{"add": {**each, "dataChange": True}} for each in added]
            told: dict[str, object] = {"version": step.version}
            if wanted != PUT_BACK:
                mark = replace(mark, version=step.batch, last_updated_ms=self.now_ms)
                files = [removing(each, now_ms=self.now_ms) for each in added]
                told = {"batch": step.batch}
            if self._put(log, wanted, mark, told, files):
                return
        raise self._too_busy()

    def _is_done(self, newest: TableCommit, step: DeltaStep, wanted: str) -> bool:
        if wanted != RENEW:
            return newest.operation == wanted
        # Made by an attempt that was interrupted, it may have expired again since.
        mark = newest.by_app.get(step.mark.app_id)
        return newest.operation == wanted and mark is not None and (mark.last_updated_ms or 0) >= self.now_ms

    def _put(
        self, log: TableLog, operation: str, mark: Transaction, told: dict[str, object], files: list[Action]
    ) -> bool:
        parameters = {"recovery": self.recovery, "appId": mark.app_id, **told}
        content = version_bytes(operation, parameters, [marking(mark), *files], now_ms=self.now_ms)
        return put_version(self.storage, self.table, log.newest_version + 1, content)

    def _require_fit(self, log: TableLog, step: DeltaStep, files: set[str], wanted: str) -> None:
        obstacles = write_obstacles(log)
        if obstacles:
            raise self._changed(obstacles[0], "a table that can be committed to")
        found = log.metadata.table_id if log.metadata else None
        if found != step.table_id:
            raise self._changed(f"table {found}", f"table {step.table_id}")
        change = self._change(log, step, files)
        if change is not None:
            raise self._changed(change, f"nothing of {step.mark.app_id} since version {step.version}")
        mark = log.transactions.get(step.mark.app_id)
        if step.renews and (mark is None or mark.version < 0):
            return  # it has expired, and the log may have dropped it
        expected = step.batch if wanted == PUT_BACK else step.mark.version
        if mark is None or mark.version != expected:
            raise self._changed(f"mark {mark.version if mark else None}", f"mark {expected}")

    def _change(self, log: TableLog, step: DeltaStep, files: set[str]) -> str | None:
        """What somebody else has done to the name or the files of a step since it was planned; None for nothing."""
        for commit in self._since(log, step):
            is_own = commit.recovery == self.recovery or commit.operation == FENCE
            touches = not files.isdisjoint(commit.added | commit.removed) or step.mark.app_id in commit.by_app
            if touches and not is_own:
                return f"version {commit.version} ({commit.operation or 'no operation is told'})"
        return None

    def _own(self, log: TableLog, step: DeltaStep) -> TableCommit | None:
        """The newest version by which this recovery did the step, or took it back."""
        own = [c for c in self._since(log, step) if c.recovery == self.recovery and c.operation != FENCE]
        return own[-1] if own else None

    def _since(self, log: TableLog, step: DeltaStep) -> Iterator[TableCommit]:
        return (commit for commit in log.commits if commit.version > step.version)

    def _added(self, step: DeltaStep) -> list[dict[str, Any]]:
        found = []
        for version in step.versions:
            file = self.table / DELTA_LOG / commit_name(version)
            raw = self.storage.read(file, limit=_VERSION_BYTES_MAX)
            if raw is None:
                raise self._changed(f"no version {version} any more", "the log of the table as it was", file)
            found += additions(raw)
        return found

    def _log(self, since: int | None) -> TableLog:
        more = {"commits_max": 1} if since is None else {"since": since}
        log = read_table_log(self.storage, self.table, deadline=Deadline.after(_SECONDS), **more)
        if log is None or isinstance(log, Damage):
            raise self._changed("no table" if log is None else str(log), "the table of the plan")
        untold = log.unknown or log.unjudged
        if untold is not None:
            raise StorageError("the log of the table does not tell all", subject=str(self.table), found=untold)
        if since is not None and log.oldest_read > since + 1:
            raise self._changed(f"versions from {log.oldest_read} on", f"versions from {since + 1} on")
        return log

    def _changed(self, found: str, expected: str, subject: Location | None = None) -> CheckpointChangedError:
        return CheckpointChangedError(
            "a sink was changed by somebody else since the plan was made",
            subject=str(subject or self.table),
            found=found,
            expected=expected,
            effect="the checkpoint stays sealed; no driver can start on it",
            next="see who writes there; then finish or undo the recovery",
        )

    def _too_busy(self) -> CheckpointChangedError:
        return self._changed(f"others who were quicker {_ATTEMPTS_MAX} times", "a version of our own")


def _done_by(step: DeltaStep) -> str:
    if step.renews:
        return RENEW
    return USE_UP if step.uses_up else TAKE_BACK


def set_aside(step: FileSinkStep, recovery: str) -> tuple[Location, Location]:
    """Where an entry of a file sink's log is, and where it is kept."""
    sink = parse_location(step.sink)
    return sink / step.entry, sink.sibling(WORK_SUFFIX) / f"recoveries/{recovery}/before/{step.entry}"
