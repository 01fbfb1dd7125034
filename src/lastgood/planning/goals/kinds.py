"""The table of all goals; a new one is a file beside this one, and a line here. Pure."""

from __future__ import annotations

from typing import Final

from lastgood.planning.goals.fresh import FRESH
from lastgood.planning.goals.kind import Begins, GoalKind
from lastgood.planning.goals.recompute import RECOMPUTE
from lastgood.planning.goals.replan import REPLAN
from lastgood.planning.goals.reposition import REPOSITION
from lastgood.planning.goals.resume import RESUME

GOAL_KINDS: Final[dict[str, GoalKind]] = {
    kind.name: kind
    for kind in (
        RESUME,
        REPLAN,
        REPOSITION,
        FRESH,
        RECOMPUTE,
    )
}
"""By name, in the order in which they are told."""


def is_begun_anew(name: str) -> bool:
    """Whether a goal makes a query begin anew, be there a checkpoint or not."""
    kind = GOAL_KINDS.get(name)
    return kind is not None and kind.begins is Begins.ANEW
