from __future__ import annotations

import fcntl
import os
import platform
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from lastgood.process import guard
from lastgood.process.child import Child, CommandEnd, CommandNotFoundError

DEADLINE_SECONDS = 20


def python(code: str, *args: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code), *args]


def await_line(path: Path) -> str:
    return await_lines(path, 1)[0]


def await_lines(path: Path, count: int) -> list[str]:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        if path.exists() and len(lines := path.read_text().splitlines()) >= count:
            return lines
        time.sleep(0.01)
    raise AssertionError(f"{path} never had {count} lines")


def await_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return
        except psutil.NoSuchProcess:
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")


DETACHED_CHILD = """
    import os, sys, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print(os.getpid(), file=open(sys.argv[1], "a"), flush=True)
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not (os.path.exists(sys.argv[1]) and os.path.getsize(sys.argv[1])):
        time.sleep(0.01)
"""
"""Leaves a process behind that has left both its session and its parent."""


def test_exit_code_is_reported() -> None:
    assert Child(python("raise SystemExit(7)")).wait() == CommandEnd(7, None)


def test_signal_is_reported_by_name() -> None:
    child = Child(python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    assert child.wait() == CommandEnd(None, "SIGKILL")
    assert str(child.ending) == "killed by SIGKILL"


def test_missing_program_is_named() -> None:
    with pytest.raises(CommandNotFoundError) as raised:
        Child(["no-such-program-here"])
    assert raised.value.subject == "no-such-program-here"
    assert raised.value.found == "no such file"


def test_file_without_permission_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    with pytest.raises(CommandNotFoundError) as raised:
        Child([str(script)])
    assert raised.value.found == "not executable"


def test_missing_working_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandNotFoundError) as raised:
        Child(["true"], cwd=tmp_path / "nowhere")
    assert raised.value.subject == str(tmp_path / "nowhere")


def test_output_goes_where_the_owner_says(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        Child(python("import sys; print('out', flush=True); print('err', file=sys.stderr)"), output=log).wait()
    assert (tmp_path / "log").read_text() == "out\nerr\n"


def test_environment_and_working_directory_are_handed_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code = "import os, sys; open(sys.argv[1], 'w').write(os.environ['WORD'] + os.getcwd())"
    Child(python(code, str(out)), env={"WORD": "here:"}, cwd=tmp_path).wait()
    assert out.read_text() == f"here:{tmp_path}"


def test_signal_is_passed_on_to_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = Child(
        python(
            """
            import signal, sys, time
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
            print("up", file=open(sys.argv[1], "w"), flush=True)
            time.sleep(600)
            """,
            str(ready),
        )
    )
    await_line(ready)
    assert child.stop() == CommandEnd(5, None)


def test_command_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    child = Child(
        python(
            """
            import signal, sys, time
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            print("up", file=open(sys.argv[1], "w"), flush=True)
            while True: time.sleep(600)
            """,
            str(ready),
        ),
        grace_seconds=0.2,
    )
    await_line(ready)
    assert child.stop() == CommandEnd(None, "SIGKILL")
    await_gone(child.pid)


def test_detached_process_does_not_outlive_the_command(tmp_path: Path) -> None:
    detached = tmp_path / "pid"
    assert Child(python(DETACHED_CHILD, str(detached))).wait() == CommandEnd(0, None)
    await_gone(int(await_line(detached)))


def test_processes_lists_the_command_and_what_it_started(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    code = """
        import subprocess, sys
        sleeper = subprocess.Popen(["sleep", "600"])
        print(sleeper.pid, file=open(sys.argv[1], "w"), flush=True)
        sleeper.wait()
    """
    with Child(python(code, str(started)), grace_seconds=1) as child:
        sleeper = int(await_line(started))
        assert {child.pid, sleeper} <= {process.pid for process in child.processes()}
    await_gone(sleeper)


OWNER = """
    import sys, time
    from lastgood.process.child import Child
    child = Child([sys.executable, "-c", sys.argv[1], sys.argv[2]], grace_seconds=1)
    print(child.pid, file=open(sys.argv[2], "a"), flush=True)
    time.sleep(600)
"""
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
print(os.getpid(), file=open(sys.argv[1], "a"), flush=True)
while True: time.sleep(600)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_an_owner_however_it_dies(tmp_path: Path, signum: signal.Signals) -> None:
    pids = tmp_path / "pids"
    owner = subprocess.Popen(python(OWNER, STUBBORN, str(pids)))
    started = {int(line) for line in await_lines(pids, 3)}
    owner.send_signal(signum)
    owner.wait()
    for pid in started:
        await_gone(pid)


def test_nothing_outlives_a_guard_that_is_killed(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    child = Child([sys.executable, "-c", STUBBORN, str(pids)], grace_seconds=1)
    started = {int(line) for line in await_lines(pids, 2)}
    os.kill(psutil.Process(child.pid).ppid(), signal.SIGKILL)
    assert child.wait() == CommandEnd(None, "SIGKILL")
    for pid in started:
        await_gone(pid)


HOLDER = """
    import fcntl, sys, time
    from lastgood.process.child import Child
    lock = open(sys.argv[2], "a")
    fcntl.flock(lock, fcntl.LOCK_EX)
    early = [lock.fileno()] if sys.argv[4] == "early" else []
    child = Child([sys.executable, "-c", sys.argv[1], sys.argv[3]], grace_seconds=600, holds=early)
    if not early:
        child.hold(lock.fileno())
    print("held", file=open(sys.argv[3], "a"), flush=True)
    time.sleep(600)
"""


def is_free(lock: Path) -> bool:
    with lock.open("a") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.parametrize("when", ["early", "late"])
def test_lock_of_an_owner_that_is_killed_is_held_until_nothing_of_the_command_is_left(
    tmp_path: Path, when: str
) -> None:
    lock, told = tmp_path / "lock", tmp_path / "told"
    owner = subprocess.Popen(python(HOLDER, STUBBORN, str(lock), str(told), when))
    pids = [int(line) for line in await_lines(told, 3) if line != "held"]
    owner.kill()
    owner.wait()
    for pid in sorted(pids, reverse=True):  # the command last: what it leaves behind is ended at once
        assert not is_free(lock)
        os.kill(pid, signal.SIGKILL)
        await_gone(pid)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not is_free(lock):
        assert time.monotonic() < deadline
        time.sleep(0.01)


MANY_OPEN_FILES = """
    import os, resource
    from lastgood.process.child import Child
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    assert Child(["sh", "-c", "exit 3"]).wait().exit_code == 3
"""


def test_owner_with_more_than_1024_open_files_can_start_commands() -> None:
    subprocess.run(python(MANY_OPEN_FILES), check=True, timeout=60)


def test_signals_after_the_end_are_no_error() -> None:
    child = Child(["true"])
    child.wait()
    child.send(signal.SIGTERM)
    assert child.stop() == CommandEnd(0, None)
    assert child.kill() == CommandEnd(0, None)
    assert child.processes() == []


LEADERLESS = """
    import ctypes, os, sys, threading, time
    threading.Thread(target=time.sleep, args=(600,)).start()
    print(os.getpid(), file=open(sys.argv[1], "a"), flush=True)
    ctypes.CDLL(None).syscall(60, 0)  # the first thread alone ends, as it may where all are killed
"""


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="a system call of Linux on x86-64"
)
def test_a_process_whose_first_thread_has_ended_is_not_over(tmp_path: Path) -> None:
    with Child(python(LEADERLESS, str(tmp_path / "pid"))) as child:
        pid = int(await_line(tmp_path / "pid"))
        process = psutil.Process(pid)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while process.status() != psutil.STATUS_ZOMBIE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert guard.has_threads_left(pid)
        assert pid in guard.list_descendants(os.getpid())
        assert child.ending is None
        child.kill()
        assert not guard.has_threads_left(pid)


def test_one_whose_guard_was_stopped_can_be_killed(tmp_path: Path) -> None:
    with Child(
        python("import os, sys, time\nopen(sys.argv[1], 'w').write('x\\n')\ntime.sleep(600)", str(tmp_path / "begun"))
    ) as child:
        await_line(tmp_path / "begun")
        psutil.Process(child.pid).parent().suspend()
        child.kill()
        await_gone(child.pid)
