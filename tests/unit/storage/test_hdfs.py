from __future__ import annotations

import contextlib
import gzip
import json
import os
import pwd
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import fsspec
import pytest

from lastgood.errors import NoSpaceError, StorageError
from lastgood.storage import hdfs as storage_hdfs
from lastgood.storage.hdfs import make_webhdfs_settings
from lastgood.storage.reading import StorageDeniedError, open_storage, parse_location
from lastgood.storage.writing import open_writable

HA = {
    "dfs.nameservices": "lake, other",
    "dfs.ha.namenodes.lake": "nn1,nn2",
    "dfs.namenode.rpc-address.lake.nn1": "one:8020",
    "dfs.namenode.rpc-address.lake.nn2": "two:8020",
    "dfs.namenode.http-address.lake.nn1": "one:9870",
    "dfs.namenode.http-address.lake.nn2": "0.0.0.0:19870",
    "dfs.namenode.https-address.lake.nn1": "one:19871",
}
ONE = {"dfs.namenode.rpc-address": "one:9000", "dfs.namenode.http-address": "one:50070"}


def conf_dir(folder: Path, hdfs: dict[str, str], core: dict[str, str] | None = None) -> dict[str, str]:
    """Hadoop's settings in files, and the environment that names them."""
    folder.mkdir(exist_ok=True)
    for name, settings in (("hdfs-site.xml", hdfs), ("core-site.xml", core or {})):
        rows = "".join(
            f"<property><name> {key}</name><value>{value}\n</value></property>" for key, value in settings.items()
        )
        (folder / name).write_text(f'<?xml version="1.0"?><!-- x --><configuration>{rows}</configuration>')
    return {"HADOOP_CONF_DIR": str(folder), "HADOOP_USER_NAME": "ann"}


@pytest.mark.parametrize(
    ("location", "hadoop", "given", "expected"),
    [
        ("hdfs://nn", {}, {}, ["http://nn:9870"]),
        ("hdfs://nn:8020", {}, {}, ["http://nn:9870"]),
        ("hdfs://nn:8020", {}, {"port": "14000", "host": "gateway"}, ["http://gateway:14000"]),
        ("hdfs://nn:8020", {}, {"use_https": True}, ["https://nn:9871"]),
        ("webhdfs://nn", {}, {}, ["http://nn:9870"]),
        ("webhdfs://nn", HA, {"port": 14000}, ["http://nn:14000"]),
        ("webhdfs://nn:9999", HA, {"port": 14000, "host": "gateway"}, ["http://nn:9999"]),
        ("swebhdfs://nn", {}, {}, ["https://nn:9871"]),
        ("swebhdfs://nn:9999", {}, {}, ["https://nn:9999"]),
        ("hdfs://lake", HA, {}, ["http://one:9870", "http://two:19870"]),
        ("hdfs://lake", HA, {"port": 14000}, ["http://one:14000", "http://two:14000"]),
        ("hdfs://lake", {**HA, "dfs.http.policy": "HTTPS_ONLY"}, {}, ["https://one:19871", "https://two:9871"]),
        ("hdfs://two:8020", HA, {}, ["http://two:19870"]),
        ("hdfs://two", HA, {}, ["http://two:19870"]),
        ("hdfs://three:8020", HA, {}, ["http://three:9870"]),
        ("hdfs://one:9000", ONE, {}, ["http://one:50070"]),
        ("hdfs://one:8020", ONE, {}, ["http://one:9870"]),
        ("hdfs://other", HA, {}, ["http://other:9870"]),
    ],
)
def test_the_name_nodes_of_a_location_are_found(
    location: str, hadoop: dict[str, str], given: dict[str, Any], expected: list[str], tmp_path: Path
) -> None:
    scheme, _, authority = location.partition("://")
    found = make_webhdfs_settings(scheme, authority, env=conf_dir(tmp_path / "conf", hadoop), given=given)
    first = urlsplit(expected[0])
    assert found == {
        "host": first.hostname,
        "port": first.port,
        "use_https": first.scheme == "https",
        "namenodes": tuple(expected),
        "user": "ann",
    }


def test_we_are_for_hdfs_who_hadoop_would_take_us_for(tmp_path: Path) -> None:
    def identity(env: dict[str, str], **given: Any) -> dict[str, Any]:
        found = make_webhdfs_settings("hdfs", "nn", env=env, given=given)
        return {key: found[key] for key in ("user", "kerberos") if key in found}

    assert identity({}) == {"user": pwd.getpwuid(os.geteuid()).pw_name}
    assert identity({"HADOOP_USER_NAME": "ann"}) == {"user": "ann"}
    kerberized = conf_dir(tmp_path / "conf", {}, {"hadoop.security.authentication": "kerberos"})
    assert identity(kerberized) == {"kerberos": True}
    for told in ("user", "kerberos", "token"):
        assert identity(kerberized, **{told: "x"}) == {}


def test_a_user_without_a_name_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uid: int) -> None:
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert "user" not in make_webhdfs_settings("hdfs", "nn", env={}, given={})


def test_settings_of_hadoop_may_be_missing_but_not_unreadable(tmp_path: Path) -> None:
    assert make_webhdfs_settings("hdfs", "nn", env={"HADOOP_CONF_DIR": str(tmp_path)}, given={})["host"] == "nn"
    (tmp_path / "hdfs-site.xml").write_text("<configuration>")
    with pytest.raises(StorageError) as raised:
        make_webhdfs_settings("hdfs", "nn", env={"HADOOP_CONF_DIR": str(tmp_path)}, given={})
    assert raised.value.subject == str(tmp_path / "hdfs-site.xml")


class NameNode(BaseHTTPRequestHandler):
    """Answers what its server's `answer` says to an operation; sends data to itself."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._do()

    def do_PUT(self) -> None:
        self._do()

    def do_DELETE(self) -> None:
        self._do()

    def _do(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.rfile.read(size)
        operation = parse_qs(urlsplit(self.path).query).get("op", ["data"])[0]
        self.server.asked.append(operation)
        self.server.logins.append(self.headers.get("Authorization"))
        status, headers, body = self.server.answer(operation)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            if value:
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """One name node, and its data node."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), NameNode)
        self.asked: list[str] = []
        self.logins: list[str | None] = []
        self.answers: dict[str, tuple[int, dict[str, str], bytes]] = {}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def answer(self, operation: str) -> tuple[int, dict[str, str], bytes]:
        if operation in self.answers:
            return self.answers[operation]
        if operation in ("OPEN", "CREATE"):
            return 307, {"Location": f"http://{self.address}/data"}, b""
        if operation == "LISTSTATUS":
            file = {"pathSuffix": "7", "type": "FILE", "length": 3, "modificationTime": 9}
            return 200, {}, json.dumps({"FileStatuses": {"FileStatus": [file]}}).encode()
        return 200, {}, b"v1\n"

    def end(self) -> None:
        self.shutdown()
        self.server_close()

    def refuse(self, operation: str, status: int, name: str, message: str = "what it says\n\tat a.B") -> None:
        told = json.dumps({"RemoteException": {"exception": name, "message": message}}).encode()
        self.answers[operation] = (status, {}, told)


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def node() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Server]:
    with serving() as server:
        yield server


Opened = tuple[Any, Any]


def at(node: Server) -> Opened:
    location = parse_location(f"webhdfs://{node.address}/chk")
    return open_writable(location), location


@pytest.fixture
def pair(node: Server, other: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Opened:
    """A nameservice of two name nodes."""
    settings = {
        "dfs.nameservices": "lake",
        "dfs.ha.namenodes.lake": "nn1,nn2",
        "dfs.namenode.http-address.lake.nn1": node.address,
        "dfs.namenode.http-address.lake.nn2": other.address,
    }
    for name, value in conf_dir(tmp_path / "conf", settings).items():
        monkeypatch.setenv(name, value)
    location = parse_location("hdfs://lake/chk")
    return open_writable(location), location


def test_files_are_listed_and_read(node: Server) -> None:
    storage, chk = at(node)
    assert [tuple(entry) for entry in storage.scan(chk) or ()] == [("7", False, 3, 9)]
    assert storage.read(chk / "7", limit=9) == b"v1\n"
    assert node.asked == ["LISTSTATUS", "OPEN", "data"]


def test_the_name_node_in_charge_is_asked_and_remembered(pair: Opened, node: Server, other: Server) -> None:
    storage, chk = pair
    for operation in ("LISTSTATUS", "RENAME", "CREATE", "MKDIRS"):
        node.refuse(operation, 403, "StandbyException")
    storage.write(chk / "7", b"v1")
    assert list(storage.names(chk) or ()) == ["7"]
    assert node.asked == ["MKDIRS"]
    assert other.asked == ["MKDIRS", "CREATE", "data", "RENAME", "LISTSTATUS"]


def test_a_name_node_that_is_gone_is_passed_over(pair: Opened, node: Server, other: Server) -> None:
    storage, chk = pair
    node.end()
    storage.write(chk / "7", b"v1")
    assert list(storage.names(chk) or ()) == ["7"]


def test_it_is_told_why_no_name_node_is_in_charge(pair: Opened, node: Server, other: Server) -> None:
    storage, chk = pair
    node.refuse("LISTSTATUS", 403, "StandbyException")
    other.end()
    with pytest.raises(StorageError) as raised:
        storage.names(chk)
    assert f"http://{other.address} cannot be reached" in (raised.value.found or "")


def test_a_change_whose_answer_is_lost_is_never_asked_of_another_name_node(
    pair: Opened, node: Server, other: Server
) -> None:
    storage, chk = pair
    node.answers["RENAME"] = (200, {"Content-Length": "99"}, b"")
    with pytest.raises(StorageError):
        storage.create(chk / "7", b"v1")
    assert node.asked == ["MKDIRS", "CREATE", "data", "RENAME", "DELETE"]
    assert other.asked == []


BROKEN: dict[str, tuple[int, dict[str, str], bytes]] = {
    "an error page": (500, {}, b"<html>"),
    "an error of HDFS": (403, {}, b'{"RemoteException":{"exception":"IOException","message":"no replica"}}'),
    "less than announced": (200, {"Content-Length": "3"}, b"v1"),
    "no end that could be known": (200, {"Content-Length": ""}, b""),
    "nowhere to go": (307, {}, b""),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("operation", ["OPEN", "data"])
def test_what_is_no_whole_content_is_never_read_as_one(
    broken: tuple[int, dict[str, str], bytes], operation: str, node: Server
) -> None:
    storage, chk = at(node)
    node.answers[operation] = broken
    with pytest.raises(StorageError):
        storage.read(chk / "7", limit=9)


def test_a_gateway_that_answers_by_itself_is_read(node: Server) -> None:
    storage, chk = at(node)
    node.answers["OPEN"] = (200, {}, b"v1\n")
    assert storage.read(chk / "7", limit=9) == b"v1\n"
    node.answers["OPEN"] = (200, {"Content-Length": "", "Transfer-Encoding": "chunked"}, b"2\r\nv1\r\n0\r\n\r\n")
    assert storage.read(chk / "7", limit=9) == b"v1"


def test_what_hdfs_refuses_is_told_apart(node: Server) -> None:
    storage, chk = at(node)

    def refused(kind: type[Exception], ask: Callable[[], object]) -> str:
        with pytest.raises(kind) as raised:
            ask()
        assert type(raised.value) is kind
        return getattr(raised.value, "found", None) or ""

    node.refuse("LISTSTATUS", 403, "AccessControlException")
    assert refused(StorageDeniedError, lambda: storage.names(chk)) == "what it says"
    node.refuse("LISTSTATUS", 403, "SafeModeException")
    assert refused(StorageError, lambda: storage.names(chk)) == "HdfsError: SafeModeException: what it says"
    node.refuse("LISTSTATUS", 404, "FileNotFoundException")
    assert storage.names(chk) is None
    for status in (401, 403):
        node.answers["LISTSTATUS"] = (status, {}, b"<html>")
        assert node.address in refused(StorageDeniedError, lambda: storage.names(chk))
    for status in (200, 404, 500):
        node.answers["LISTSTATUS"] = (status, {}, b"<html>")
        assert "no WebHDFS" in refused(StorageError, lambda: storage.names(chk))
    node.refuse("MKDIRS", 403, "NSQuotaExceededException")
    assert refused(NoSpaceError, lambda: storage.write(chk / "7", b"")) == "what it says"


def test_an_upload_that_is_refused_leaves_no_draft(node: Server) -> None:
    storage, chk = at(node)
    for operation, broken in (("data", BROKEN["an error of HDFS"]), ("CREATE", (200, {}, b""))):
        node.asked.clear()
        node.answers = {operation: broken}
        with pytest.raises(StorageError):
            storage.write(chk / "7", b"v1")
        assert "RENAME" not in node.asked
        assert node.asked[-1] == "DELETE"


def test_an_upload_whose_draft_cannot_be_removed_tells_its_own_error(node: Server) -> None:
    storage, chk = at(node)
    node.refuse("RENAME", 403, "AccessControlException", "the first")
    node.refuse("DELETE", 403, "AccessControlException", "the second")
    with pytest.raises(StorageDeniedError) as raised:
        storage.write(chk / "7", b"v1")
    assert raised.value.found == "the first"


def test_hdfs_is_asked_and_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_hdfs, "READ_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        folder = parse_location(f"webhdfs://{address}/chk/offsets")
        for ask in (lambda: open_storage(folder).names(folder), lambda: open_storage(folder).read(folder, limit=9)):
            with pytest.raises(StorageError) as raised:
                ask()
            assert raised.value.found == f"TimeoutError: no answer from http://{address} within 0.2 s"


def test_a_port_that_is_none_is_told() -> None:
    with pytest.raises(StorageError):
        open_storage(parse_location("hdfs://nn/chk"), {"port": "http"})


def test_password_goes_to_name_nodes_and_to_nobody_whom_they_name(
    node: Server, other: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = parse_location(f"webhdfs://{node.address}/chk")
    monkeypatch.setitem(fsspec.config.conf, "webhdfs", {"user": "etl", "password": "hunter2"})
    storage = open_writable(location)
    assert storage.read(location / "7", limit=9) == b"v1\n"
    assert [(login or "")[:6] for login in node.logins] == ["Basic ", "Basic "]  # a gateway sends back to itself
    node.answers["OPEN"] = (307, {"Location": f"http://{other.address}/data"}, b"")
    node.answers["CREATE"] = (307, {"Location": f"http://{other.address}/data"}, b"")
    assert storage.read(location / "8", limit=9) == b"v1\n"
    storage.create(location / "9", b"v1\n")
    node.answers["GETFILESTATUS"] = (307, {"Location": f"http://{other.address}/data"}, b"")
    with contextlib.suppress(StorageError):
        storage.stat(location / "7")
    assert other.logins
    assert set(other.logins) == {None}


FILE = {"pathSuffix": "7", "type": "FILE", "length": 3, "modificationTime": 9}


def test_no_answer_is_longer_than_a_folder_can_be(node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, chk = at(node)
    monkeypatch.setattr(storage_hdfs, "ANSWER_BYTES_MAX", 10_000)
    node.answers["LISTSTATUS"] = (200, {}, json.dumps({"FileStatuses": {"FileStatus": [FILE] * 500}}).encode())
    with pytest.raises(StorageError, match="does not answer") as raised:
        storage.names(chk)
    assert "longer than 10,000 bytes" in (raised.value.found or "")


def test_no_answer_unpacks_to_more(node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    storage, chk = at(node)
    monkeypatch.setattr(storage_hdfs, "ANSWER_BYTES_MAX", 1024 * 1024)
    node.answers["LISTSTATUS"] = (200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(64 * 1024 * 1024)))
    tracemalloc.start()
    with pytest.raises(StorageError):
        storage.names(chk)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 * 1024 * 1024


@pytest.mark.parametrize("operation", ["OPEN", "data"])
def test_no_more_of_a_file_is_taken_than_was_asked_for(node: Server, operation: str) -> None:
    storage, chk = at(node)
    node.answers[operation] = (200, {}, bytes(100_000))
    with pytest.raises(StorageError) as raised:
        storage.read(chk / "7", limit=9)
    assert "longer than" in (raised.value.found or "")
    node.refuse(operation, 404, "FileNotFoundException", "File /chk/7 not found, in more words than were asked for")
    assert storage.read(chk / "7", limit=9) is None


@pytest.mark.parametrize(
    "status",
    [
        {**FILE, "length": "x"},
        {**FILE, "length": True},
        {**FILE, "length": -1},
        {**FILE, "modificationTime": "x"},
        {**FILE, "pathSuffix": 7},
        {**FILE, "type": 7},
        {"pathSuffix": "7"},
        None,
        [],
    ],
    ids=str,
)
def test_entry_of_another_form_is_no_answer(node: Server, status: object) -> None:
    storage, chk = at(node)
    node.answers["LISTSTATUS"] = (200, {}, json.dumps({"FileStatuses": {"FileStatus": [status]}}).encode())
    node.answers["GETFILESTATUS"] = (200, {}, json.dumps({"FileStatus": status}).encode())
    for ask in (
        lambda: list(storage.scan(chk) or ()),
        lambda: list(storage.walk(chk) or ()),
        lambda: storage.stat(chk),
    ):
        with pytest.raises(StorageError) as raised:
            ask()
        assert "no WebHDFS" in (raised.value.found or "")
