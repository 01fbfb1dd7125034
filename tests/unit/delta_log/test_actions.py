from __future__ import annotations

import json

import pytest

from lastgood.checkpoint.damage import Damage
from lastgood.delta_log.actions import Protocol, TableCommit, TableMetadata, Transaction, interval_ms, parse_commit


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
    assert commit_of().row_count is None


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


def test_first_of_two_transactions_of_one_application_counts() -> None:
    commit = commit_of({"txn": {"appId": "q", "version": 1}}, {"txn": {"appId": "q", "version": 2}})
    assert commit.by_app["q"].version == 1


def test_metadata_and_protocol_are_read() -> None:
    commit = commit_of(
        {"metaData": {"id": "x", "configuration": {"delta.appendOnly": "true"}}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": ["rowTracking"]}},
    )
    assert commit.metadata == TableMetadata("x", {"delta.appendOnly": "true"})
    assert commit.protocol == Protocol(3, 7, (), ("rowTracking",))


def test_actions_of_another_shape_are_left_out() -> None:
    commit = commit_of(
        {"txn": {"appId": 1, "version": 2}}, {"txn": 5}, {"metaData": {}}, {"protocol": {}}, {"add": {}}, {"txn": None}
    )
    assert commit == TableCommit(4)


def test_line_that_is_no_json_is_a_damage_with_its_number() -> None:
    damage = parse_commit(4, lines({"txn": {}}) + b'\n{"add": {"pa')
    assert isinstance(damage, Damage)
    assert damage.line == 2


def test_empty_file_is_a_version_that_did_nothing() -> None:
    assert parse_commit(4, b"") == TableCommit(4)


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
    assert interval_ms(text) == length
