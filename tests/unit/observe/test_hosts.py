"""Which hosts are asked for an input file that only the logs name."""

from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.hosts import open_named
from lastgood.observe.open_query import OpenQuery, gather
from lastgood.settings.target import resolve_target
from lastgood.storage.reading import LocalStorage, StorageDeniedError, parse_location
from lastgood.testing.checkpoints import CheckpointBuilder

CORE = """<configuration><property><name>dfs.nameservices</name><value>lake</value></property>
<property><name>dfs.namenode.rpc-address.other</name><value>nn:8020</value></property></configuration>"""


@pytest.fixture
def evidence(tmp_path: Path) -> OpenQuery:
    CheckpointBuilder(tmp_path / "chk").run(1)
    return gather(resolve_target(str(tmp_path / "chk")), options=EvidenceOptions(sinks=("delta:hdfs://sinks/orders",)))


@pytest.mark.parametrize("text", ["hdfs://evil/in", "webhdfs://evil:9870/in", "abfss://in@evil.example.com/in"])
def test_host_that_only_the_logs_name_is_not_asked(evidence: OpenQuery, text: str) -> None:
    with pytest.raises(StorageDeniedError, match="nobody has named the host"):
        open_named(evidence)(parse_location(text))


def test_disk_and_a_host_that_is_named_here_are_asked(
    evidence: OpenQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_named(evidence)
    assert isinstance(opened(parse_location("/data/in")), LocalStorage)
    opened(parse_location("hdfs://SINKS:8020/in"))
    (tmp_path / "hdfs-site.xml").write_text(CORE)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    for host in ("lake", "nn"):
        opened(parse_location(f"hdfs://{host}/in"))
    with pytest.raises(StorageDeniedError):
        opened(parse_location("hdfs://other/in"))


def test_host_is_told_where_a_location_names_one() -> None:
    texts = ("/chk", "s3a://bucket/chk", "hdfs://NN:8020/chk", "abfss://c@acc.dfs.core.windows.net/chk")
    assert [parse_location(text).host for text in texts] == [None, None, "nn", "acc.blob.core.windows.net"]
    assert parse_location("wasbs://c@acc.blob.core.windows.net/x").host == "acc.blob.core.windows.net"
