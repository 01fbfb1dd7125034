from __future__ import annotations

import pytest

from lastgood.errors import UsageError
from lastgood.sources.kafka.reader import OffsetRange
from lastgood.spark.audit import MARK, Audit, AuditSpec, Column, Difference, SinkTable, parse_columns

SERVED = OffsetRange("0", "orders", 0, start=0, begin=0, end=100)
EXPIRED = OffsetRange("0", "orders", 1, start=5, begin=20, end=30)
NOTHING = {"total": 0, "partitions": [], "samples": []}


def spec(**changed: object) -> AuditSpec:
    given = {
        "checkpoint": "/chk",
        "last_committed": 6,
        "kafka_options": {"kafka.bootstrap.servers": "broker:9092"},
        "ranges": (SERVED, EXPIRED),
        "is_start_known": True,
        "sink": SinkTable("delta", "/lake/orders"),
        "keys": (Column("id"),),
    }
    return AuditSpec(**{**given, **changed})


def result(**changed: object) -> dict[str, object]:
    return {
        "isolation_level": "both",
        "keys": ["id"],
        "sink_version": 7,
        "sink_rows": 112,
        "source_records": 108,
        "aborted": {"records": 4, "in_sink": 1},
        **dict.fromkeys(("lost", "duplicated", "changed", "unknown"), NOTHING),
        "outside": {"before": 2, "after": 3},
        "not_verifiable": 1,
        **changed,
    }


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("id", Column("id")),
        (" id ", Column("id")),
        ("id=cast(key as string)", Column("id", "cast(key as string)")),
        ("late = offset >= 10", Column("late", "offset >= 10")),
        ("`a b`=key", Column("`a b`", "key")),
    ],
)
def test_column_ends_at_the_first_equals_sign(text: str, column: Column) -> None:
    assert Column.parse(text) == column


@pytest.mark.parametrize("text", ["", " ", "=key", "id=", "id= "])
def test_column_without_name_or_expression_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        Column.parse(text)
    assert caught.value.exit_code == 2


def test_column_that_is_named_twice_is_refused() -> None:
    assert [column.name for column in parse_columns(["id", "day"])] == ["id", "day"]
    with pytest.raises(UsageError, match="twice") as caught:
        parse_columns(["id", "day", "ID=key"])
    assert caught.value.found == "id"


def test_job_is_asked_in_plain_json() -> None:
    asked = spec(compare=(Column("amount", "1"),), where="offset > 1", compacted=("orders",)).to_json()
    assert asked == {
        "mark": MARK,
        "kafka": {"kafka.bootstrap.servers": "broker:9092"},
        "ranges": [
            {"source": "0", "topic": "orders", "partition": 0, "start": 0, "begin": 0, "end": 100},
            {"source": "0", "topic": "orders", "partition": 1, "start": 5, "begin": 20, "end": 30},
        ],
        "sink": {
            "kind": "delta",
            "location": "/lake/orders",
            "reader": {
                "format": "delta",
                "has_versions": True,
                "extension": "io.delta.sql.DeltaSparkSessionExtension",
                "catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            },
        },
        "keys": [{"name": "id", "expression": None}],
        "compare": [{"name": "amount", "expression": "1"}],
        "where": "offset > 1",
        "isolation_level": None,
        "compacted": ["orders"],
        "unserved": True,
    }


def test_all_is_served_only_if_nothing_expired_and_the_beginning_is_known() -> None:
    assert spec(ranges=(SERVED,)).is_all_served
    assert not spec(ranges=(SERVED, EXPIRED)).is_all_served
    assert not spec(ranges=(SERVED,), is_start_known=False).is_all_served


@pytest.mark.parametrize("kind", ["lost", "duplicated", "changed", "unknown"])
def test_one_difference_of_any_kind_makes_a_table_inexact(kind: str) -> None:
    assert Audit.of(result(), spec(), seconds=1).is_exact
    assert not Audit.of(result(**{kind: {**NOTHING, "total": 1}}), spec(), seconds=1).is_exact


def test_difference_survives_the_way_to_json() -> None:
    partition = {"topic": "orders", "partition": 1, "total": 3, "ranges": [[20, 22], [25, 26]], "ranges_left_out": 0}
    sample = {"key": {"id": "x"}, "topic": "orders", "partition": 1, "offset": 20}
    found = {"total": 3, "partitions": [partition], "samples": [sample]}
    difference = Difference.of(found)
    assert difference.partitions[0].ranges == ((20, 22), (25, 26))
    assert difference.to_json() == found


def test_audit_is_one_json_object() -> None:
    assert Audit.of(result(), spec(), seconds=1.26).to_json() == {
        "checkpoint": "/chk",
        "last_committed": 6,
        "exact": True,
        "keys": ["id"],
        "source": {
            "kafka": "broker:9092",
            "isolation_level": "both",
            "offsets": 110,
            "records": 108,
            "compared": {"orders": {"0": [[0, 100]], "1": [[20, 30]]}},
            "not_served": {"orders": {"1": [[5, 20]]}},
        },
        "sink": {
            "table": "delta:/lake/orders",
            "version": 7,
            "rows": 112,
            "rows_before": 2,
            "rows_after": 3,
            "rows_not_verifiable": 1,
        },
        "lost": NOTHING,
        "duplicated": NOTHING,
        "changed": NOTHING,
        "unknown": NOTHING,
        "aborted": {"records": 4, "in_sink": 1},
        "seconds": 1.3,
    }


def test_job_reads_a_table_that_has_a_name_by_its_name() -> None:
    assert SinkTable("table", "lake.orders").to_json() == {"kind": "table", "location": "lake.orders", "reader": None}
