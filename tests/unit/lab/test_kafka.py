from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lastgood.errors import ExtraMissingError, StorageError
from lastgood.lab.kafka import BrokerRequestError, KafkaBroker
from lastgood.process.java import Java


def broker(folder: Path, *, port: int | None = None, advertised_port: int | None = None) -> KafkaBroker:
    return KafkaBroker(folder, java=Java(Path("/java"), 17), jars=(), port=port, advertised_port=advertised_port)


def test_broker_that_is_only_described_touches_nothing(tmp_path: Path) -> None:
    described = broker(tmp_path / "broker")
    described.stop()
    described.kill()
    assert not described.is_running
    assert described.pid is None
    assert list(tmp_path.iterdir()) == []


def test_port_is_known_before_the_start_only_if_it_was_asked_for(tmp_path: Path) -> None:
    assert broker(tmp_path, port=21001).bootstrap == "127.0.0.1:21001"
    with pytest.raises(RuntimeError, match="first start"):
        _ = broker(tmp_path).port


def test_clients_are_sent_to_the_advertised_port(tmp_path: Path) -> None:
    behind_proxy = broker(tmp_path, port=21001, advertised_port=22000)
    assert behind_proxy.bootstrap == "127.0.0.1:22000"
    assert behind_proxy.port == 21001


def test_broker_that_does_not_run_refuses_at_once(tmp_path: Path) -> None:
    with pytest.raises(BrokerRequestError) as raised:
        broker(tmp_path, port=21001).topic_id("orders")
    assert raised.value.code == "NOT_RUNNING"


def test_missing_client_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.delitem(sys.modules, "confluent_kafka.admin", raising=False)
    with pytest.raises(ExtraMissingError) as raised:
        broker(tmp_path).start()
    assert raised.value.next == "pip install 'lastgood[kafka]'"


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as raised:
        broker(tmp_path / "file" / "broker").start()
    assert raised.value.subject == str(tmp_path / "file" / "broker")
