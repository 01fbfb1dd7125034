"""What a table may ask of its readers and writers, and still be judged by its log."""

from __future__ import annotations

import pytest

from lastgood.delta_log.actions import Protocol, TableMetadata
from lastgood.delta_log.protocol import READER_FEATURES, WRITER_FEATURES, find_judging_obstacle
from lastgood.sinks.delta.sink import WRITABLE_FEATURES

PLAIN = TableMetadata("x")
CATALOG = "a catalog keeps the newest commits of this table"


@pytest.mark.parametrize("protocol", [Protocol(1, 1), Protocol(1, 2), Protocol(2, 5), Protocol(1, 6), Protocol(3, 7)])
def test_versions_up_to_3_and_7_are_known(protocol: Protocol) -> None:
    assert find_judging_obstacle(protocol, PLAIN) is None


@pytest.mark.parametrize(
    ("protocol", "what"),
    [
        (Protocol(0, 2), "reader version 0"),
        (Protocol(4, 7), "reader version 4"),
        (Protocol(1, 8), "writer version 8"),
        (Protocol(1, 0), "writer version 0"),
        (Protocol(-1, 2), "reader version -1"),
    ],
)
def test_no_other_version_is(protocol: Protocol, what: str) -> None:
    assert find_judging_obstacle(protocol, PLAIN) == f"{what} is not known to lastgood"


@pytest.mark.parametrize("feature", sorted(READER_FEATURES))
def test_features_that_change_only_data_files_or_the_form_of_the_log_are_known(feature: str) -> None:
    assert find_judging_obstacle(Protocol(3, 7, (feature,), (feature,)), PLAIN) is None


@pytest.mark.parametrize("feature", sorted(WRITER_FEATURES))
def test_features_of_writers_are_known_by_name(feature: str) -> None:
    assert find_judging_obstacle(Protocol(1, 7, (), (feature,)), PLAIN) is None


@pytest.mark.parametrize("protocol", [Protocol(3, 7, ("marvel",), ("marvel",)), Protocol(1, 7, (), ("marvel",))])
def test_feature_that_nobody_knows_is_an_obstacle_also_where_only_writers_need_it(protocol: Protocol) -> None:
    assert find_judging_obstacle(protocol, PLAIN) == "table feature marvel is not known to lastgood"


def test_what_can_be_written_can_be_judged() -> None:
    assert WRITABLE_FEATURES <= READER_FEATURES | WRITER_FEATURES


@pytest.mark.parametrize(
    "feature", ["catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview", "managedCommit-dev"]
)
def test_commits_that_a_catalog_keeps_are_told_by_the_feature(feature: str) -> None:
    assert find_judging_obstacle(Protocol(3, 7, (), (feature,)), PLAIN) == CATALOG


@pytest.mark.parametrize(
    "name", ["commitCoordinator-preview", "commitCoordinatorConf-preview", "tableConf-preview", "commitCoordinator"]
)
def test_commits_that_a_catalog_keeps_are_told_by_the_property(name: str) -> None:
    metadata = TableMetadata("x", {f"delta.coordinatedCommits.{name}": "dynamodb"})
    assert find_judging_obstacle(Protocol(1, 2), metadata) == CATALOG


@pytest.mark.parametrize("name", ["redirectReaderWriter-preview", "redirectWriterOnly-preview"])
def test_redirected_table_is_told_by_property_and_feature(name: str) -> None:
    assert find_judging_obstacle(Protocol(1, 2), TableMetadata("x", {f"delta.{name}": "{}"})) == (
        "the table is redirected to another one"
    )
    assert find_judging_obstacle(Protocol(1, 7, (), (name,)), PLAIN) == "the table may be redirected to another one"


def test_table_that_does_not_say_what_it_is_cannot_be_judged() -> None:
    assert find_judging_obstacle(None, PLAIN) == "the protocol of the table is not known"
    assert find_judging_obstacle(Protocol(1, 2), None) == "the metadata of the table is not known"
