"""Whether we understand a Delta table well enough to judge it by its log. Pure.

What a table asks of its readers and writers can change where its commits lie and what they mean. A log that asks for
something that is not listed here is not judged at all: that it shows no batch would mean nothing.
"""

from __future__ import annotations

from lastgood.delta_log.actions import Protocol, TableMetadata

READER_VERSIONS = range(1, 4)
WRITER_VERSIONS = range(1, 8)

READER_FEATURES = frozenset(
    {
        *("columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview"),
        *("v2Checkpoint", "vacuumProtocolCheck"),
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
    }
)
"""Features of readers that change data files, statistics or the form of a checkpoint, which is read in all its forms;
none changes what a `txn` means, or where a commit lies."""

WRITER_FEATURES = frozenset(
    {
        *("appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns", "identityColumns"),
        *("allowColumnDefaults", "rowTracking", "domainMetadata", "clustering", "inCommitTimestamp"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "icebergWriterCompatV1", "icebergWriterCompatV3"),
        *("materializePartitionColumns", "checkpointProtection", "collations", "collations-preview"),
    }
)
"""Features of writers of which the same holds. A reader need not know them, and yet `coordinatedCommits-preview` and
`redirectWriterOnly-preview` are such features and move the commits elsewhere: so they are listed as well."""

_CATALOG_FEATURES = frozenset(
    {
        *("catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits", "coordinatedCommits-preview"),
        *("managedCommit", "managedCommit-dev", "managedCommits-dev"),
    }
)
_CATALOG_PROPERTIES = ("delta.coordinatedCommits.", "delta.managedCommit")
_REDIRECT_PROPERTY = "delta.redirect"
_REDIRECT_FEATURE = "redirect"


def find_judging_obstacle(protocol: Protocol | None, metadata: TableMetadata | None) -> str | None:
    """Why a table cannot be judged by its log, whatever that says; None if it can."""
    if protocol is None:
        return "the protocol of the table is not known"
    if metadata is None:
        return "the metadata of the table is not known"
    features = {*protocol.reader_features, *protocol.writer_features}
    if features & _CATALOG_FEATURES or any(key.startswith(_CATALOG_PROPERTIES) for key in metadata.configuration):
        return "a catalog keeps the newest commits of this table"
    if any(key.startswith(_REDIRECT_PROPERTY) for key in metadata.configuration):
        return "the table is redirected to another one"
    if any(name.startswith(_REDIRECT_FEATURE) for name in features):
        return "the table may be redirected to another one"
    return _find_unknown_version(protocol) or _find_unknown_feature(features)


def _find_unknown_version(protocol: Protocol) -> str | None:
    if protocol.min_reader_version not in READER_VERSIONS:
        return f"reader version {protocol.min_reader_version} is not known to lastgood"
    if protocol.min_writer_version not in WRITER_VERSIONS:
        return f"writer version {protocol.min_writer_version} is not known to lastgood"
    return None


def _find_unknown_feature(features: set[str]) -> str | None:
    unknown = sorted(features - READER_FEATURES - WRITER_FEATURES)
    if not unknown:
        return None
    return f"table feature {unknown[0]} is not known to lastgood"
