"""Where the chunks of a table end, as Spark asks for it."""

from __future__ import annotations

import json

from pyspark.sql.streaming.datasource import ReadAllAvailable

from lastgood.spark.load_source import LoadSource, TableStream


def test_each_chunk_ends_with_the_next_bound_and_the_last_one_stays() -> None:
    bounds = json.dumps([{"position": 3, "upto": "a"}, {"position": 9, "upto": "b"}])
    source = LoadSource({"bounds": bounds})
    stream = source.streamReader(source.schema())
    assert isinstance(stream, TableStream)
    at = stream.initialOffset()
    ends = []
    for _ in range(3):
        next_one = stream.latestOffset(at, ReadAllAvailable())
        assert (stream.partitions(at, next_one), list(stream.read(None))) == ([], [])  # type: ignore[arg-type]
        at = next_one
        ends.append((at["position"], at["upto"]))
    assert ends == [(3, "a"), (9, "b"), (9, "b")]
    assert "upto" not in stream.initialOffset()
