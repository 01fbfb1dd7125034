from __future__ import annotations

from pathlib import Path

from lastgood.lab.kraft import Ports, format_properties, make_cluster_id, make_server_settings

PORTS = Ports(clients=21001, admin=21002, controller=21003)


def test_all_listeners_are_on_loopback() -> None:
    settings = make_server_settings(PORTS, advertised_port=None, data=Path("data"), config={})
    assert settings["listeners"] == ("PLAINTEXT://127.0.0.1:21001,ADMIN://127.0.0.1:21002,CONTROLLER://127.0.0.1:21003")
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:21001,ADMIN://127.0.0.1:21002"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21003"
    assert settings["log.dirs"] == "data"


def test_only_clients_are_sent_to_the_advertised_port() -> None:
    settings = make_server_settings(PORTS, advertised_port=22000, data=Path("data"), config={})
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:22000,ADMIN://127.0.0.1:21002"
    assert "22000" not in settings["listeners"]


def test_settings_of_the_caller_count_before_ours() -> None:
    settings = make_server_settings(
        PORTS,
        advertised_port=None,
        data=Path("data"),
        config={"auto.create.topics.enable": "true", "log.segment.bytes": "1048576"},
    )
    assert settings["auto.create.topics.enable"] == "true"
    assert settings["log.segment.bytes"] == "1048576"


def test_properties_are_ascii_as_java_reads_them() -> None:
    assert format_properties({"a": "b c", "path": "C:\\x/ü/😀"}) == "a=b c\npath=C:\\\\x/\\u00fc/\\ud83d\\ude00\n"


def test_cluster_id_has_22_characters() -> None:
    assert make_cluster_id(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert make_cluster_id(b"\xff" * 16) == "_____________________w"
