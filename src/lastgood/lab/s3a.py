"""S3 for a Spark of our own: where it is and who asks, as AWS's own variables and files of profiles say it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from lastgood.storage.location import find_storage_kind
from lastgood.storage.reading import Location

_OF_AWS = "amazonaws.com"
_PREFIX = "spark.hadoop.fs.s3a."
_PROVIDERS = (
    "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.ProfileCredentialsProvider",
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider",
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider",
)
"""Hadoop's own, and before that of the machine the files of profiles, which AWS's other tools read as well."""


def is_on_s3(location: Location) -> bool:
    """Whether a location lies there."""
    return find_storage_kind(location.scheme).scheme == "s3"


def make_s3a_conf(env: Mapping[str, str]) -> dict[str, str]:
    """Settings of a Spark that has the JVM parts `s3a`, under which `s3://` is the same as `s3a://`.

    Where S3 is tells the library of AWS that lastgood itself asks with, by variables and files of profiles: so both
    ask the same server. Keys stay where they are: Hadoop finds them as that library does.

    Args:
        env: The environment, in which `AWS_REGION` may stand, which that library does not know.
    """
    import botocore.session  # noqa: PLC0415 - who has opened a location on S3 has it

    region = None
    if not env.get("AWS_DEFAULT_REGION"):
        region = env.get("AWS_REGION")
    told = botocore.session.Session().create_client("s3", region_name=region).meta
    conf = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        f"{_PREFIX}aws.credentials.provider": ",".join(_PROVIDERS),
        f"{_PREFIX}endpoint.region": told.region_name,
    }
    if f".{_OF_AWS}" not in f".{urlsplit(told.endpoint_url).hostname}":
        conf[f"{_PREFIX}endpoint"] = told.endpoint_url
        conf[f"{_PREFIX}path.style.access"] = "true"  # as names of buckets are none of hosts there
        conf[f"{_PREFIX}connection.ssl.enabled"] = str(told.endpoint_url.startswith("https:")).lower()
    return conf
