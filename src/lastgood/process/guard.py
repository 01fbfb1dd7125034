"""The process between an owner and its command: when either ends, nothing of the command stays behind.

Run as a script, by itself, with the standard library only: it has to start in milliseconds and to
survive whatever happens to its owner. Owner's side: `child.py`.

    guard.py CONTROL_FD REPORT_FD GRACE_SECONDS COMMAND [ARG ...]

The owner holds the other end of CONTROL, a socket: its end means that the owner is dead, however it died. What
descriptors come through it, or were inherited, stay open until this process ends: so a lock of the owner outlives it
until nothing of the command is left. Reports are JSON lines on REPORT: `{"pid": 1}` or `{"error": "ENOENT"}`, then
`{"returncode": 0, "at": 1796000000.5}`: when the command itself was seen to have ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

KILL_NOW = b"K"
"""What the owner writes into CONTROL to have everything killed at once."""
HOLD = b"H"
"""What comes with a descriptor that is to stay open."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_POLL_SECONDS, _PAUSE_SECONDS = (0.002, 0.005, 0.01), 0.02
"""Before the first looks, and before all others: what ends at once is seen at once."""
_DESCRIPTORS_AT_ONCE = 16


def _call_prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the process group is all we have."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _list_parents() -> dict[int, int]:
    """Every process on the machine with its parent."""
    if sys.platform != "linux":
        listing = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
        lines = (line.split() for line in listing.stdout.splitlines())
        return {int(pid): int(ppid) for pid, ppid in lines}
    parents = {}
    for entry in os.listdir("/proc"):  # noqa: PTH208 - a thousand Path objects a call otherwise
        if entry.isdigit():
            with contextlib.suppress(OSError):
                # The name in the second field may hold spaces and brackets: count from its end.
                with open(f"/proc/{entry}/stat", "rb") as stream:  # noqa: PTH123 - pathlib takes as long as Python itself
                    fields = stream.read().rpartition(b")")[2].split()
                if fields[0] != b"Z" or has_threads_left(int(entry)):
                    parents[int(entry)] = int(fields[1])
    return parents


def has_threads_left(pid: int) -> bool:
    """Whether threads of a process live whose first one has ended: killed, each still ends the call that it is in."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - as above
    except OSError:
        return False


def list_descendants(ancestor: int) -> set[int]:
    """Process ids of all living descendants of `ancestor`."""
    parents = _list_parents()
    found: set[int] = set()
    grown = True
    while grown:
        grown = False
        for pid, parent in parents.items():
            if pid not in found and (parent == ancestor or parent in found):
                found.add(pid)
                grown = True
    return found


def _signal_all(pids: set[int], signum: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # Safe: it was just seen below this guard. Its id is not given to another process before it has ended and
            # was collected, and then only after all the other ids, one after the other.
            os.kill(pid, signum)


def _list_pauses() -> Iterator[float]:
    yield from _POLL_SECONDS
    while True:
        yield _PAUSE_SECONDS


class Guard:
    """One command, and all it starts."""

    def __init__(self, control: int, report: int, grace_seconds: float) -> None:
        self._control = socket.socket(fileno=control)
        self._report = report
        self._grace_seconds = grace_seconds
        self._child: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str]) -> None:
        """Start `command`, wait for it or for the owner, leave nothing behind."""
        _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for signum in _FORWARDED:
            signal.signal(signum, self._forward)
        try:
            self._child = subprocess.Popen(
                command,
                start_new_session=True,
                preexec_fn=lambda: _call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509 - no threads here
            )
        except OSError as error:
            self._tell(f'"error": "{errno.errorcode.get(error.errno or 0, "EIO")}"')
            return
        self._tell(f'"pid": {self._child.pid}')
        owner_lives = self._wait(self._child, wake_read)
        ended_at = time.time()
        self._sweep(gently=owner_lives)
        if owner_lives:
            self._tell(f'"returncode": {self._child.returncode}, "at": {ended_at}')

    def _wait(self, child: subprocess.Popen[bytes], wake: int) -> bool:
        """Return once the command has ended; False if the owner went first."""
        events = select.poll()  # not select(), which refuses descriptors above 1023: an owner may have many open
        events.register(self._control, select.POLLIN)
        events.register(wake, select.POLLIN)
        while child.poll() is None:
            ready = [descriptor for descriptor, _ in events.poll()]
            if wake in ready:
                os.read(wake, 4096)
            if self._control.fileno() in ready:
                order = socket.recv_fds(self._control, 16, _DESCRIPTORS_AT_ONCE)[0]
                if KILL_NOW in order:
                    self._kill_everything(child)
                elif not order:
                    self._forward(signal.SIGTERM)
                    self._await_end(child)
                    self._kill_everything(child)
                    return False
        return True

    def _await_end(self, child: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(self._grace_seconds)

    def _kill_everything(self, child: subprocess.Popen[bytes]) -> None:
        self._sweep(gently=False)
        child.wait()

    def _sweep(self, *, gently: bool) -> None:
        """End what the command left behind, also what detached itself from its session."""
        me = os.getpid()
        left = list_descendants(me)
        if gently and left:
            _signal_all(left, signal.SIGTERM)
            deadline = time.monotonic() + self._grace_seconds
            pauses = _list_pauses()
            while left and time.monotonic() < deadline:
                time.sleep(next(pauses))
                self._reap()
                left = list_descendants(me)
        pauses = _list_pauses()
        while left:  # again, since a process can fork between our look and our signal
            _signal_all(left, signal.SIGKILL)
            time.sleep(next(pauses))
            self._reap()
            left = list_descendants(me)
        self._reap()  # what has ended since: nobody else would for a while

    def _reap(self) -> None:
        """Collect adopted children; Popen must keep the status of its own."""
        child = self._child
        if child is not None and child.poll() is None:
            return
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass

    def _forward(self, signum: int, _frame: object = None) -> None:
        child = self._child
        if child is not None and child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                # Safe: the command leads a session of its own, and nobody but us collects it, which was not done yet:
                # so its id is still its own.
                os.killpg(child.pid, signum)

    def _tell(self, report: str) -> None:
        """Write the inside of an object of JSON, whose library takes as long to load as all else that is done here."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._report, f"{{{report}}}\n".encode())


if __name__ == "__main__":
    Guard(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run(sys.argv[4:])
    os._exit(0)  # the owner waits: Python would take its time to take itself apart
