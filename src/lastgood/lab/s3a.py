"""S3 for a Spark of our own: where it is and who asks, as AWS's own variables and files say it."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.storage.location import find_storage_kind
from lastgood.storage.reading import Location

_PREFIX = "spark.hadoop.fs.s3a."
_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""Hadoop's own, and before that of the machine the files of profiles, which AWS's other tools read as well."""


def is_on_s3(location: Location) -> bool:
    """Whether a location lies there."""
    return find_storage_kind(location.scheme).scheme == "s3"


def make_s3a_conf(env: Mapping[str, str]) -> dict[str, str]:
    """Settings of a Spark that has the JVM parts `s3a`, under which `s3://` is the same as `s3a://`.

    Keys stay in the environment, from where Hadoop takes them.

    Args:
        env: The environment, with AWS's own variables.
    """
    conf = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        f"{_PREFIX}aws.credentials.provider": ",".join(_PROVIDERS),
    }
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    if region:
        conf[f"{_PREFIX}endpoint.region"] = region
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    if endpoint:
        conf[f"{_PREFIX}endpoint"] = endpoint
        conf[f"{_PREFIX}path.style.access"] = "true"  # as names of buckets are none of hosts there
        conf[f"{_PREFIX}connection.ssl.enabled"] = str(endpoint.startswith("https:")).lower()
    return conf
