from __future__ import annotations

import pytest
from foreign import AUTO_LOADER, KINESIS, PULSAR, PYTHON

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.source_offsets import NumberOffset, SourceOffset, parse_source_offset
from lastgood.sources.unasked import Unasked, describe_source

DATABRICKS = (
    '{"shards":[{"shard":{"stream":"orders","shardId":"shardId-000000000000"},"firstSeqNum":null,"lastSeqNum":"4960"}]}'
)
NOT_KNOWN = "a source that lastgood does not know"


def offset(text: str) -> SourceOffset:
    found = parse_source_offset(text)
    assert not isinstance(found, Damage)
    return found


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (KINESIS[7], "Kinesis"),
        (DATABRICKS, "Kinesis"),
        (AUTO_LOADER[3], "Auto Loader"),
        (PULSAR[0], "Pulsar"),
        ('{"0":120,"1":117}', "Pub/Sub Lite"),
        ('{"sourceVersion":1,"tableId":"a","tableVersion":3,"index":-1,"isStartingVersion":false}', "Delta Sharing"),
        ('{"id":"com.azure.cosmos.spark.changeFeed.offset.v1","state":"e30="}', "Azure Cosmos DB"),
        ('{"offset":4,"checkpoints":[]}', "Solace"),
        ('{"commitTime":"20240101000000000"}', "Hudi"),
        ('{"snapshotId":3,"index":0,"scanSnapshot":false}', "Paimon"),
        ('{"lastgood_load":1,"file":0,"position":1024}', "files of a load"),
        ('{"file":0,"position":1024}', NOT_KNOWN),
        ('{"file":"binlog.1","position":1024}', NOT_KNOWN),
        ('{"file":0,"position":1,"row":2}', NOT_KNOWN),
        ('{"offset":30,"timestamp":1700000003000}', "rate-micro-batch"),
        ('{"version":1,"snapshot_id":7,"position":2,"scan_all_files":false}', "Iceberg"),
        ('{"t":{"0":1}}', "Kafka"),
        ('{"logOffset":1}', "file"),
        (PYTHON[0], NOT_KNOWN),
        ("cursor-17", NOT_KNOWN),
        ("[]", NOT_KNOWN),
        ("{}", NOT_KNOWN),
        ('{"shards":4}', NOT_KNOWN),
    ],
)
def test_a_source_is_called_by_what_its_offsets_look_like(text: str, name: str) -> None:
    assert describe_source(offset(text), None) == name


def test_rate_writes_down_when_it_began_and_a_socket_does_not() -> None:
    assert describe_source(NumberOffset(3), NumberOffset(1_790_000_000_000)) == "rate"
    assert describe_source(NumberOffset(3), None) == "a socket, memory, or another that counts its rows"


def test_what_it_rests_on_is_one_line_that_names_the_source_and_what_to_type() -> None:
    found = Unasked("1", "Kinesis")
    assert "source 1 (Kinesis)" in found.ground
    assert "--source-replays" in found.ground
    assert "--source-replays" in str(found.unknown)
    assert Unasked("1", "Kinesis", is_vouched_for=True).unknown is None
    gone = Unasked("0", "a socket", is_lost_with_driver=True)
    assert "cannot serve again" in gone.ground
    assert "--source-replays" not in gone.ground
