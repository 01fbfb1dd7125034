"""A second driver that waits, warm, before its first query, and takes the place of the first when that is dead.

It is a command like the first, with the same locks held for it. What it must not do before it is let go, start a query,
its agent keeps it from: `lastgood.spark.agent.standby`. So there is one only where the agent was seen to stand before
every start of the first.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import psutil

from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.process.child import Child
from lastgood.process.driver import Launch
from lastgood.records.standby import StandbyNote, parse_standby
from lastgood.sources.kafka.start_files import FILE_BYTES_MAX
from lastgood.spark.agent.read_files import Identity, identify_file
from lastgood.spark.agent.standby import OPEN, READY, VARIABLE
from lastgood.storage.reading import Location, open_storage
from lastgood.storage.rights import make_private, open_privately
from lastgood.supervise.events import Event, Noticed, StandingBy
from lastgood.supervise.output import Output

_LOOK_SECONDS = 5.0
"""How often its files and its memory are looked at."""
_READY_SECONDS = 900.0
"""How long it may take to its first query."""
_AGAIN_SECONDS = 10.0
"""How long after one that was ended the next begins; it doubles with each that was never taken."""
_AGAIN_SECONDS_MAX = 1800.0
_READ_BY_JAVA = (".conf", ".egg", ".jar", ".properties", ".py", ".whl", ".xml", ".zip")


class StandbyPlace(Protocol):
    """Keeps a standby; belongs to the supervisor's thread. Nothing of it stops the command that runs."""

    def look(self) -> None:
        """The command runs as it should, and one may stand by: see to it."""
        ...

    def refuse(self, because: str) -> None:
        """There can be none for this command."""
        ...

    def take(self) -> Taken | None:
        """Let the one go that stands by, now that the driver is dead; None: there is none, or none that may go."""
        ...

    def give_up(self) -> None:
        """End the one that stands by: what it has read holds no longer."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """A standby that was let go: the command from now on."""

    child: Child
    output: Output
    waited_seconds: float


@dataclass(slots=True)
class _Standby:
    """One of them."""

    folder: Path
    child: Child
    output: Output
    named: Mapping[str, Identity | None]
    """The files that the command names, each as it was when this one began."""
    start: bytes | str | None
    """What told the application where to begin."""
    began: float
    held: int
    """How many of the locks it holds."""
    note: StandbyNote | None = None
    note_ns: int = 0
    next_look: float = 0.0
    is_told: bool = False


class Standbys:
    """See `StandbyPlace`."""

    def __init__(  # noqa: PLR0913 - all but the command by name
        self,
        launch: Launch,
        *,
        folder: Path,
        log: Path,
        tell: Callable[[Event], None],
        holds: Sequence[int],
        grace_seconds: float,
        cwd: Path | None = None,
        memory_max: int | None = None,
        start_file: Location | None = None,
    ) -> None:
        """Prepare; nothing is started yet.

        Args:
            launch: The command with its agent, as its supervisor starts it.
            folder: The agent's, for this run.
            log: File for what the command prints; what one prints that waits stands beside it.
            tell: Gets each event.
            holds: Descriptors of the locks on the checkpoints; may grow.
            grace_seconds: How long one may take to end.
            cwd: Working directory of the command.
            memory_max: How many bytes one may hold while it waits; None: however many.
            start_file: The file that tells the application where to begin, if there is one.
        """
        self._launch = launch
        self._folder = folder
        self._log = log.with_name(f"{log.stem}.standby{log.suffix}")
        self._tell = tell
        self._holds = holds
        self._grace_seconds = grace_seconds
        self._cwd = cwd
        self._memory_max = memory_max
        self._start_file = start_file
        self._one: _Standby | None = None
        self._ending: list[threading.Thread] = []
        self._count = 0
        self._failures = 0
        self._not_before = 0.0
        self._is_refused = False

    def look(self) -> None:
        """See `StandbyPlace`."""
        if self._is_refused:
            return
        if self._one is None:
            if time.monotonic() >= self._not_before:
                self._one = self._begin()
            return
        found = self._find_fault(self._one)
        if found is not None:
            self._replace(*found)
        else:
            self._tell_if_warm(self._one)

    def refuse(self, because: str) -> None:
        """See `StandbyPlace`."""
        if not self._is_refused:
            self._is_refused = True
            self._notice("STANDBY_IMPOSSIBLE", f"no driver stands by: {because}")
            self.give_up()

    def take(self) -> Taken | None:
        """See `StandbyPlace`."""
        one = self._one
        if one is None:
            return None
        one.next_look = 0.0
        found = self._find_fault(one)
        if found is None and self._start_file is not None and self._read_start_file() != one.start:
            found = _make_outdated(str(self._start_file))
        if found is not None:
            self._replace(*found)
            return None
        self._one = None
        self._failures = 0
        self._hand_over(one)
        try:
            make_private(one.folder)
            # Safe: the caller has seen the first driver end, with all that it started, and holds the locks, which this
            # one holds as well: nobody else starts a query on these checkpoints before it has ended. From here on it
            # is the command.
            os.close(open_privately(str(one.folder / OPEN), os.O_WRONLY | os.O_CREAT))
        except OSError as error:  # a full disk: it is started as ever
            self._end(one)
            self._notice("STANDBY_NOT_TAKEN", f"the driver that stood by cannot be let go ({error.strerror})")
            return None
        return Taken(one.child, one.output, time.monotonic() - one.began)

    def give_up(self) -> None:
        """See `StandbyPlace`."""
        if self._one is not None:
            self._end(self._one)
            self._one = None

    def close(self) -> None:
        """End the one that stands by, and wait until all have ended."""
        self.give_up()
        for each in self._ending:
            each.join()

    def _begin(self) -> _Standby | None:
        self._count += 1
        folder = self._folder / f"standby-{self._count:04d}"
        named, start = self._identify_named(), self._read_start_file()
        output = Output(self._log)
        try:
            child = Child(
                self._launch.command,
                env={**self._launch.env, VARIABLE: str(folder)},
                cwd=self._cwd,
                output=output.write_end,
                grace_seconds=self._grace_seconds,
                holds=self._holds,
            )
        except LastgoodError as error:  # the first one will be told when it is started again
            self._put_off("STANDBY_ENDED", f"no driver stands by: {error.sentence}")
            return None
        finally:
            output.hand_over()
        return _Standby(folder, child, output, named, start, time.monotonic(), len(self._holds))

    def _find_fault(self, one: _Standby) -> tuple[str, str] | None:
        """Why it cannot take the place of the first, as condition and sentence; None: it can."""
        ending = one.child.ending
        self._read_note(one)
        if one.note is not None and one.note.refused is not None:
            self._is_refused = True
            return "STANDBY_IMPOSSIBLE", f"no driver stands by: {one.note.refused}"
        if ending is not None:
            return "STANDBY_ENDED", f"the driver that stood by has ended: {ending}; its output: {one.output.log}"
        if time.monotonic() < one.next_look:
            return None
        one.next_look = time.monotonic() + _LOOK_SECONDS
        changed = self._find_changed(one)
        if changed is not None:
            return _make_outdated(changed)
        return self._find_excess(one)

    def _find_excess(self, one: _Standby) -> tuple[str, str] | None:
        """Whether it takes more time or memory than it may."""
        if one.note is None and time.monotonic() - one.began > _READY_SECONDS:
            told = f"the driver that was to stand by started no query in {_READY_SECONDS / 60:g} minutes"
            return "STANDBY_ENDED", told
        held = 0
        if self._memory_max is not None:
            held = measure_memory(one.child)
        if self._memory_max is not None and held > self._memory_max:
            told = f"{held / 1e6:,.0f} MB, of {self._memory_max / 1e6:,.0f} MB at most (standby_memory)"
            return "STANDBY_TOO_LARGE", f"the driver that stood by was ended: it held {told}"
        return None

    def _find_changed(self, one: _Standby) -> str | None:
        """The first file that is another one than it has read."""
        now = self._identify_named()
        for path, identity in one.named.items():
            if now[path] != identity:
                return path
        if one.note is not None:
            for file in one.note.files:
                if identify_file(file.path) != file[1:]:
                    return file.path
        return None

    def _identify_named(self) -> dict[str, Identity | None]:
        """What the command line names: it may be read by others than the Python that tells what it has read."""
        return {path: identify_file(path) for path in _list_paths(self._launch.command, self._cwd)}

    def _read_start_file(self) -> bytes | str | None:
        """Its content, or why there is none."""
        if self._start_file is None:
            return None
        try:
            return open_storage(self._start_file).read(self._start_file, limit=FILE_BYTES_MAX)
        except LastgoodError as error:
            return error.sentence

    def _read_note(self, one: _Standby) -> None:
        file = one.folder / READY
        try:
            changed_ns = file.stat().st_mtime_ns
            if changed_ns != one.note_ns:
                one.note = parse_standby(file.read_bytes()) or one.note
                one.note_ns = changed_ns
        except OSError:
            return  # it does not wait yet

    def _tell_if_warm(self, one: _Standby) -> None:
        if one.held < len(self._holds):
            self._hand_over(one)
        if one.is_told or one.note is None or one.note.warmed is None:
            return
        one.is_told = True
        self._tell(
            StandingBy(
                at=time.time(),
                pid=one.note.pid,
                seconds=round(time.monotonic() - one.began, 3),
                memory_bytes=measure_memory(one.child),
                master=one.note.master,
                cores=one.note.cores,
                warmed=list(one.note.warmed),
            )
        )

    def _hand_over(self, one: _Standby) -> None:
        """Have it hold the locks on the checkpoints that were found since it began."""
        for descriptor in self._holds[one.held :]:
            one.child.hold(descriptor)
        one.held = len(self._holds)

    def _replace(self, condition: str, sentence: str) -> None:
        self.give_up()
        self._put_off(condition, sentence)

    def _put_off(self, condition: str, sentence: str) -> None:
        self._not_before = time.monotonic() + min(_AGAIN_SECONDS * 2.0**self._failures, _AGAIN_SECONDS_MAX)
        self._failures = min(self._failures + 1, 30)
        self._notice(condition, sentence)

    def _end(self, one: _Standby) -> None:
        """End it beside what goes on: its gate stays shut, so nothing has to wait for that."""

        def end() -> None:
            one.child.stop()
            one.output.finish()

        self._ending = [each for each in self._ending if each.is_alive()]
        self._ending.append(threading.Thread(target=end, name=f"standby-{one.child.pid}"))
        self._ending[-1].start()

    def _notice(self, condition: str, sentence: str) -> None:
        self._tell(Noticed(at=time.time(), condition=condition, sentence=sentence))


def measure_memory(child: Child) -> int:
    """Bytes in memory of a command and all that it started; what two of them share counts twice."""
    held = 0
    for process in child.processes():
        try:
            held += process.memory_info().rss
        except psutil.Error:
            continue  # it has ended
    return held


def _make_outdated(changed: str) -> tuple[str, str]:
    return "STANDBY_OUTDATED", f"the driver that stood by was made of what is no longer so: {changed} has changed"


def _list_paths(command: Iterable[str], cwd: Path | None) -> list[str]:
    """The files of an application that its command names, also behind `=` and between commas."""
    parts = (part for word in command for part in word.rpartition("=")[2].split(","))
    return [str((cwd or Path()) / part) for part in parts if part.endswith(_READ_BY_JAVA)]
