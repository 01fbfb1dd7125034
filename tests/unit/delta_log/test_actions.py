from __future__ import annotations

import json

import pytest

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.delta_log.actions import (
    Protocol,
    TableCommit,
    TableMetadata,
    Transaction,
    parse_commit,
    parse_interval_ms,
)


def lines(*actions: dict[str, object]) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


def commit_of(*actions: dict[str, object]) -> TableCommit:
    commit = parse_commit(4, lines(*actions))
    assert isinstance(commit, TableCommit)
    return commit


def test_commit_of_a_stream_tells_query_batch_and_rows() -> None:
    commit = commit_of(
        {
            "commitInfo": {
                "timestamp": 1000,
                "operation": "STREAMING UPDATE",
                "operationParameters": {"outputMode": "Append", "queryId": "q", "epochId": "3"},
                "operationMetrics": {"numOutputRows": "10"},
                "userMetadata": "note",
            }
        },
        {"txn": {"appId": "q", "version": 3, "lastUpdated": 999}},
        {"add": {"path": "a%20b.parquet", "dataChange": True}},
        {"remove": {"path": "old.parquet", "dataChange": True}},
        {"somethingNew": {"x": 1}},
    )
    assert (commit.version, commit.timestamp_ms, commit.operation) == (4, 1000, "STREAMING UPDATE")
    assert (commit.query_id, commit.row_count, commit.user_metadata) == ("q", 10, "note")
    assert commit.by_app == {"q": Transaction("q", 3, 999)}
    assert (commit.added, commit.removed) == ({"a%20b.parquet"}, {"old.parquet"})
    assert commit.changes_data


def test_rows_of_delta_rs_are_numbers_under_another_name() -> None:
    assert commit_of({"commitInfo": {"operationMetrics": {"num_added_rows": 3}}}).row_count == 3
    assert commit_of({"commitInfo": {"operationMetrics": {"numOutputRows": "?"}}}).row_count is None
    assert commit_of({"commitInfo": {}}).row_count is None


def test_commit_that_only_rewrites_files_changes_no_data() -> None:
    optimize = commit_of({"add": {"path": "b", "dataChange": False}}, {"remove": {"path": "a", "dataChange": False}})
    assert not optimize.changes_data


def test_time_within_the_commit_counts_before_the_clock_of_the_writer() -> None:
    assert commit_of({"commitInfo": {"inCommitTimestamp": 7, "timestamp": 5}}).timestamp_ms == 7


@pytest.mark.parametrize(
    ("parameters", "version"), [({"version": "1"}, 1), ({"version": 2}, 2), ({"timestamp": "2026-01-01"}, None)]
)
def test_restore_tells_its_version_unless_it_went_by_time(parameters: dict[str, object], version: int | None) -> None:
    commit = commit_of({"commitInfo": {"operation": "RESTORE", "operationParameters": parameters}})
    assert commit.restored_version == version
    assert commit_of({"commitInfo": {"operation": "CLONE", "operationParameters": parameters}}).restored_version is None


def test_time_of_another_shape_is_not_told() -> None:
    assert commit_of({"commitInfo": {"inCommitTimestamp": None, "timestamp": 5}}).timestamp_ms == 5
    assert commit_of({"commitInfo": {"timestamp": "5"}}).timestamp_ms is None


def test_metadata_and_protocol_are_read() -> None:
    commit = commit_of(
        {"metaData": {"id": "x", "configuration": {"delta.appendOnly": "true"}}},
        {
            "protocol": {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": [],
                "writerFeatures": ["rowTracking", "invariants"],
            }
        },
    )
    assert commit.metadata == TableMetadata("x", {"delta.appendOnly": "true"})
    assert commit.protocol == Protocol(3, 7, (), ("invariants", "rowTracking"))


def test_property_without_a_value_is_none() -> None:
    assert commit_of({"metaData": {"id": "x", "configuration": {"a": None, "b": "1"}}}).metadata == TableMetadata(
        "x", {"b": "1"}
    )


@pytest.mark.parametrize(
    "transaction",
    [
        {"appId": "q"},
        {"version": 1},
        {"appId": None, "version": 1},
        {"appId": 1, "version": 1},
        {"appId": "q", "version": "1"},
        {"appId": "q", "version": 1.0},
        {"appId": "q", "version": True},
        {"appId": "q", "version": None},
        {"appId": "q", "version": 2**63},
        {"appId": "q", "version": 1, "lastUpdated": "now"},
        {},
        [],
        5,
    ],
)
def test_transaction_that_is_none_is_a_damage_not_left_out(transaction: object) -> None:
    damage = parse_commit(4, lines({"commitInfo": {}}, {"txn": transaction}))
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.line, damage.found[:4]) == (DamageKind.UNEXPECTED_JSON, 2, "txn:")


@pytest.mark.parametrize("version", [-(2**63), -1, 0, 2**63 - 1])
def test_transaction_may_have_any_number_of_64_bits(version: int) -> None:
    assert commit_of({"txn": {"appId": "q", "version": version, "more": 1}}).by_app["q"].version == version


def test_two_transactions_of_one_application_are_a_damage_unless_they_are_equal() -> None:
    one, other = ({"txn": {"appId": "q", "version": version}} for version in (1, 2))
    assert isinstance(parse_commit(4, lines(one, other)), Damage)
    assert commit_of(one, one).transactions == (Transaction("q", 1),)


@pytest.mark.parametrize(
    "action",
    [
        {"metaData": {}},
        {"metaData": {"id": "x", "configuration": {"a": 5}}},
        {"metaData": {"id": "x", "configuration": "a"}},
        {"protocol": {}},
        {"protocol": {"minReaderVersion": "1", "minWriterVersion": 2}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [1]}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2, "writerFeatures": ["invariants"]}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 6, "readerFeatures": []}},
        {"add": {}},
        {"remove": {"path": None}},
        {"commitInfo": []},
    ],
)
def test_action_that_we_need_and_cannot_read_is_a_damage(action: dict[str, object]) -> None:
    damage = parse_commit(4, lines(action))
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.UNEXPECTED_JSON


def test_version_says_once_what_the_table_is() -> None:
    one, other = ({"metaData": {"id": name}} for name in "xy")
    assert isinstance(parse_commit(4, lines(one, other)), Damage)


def test_what_nobody_needs_is_left_out() -> None:
    commit = commit_of({"txn": None}, {"cdc": 5}, {"domainMetadata": {"domain": 1}}, {"marvel": []})
    assert commit == TableCommit(4)


@pytest.mark.parametrize(
    ("second", "kind"),
    [
        (b'{"add": {"pa', DamageKind.TRUNCATED),
        (b'{"add": {"path": "a"}}{"txn": {"appId": "q", "version": 1}}', DamageKind.NOT_JSON),
        (b'{"txn": {"appId": "\xff", "version": 1}}', DamageKind.NOT_UTF8),
        (b'{"cdc": NaN}', DamageKind.NOT_JSON),
        (b"[]", DamageKind.UNEXPECTED_JSON),
        (b"[" * 100_000, DamageKind.TOO_DEEP),
    ],
)
def test_line_that_is_no_action_is_a_damage_with_its_number(second: bytes, kind: DamageKind) -> None:
    damage = parse_commit(4, lines({"commitInfo": {}}) + b"\n" + second)
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.line) == (kind, 2)


@pytest.mark.parametrize("raw", [b"", b"\n", b" \r\n\n"])
def test_file_without_an_action_is_no_version(raw: bytes) -> None:
    assert parse_commit(4, raw) == Damage(DamageKind.EMPTY)


def test_blank_lines_between_actions_do_not_matter() -> None:
    commit = parse_commit(4, b'\n{"txn": {"appId": "q", "version": 1}}\n\n')
    assert isinstance(commit, TableCommit)
    assert commit.by_app["q"].version == 1


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("interval 1 day", 86_400_000),
        ("interval 30 days", 30 * 86_400_000),
        ("INTERVAL 2 weeks 1 hour", 14 * 86_400_000 + 3_600_000),
        ("10 minutes", 600_000),
        ("interval 5 seconds 20 milliseconds", 5020),
        ("interval 1 month", None),
        ("soon", None),
        ("", None),
    ],
)
def test_intervals_are_understood_or_not_guessed(text: str, length: int | None) -> None:
    assert parse_interval_ms(text) == length
