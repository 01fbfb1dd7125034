from __future__ import annotations

from pathlib import Path

from lastgood.lab.kraft import Ports, cluster_id, last_cause, properties, server_settings, shared_jars

PORTS = Ports(clients=21001, admin=21002, controller=21003)


def test_all_listeners_are_on_loopback() -> None:
    settings = server_settings(PORTS, advertised_port=None, data=Path("data"), config={})
    assert settings["listeners"] == ("PLAINTEXT://127.0.0.1:21001,ADMIN://127.0.0.1:21002,CONTROLLER://127.0.0.1:21003")
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:21001,ADMIN://127.0.0.1:21002"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:21003"
    assert settings["log.dirs"] == "data"


def test_only_clients_are_sent_to_the_advertised_port() -> None:
    settings = server_settings(PORTS, advertised_port=22000, data=Path("data"), config={})
    assert settings["advertised.listeners"] == "PLAINTEXT://127.0.0.1:22000,ADMIN://127.0.0.1:21002"
    assert "22000" not in settings["listeners"]


def test_settings_of_the_caller_count_before_ours() -> None:
    settings = server_settings(
        PORTS,
        advertised_port=None,
        data=Path("data"),
        config={"auto.create.topics.enable": "true", "log.segment.bytes": "1048576"},
    )
    assert settings["auto.create.topics.enable"] == "true"
    assert settings["log.segment.bytes"] == "1048576"


def test_properties_are_ascii_as_java_reads_them() -> None:
    assert properties({"a": "b c", "path": "C:\\x/ü/😀"}) == "a=b c\npath=C:\\\\x/\\u00fc/\\ud83d\\ude00\n"


def test_cluster_id_has_22_characters() -> None:
    assert cluster_id(bytes(16)) == "AAAAAAAAAAAAAAAAAAAAAA"
    assert cluster_id(b"\xff" * 16) == "_____________________w"


SPARK_4_JARS = [
    *("scala-library-2.13.18.jar", "scala-reflect-2.13.18.jar", "jackson-core-2.21.2.jar"),
    *("jackson-core-asl-1.9.13.jar", "jackson-databind-2.21.2.jar", "jackson-annotations-2.21.jar"),
    *("zstd-jni-1.5.7-7.jar", "snappy-java-1.1.10.8.jar", "lz4-java-1.11.0.jar", "slf4j-api-2.0.17.jar"),
    *("log4j-api-2.25.4.jar", "log4j-core-2.25.4.jar", "log4j-slf4j2-impl-2.25.4.jar", "log4j-1.2-api-2.25.4.jar"),
]


def test_broker_shares_eleven_jars_with_spark_4() -> None:
    shared, missing = shared_jars(SPARK_4_JARS)
    assert len(shared) == 11
    assert missing == []
    assert not {"scala-reflect-2.13.18.jar", "jackson-core-asl-1.9.13.jar"} & set(shared)


def test_jars_of_scala_2_12_do_not_serve_the_broker() -> None:
    names = [name.replace("scala-library-2.13.18", "scala-library-2.12.18") for name in SPARK_4_JARS]
    assert shared_jars(names)[1] == ["scala-library-2.13."]


LOG = """\
2026-11-21 09:36:02 ERROR kafka.Kafka$ Exiting Kafka due to fatal exception
org.apache.kafka.common.KafkaException: Socket server failed to bind to 127.0.0.1:21001: Address in use.
\tat org.apache.kafka.network.SocketServer.openServerSocket(SocketServer.java:1)
Caused by: java.net.BindException: Address already in use
\tat java.base/sun.nio.ch.Net.bind0(Native Method)
2026-11-21 09:36:03 INFO kafka.server.BrokerServer shutting down
"""


def test_innermost_cause_of_a_log_is_shown() -> None:
    assert last_cause(LOG) == "java.net.BindException: Address already in use"


def test_exception_without_a_cause_is_shown() -> None:
    log = "starting\norg.apache.kafka.common.config.ConfigException: Invalid value many\n\tat a.B.c(B.java:1)\n"
    assert last_cause(log) == "org.apache.kafka.common.config.ConfigException: Invalid value many"


def test_last_line_is_shown_where_there_is_no_exception() -> None:
    assert last_cause("one\ntwo\n\n") == "two"
    assert last_cause("") is None
