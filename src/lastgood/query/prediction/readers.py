"""Which Spark can read the logs of a checkpoint. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.query.observation import Observation
from lastgood.query.prediction.spark_version import SPARK_3_5, SPARK_4_0, SPARK_4_2, SPARK_VERSIONS, SparkVersion

_READS_OFFSETS = {1: SPARK_3_5, 2: SPARK_4_2}
_READS_COMMITS = {1: SPARK_3_5, 2: SPARK_4_0, 3: SPARK_4_2}


def find_log_versions(observed: Observation) -> Mapping[str, int | None]:
    """The version of each log, by its newest entry that can be read."""
    checkpoint = observed.checkpoint
    found: dict[str, int | None] = {}
    for name, entries in (("offsets", checkpoint.offsets.entries), ("commits", checkpoint.commits.entries)):
        newest = (entries[batch_id] for batch_id in sorted(entries, reverse=True))
        found[name] = next((each.version for each in newest if isinstance(each, OffsetEntry | CommitEntry)), None)
    return found


def find_newest_reading(observed: Observation) -> SparkVersion:
    """The newest Spark that can read the logs."""
    versions = find_log_versions(observed)
    needed = (_READS_OFFSETS.get(versions["offsets"] or 1), _READS_COMMITS.get(versions["commits"] or 1))
    readers = [spark for spark in SPARK_VERSIONS if all(one is not None and spark >= one for one in needed)]
    if readers:
        return readers[-1]
    return SPARK_VERSIONS[-1]
