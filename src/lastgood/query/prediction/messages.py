"""What Spark says about a file that it cannot read: a literal part of its message. Pure.

Every text was seen with real Spark, but for one that is marked; a version is asked for only where the texts differ.
"""

from __future__ import annotations

from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.query.prediction.spark_version import SPARK_4_0, SPARK_4_1, SparkVersion
from lastgood.sources.kafka.kind import KAFKA_SOURCE
from lastgood.sources.kinds import find_source_kind

CONCURRENT_LOG = "Multiple streaming jobs detected for"
CONCURRENT_FILE = "Multiple streaming queries are concurrently using"
END_OF_INPUT = "Unexpected end-of-input"
NO_CONTENT = "No content to map due to end-of-input"
_LOG_LINE_ENDS = "next on empty iterator"
_NO_METADATA = 'WatermarkTracker.currentWatermark()" because'
_NO_METADATA_V2 = "VERSION_2 offset log requires metadata"
_OFFSET_LOG_V2 = 2
_NO_OFFSETS = KAFKA_SOURCE.line_error or ""  # none but Kafka keeps offsets that can be empty
NO_TRACKER = "WatermarkTracker.updateWatermark("


def quote_metadata_error(damage: Damage) -> str:
    """For the file `metadata`, which is read by `start()`."""
    match damage.kind:
        case DamageKind.EMPTY:
            return NO_CONTENT
        case DamageKind.UNEXPECTED_JSON if '"id"' in damage.found:
            return "Invalid UUID string"
        case DamageKind.UNEXPECTED_JSON:
            return "No usable value for id"
    return quote_json_error(damage)


def quote_offset_log_error(damage: Damage, version: SparkVersion, *, version_newest: int) -> str:
    """For an entry of the offset log; `version_newest` is the newest version that this Spark reads there."""
    match damage.kind:
        case DamageKind.VERSION_LINE_ONLY:
            return _LOG_LINE_ENDS
        case DamageKind.BLANK_METADATA_LINE:
            return _NO_METADATA
        case DamageKind.NO_METADATA:
            is_known = version_newest >= _OFFSET_LOG_V2
            return _NO_METADATA_V2 if is_known else quote_too_new("v2", version, version_newest=version_newest)
        case DamageKind.NO_SOURCE_LINES:
            return "There are [0] sources in the checkpoint offsets"
        case DamageKind.NO_SOURCE_ID:
            return "Invalid OffsetMap format"
    return quote_log_error(damage, version, version_newest=version_newest)


def quote_commit_log_error(damage: Damage, version: SparkVersion, *, version_newest: int) -> str:
    """For an entry of the commit log."""
    if damage.kind is DamageKind.EMPTY:
        return "Incomplete log file in the offset commit log"
    if damage.kind is DamageKind.BLANK_METADATA_LINE:
        return NO_CONTENT
    return quote_log_error(damage, version, version_newest=version_newest)


def quote_log_error(damage: Damage, version: SparkVersion, *, version_newest: int) -> str:
    """For an entry of any log that begins with a version line."""
    match damage.kind:
        case DamageKind.EMPTY:
            return "Incomplete log file"
        case DamageKind.BAD_VERSION_LINE:
            return "failed to read correct log version from"
        case DamageKind.VERSION_TOO_NEW:
            return quote_too_new(damage.found, version, version_newest=version_newest)
    return quote_json_error(damage)


def quote_too_new(found: str, version: SparkVersion, *, version_newest: int) -> str:
    """For a version line above `version_newest`."""
    known = f"v{version_newest}"
    found = f"v{int(found.removeprefix('v'))}"  # `v+099` is 99
    if version < SPARK_4_0:
        return f"maximum supported log version is {known}, but encountered {found}"
    return f"The maximum supported log version is {known}, but encountered {found}"


def quote_initial_error(damage: Damage, version: SparkVersion, *, version_newest: int, kind: str | None) -> str:
    """For the file `sources/<i>/0` of a source that is no folder; `kind` is what its offsets in the plans are."""
    match damage.kind:
        case DamageKind.EMPTY:
            # Before 4.1 `KafkaSourceInitialOffsetWriter` asserts what it requires since; that is read in its source.
            is_required = find_source_kind(kind).notes_beginning and version >= SPARK_4_1
            return "requirement failed" if is_required else "assertion failed"
        case DamageKind.VERSION_LINE_ONLY:
            return "failed to detect the log file version line"
        case DamageKind.NO_OFFSETS:
            return _NO_OFFSETS
        case DamageKind.BAD_VERSION_LINE if find_source_kind(kind).notes_beginning and not damage.found.startswith("v"):
            return quote_source_line_error(damage, kind)
        case DamageKind.BAD_VERSION_LINE | DamageKind.VERSION_TOO_NEW:
            return quote_log_error(damage, version, version_newest=version_newest)
    return quote_source_line_error(damage, kind)


def quote_source_line_error(damage: Damage, kind: str | None) -> str:
    """For the line of a source that its source cannot parse; `kind` is what its other offsets are."""
    told = find_source_kind(kind).line_error
    if told is not None:
        return told
    return quote_json_error(damage)


def quote_json_error(damage: Damage) -> str:
    """What Jackson says of a text that is no JSON."""
    if damage.kind is DamageKind.TRUNCATED:
        return END_OF_INPUT if damage.found else NO_CONTENT
    if damage.kind is DamageKind.EMPTY:
        return NO_CONTENT
    if damage.kind is DamageKind.NOT_UTF8:
        return "Input length ="
    first = damage.found.lstrip()[:1]
    if first.isalpha() or first in "_$":
        return "Unrecognized token"
    if damage.kind is DamageKind.NOT_JSON:
        return "Unexpected character"
    return "MappingException"
