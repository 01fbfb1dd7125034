"""Delta tables that are read as a stream: what is so of every such source. Pure."""

from __future__ import annotations

from lastgood.checkpoint.source_offsets import DeltaOffset
from lastgood.sources.kind import SourceKind

DELTA_SOURCE = SourceKind(
    name=DeltaOffset.kind,
    title="a Delta table",
    may_be_read_again=True,
    price="delta",
    told_as="delta",
    is_table=True,
)
