"""What one KRaft node, broker and controller in one, is started with (pure); `kafka.py` starts it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lastgood.lab.ports import LOOPBACK

LOG4J = """\
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c %m%n
"""
"""Log settings: warnings and errors to standard output."""

_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,ADMIN:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "ADMIN",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After SIGKILL the new broker waits until the session of the old one has run out: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # So that retention does its work within a second or two, from the start on.
    "log.initial.task.delay.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.segment.delete.delay.ms": "100",
    # By default what was deleted in the last minute is back after SIGKILL.
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    # By default half of the heap that we give.
    "log.cleaner.dedupe.buffer.size": "4194304",
}

_SHARED_JARS = (
    *("scala-library-2.13.", "jackson-core-2.", "jackson-databind-2.", "jackson-annotations-2."),
    *("zstd-jni-", "snappy-java-", "lz4-java-"),
    *("slf4j-api-2.", "log4j-api-2.", "log4j-core-2.", "log4j-slf4j2-impl-2."),
)

_EXCEPTION = re.compile(r"(?:[\w.$]+\.)?[\w$]*(?:Exception|Error|Throwable)\b")


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a node listens, on loopback."""

    clients: int
    """For clients, directly or through a proxy."""
    admin: int
    """For ourselves, never behind a proxy: topics can be managed while clients are cut off."""
    controller: int


def server_settings(
    ports: Ports,
    *,
    advertised_port: int | None,
    data: Path,
    config: Mapping[str, str],
) -> dict[str, str]:
    """Kafka's settings of the node; `config` counts before ours."""
    clients, admin, controller = (f"{LOOPBACK}:{port}" for port in (ports.clients, ports.admin, ports.controller))
    advertised = f"{LOOPBACK}:{advertised_port or ports.clients}"
    return {
        **_SETTINGS,
        "controller.quorum.voters": f"1@{controller}",
        "listeners": f"PLAINTEXT://{clients},ADMIN://{admin},CONTROLLER://{controller}",
        "advertised.listeners": f"PLAINTEXT://{advertised},ADMIN://{admin}",
        "log.dirs": str(data),
        **config,
    }


def properties(settings: Mapping[str, str]) -> str:
    """Settings as a Java properties file, in ASCII whatever they hold."""
    return "".join(f"{key}={_escaped(value)}\n" for key, value in settings.items())


def _escaped(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[start : start + 2]) for start in range(0, len(units), 2))
    return "".join(chr(code) if code < 128 else f"\\u{code:04x}" for code in codes)


def shared_jars(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Out of the names of PySpark's jars, those that the broker runs on as well; and what is not among them."""
    available = sorted(names)
    found = {start: [name for name in available if name.startswith(start)] for start in _SHARED_JARS}
    return (
        [name for matches in found.values() for name in matches],
        [start for start, matches in found.items() if not matches],
    )


def cluster_id(random: bytes) -> str:
    """A cluster id of 16 random bytes, as Kafka writes them."""
    return base64.urlsafe_b64encode(random).rstrip(b"=").decode()


def last_cause(log: str) -> str | None:
    """The line of a Java log that says most about its end, for a person to read; None for an empty log."""
    lines = [line.strip() for line in log.splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines if line.startswith("Caused by: ")]
    exceptions = [line for line in lines if _EXCEPTION.match(line)]
    for candidates in (causes, exceptions, lines):
        if candidates:
            return candidates[-1].removeprefix("Caused by: ")
    return None
