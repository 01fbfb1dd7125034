"""Versions of Spark whose behaviour is known. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from lastgood.errors import UsageError

_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:[.\-].*)?", re.DOTALL)


class SparkVersionError(UsageError):
    """A text names no version of Spark that lastgood knows."""

    condition = "SPARK_VERSION_UNKNOWN"


class SparkVersion(NamedTuple):
    """Major and minor version; what is after them does not change how a checkpoint is read."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Such as `4.2`."""
        return f"{self.major}.{self.minor}"


SPARK_3_5 = SparkVersion(3, 5)
SPARK_4_0 = SparkVersion(4, 0)
SPARK_4_1 = SparkVersion(4, 1)
SPARK_4_2 = SparkVersion(4, 2)
SPARK_4_3 = SparkVersion(4, 3)
SPARK_VERSIONS = (SPARK_3_5, SPARK_4_0, SPARK_4_1, SPARK_4_2, SPARK_4_3)
"""Oldest first."""


def parse_spark_version(text: str) -> SparkVersion:
    """The version that `4.2` or `4.2.0` names.

    Raises:
        SparkVersionError: it is none of `SPARK_VERSIONS`.
    """
    found = _VERSION.fullmatch(text)
    version = None
    if found:
        version = SparkVersion(int(found[1]), int(found[2]))
    if version not in SPARK_VERSIONS:
        raise SparkVersionError(
            "this version of Spark is not known",
            subject="--spark",
            found=text[:80],
            expected=f"one of {', '.join(map(str, SPARK_VERSIONS))}, or a full version such as {SPARK_VERSIONS[-1]}.0",
        )
    return version
