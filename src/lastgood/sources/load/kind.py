"""The files of `lastgood load`: what is so of every such source. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from lastgood.checkpoint.lines import Json
from lastgood.load.position import OFFSET_SIGN
from lastgood.sources.kind import SourceKind

_BYTES_OF_A_FILE_MAX = 2**63


def _is_load(value: Mapping[str, Json]) -> bool:
    """Whether it is an offset of `LoadPosition`, which no other source writes."""
    return value.keys() == {OFFSET_SIGN, "file", "position"} and all(type(each) is int for each in value.values())


def _find_place(value: Mapping[str, Json]) -> int | None:
    """All of a file comes before the next one."""
    file, position = value["file"], value["position"]
    if not isinstance(file, int) or not isinstance(position, int):
        return None
    return file * _BYTES_OF_A_FILE_MAX + position


LOAD_SOURCE = SourceKind(
    name="load", title="files of a load", is_one=_is_load, place=_find_place, stops_where_gone=True
)
