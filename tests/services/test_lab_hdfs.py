"""The HDFS of the lab: what it holds, its ports, and its end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from contention import contend_for_files

from lastgood.lab import server
from lastgood.lab.hdfs import HdfsCluster, HdfsStartError
from lastgood.lab.ports import LOOPBACK, find_free_ports, is_free
from lastgood.process.java import Java
from lastgood.storage.reading import parse_location
from lastgood.storage.writing import open_writable

pytestmark = pytest.mark.proof

DEADLINE_SECONDS = 60
Describe = Callable[..., HdfsCluster]


@pytest.fixture
def describe(java: Java, hdfs_jars: tuple[Path, ...], tmp_path: Path) -> Iterator[Describe]:
    """Makes clusters of the test's own and stops them in the end."""
    clusters = []

    def make(folder: str = "hdfs", **how: object) -> HdfsCluster:
        clusters.append(HdfsCluster(tmp_path / folder, java=java, jars=hdfs_jars, **how))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.stop()


@pytest.mark.proof
def test_files_and_ports_survive_kill_9(describe: Describe) -> None:
    cluster = describe("für-Ünïcode-😀")
    cluster.start()
    file = parse_location(f"{cluster.uri}/chk/offsets/0")
    storage = open_writable(file, cluster.options)
    storage.write(file, b"v1")
    before = (cluster.uri, cluster.webhdfs, cluster.pid)
    cluster.kill()
    assert not cluster.is_running
    assert not psutil.pid_exists(before[2] or 0)
    cluster.restart()
    assert (cluster.uri, cluster.webhdfs) == before[:2]
    assert storage.read(file, limit=9) == b"v1"
    storage.write(file, b"v2")  # it has left its safe mode
    assert storage.read(file, limit=9) == b"v2"


@pytest.mark.proof
def test_a_taken_port_is_left_to_its_owner(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, 0)) as owner:
        taken = owner.getsockname()[1]
        choices = iter([(taken, *find_free_ports(1))])
        monkeypatch.setattr(
            server, "find_free_ports", lambda *args, **beside: next(choices, None) or find_free_ports(*args, **beside)
        )
        with describe() as cluster:
            assert cluster.port != taken
        with pytest.raises(HdfsStartError) as raised:
            describe("other", port=taken).start()
    assert "BindException" in (raised.value.found or "")


def test_everything_listens_on_loopback_only(hdfs: HdfsCluster) -> None:
    listening = [each for each in psutil.Process(hdfs.pid).net_connections("tcp") if each.status == psutil.CONN_LISTEN]
    assert len(listening) >= 4
    assert {each.laddr.ip.removeprefix("::ffff:") for each in listening} == {LOOPBACK}


@pytest.mark.proof
def test_out_of_several_who_create_the_same_file_one_does(hdfs: HdfsCluster) -> None:
    contend_for_files(parse_location(f"{hdfs.uri}/race"), lambda root: open_writable(root, hdfs.options))


def test_a_rename_never_takes_the_place_of_something_nor_goes_into_it(hdfs: HdfsCluster) -> None:
    root = parse_location(f"{hdfs.uri}/rename")
    storage = open_writable(root, hdfs.options)
    for name in ("a", "b", "folder/c"):
        storage.write(root / name, name.encode())
    rename = storage.filesystem.mv
    with pytest.raises(FileExistsError):
        rename("/rename/a", "/rename/b")
    with pytest.raises(OSError, match="must both be directories"):
        rename("/rename/a", "/rename/folder")
    with pytest.raises(FileNotFoundError):
        rename("/rename/none", "/rename/d")
    rename("/rename/a", "/rename/d")
    assert set(storage.names(root) or ()) == {"b", "d", "folder/"}
    assert storage.read(root / "b", limit=9) == b"b"


@pytest.mark.parametrize("name", ["a b", "ü€😀", "a%20b", "a?b", "a#b", "a+b", "a&b=c", "a;b", "[x]{y}", "a\\b", "'\""])
def test_a_name_is_taken_as_it_is(hdfs: HdfsCluster, name: str) -> None:
    file = parse_location(f"{hdfs.uri}/names") / name
    storage = open_writable(file, hdfs.options)
    storage.write(file, name.encode())
    assert storage.read(file, limit=99) == name.encode()
    assert name in set(storage.names(parse_location(f"{hdfs.uri}/names")) or ())


OWNER = """
import os, sys, time
from pathlib import Path
from lastgood.lab.hdfs import HdfsCluster
from lastgood.lab.jars import fetch_jars
from lastgood.process.java import find_java
java = find_java(os.environ)
cluster = HdfsCluster(Path(sys.argv[1]), java=java, jars=fetch_jars(["hdfs"], java=java)["hdfs"])
cluster.start()
print(cluster.pid, cluster.port, cluster.http_port, flush=True)
time.sleep(600)
"""


def test_cluster_ends_with_its_owner_even_when_that_is_killed(hdfs_jars: tuple[Path, ...], tmp_path: Path) -> None:
    assert hdfs_jars  # are in the cache: the owner downloads nothing
    command = [sys.executable, "-c", OWNER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, *ports = map(int, owner.stdout.readline().split())
        cluster = psutil.Process(pid)
        owner.send_signal(signal.SIGKILL)
    cluster.wait(DEADLINE_SECONDS)
    assert all(map(is_free, ports))
