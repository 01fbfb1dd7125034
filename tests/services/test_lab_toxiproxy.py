"""The proxy of the lab: what it does to connections, and its end."""

from __future__ import annotations

import http.client
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from lastgood.lab.ports import LOOPBACK, is_accepting
from lastgood.lab.toxiproxy import Toxic, Toxiproxy, ToxiproxyError

pytestmark = pytest.mark.services

DEADLINE_SECONDS = 60


def test_it_passes_on_what_it_does_not_poison(toxiproxy: Toxiproxy, stranger: int, topic: str) -> None:
    proxy = toxiproxy.proxy(topic, stranger)
    address = f"http://{proxy.host}:{proxy.port}/"
    assert proxy.host == LOOPBACK
    assert status(address) == 200
    with proxy.poisoned(Toxic("reset_peer", {"timeout": 0})), pytest.raises(OSError, match="reset"):
        status(address)
    with proxy.poisoned(Toxic("limit_data", {"bytes": 5})), pytest.raises(http.client.BadStatusLine):
        status(address)
    with proxy.down():
        assert not is_accepting(proxy.port)
    with proxy.poisoned(Toxic("latency", {"latency": 50})):
        assert status(address) == 200
    assert status(address) == 200


def test_what_it_cannot_do_is_told(toxiproxy: Toxiproxy, silent: int, topic: str) -> None:
    proxy = toxiproxy.proxy(topic, silent)
    with pytest.raises(ToxiproxyError, match="POST /proxies"):
        toxiproxy.proxy(topic, silent)
    with pytest.raises(ToxiproxyError, match="toxics"), proxy.poisoned(Toxic("poltergeist")):
        pass


def test_it_listens_at_a_port_that_was_chosen_on_any_address_of_loopback(toxiproxy: Toxiproxy, topic: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        proxy = toxiproxy.proxy(topic, port, listen=f"127.0.0.2:{port}")
        assert (proxy.host, proxy.port) == ("127.0.0.2", port)
        socket.create_connection((proxy.host, proxy.port), timeout=DEADLINE_SECONDS).close()
        listener.settimeout(DEADLINE_SECONDS)
        listener.accept()[0].close()


OWNER = """
import os, sys, time
from pathlib import Path
from lastgood.lab.toxiproxy import Toxiproxy, find_toxiproxy
server = Toxiproxy(Path(sys.argv[1]), find_toxiproxy(env=os.environ))
server.start()
print(server.pid, server.port, flush=True)
time.sleep(600)
"""


def test_server_ends_with_its_owner_even_when_that_is_killed(toxiproxy: Toxiproxy, tmp_path: Path) -> None:
    assert toxiproxy  # is built: the owner builds nothing
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


def status(address: str) -> int:
    with urllib.request.urlopen(address, timeout=DEADLINE_SECONDS) as answer:
        return int(answer.status)
