"""The lease: at most one process at a time repairs a checkpoint, or loads by it; one that comes late is told so.

CHECKPOINT.lastgood/leases/NUMBER.json      who holds it, and the last sign of life

Each holder creates the next number, exclusively; the newest counts. Its holder writes it again every few seconds. No
clock but that of the process that watches decides whether it still does.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from lastgood.errors import LastgoodError, Retry, StorageError, is_pid, make_process_command
from lastgood.frozen import dataclass
from lastgood.notes import read_json
from lastgood.storage.reading import Location, Storage
from lastgood.storage.writing import WritableStorage
from lastgood.values import JsonValue, make_form

LEASE_SECONDS: Final = 60.0
BEAT_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 1.0
_KEPT = 2
_ROUNDS_MAX = 10
"""So often in a row others are faster."""
_BYTES_MAX = 64 * 1024
_DIGITS_MAX = 10
_FILE = re.compile(r"([1-9]\d*)\.json", re.ASCII)
_UNNAMED = "a process that has not written its name"
NUMBER_MAX: Final = 10**9
"""So many holders no checkpoint has seen: a higher number was not counted up to."""


class LeaseHeldError(LastgoodError):
    """Another process is repairing this checkpoint, or loads by it."""

    condition = "LEASE_HELD"
    exit_code = 53
    retry = Retry.LATER


class LeaseInvalidError(LastgoodError):
    """A lease bears a number that nobody has counted up to, or is no file: whoever put it there keeps others out."""

    condition = "LEASE_INVALID"
    exit_code = 35
    retry = Retry.AFTER_CHANGE


class LeaseLostError(LastgoodError):
    """Another process has taken over the checkpoint, because this one showed no sign of life."""

    condition = "LEASE_LOST"
    exit_code = 58
    retry = Retry.LATER


@dataclass(frozen=True, slots=True)
class LeasePace:
    """How often what is done."""

    lease_seconds: float = LEASE_SECONDS
    """A lease whose file does not change for so long is nobody's any more."""
    beat_seconds: float = BEAT_SECONDS
    """From one sign of life of a holder to its next."""
    look_seconds: float = LOOK_SECONDS
    """From one look of who waits for a sign of life to the next."""


USUAL_PACE: Final = LeasePace()


@dataclass(frozen=True, slots=True)
class Holder(JsonValue):
    """A process that can hold a lease. `make_own` gives ours."""

    json = make_form(closed=True)

    host: str
    machine: str | None
    """What its process id counts on: this start of the machine, and its space of process ids; None if unknown."""
    pid: int
    started: int | None
    """Clock ticks from the start of the machine to its own, which no change of the clock moves; None if unknown."""
    user: str

    @classmethod
    def make_own(cls) -> Holder:
        """This process."""
        pid = os.getpid()
        told = _read_process(pid)
        user = psutil.Process().username()
        return cls(socket.gethostname(), _identify_machine(), pid, None if told is None else told.started, user)

    def is_of_this_machine(self) -> bool:
        """Whether its process id counts here, so that we can tell whether it lives."""
        return self.machine is not None and self.machine == _identify_machine()

    def is_surely_dead(self) -> bool:
        """Whether this machine knows that it has ended; False if it lives, or if we cannot tell."""
        if not self.is_of_this_machine():
            return False
        if not psutil.pid_exists(self.pid):
            return True
        told = _read_process(self.pid)
        return told is not None and (told.is_zombie or self.started not in (None, told.started))

    def __str__(self) -> str:
        """As a person says it."""
        return f"process {self.pid} of {self.user} on {self.host}"


@dataclass(frozen=True, slots=True)
class LeaseRecord(JsonValue):
    """What the file of a lease says."""

    json = make_form(closed=True)

    recovery: str
    holder: Holder
    taken_at: str
    beat_at: str
    """Both as the holder's clock said; for people only."""
    beats: int = 0
    """Signs of life so far: what makes each of them another content, whatever the clock does."""
    released: bool = False

    def to_bytes(self) -> bytes:
        """The content of the file."""
        return json.dumps(self.to_json()).encode()

    def __str__(self) -> str:
        """Who holds it, and since when."""
        return f"{self.recovery}: {self.holder}, since {self.taken_at}, last sign of life {self.beat_at}"


def parse_lease(raw: bytes | None) -> LeaseRecord | None:
    """Read the file of a lease; None if it is not whole."""
    try:
        record = LeaseRecord.from_json(read_json(raw or b""))
    except ValueError:
        return None
    return record if is_pid(record.holder.pid) else None


class Lease:
    """The right to repair one checkpoint. `take_lease` gives one; use it as a context manager.

    A thread gives the signs of life, until it is released or this process ends.
    """

    def __init__(
        self,
        folder: _Leases,
        number: int,
        record: LeaseRecord,
        now_ms: Callable[[], int],
        pace: LeasePace,
    ) -> None:
        """Hold lease `number`, whose file is there."""
        self.number = number
        """Larger than that of every holder before."""
        self._folder = folder
        self._record = record
        self._writing = threading.Lock()
        self._now_ms = now_ms
        self._pace = pace
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name=f"lease-{number}", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """See that it is still ours; to be called right before each change.

        Raises:
            LeaseLostError: somebody else has taken over; nothing may be changed any more.
            StorageError: that cannot be told now.
        """
        newest = self._folder.newest()
        if newest == self.number:
            return
        successor = None
        if newest is not None:
            successor = parse_lease(self._folder.read(newest))
        raise LeaseLostError(
            "somebody else has taken over this checkpoint",
            subject=str(self._folder.file(self.number)),
            found="no lease at all" if newest is None else f"lease {newest}, {successor or 'of an unknown process'}",
            expected=f"lease {self.number}, {self._record.holder}",
            effect="this process changes nothing any more",
        )

    def beat(self) -> None:
        """Give a sign of life.

        Raises:
            StorageError: it could not be written.
        """
        self._write(released=False)

    def release(self) -> None:
        """Let the next one in at once; no error if that was done before.

        Raises:
            StorageError: that could not be written; the next one has to wait until this process is gone.
        """
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        self._write(released=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # Safe, also after an error: a recovery that is not at its end is noted down and sealed, and the next
            # holder finishes it or takes it back.
            self.release()
        except StorageError as failure:
            if error is None:
                raise
            error.add_note(f"the lease is not released: {failure}")

    def _beat_on(self) -> None:
        while not self._ended.wait(self._pace.beat_seconds):
            # The next beat tries again; if somebody takes over meanwhile, `check` tells.
            with contextlib.suppress(StorageError):
                self.beat()

    def _write(self, *, released: bool) -> None:
        with self._writing:
            beats, now = self._record.beats + 1, _format_time(self._now_ms())
            self._record = replace(self._record, beats=beats, beat_at=now, released=released)
            self._folder.storage.write(self._folder.file(self.number), self._record.to_bytes())


@contextlib.contextmanager
def raise_if_overtaken(lease: Lease) -> Iterator[None]:
    """Whoever was overtaken is told that, whatever the block has stumbled over, and at the latest in its end.

    Raises:
        LeaseLostError: somebody else has taken over.
        StorageError: the block has ended well, and that cannot be told now.
    """
    try:
        yield
    except LeaseLostError:
        raise
    except LastgoodError:
        with contextlib.suppress(StorageError):
            lease.check()
        raise
    lease.check()


def take_lease(  # noqa: PLR0913 - all but the place and the purpose by name
    storage: WritableStorage,
    work_folder: Location,
    recovery: str,
    *,
    holder: Holder,
    clock: Callable[[], float],
    wait: Callable[[float], None],
    now_ms: Callable[[], int],
    pace: LeasePace = USUAL_PACE,
    tell: Callable[[str], None] = lambda _: None,
) -> Lease:
    """Become the one who repairs a checkpoint, or loads by it; waits while nobody knows whether the last one lives.

    Call `require_exclusive_create` for this folder before.

    Args:
        storage: The filesystem of `work_folder`.
        work_folder: CHECKPOINT.lastgood.
        recovery: Id of the recovery.
        holder: This process.
        clock: Seconds that only go forward, `time.monotonic`.
        wait: Wait for so many seconds, `time.sleep`.
        now_ms: The time for people, milliseconds since 1970.
        pace: How long to wait for a sign of life, and how often to give one.
        tell: Gets a line for a person where it waits.

    Raises:
        LeaseHeldError: another process is at it; names it.
        LeaseInvalidError: there is a lease that nobody of ours has made.
        StorageError: the folder cannot be read or written.
    """
    leases = _Leases(storage, work_folder / "leases")
    watch = _Watch(leases, clock, wait, pace, tell)
    for _ in range(_ROUNDS_MAX):
        number = watch.free_number()
        now = _format_time(now_ms())
        record = LeaseRecord(recovery, holder, taken_at=now, beat_at=now)
        if not storage.create(leases.file(number), record.to_bytes()):
            leases.require_taken(number)
            continue
        lease = Lease(leases, number, record, now_ms, pace)
        try:
            # While we slept others may have held it, and an old number, long removed, would be free again.
            if leases.newest() == number:
                # Safe: ours is the newest, so these are of holders before us. None of them changes anything any more:
                # each looks for a newer number first.
                leases.remove_below(number - _KEPT + 1)
                return lease
        except BaseException:
            # Safe: nothing was done under it yet.
            lease.release()
            raise
        # Safe: nothing was done under it yet.
        lease.release()
    raise watch.held(number, None)


def is_newest(storage: WritableStorage, work_folder: Location, number: int) -> bool:
    """Whether nobody has taken over a lease, as whoever works for its holder asks right before each change.

    Raises:
        StorageError: that cannot be told now.
        LeaseInvalidError: there is a lease that nobody of ours has made.
    """
    return _Leases(storage, work_folder / "leases").newest() == number


def read_newest_lease(storage: Storage, work_folder: Location) -> LeaseRecord | None:
    """What the newest lease says, for whoever only looks; None if there is none, or if it is not whole.

    Raises:
        StorageError: it cannot be read (subclasses).
        LeaseInvalidError: there is a lease that nobody of ours has made.
    """
    folder = work_folder / "leases"
    newest = max(_list_numbers(storage, folder), default=None)
    return None if newest is None else parse_lease(storage.read(folder / f"{newest}.json", limit=_BYTES_MAX))


def _list_numbers(storage: Storage, folder: Location) -> list[int]:
    found = (_FILE.fullmatch(name) for name in storage.names(folder) or ())
    numbers = [name[1] for name in found if name is not None]
    beyond = min((each for each in numbers if len(each) > _DIGITS_MAX), default=None)
    if beyond is not None:
        raise _make_beyond_error(folder / f"{beyond}.json")
    return [int(each) for each in numbers]


class _Leases:
    """The folder of the leases of one checkpoint."""

    def __init__(self, storage: WritableStorage, folder: Location) -> None:
        self.storage = storage
        self.folder = folder

    def file(self, number: int) -> Location:
        return self.folder / f"{number}.json"

    def read(self, number: int) -> bytes | None:
        return self.storage.read(self.file(number), limit=_BYTES_MAX)

    def numbers(self) -> list[int]:
        return _list_numbers(self.storage, self.folder)

    def newest(self) -> int | None:
        return max(self.numbers(), default=None)

    def next_after(self, number: int) -> int:
        """The number of the next holder.

        Raises:
            LeaseInvalidError: it is out of all bounds.
        """
        if number >= NUMBER_MAX:
            raise _make_beyond_error(self.file(number))
        return number + 1

    def require_taken(self, number: int) -> None:
        """See that a number which cannot be taken is another holder's.

        Raises:
            LeaseInvalidError: what bears it is no file, and will let nobody in.
        """
        if (self.newest() or 0) >= number:
            return
        file = self.file(number)
        found = self.storage.stat(file)
        kind = "a pipe, a socket or a device"
        if found is not None and found.is_folder:
            kind = "a folder"
        raise _make_invalid_error("what bears the name of a lease is no file", file, kind, "a file")

    def remove_below(self, number: int) -> None:
        for old in self.numbers():
            if old < number:
                # Safe: see `take`, which holds the newest number.
                self.storage.remove(self.file(old))


def _make_beyond_error(file: Location) -> LeaseInvalidError:
    return _make_invalid_error(
        "a lease bears a number that nobody has counted up to",
        file,
        found=f"a number of {len(file.name.removesuffix('.json'))} digits",
        expected=f"a number below {NUMBER_MAX:,}",
    )


def _make_invalid_error(sentence: str, file: Location, found: str, expected: str) -> LeaseInvalidError:
    return LeaseInvalidError(
        sentence,
        subject=str(file),
        found=found,
        expected=expected,
        effect="nothing was changed",
        next=f"see that nobody repairs it or loads by it, and who wrote it, then remove {file}",
    )


class _Watch:
    """Finds out whether the newest lease is anybody's."""

    def __init__(
        self,
        leases: _Leases,
        clock: Callable[[], float],
        wait: Callable[[float], None],
        pace: LeasePace,
        tell: Callable[[str], None],
    ) -> None:
        self._leases = leases
        self._clock = clock
        self._wait = wait
        self._pace = pace
        self._tell = tell
        self._seen: tuple[int | None, bytes | None] | None = None
        self._watched_seconds = 0.0

    def free_number(self) -> int:
        """The number that may be taken now.

        Raises:
            LeaseHeldError: the newest lease has shown a sign of life.
        """
        while True:
            number = self._leases.newest()
            raw = None
            if number is not None:
                raw = self._leases.read(number)
            record = parse_lease(raw)
            is_same = self._seen in (None, (number, raw))
            self._seen = (number, raw)
            if number is None:
                return 1
            if record is not None and (record.released or record.holder.is_surely_dead()):
                return self._leases.next_after(number)
            if not is_same:
                raise self.held(number, record)
            if self._watched_seconds >= self._pace.lease_seconds:
                return self._leases.next_after(number)
            if self._watched_seconds == 0:
                who = record or _UNNAMED
                self._tell(f"waiting up to {self._pace.lease_seconds:g} s for a sign of life: {who}")
            self._look_away()

    def _look_away(self) -> None:
        """Wait until the next look.

        A machine that sleeps while we wait does not beat either: however much time has passed, it counts as one look.
        """
        before = self._clock()
        self._wait(self._pace.look_seconds)
        passed = self._clock() - before
        self._watched_seconds += min(max(passed, 0.0), 2 * self._pace.look_seconds)

    def held(self, number: int, record: LeaseRecord | None) -> LeaseHeldError:
        """The error for who cannot take a lease, because somebody else has it."""
        look = None
        if record is not None:
            look = make_process_command(record.holder.pid, record.holder.host)
        then = "wait until it has ended, then repeat the command"
        if record is not None and look is not None:
            then = f"{then}; on {record.holder.host}: {look}"
        return LeaseHeldError(
            "another process is repairing this checkpoint, or loads by it",
            subject=str(self._leases.file(number)),
            found=_UNNAMED if record is None else str(record),
            expected="nobody",
            effect="nothing was changed",
            next=then,
        )


@dataclass(frozen=True, slots=True)
class _Process:
    started: int
    is_zombie: bool


def _read_process(pid: int) -> _Process | None:
    """What Linux tells of a process; None elsewhere, or if it does not.

    psutil's time of its start is counted from the clock, and moves with it.
    """
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = told.rpartition(b")")[2].split()  # the name before it may hold spaces and brackets
    return _Process(started=int(fields[19]), is_zombie=fields[0] in (b"Z", b"X"))


def _identify_machine() -> str | None:
    """Two containers may bear the same host name, and two machines too: a process id then says nothing."""
    if sys.platform != "linux":
        return None
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - no file, just a name
    except OSError:
        return None


def _format_time(now_ms: int) -> str:
    return datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
