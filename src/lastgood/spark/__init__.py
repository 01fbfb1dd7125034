"""The only place that imports pyspark."""

from __future__ import annotations

import pkgutil
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lastgood.errors import ExtraMissingError

if TYPE_CHECKING:
    from lastgood.session.keeping import keep_running
    from lastgood.session.loading import chunks, load
    from lastgood.session.rebuilding import rebuild
    from lastgood.spark.kafka import read_kafka
    from lastgood.spark.recorder import Recorder
    from lastgood.spark.stale_code import guard
    from lastgood.spark.state_frame import state

__all__ = ["Recorder", "chunks", "guard", "keep_running", "load", "read_kafka", "rebuild", "state"]

_PLACES = {
    "Recorder": "lastgood.spark.recorder:Recorder",
    "chunks": "lastgood.session.loading:chunks",
    "guard": "lastgood.spark.stale_code:guard",
    "keep_running": "lastgood.session.keeping:keep_running",
    "load": "lastgood.session.loading:load",
    "read_kafka": "lastgood.spark.kafka:read_kafka",
    "rebuild": "lastgood.session.rebuilding:rebuild",
    "state": "lastgood.spark.state_frame:state",
}


def __getattr__(name: str) -> Any:
    """What applications import; only they have to have a pyspark."""
    if name not in _PLACES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if find_spec("pyspark") is None:
        raise ExtraMissingError(extra="spark", module="pyspark", needed_for=f"lastgood.spark.{name}")
    return pkgutil.resolve_name(_PLACES[name])
