"""How a Spark of our own is told where S3 is, and that no key stands in its settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lastgood.lab.s3a import is_on_s3, make_s3a_conf
from lastgood.storage.reading import parse_location

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "geh3im", "AWS_SESSION_TOKEN": "geh3im"}
PREFIX = "spark.hadoop.fs.s3a."
HERE = {"endpoint": "http://127.0.0.1:9000", "path.style.access": "true", "connection.ssl.enabled": "false"}


@pytest.mark.parametrize(
    ("env", "profile", "told"),
    [
        ({}, "", {"endpoint.region": "us-east-1"}),
        ({"AWS_REGION": "eu-west-1"}, "", {"endpoint.region": "eu-west-1"}),
        ({"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "us-west-2"}, "", {"endpoint.region": "eu-west-1"}),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"}, "", {"endpoint.region": "us-east-1", **HERE}),
        (
            {"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": "https://s3.lake", "AWS_REGION": "lake"},
            "",
            {
                "endpoint": "https://s3.lake",
                "endpoint.region": "lake",
                "path.style.access": "true",
                "connection.ssl.enabled": "true",
            },
        ),
        ({}, "region = lake\nendpoint_url = http://127.0.0.1:9000", {"endpoint.region": "lake", **HERE}),
    ],
)
def test_spark_is_told_what_the_library_of_aws_goes_by(
    env: dict[str, str], profile: str, told: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(f"[default]\n{profile}\n")
    for name, value in {**env, **KEYS, "AWS_CONFIG_FILE": str(tmp_path / "config")}.items():
        monkeypatch.setenv(name, value)
    conf = make_s3a_conf(os.environ)
    of_s3a = {name.removeprefix(PREFIX): value for name, value in conf.items() if name.startswith(PREFIX)}
    assert of_s3a.pop("aws.credentials.provider").count(",") == 5
    assert of_s3a == told
    assert "geh3im" not in str(conf)


@pytest.mark.parametrize(
    ("text", "is_there"), [("s3://b/t", True), ("s3a://b/t", True), ("/t", False), ("gs://b/t", False)]
)
def test_all_names_of_s3_are_one(text: str, *, is_there: bool) -> None:
    assert is_on_s3(parse_location(text)) == is_there
