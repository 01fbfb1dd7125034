"""What one KRaft node, broker and controller in one, is started with (pure); `kafka.py` starts it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

from lastgood.frozen import dataclass
from lastgood.lab.ports import LOOPBACK

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
    # A broker that comes up is let in at one of its heartbeats, by default every 2 s. Its session stays at 9 s: a
    # shorter one runs out on a busy machine, though a new broker has to wait for that after SIGKILL.
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

SHARED_JARS = (
    *("scala-library-2.13.", "jackson-core-2.", "jackson-databind-2.", "jackson-annotations-2."),
    *("zstd-jni-", "snappy-java-", "lz4-java-"),
    *("slf4j-api-2.", "log4j-api-2.", "log4j-core-2.", "log4j-slf4j2-impl-2."),
)
"""How the names of the jars begin that the broker shares with PySpark."""


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a node listens, on loopback."""

    clients: int
    """For clients, directly or through a proxy."""
    admin: int
    """For ourselves, never behind a proxy: topics can be managed while clients are cut off."""
    controller: int


def make_server_settings(
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


def format_properties(settings: Mapping[str, str]) -> str:
    """Settings as a Java properties file, in ASCII whatever they hold."""
    return "".join(f"{key}={_escape(value)}\n" for key, value in settings.items())


def _escape(value: str) -> str:
    units = value.replace("\\", "\\\\").encode("utf-16-be")
    codes = (int.from_bytes(units[start : start + 2]) for start in range(0, len(units), 2))
    return "".join(map(_escape_unit, codes))


def _escape_unit(code: int) -> str:
    if code < 128:
        return chr(code)
    return f"\\u{code:04x}"


def make_cluster_id(random: bytes) -> str:
    """A cluster id of 16 random bytes, as Kafka writes them."""
    return base64.urlsafe_b64encode(random).rstrip(b"=").decode()
