"""The only place that imports pyspark."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from lastgood.errors import ExtraMissingError

if TYPE_CHECKING:
    from lastgood.spark.kafka import read_kafka
    from lastgood.spark.recorder import Recorder
    from lastgood.spark.stale_code import guard
    from lastgood.spark.state_frame import state

__all__ = ["Recorder", "guard", "read_kafka", "state"]

_MODULES = {"Recorder": "recorder", "guard": "stale_code", "read_kafka": "kafka", "state": "state_frame"}


def __getattr__(name: str) -> Any:
    """What applications import; only they have to have a pyspark."""
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if find_spec("pyspark") is None:
        raise ExtraMissingError(extra="spark", module="pyspark", needed_for=f"lastgood.spark.{name}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
