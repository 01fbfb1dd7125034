from __future__ import annotations

from pathlib import Path

import pytest

from lastgood.errors import ConfigError, UsageError
from lastgood.settings.config import Config, Kafka
from lastgood.settings.target import Target, resolve_target

CONFIG = """
[pipeline.orders]
command = ["x"]
checkpoint = "s3a://lake/chk/orders"
sink = "delta:s3a://lake/orders"
txn_app_id = "orders-etl"
kafka = { bootstrap = "broker:9092" }

[pipeline.two]
command = ["x"]
query.a.checkpoint = "/chk/a"
query.b.checkpoint = "/chk/b"

[pipeline.none]
command = ["x"]

[pipeline.remembered]
command = ["x"]
checkpoint = "/chk/remembered"
ledger = "/ledger.db"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "lastgood.toml"
    path.write_text(CONFIG)
    return path


def test_a_pipelines_name_brings_all_that_the_configuration_knows(config: Path) -> None:
    assert resolve_target("orders", Config(config)) == Target(
        "s3a://lake/chk/orders",
        "delta:s3a://lake/orders",
        Kafka(bootstrap="broker:9092"),
        txn_app_id="orders-etl",
    )
    assert str(resolve_target("remembered", Config(config)).ledger) == "sqlite:////ledger.db"


@pytest.mark.parametrize("location", ["./orders", "/chk/orders", "s3a://lake/orders", "./clicks", "a.b.c"])
def test_anything_else_is_a_location(config: Path, location: str) -> None:
    assert resolve_target(location, Config(config)) == Target(location)


@pytest.mark.parametrize("there", ["clicks", "clicks.lastgood"])
def test_folder_that_is_there_counts_under_its_bare_name(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / there).mkdir()
    assert resolve_target("clicks", Config(config)) == Target("clicks")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("order", "orders; or ./order for a folder that is not there yet"),
        ("tow.a", "two.a; or ./tow.a for a folder that is not there yet"),
        ("clicks", "./clicks for a folder that is not there yet"),
    ],
)
def test_name_that_nobody_knows_is_told_with_the_nearest(config: Path, name: str, expected: str) -> None:
    with pytest.raises(UsageError, match=f"neither a pipeline '{name}' nor such a folder") as told:
        resolve_target(name, Config(config))
    assert (told.value.subject, told.value.expected) == (str(config), expected)
    assert told.value.found == "pipelines orders, two, none, remembered"


def test_without_a_configuration_a_bare_name_is_a_folder(tmp_path: Path) -> None:
    assert resolve_target("clicks", Config(tmp_path / "lastgood.toml")) == Target("clicks")


def test_without_a_configuration_a_name_is_a_location(tmp_path: Path) -> None:
    assert resolve_target("orders", Config(tmp_path / "lastgood.toml")) == Target("orders")


def test_one_of_several_queries_is_named_after_the_pipeline(config: Path) -> None:
    assert resolve_target("two.b", Config(config)) == Target("/chk/b")


@pytest.mark.parametrize(
    ("target", "found"), [("two", "two.a, two.b"), ("two.c", "two.a, two.b"), ("none", "no checkpoint")]
)
def test_what_is_not_one_query_names_those_there_are(config: Path, target: str, found: str) -> None:
    with pytest.raises(UsageError) as raised:
        resolve_target(target, Config(config))
    assert raised.value.found == found


def test_broken_configuration_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "lastgood.toml").write_text("[")
    with pytest.raises(ConfigError):
        resolve_target("orders", Config(tmp_path / "lastgood.toml"))
