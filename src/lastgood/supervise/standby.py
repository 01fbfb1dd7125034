"""A second driver that waits, warm, before its first query, and takes the place of the first when that is dead.

It is a command like the first, with the same locks held for it. What it must not do before it is let go, start a query,
its agent keeps it from: `lastgood.spark.agent.standby`. So there is one only where the agent was seen to stand before
every start of the first.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Protocol

import psutil

from lastgood.errors import LastgoodError
from lastgood.frozen import dataclass
from lastgood.process.child import Child
from lastgood.process.driver import Launch
from lastgood.records.files import TROUBLE_FILE
from lastgood.records.standby import StandbyNote, parse_standby
from lastgood.sources.kafka.start_files import FILE_BYTES_MAX
from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE
from lastgood.spark.agent.read_files import Identity, identify_file
from lastgood.spark.agent.standby import OPEN, PREFIX, READY_SUFFIX
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
GATE = SITE_FOLDER / "sitecustomize.py"
"""What each Python finds first, and what holds its queries back: one that does not find it is a second driver."""
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
    is_at_gate: bool
    """Whether its first start was waiting already, so that it has nothing else to do."""


@dataclass(slots=True)
class _Standby:
    """One of them."""

    folder: Path
    child: Child
    output: Output
    named: Mapping[str, Identity | None]
    """The files that the command names, each as it was when this one began."""
    start: bytes | float | None
    """What told the application where to begin."""
    began: float
    held: int
    """How many of the locks it holds."""
    notes: dict[str, tuple[int, StandbyNote]] = field(default_factory=dict)
    """What its processes have told, by the names of their files, each with when that was written."""
    next_look: float = 0.0
    is_told: bool = False

    @property
    def note(self) -> StandbyNote | None:
        """Of the one that waits; None: none has come so far."""
        return next((note for _, note in self.notes.values()), None)


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
        complete: Callable[[Mapping[str, str]], Mapping[str, str]] = dict,
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
            complete: Makes the environment for a start now of that of the command.
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
        self._complete = complete
        self._gate = GATE.read_bytes()
        self._one: _Standby | None = None
        self._ending: list[threading.Thread] = []
        self._failures = 0
        self._not_before = 0.0
        self._is_refused = False

    def look(self) -> None:
        """See `StandbyPlace`."""
        if self._is_refused:
            return
        if self._one is None:
            is_ending = any(each.is_alive() for each in self._ending)
            if time.monotonic() >= self._not_before and not is_ending:
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
        self._failures = 0
        self._hand_over(one)
        try:
            # Safe: the caller has seen the first driver end, with all that it started, and holds the locks, which this
            # one holds as well: nobody else starts a query on these checkpoints before it has ended. From here on it
            # is the command.
            os.close(open_privately(str(one.folder / OPEN), os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        except OSError as error:  # a full disk: it is started as ever, once this one, which may have seen it, has ended
            one.child.kill()
            self.give_up()
            self._notice("STANDBY_NOT_TAKEN", f"the driver that stood by cannot be let go ({error.strerror})")
            return None
        self._one = None
        return Taken(one.child, one.output, time.monotonic() - one.began, is_at_gate=one.note is not None)

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
        """Start one, if that can be done now."""
        try:
            make_private(self._folder)
            site = self._copy_agent() / SITE_FOLDER.name
            hindrance = self._find_hindrance(site)
            if hindrance is not None:
                self.refuse(hindrance)
                return None
            # A name that nobody had: in a folder of an earlier one the gate may stand open.
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=self._folder))
            output = Output(self._log)
        except OSError as error:
            self._put_off("STANDBY_ENDED", f"no driver stands by: {error}")
            return None
        named, start = self._identify_named(), self._read_start_file()
        entries = self._list_python_path()
        entries[entries.index(str(SITE_FOLDER))] = str(site)
        try:
            child = Child(
                self._launch.command,
                env={
                    **self._complete(self._launch.env),
                    FOLDER_VARIABLE: str(folder),
                    "PYTHONPATH": os.pathsep.join(entries),
                },
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

    def _copy_agent(self) -> Path:
        """The agent as it was when the first standby was begun: one that is being installed anew may have no gate."""
        code = self._folder / "code"
        if not code.exists():
            draft = Path(tempfile.mkdtemp(prefix="code-", dir=self._folder))
            shutil.copytree(SITE_FOLDER.parent, draft / "agent", ignore=shutil.ignore_patterns("__pycache__"))
            # Safe: the folder is of this run alone, and nobody else makes this name.
            (draft / "agent").replace(code)
        return code

    def _find_hindrance(self, site: Path) -> str | None:
        """Why a Python of the command would not come to the gate; None: each does that comes to ours."""
        if os.pathsep in str(site):
            return f"the path of its agent has a {os.pathsep} in it ({site}; XDG_STATE_HOME moves it)"
        if str(SITE_FOLDER) not in self._list_python_path():
            return "the agent is not on the PYTHONPATH of the command"
        try:
            copied = (site / GATE.name).read_bytes()
        except FileNotFoundError:
            copied = b""
        if copied != self._gate:
            return f"the copy of its agent is not whole ({site / GATE.name}), or lastgood was installed anew meanwhile"
        return None

    def _list_python_path(self) -> list[str]:
        return self._launch.env.get("PYTHONPATH", "").split(os.pathsep)

    def _find_fault(self, one: _Standby) -> tuple[str, str] | None:
        """Why it cannot take the place of the first, as condition and sentence; None: it can."""
        ending = one.child.ending
        self._read_notes(one)
        refused = [note.refused for _, note in one.notes.values() if note.refused is not None]
        if len(one.notes) > 1:
            refused.append("several Python processes of the command start queries")
        if refused:
            return "STANDBY_IMPOSSIBLE", f"no driver stands by: {refused[0]}"
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

    def _read_start_file(self) -> bytes | float | None:
        """Its content; of one that cannot be read something that is never the same again."""
        if self._start_file is None:
            return None
        try:
            storage = open_storage(self._start_file)
            if storage.stat(self._start_file) is None:
                return b""
            return storage.read(self._start_file, limit=FILE_BYTES_MAX)
        except LastgoodError:
            return math.nan

    def _read_notes(self, one: _Standby) -> None:
        try:
            for file in one.folder.glob(f"*{READY_SUFFIX}"):
                written_ns = file.stat().st_mtime_ns
                if one.notes.get(file.name, (0, None))[0] != written_ns:
                    note = parse_standby(file.read_bytes())
                    if note is not None:
                        one.notes[file.name] = written_ns, note
        except OSError:
            return  # it has ended, and its folder is gone

    def _tell_if_warm(self, one: _Standby) -> None:
        if one.held < len(self._holds):
            self._hand_over(one)
        if one.is_told or one.note is None or one.note.warmed is None:
            return
        one.is_told = True
        for file in one.folder.iterdir():
            if TROUBLE_FILE.fullmatch(file.name):
                last = file.read_text(errors="replace").strip().splitlines()[-1:]
                self._notice("STANDBY_TROUBLE", f"the driver that stands by is not all warm: {' '.join(last)}")
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
        self._is_refused |= condition == "STANDBY_IMPOSSIBLE"
        if self._one is not None and time.monotonic() - self._one.began > _AGAIN_SECONDS_MAX:
            self._failures = 0  # it has waited for long, and was of use
        self.give_up()
        self._put_off(condition, sentence)

    def _put_off(self, condition: str, sentence: str) -> None:
        self._not_before = time.monotonic() + min(_AGAIN_SECONDS * 2.0**self._failures, _AGAIN_SECONDS_MAX)
        self._failures = min(self._failures + 1, 30)
        self._notice(condition, sentence)

    def _end(self, one: _Standby) -> None:
        """End it, beside what goes on."""

        def end() -> None:
            # Safe: behind a shut gate nothing was begun that could be cut off.
            one.child.kill()
            one.output.finish()
            # Safe: a folder that was made for this one alone, which has ended. No link is followed.
            shutil.rmtree(one.folder, ignore_errors=True)

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
