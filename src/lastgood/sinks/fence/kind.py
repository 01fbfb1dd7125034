"""Fences in a database: what is so of each, and how one is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.sinks.kind import Opening, SinkKind, SinkTraits

if TYPE_CHECKING:
    from lastgood.sinks.fence.sink import FenceSink

_DATABASES = ("sqlite:", "postgresql")


def _is_database(text: str) -> bool:
    return text.startswith(_DATABASES)


def _open(text: str, opening: Opening) -> FenceSink:
    from lastgood.sinks.fence.sink import open_fence

    return open_fence(text, sink_name=opening.sink_name, timeout_seconds=opening.timeout_seconds)


FENCE_SINK = SinkKind(
    name="fence",
    traits=SinkTraits(marks_every_batch=False, is_idempotent=True, shows_all_or_none=True),
    claims=_is_database,
    open_text=_open,
)
