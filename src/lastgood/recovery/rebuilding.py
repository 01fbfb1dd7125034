"""The checkpoint on which a query runs silently, beside its own: what is copied into it, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.layout import (
    COMMITS,
    METADATA,
    OFFSETS,
    SOURCES,
    STATE,
    HadoopChecksumFile,
    OperatorMetadataFile,
    SparkChecksumFile,
    StateStoreFile,
    TemporaryFile,
    classify,
    parse_state_version,
)
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.reader import read_checkpoint
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.ids import is_id
from lastgood.observe.open_query import OpenQuery
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan
from lastgood.planning.replay import Replay
from lastgood.planning.steps import REBUILT, REBUILT_CHECKPOINT, is_of_state
from lastgood.query.observation import RebuiltState
from lastgood.query.replays import list_files_of
from lastgood.recovery.plans import PlanOptions
from lastgood.settings.target import Target
from lastgood.spark.kept_code import read_kept
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.overlay import Brought, OverlayStorage
from lastgood.storage.reading import Location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import WritableStorage, open_writable

_PROBE = "probe"


class Muted(Protocol):
    """An application whose query runs without its sink."""

    def run(self, below: str, batch: int) -> None:
        """Have the query run its newest plan on another checkpoint.

        Args:
            below: What is added to the name of its own checkpoint.
            batch: The batch that this is, for what is said.

        Raises:
            RebuildFailedError: it ended with an error, or was never started.
        """
        ...


class Rebuilding(Protocol):
    """Has the application of a query make its state anew."""

    def foresee(self, target: Target, options: PlanOptions) -> Replay:
        """Which batches would run again.

        Raises:
            RepairRefusedError, WaiverNeededError: none, and why.
        """
        ...

    def rebuild(self, target: Target, options: PlanOptions, tell: Callable[[str], None]) -> Plan:
        """Have them run, and plan how it is brought what they have made.

        Raises:
            LastgoodError: they did not run, or not as before (subclasses).
        """
        ...


class RebuildFailedError(LastgoodError):
    """The application did not run a batch silently, so that no state was made anew."""

    condition = "REBUILD_FAILED"
    exit_code = 85
    retry = Retry.AFTER_CHANGE

    @classmethod
    def of_batch(cls, batch: int, subject: str, found: str) -> RebuildFailedError:
        """A batch has ended with an error; `found` is one line."""
        return cls(
            f"batch {batch} did not run again as it was planned",
            subject=subject,
            found=found,
            expected="what it did when it ran first",
            effect="nothing has been changed",
        )

    @classmethod
    def of_others(cls, sentence: str, subject: str, found: str, others: Sequence[str]) -> RebuildFailedError:
        """The query was not started, or not to the end; `others` are the checkpoints of those that were."""
        if others:
            found = f"{found}; the queries that it started checkpoint to {', '.join(others[:3])}"
        return cls(
            sentence,
            subject=subject,
            found=found,
            expected="an application that starts the query of this checkpoint",
            effect="nothing has been changed",
        )


class RebuildDivergedError(LastgoodError):
    """A batch that ran again did not come to what it had come to first."""

    condition = "REBUILD_DIVERGED"
    exit_code = 86
    retry = Retry.NEVER


@dataclass(frozen=True, slots=True)
class SilentCheckpoint:
    """A checkpoint beside the one of a query, on which its batches run again."""

    query: OpenQuery
    """With what only a planner knows."""
    replay: Replay
    id: str
    storage: WritableStorage
    is_new_code: bool = False
    """Whether other code makes it than has made what is there."""

    @classmethod
    def of(cls, query: OpenQuery, replay: Replay, rebuild: str, *, is_new_code: bool = False) -> SilentCheckpoint:
        """That of a rebuild with this id; nothing is written yet."""
        return cls(query, replay, rebuild, open_writable(query.location), is_new_code)

    @property
    def folder(self) -> str:
        """Where it lies, below what lies beside the checkpoint."""
        return f"{REBUILT}/{self.id}/{REBUILT_CHECKPOINT}"

    @property
    def below(self) -> str:
        """What is added to the name of the checkpoint to find it."""
        return f"{WORK_SUFFIX}/{self.folder}"

    @property
    def root(self) -> Location:
        """Where it lies."""
        return self.query.location.sibling(WORK_SUFFIX) / self.folder

    @property
    def probe_below(self) -> str:
        """As `below`, of a checkpoint that shows which stores the query keeps."""
        return f"{WORK_SUFFIX}/{REBUILT}/{self.id}/{_PROBE}"

    @property
    def probe_root(self) -> Location:
        """Where that lies."""
        return self.query.location.sibling(WORK_SUFFIX) / f"{REBUILT}/{self.id}/{_PROBE}"

    @property
    def is_whole(self) -> bool:
        """Whether nothing that is there of the state is of any use any more."""
        return self.is_new_code or bool(self.replay.starts)

    def fill(self) -> None:
        """Copy what the first batch needs: the query's id, what its sources have noted down, the state it begins with.

        Raises:
            StorageError: it cannot be copied (subclasses).
        """
        location = self.query.location
        self.copy(METADATA)
        for entry in self.storage.walk(location / SOURCES) or ():
            path = f"{SOURCES}/{entry.name}"
            if not isinstance(classify(path), HadoopChecksumFile | TemporaryFile):
                self.copy(path)
        if self.replay.begins and not self.replay.starts:
            for path in self._list_state():
                self.copy(path)
            self.put_plan(self.replay.begins - 1)
            commit = self.read_log(COMMITS, self.replay.begins - 1)
            if commit is not None:
                self.storage.write(self.root / f"{COMMITS}/{self.replay.begins - 1}", commit)

    def put_plan(self, batch: int) -> None:
        """Have a batch planned as it was."""
        raw = self.read_log(OFFSETS, batch)
        if raw is not None:
            self.storage.write(self.root / f"{OFFSETS}/{batch}", raw)

    def read_log(self, log: str, batch: int) -> bytes | None:
        """An entry of the logs, as the checkpoint has it, else the mirror."""
        path = f"{log}/{batch}"
        raw = self.storage.read(self.query.location / path, limit=LOG_BYTES_MAX)
        return raw or self.query.seen.repair.mirror.get(path)

    def read_plans(self) -> dict[int, OffsetEntry]:
        """The plans of all batches that run again, and of the one before them, if there is one.

        Raises:
            RepairRefusedError: one cannot be read, or the mirror has seen another.
        """
        found, mirror = {}, self.query.seen.repair.mirror
        first = self.replay.begins + 1 if self.replay.starts else max(self.replay.begins - 1, 0)
        for batch in range(first, self.replay.ends):
            plan, path = self.read_plan(batch), f"{OFFSETS}/{batch}"
            if plan is None or mirror.get(path, plan.to_bytes()) != plan.to_bytes():
                raise RepairRefusedError(
                    "a plan of a batch that would run again is not there as Spark has written it",
                    subject=f"{self.query.location}: {path}",
                    found="it cannot be read" if plan is None else "another one than the mirror has seen",
                    expected="the plan by which the batch ran",
                    next=self.query.command("diagnose"),
                )
            found[batch] = plan
        return found

    def read_plan(self, batch: int) -> OffsetEntry | None:
        """A plan; None if there is none that can be read."""
        raw = self.read_log(OFFSETS, batch)
        entry = None if raw is None else parse_offset_entry(raw)
        return entry if isinstance(entry, OffsetEntry) else None

    def require_same(self, batch: int) -> None:
        """See that a batch came to the watermark to which it had come when it ran first, as far as anything tells.

        Raises:
            RebuildDivergedError: it did not, or was not committed.
        """
        made = self.read_made(batch)
        if made is None:
            raise self.refuse(batch, "it was not committed", "a commit")
        before = self.read_log(COMMITS, batch)
        known = None if before is None else parse_commit_entry(before)
        if isinstance(known, CommitEntry):
            expected: int | None = known.next_batch_watermark_ms
        else:
            after = self.read_plan(batch + 1)
            expected = None if after is None else after.batch_watermark_ms
        if expected is not None and made.next_batch_watermark_ms != expected:
            raise self.refuse(batch, f"watermark {made.next_batch_watermark_ms}", f"watermark {expected}")

    def collect(self, rests_on: tuple[str, ...]) -> RebuiltState:
        """What takes the place of the state that is there.

        Raises:
            StorageError: it cannot be read (subclasses).
        """
        self._lead_home()
        location = self.query.location
        files = dict(self._list_made())
        there = self.query.seen.repair.state_files
        movable = set(filter(is_of_state, there))  # what is left of a write that was broken off lies there as well
        if self.is_whole:
            old = movable
        else:
            old = set(filter(self._is_later, movable))
        gone = frozenset(old | (there.keys() & files.keys()))
        commits = dict(self._list_commits())
        brought = {path: Brought(self.root / path, size) for path, size in files.items()}
        then = OverlayStorage(self.storage, location, {**dict.fromkeys(gone), **commits}, brought)
        state = read_checkpoint(then, location).state
        if state is None:
            raise self.refuse(self.replay.ends - 1, "no state", "the state that it makes")
        return RebuiltState(state, self.folder, files, gone, commits, rests_on, self.replay.against)

    def read_kept(self) -> dict[str, Any]:
        """What the code has to go with, as `agent.fit.compare` takes it; of new code its sources only.

        Raises:
            StorageError: the storage does not answer (subclasses).
        """
        kept = read_kept(self.storage, self.query.location, is_state_lost=True)
        return {**kept, "operators": [], "noted": None} if self.is_new_code else kept

    def clear(self) -> None:
        """Remove all of it."""
        self.clear_probe()
        self._clear(self.root)

    def clear_probe(self) -> None:
        """Remove what shows which stores the query keeps."""
        self._clear(self.probe_root)

    def clear_older(self) -> None:
        """Remove what other rebuilds have left; a plan that would bring that is refused then."""
        rebuilds = self.query.location.sibling(WORK_SUFFIX) / REBUILT
        for name in list(self.storage.names(rebuilds) or ()):
            other = name.removesuffix("/")
            if is_id(other) and other != self.id:
                self._clear(rebuilds / other / _PROBE)
                self._clear(rebuilds / other / REBUILT_CHECKPOINT)

    def _clear(self, root: Location) -> None:
        for folder in (root / STATE, root):  # a walk goes only so deep
            for entry in list(self.storage.walk(folder) or ()):
                # Safe: it lies in the folder of a rebuild, and none runs but ours, which holds the checkpoint; all of
                # it are copies, or state that was made to be brought, and is in its place if it was.
                self.storage.remove(folder / entry.name)

    def _is_later(self, path: str) -> bool:
        """Whether a file is of a version that the batches make anew."""
        version = parse_state_version(path)
        return version is not None and version > self.replay.begins

    def _lead_home(self) -> None:
        """Let what operators say of themselves name the checkpoint into which it is brought.

        `transformWithState` names its schema files by whole paths, and Spark does not start where these lead nowhere.
        """
        for entry in list(self.storage.walk(self.root / STATE) or ()):
            file = self.root / f"{STATE}/{entry.name}"
            if not isinstance(classify(f"{STATE}/{entry.name}"), OperatorMetadataFile):
                continue
            raw = self.storage.read(file, limit=LOG_BYTES_MAX) or b""
            led = raw.replace(f"{self.below}/".encode(), b"/")
            if led != raw:
                # Safe: a file of the rebuild, which is whole and not brought yet; who is stopped here begins anew.
                self.storage.write(file, led)

    def _list_made(self) -> Iterator[tuple[str, int]]:
        """What the batches have made of the state, and what they noted down of it where that was not copied."""
        there = self.query.seen.repair.state_files
        for entry in self.storage.walk(self.root / STATE) or ():
            path = f"{STATE}/{entry.name}"
            if isinstance(classify(path), HadoopChecksumFile | SparkChecksumFile | TemporaryFile):
                continue
            is_noted_anew = parse_state_version(path) is None and path not in there
            if self.is_whole or is_noted_anew or self._is_later(path):
                yield path, entry.size or 0

    def _list_commits(self) -> Iterator[tuple[str, bytes]]:
        """The commits of the batches, where these name versions of the state."""
        for batch in self.replay.batches:
            path = f"{COMMITS}/{batch}"
            is_wanted = self.storage.stat(self.query.location / path) is not None or batch == self.replay.ends - 1
            entry = self.read_made(batch) if is_wanted else None
            if entry is not None and entry.state_unique_ids:
                yield path, entry.to_bytes()

    def read_made(self, batch: int) -> CommitEntry | None:
        """The commit that a batch has made; None if it made none."""
        raw = self.storage.read(self.root / f"{COMMITS}/{batch}", limit=LOG_BYTES_MAX)
        entry = None if raw is None else parse_commit_entry(raw)
        return entry if isinstance(entry, CommitEntry) else None

    def _list_state(self) -> Iterator[str]:
        """The files of the version with which the batches begin, and what is noted down of the state."""
        state = self.query.checkpoint.state
        needed = set() if state is None else set(list_files_of(state, self.replay.begins))
        for path in sorted(self.query.seen.repair.state_files):
            file = classify(path)
            if isinstance(file, HadoopChecksumFile | SparkChecksumFile | TemporaryFile):
                continue
            if not isinstance(file, StateStoreFile) or path in needed:
                yield path

    def copy(self, path: str, root: Location | None = None) -> None:
        """Copy a file of the checkpoint, if it is there."""
        if self.storage.stat(self.query.location / path) is not None:
            self.storage.copy(self.query.location / path, (root or self.root) / path)

    def refuse(self, batch: int, found: str, expected: str) -> RebuildDivergedError:
        """What a batch came to is not what it has to be."""
        return RebuildDivergedError(
            f"batch {batch} did not come to what it had come to when it ran first",
            subject=str(self.query.location),
            found=found,
            expected=expected,
            effect="nothing has been changed; the data, or the application, is not what it was",
        )
