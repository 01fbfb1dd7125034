from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import IO

import pytest

from lastgood.errors import StorageError
from lastgood.lab import server
from lastgood.lab.kraft import SHARED_JARS
from lastgood.lab.ports import LOOPBACK, find_free_port, find_free_ports, is_accepting, is_free
from lastgood.lab.s3 import S3ServerError
from lastgood.lab.server import Server, find_last_cause, find_shared_jars, is_listening
from lastgood.process.child import Child

LISTEN = """
import socket, sys, time
try:
    servers = [socket.create_server(("127.0.0.1", int(port))) for port in sys.argv[1:]]
except OSError as error:
    sys.exit(f"OSError: {error.strerror}")
time.sleep(600)
"""


class Listener(Server):
    """Two ports that accept connections, of which a restart must have the first again."""

    noun = "listener"
    not_started = S3ServerError
    log_name = "listener"
    grace_seconds = 5.0

    def __init__(
        self, folder: Path, *, port: int | None = None, script: str = LISTEN, start_seconds: float = 60.0
    ) -> None:
        super().__init__(folder, ports=(port, None), start_seconds=start_seconds)
        self.script = script
        self.seen: list[tuple[int, ...]] = []

    def _lasting_of(self, ports: tuple[int, ...]) -> tuple[int | None, ...]:
        return (ports[0], None)

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        self.seen.append(ports)
        return Child([sys.executable, "-c", self.script, *map(str, ports)], output=output)

    def _is_ready(self, child: Child, ports: tuple[int, ...]) -> bool:
        return all(is_listening(child, port) for port in ports)


def drawing(monkeypatch: pytest.MonkeyPatch, *choices: tuple[int, ...]) -> None:
    """Has these ports drawn first."""
    left = iter(choices)
    monkeypatch.setattr(
        server, "find_free_ports", lambda *args, **how: next(left, None) or find_free_ports(*args, **how)
    )


def test_server_that_is_only_described_touches_nothing(tmp_path: Path) -> None:
    described = Listener(tmp_path / "listener")
    described.stop()
    described.kill()
    assert (described.is_running, described.pid) == (False, None)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(RuntimeError, match="a listener has no port before its first start"):
        _ = described.port


def test_it_is_started_once_stopped_killed_and_restarted_on_the_same_port(tmp_path: Path) -> None:
    with Listener(tmp_path) as listener:
        pid, port = listener.pid, listener.port
        listener.start()
        assert (listener.pid, len(listener.seen)) == (pid, 1)
        for end in (listener.stop, listener.kill, lambda: None):
            end()
            listener.restart()
            assert listener.is_running
            assert listener.port == port
            assert is_accepting(port)
        assert len({ports[1] for ports in listener.seen}) > 1  # nobody but itself knows that one
    assert not listener.is_running
    assert is_free(port)


def test_a_taken_port_is_left_to_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server((LOOPBACK, find_free_port())) as owner:
        taken = owner.getsockname()[1]
        drawing(monkeypatch, (taken, *find_free_ports(1)), (*find_free_ports(1), taken))
        with Listener(tmp_path) as listener:
            assert [taken in ports for ports in listener.seen] == [True, True, False]


def test_a_port_that_it_must_have_and_that_is_taken_is_named_as_the_cause(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, find_free_port())) as owner:
        listener = Listener(tmp_path, port=owner.getsockname()[1])
        with pytest.raises(S3ServerError) as raised:
            listener.start()
    assert len(listener.seen) == 1
    assert (raised.value.found or "").startswith("it ended with exit code 1: OSError: Address already in use")
    assert raised.value.subject == str(listener.log)
    listener.start()  # it is free now
    listener.stop()


def test_a_cause_of_an_earlier_start_is_not_told_again(tmp_path: Path) -> None:
    (tmp_path / "listener.log").write_text("OSError: the disk was on fire\n")
    with pytest.raises(S3ServerError) as raised:
        Listener(tmp_path, script="").start()
    assert raised.value.found == "it ended with exit code 0"


def test_one_that_never_answers_is_ended(tmp_path: Path) -> None:
    listener = Listener(tmp_path, script="import time; print('slow', flush=True); time.sleep(600)", start_seconds=1)
    with pytest.raises(S3ServerError) as raised:
        listener.start()
    assert (raised.value.found or "").startswith("no answer within 1 s")
    assert not listener.is_running


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as raised:
        Listener(tmp_path / "file/listener").start()
    assert raised.value.subject == str(tmp_path / "file/listener")


SPARK_4_JARS = [
    *("scala-library-2.13.18.jar", "scala-reflect-2.13.18.jar", "jackson-core-2.21.2.jar"),
    *("jackson-core-asl-1.9.13.jar", "jackson-databind-2.21.2.jar", "jackson-annotations-2.21.jar"),
    *("zstd-jni-1.5.7-7.jar", "snappy-java-1.1.10.8.jar", "lz4-java-1.11.0.jar", "slf4j-api-2.0.17.jar"),
    *("log4j-api-2.25.4.jar", "log4j-core-2.25.4.jar", "log4j-slf4j2-impl-2.25.4.jar", "log4j-1.2-api-2.25.4.jar"),
]


def test_broker_shares_eleven_jars_with_spark_4() -> None:
    shared, missing = find_shared_jars(SPARK_4_JARS, SHARED_JARS)
    assert len(shared) == 11
    assert missing == []
    assert not {"scala-reflect-2.13.18.jar", "jackson-core-asl-1.9.13.jar"} & set(shared)


def test_jars_of_scala_2_12_do_not_serve_the_broker() -> None:
    names = [name.replace("scala-library-2.13.18", "scala-library-2.12.18") for name in SPARK_4_JARS]
    assert find_shared_jars(names, SHARED_JARS)[1] == ["scala-library-2.13."]


LOG = """\
2026-11-21 09:36:02 ERROR kafka.Kafka$ Exiting Kafka due to fatal exception
org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:21001: Address in use.
\tat org.apache.kafka.network.SocketServer.openServerSocket(SocketServer.java:1)
Caused by: java.net.BindException: Address already in use
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
2026-11-21 09:36:03 INFO kafka.server.BrokerServer shutting down
"""


def test_innermost_cause_of_a_log_is_shown() -> None:
    assert find_last_cause(LOG) == "java.net.BindException: Address already in use"


def test_exception_without_a_cause_is_shown() -> None:
    log = "starting\norg.apache.kafka.common.config.ConfigException: Invalid value many\n\tat a.B.c(B.java:1)\n"
    assert find_last_cause(log) == "org.apache.kafka.common.config.ConfigException: Invalid value many"


def test_last_line_is_shown_where_there_is_no_exception() -> None:
    assert find_last_cause("one\ntwo\n\n") == "two"
    assert find_last_cause("") is None
