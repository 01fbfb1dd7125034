"""How a Spark of our own is told where S3 is, and that no key stands in its settings."""

from __future__ import annotations

import pytest

from lastgood.lab.s3a import is_on_s3, make_s3a_conf
from lastgood.storage.reading import parse_location

KEYS = {"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": "geh3im", "AWS_SESSION_TOKEN": "geh3im"}


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({}, {}),
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-east-1"}, {"endpoint.region": "eu-west-1"}),
        ({"AWS_DEFAULT_REGION": "us-east-1"}, {"endpoint.region": "us-east-1"}),
        (
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"},
            {
                "endpoint": "http://127.0.0.1:9000",
                "path.style.access": "true",
                "connection.ssl.enabled": "false",
            },
        ),
        (
            {"AWS_ENDPOINT_URL": "http://other", "AWS_ENDPOINT_URL_S3": "https://s3.lake"},
            {"endpoint": "https://s3.lake", "path.style.access": "true", "connection.ssl.enabled": "true"},
        ),
    ],
)
def test_spark_is_told_what_the_tools_of_aws_are_told(env: dict[str, str], told: dict[str, str]) -> None:
    conf = make_s3a_conf({**env, **KEYS})
    prefix = "spark.hadoop.fs.s3a."
    of_s3a = {name.removeprefix(prefix): value for name, value in conf.items() if name.startswith(prefix)}
    assert of_s3a.pop("aws.credentials.provider").count(",") == 4
    assert of_s3a == told
    assert "geh3im" not in str(conf)


@pytest.mark.parametrize(
    ("text", "is_there"), [("s3://b/t", True), ("s3a://b/t", True), ("/t", False), ("gs://b/t", False)]
)
def test_all_names_of_s3_are_one(text: str, *, is_there: bool) -> None:
    assert is_on_s3(parse_location(text)) == is_there
