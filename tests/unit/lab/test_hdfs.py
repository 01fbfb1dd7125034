from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from lastgood.errors import StorageError
from lastgood.lab.hdfs import SUPERUSER, HdfsCluster, HdfsStartError, _format_xml
from lastgood.process.java import Java
from lastgood.storage.hdfs import make_webhdfs_settings


def cluster(folder: Path, port: int | None = None) -> HdfsCluster:
    return HdfsCluster(folder, java=Java(Path("/java"), 17), jars=(), port=port)


def test_cluster_that_is_only_described_touches_nothing(tmp_path: Path) -> None:
    described = cluster(tmp_path / "hdfs")
    described.stop()
    described.kill()
    assert (described.is_running, described.pid) == (False, None)
    assert list(tmp_path.iterdir()) == []


def test_ports_are_known_before_the_start_only_if_they_were_asked_for(tmp_path: Path) -> None:
    assert cluster(tmp_path, port=21001).uri == "hdfs://127.0.0.1:21001"
    for unknown in (lambda: cluster(tmp_path).uri, lambda: cluster(tmp_path, port=21001).webhdfs):
        with pytest.raises(RuntimeError, match="first start"):
            unknown()


def test_clients_are_told_as_hadoop_tells_them_and_by_options(tmp_path: Path) -> None:
    described = cluster(tmp_path)
    described._lasting = (21001, 21002)
    assert described.environment == {"HADOOP_CONF_DIR": str(tmp_path / "conf"), "HADOOP_USER_NAME": SUPERUSER}
    assert described.options == {"user": SUPERUSER, "port": 21002}
    found = make_webhdfs_settings("hdfs", "127.0.0.1:21001", env={}, given=described.options)
    assert found["namenodes"] == ("http://127.0.0.1:21002",)


def test_settings_are_xml_whatever_they_hold() -> None:
    root = ET.fromstring(_format_xml({"a.b": "<&>", "c": "d"}))
    told = {each.findtext("name"): each.findtext("value") for each in root.iter("property")}
    assert told == {"a.b": "<&>", "c": "d"}


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError) as raised:
        cluster(tmp_path / "file/hdfs").start()
    assert raised.value.subject == str(tmp_path / "file/hdfs")


@pytest.mark.parametrize("name", ["a b", "50%", "what?"])
def test_folder_whose_name_hadoop_trips_over_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(HdfsStartError) as raised:
        cluster(tmp_path / name).start()
    assert raised.value.subject == str(tmp_path / name)
