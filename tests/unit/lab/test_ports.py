from __future__ import annotations

import socket

from lastgood.lab.ports import LOOPBACK, accepts, free_port, free_ports, is_free


def test_free_port_can_be_listened_on() -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, free_port()))
        server.listen()


def test_free_ports_are_all_different_and_below_those_of_outgoing_connections() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert max(ports) < 32_768


def test_port_with_a_listener_is_not_free_and_accepts() -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, free_port()))
        server.listen()
        port = server.getsockname()[1]
        assert not is_free(port)
        assert accepts(port)
    assert is_free(port)
    assert not accepts(port)
