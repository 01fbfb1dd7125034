from __future__ import annotations

import socket

import pytest

from lastgood.lab import ports
from lastgood.lab.ports import LOOPBACK, find_free_port, find_free_ports, is_accepting, is_free


def test_free_port_can_be_listened_on() -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, find_free_port()))
        server.listen()


def test_free_ports_are_all_different_and_below_those_of_outgoing_connections() -> None:
    found = find_free_ports(20)
    assert len(set(found)) == 20
    assert max(found) < 32_768


def test_free_ports_leave_out_those_that_are_spoken_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = iter([20_001, 20_002, 20_002, 20_003])
    monkeypatch.setattr(ports, "find_free_port", lambda: next(drawn))
    assert find_free_ports(2, beside={20_001}) == (20_002, 20_003)


def test_port_with_a_listener_is_not_free_and_accepts() -> None:
    with socket.socket() as server:
        server.bind((LOOPBACK, find_free_port()))
        server.listen()
        port = server.getsockname()[1]
        assert not is_free(port)
        assert is_accepting(port)
    assert is_free(port)
    assert not is_accepting(port)
