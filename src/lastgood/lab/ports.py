"""Ports of this machine that nobody uses."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Collection

LOOPBACK = "127.0.0.1"

# Below 32768, where Linux, and below 49152, where others begin to hand out ports to outgoing connections:
# a service that is down for a moment finds its port untaken when it comes back, and a client that tries to
# reach it meanwhile cannot be given that very port and so connect to itself.
_RANGE = range(20_000, 32_768)


def find_free_port() -> int:
    """A TCP port that was free on loopback a moment ago; whoever binds it must still expect a clash."""
    while True:
        port = secrets.choice(_RANGE)
        if is_free(port):
            return port


def find_free_ports(count: int, *, beside: Collection[int] = ()) -> tuple[int, ...]:
    """So many different ports, each as `find_free_port` gives it, and none of those that are spoken for already."""
    ports: list[int] = []
    while len(ports) < count:
        port = find_free_port()
        if port not in ports and port not in beside:
            ports.append(port)
    return tuple(ports)


def is_free(port: int) -> bool:
    """True if a server could listen on this port of loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def is_accepting(port: int) -> bool:
    """True if something on loopback accepts connections on this port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True
