"""Brings a Spark Structured Streaming query back from its last good batch.

The verbs are functions of this package, and what they take and return stands beside them: see `lastgood.library`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastgood.library import (
        Decision,
        Evidence,
        Fresh,
        LastgoodError,
        Plan,
        Recompute,
        Recovery,
        Replan,
        Report,
        Reposition,
        Resume,
        apply,
        diagnose,
        plan,
        recover,
        undo,
    )

__version__ = "0.1.0"
__all__ = [
    "Decision",
    "Evidence",
    "Fresh",
    "LastgoodError",
    "Plan",
    "Recompute",
    "Recovery",
    "Replan",
    "Report",
    "Reposition",
    "Resume",
    "apply",
    "diagnose",
    "plan",
    "rebuild",
    "recover",
    "undo",
]


def __getattr__(name: str) -> Any:
    """What the verbs need is imported when one is asked for: the command line starts without it."""
    if name not in __all__:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(f"{__name__}.library"), name)
