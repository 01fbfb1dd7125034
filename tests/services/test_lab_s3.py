"""The S3 server of the lab: what it holds, its ports, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from contention import contend_for_files

from lastgood.lab import server as lab_server
from lastgood.lab.ports import LOOPBACK, find_free_ports, is_accepting
from lastgood.lab.s3 import S3Program, S3Server, S3ServerError
from lastgood.storage.reading import open_storage, parse_location
from lastgood.storage.writing import open_writable

pytestmark = pytest.mark.services

DEADLINE_SECONDS = 60
FILE = parse_location("s3a://lake/chk/metadata")


def test_what_is_put_is_there_and_survives_a_restart(s3_program: S3Program, tmp_path: Path) -> None:
    with S3Server(tmp_path, s3_program, buckets=("lake", "pond")) as server:
        storage = open_storage(FILE, server.options)
        storage.filesystem.pipe({"lake/chk/metadata": b"id", "pond/x": b"y"})
        assert storage.read(FILE, limit=9) == b"id"
        before = server.endpoint
        server.kill()
        server.start()
        assert server.endpoint == before
        if s3_program.name == "versitygw":  # moto keeps all in memory
            assert storage.read(FILE, limit=9) == b"id"


def test_out_of_several_who_create_the_same_object_one_does(s3_program: S3Program, tmp_path: Path) -> None:
    with S3Server(tmp_path, s3_program) as server:
        contend_for_files(parse_location("s3a://lake/race"), lambda root: open_writable(root, server.options))


def test_a_taken_port_is_left_to_its_owner(
    s3_program: S3Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((LOOPBACK, 0)) as owner:
        taken = owner.getsockname()[1]
        choices = iter([(taken,)])
        monkeypatch.setattr(
            lab_server,
            "find_free_ports",
            lambda *args, **beside: next(choices, None) or find_free_ports(*args, **beside),
        )
        with S3Server(tmp_path, s3_program) as server:
            assert not server.endpoint.endswith(f":{taken}")
        with pytest.raises(S3ServerError):
            S3Server(tmp_path / "other", s3_program, port=taken).start()


OWNER = """
import os, sys, time
from pathlib import Path
from lastgood.lab.s3 import S3Server, find_s3
server = S3Server(Path(sys.argv[1]), find_s3(env=os.environ))
server.start()
print(server.pid, server.endpoint.rpartition(":")[2], flush=True)
time.sleep(600)
"""


def test_server_ends_with_its_owner_even_when_that_is_killed(s3_program: S3Program, tmp_path: Path) -> None:
    assert s3_program  # is built: the owner builds nothing
    with subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, port = map(int, owner.stdout.readline().split())
        server = psutil.Process(pid)
        assert is_accepting(port)
        owner.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while server.is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server.is_running()
    assert not is_accepting(port)
