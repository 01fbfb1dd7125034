"""A Delta table on a real S3 server, asked for the offsets that its rows carry."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lastgood.errors import StorageError
from lastgood.lab.s3 import S3Server
from lastgood.sinks.delta.offsets import read_offsets
from lastgood.sinks.offset_columns import parse_offset_columns
from lastgood.storage.reading import parse_location

COLUMNS = parse_offset_columns("topic,partition,offset")


@pytest.mark.services
@pytest.mark.parametrize("files_read", [0, 9])
def test_table_on_s3_is_asked_as_one_on_a_disk(s3: S3Server, monkeypatch: pytest.MonkeyPatch, files_read: int) -> None:
    for name, value in {**s3.environment, "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    table = f"s3a://lake/offsets-{files_read}"
    data = {"topic": ["orders"] * 3, "partition": pa.array([0] * 3, pa.int32()), "offset": pa.array(range(3))}
    write_deltalake(table, pa.table(data), storage_options={"AWS_ALLOW_HTTP": "true", "aws_conditional_put": "etag"})
    found = read_offsets(parse_location(table), COLUMNS, files_read=files_read)
    assert found.held == {"orders": {0: ((0, 3),)}}
    assert found.files_read == min(files_read, 1)
    with pytest.raises(StorageError, match="cannot be asked"):
        read_offsets(parse_location("s3a://lake/nothing"), COLUMNS)
