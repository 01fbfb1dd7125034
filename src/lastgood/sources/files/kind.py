"""Folders of files: what is so of every such source. Pure."""

from __future__ import annotations

from lastgood.checkpoint.source_offsets import FileOffset
from lastgood.sources.kind import SourceKind

FILES_SOURCE = SourceKind(
    name=FileOffset.kind,
    may_be_read_again=True,
    is_read_again=True,
    keeps_log=True,
    price="file",
)
