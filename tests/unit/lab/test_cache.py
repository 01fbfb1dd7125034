from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path

import platformdirs
import pytest

from lastgood.errors import NoSpaceError, StorageError
from lastgood.lab.cache import explain_cache_errors, hold_exclusively, locate_cache


def test_cache_is_where_the_caller_says_then_the_variable_then_the_user(tmp_path: Path) -> None:
    env = {"LASTGOOD_CACHE": str(tmp_path / "variable")}
    assert locate_cache(tmp_path / "argument", env) == tmp_path / "argument"
    assert locate_cache(None, env) == tmp_path / "variable"
    assert locate_cache(None, {}) == Path(platformdirs.user_cache_dir("lastgood"))
    assert locate_cache(None, {"LASTGOOD_CACHE": ""}) == Path(platformdirs.user_cache_dir("lastgood"))


def test_lock_is_held_by_one_thread_at_a_time(tmp_path: Path) -> None:
    waiting = threading.Event()
    order = []

    def second() -> None:
        with hold_exclusively(tmp_path / "cache" / "lock", on_wait=waiting.set):
            order.append("second")

    thread = threading.Thread(target=second)
    with hold_exclusively(tmp_path / "cache" / "lock", on_wait=lambda: pytest.fail("nobody else holds it")):
        thread.start()
        assert waiting.wait(20)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


HOLDER = """
import sys, time
from pathlib import Path
from lastgood.lab.cache import hold_exclusively
with hold_exclusively(Path(sys.argv[1]), on_wait=lambda: None):
    print("held", flush=True)
    time.sleep(600)
"""


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        holder.kill()
    with hold_exclusively(lock, on_wait=lambda: pytest.fail("the holder is dead")):
        pass


def test_cache_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as raised, explain_cache_errors(tmp_path):
        (tmp_path / "file" / "lock").open("ab")
    assert raised.value.subject == str(tmp_path / "file" / "lock")
    assert "LASTGOOD_CACHE" in (raised.value.next or "")


def test_full_disk_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(NoSpaceError), explain_cache_errors(tmp_path):
        raise OSError(errno.ENOSPC, "No space left on device")
