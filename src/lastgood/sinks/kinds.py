"""The table of all kinds of sinks; a new kind is a folder beside this file, and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lastgood.sinks.delta.kind import DELTA_SINK
from lastgood.sinks.fence.kind import FENCE_SINK
from lastgood.sinks.files.kind import FILE_SINK
from lastgood.sinks.iceberg.kind import ICEBERG_SINK
from lastgood.sinks.kind import SinkKind, SinkTraits

SINK_KINDS: Final[dict[str, SinkKind]] = {
    kind.name: kind
    for kind in (
        DELTA_SINK,
        FILE_SINK,
        ICEBERG_SINK,
        FENCE_SINK,
    )
}
"""By `SinkEvidence.kind`, in the order in which a location is looked at."""

ABSENT: Final = "absent"
UNRECOGNISED: Final = "unrecognised"
UNKNOWN: Final = "unknown"
"""What stands for the kind where there is nothing, none of these, or what could not be looked at."""

_NO_KIND: Final[Mapping[str, SinkTraits]] = {
    ABSENT: SinkTraits(is_there=False, tells_batches=False, shows_all_or_none=True, keeps_log=None),
    UNRECOGNISED: SinkTraits(tells_batches=False, keeps_log=None),
}
_ANY_KIND: Final = SinkTraits(keeps_log=None)


def find_traits(kind: str) -> SinkTraits:
    """What is so of every sink of a kind; of one that nobody knows as little as can be."""
    found = SINK_KINDS.get(kind)
    if found is not None:
        return found.traits
    return _NO_KIND.get(kind, _ANY_KIND)
