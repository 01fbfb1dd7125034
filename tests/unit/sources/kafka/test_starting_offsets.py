"""Where a recovery lets a query start: the file, and what Spark is given."""

from __future__ import annotations

import json

import pytest

from lastgood.errors import UsageError
from lastgood.sources.kafka.starting_offsets import (
    SourcePartitionsGoneError,
    StartingOffsets,
    StartingOffsetsError,
    name_file,
    parse_starting_offsets,
)

START = StartingOffsets("orders", "20261120-0312-7f3a", {"orders": {0: 41, 1: -2}})


def test_file_says_whose_it_is_who_wrote_it_and_where_to_start() -> None:
    content = json.dumps(START.to_json()).encode()
    assert parse_starting_offsets(content, "orders", "f") == START
    assert START.to_json() == {
        "query": "orders",
        "recovery": "20261120-0312-7f3a",
        "starting_offsets": {"orders": {"0": 41, "1": -2}},
    }


def test_spark_gets_every_partition_and_the_unknown_ones_from_their_beginning() -> None:
    option = START.option({"returns": [0], "orders": [2, 1, 0]})
    assert option == '{"orders": {"0": 41, "1": -2, "2": -2}, "returns": {"0": -2}}'


def test_partitions_that_are_gone_are_named() -> None:
    wanted = StartingOffsets("orders", "r", {"orders": {0: 1, 7: 1}, "returns": {0: 1}})
    with pytest.raises(SourcePartitionsGoneError) as raised:
        wanted.option({"orders": {0, 1}})
    assert raised.value.found == "no orders-7, returns-0"
    assert raised.value.subject == "orders"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b'{"query": "orders", "recovery": "r", "starting_offsets": {"orders": {"0": "41"}}}',
        b'{"query": "orders", "recovery": "r", "starting_offsets": {"orders": {"0": -3}}}',
        b'{"query": "orders", "recovery": "r", "starting_offsets": {"orders": {"zero": 1}}}',
        b'{"query": "orders", "recovery": "r", "starting_offsets": {"orders": 1}}',
        b'{"query": "orders", "recovery": "r", "starting_offsets": {"orders": {"0": true}}}',
        b'{"query": "returns", "recovery": "r", "starting_offsets": {}}',
    ],
)
def test_file_that_cannot_be_meant_so_is_an_error_that_names_it(content: bytes) -> None:
    with pytest.raises(StartingOffsetsError) as raised:
        parse_starting_offsets(content, "orders", "/starts/orders.json")
    assert raised.value.subject == "/starts/orders.json"


def test_query_is_a_file_name() -> None:
    assert name_file("orders.by-hour_2") == "orders.by-hour_2.json"
    for name in ("", "../orders", "a b"):
        with pytest.raises(UsageError):
            name_file(name)
