"""The table of all kinds of steps: how one is read out of a plan, and how it is carried out.

Those of sinks are told by their kinds, in the table of `sinks/kinds.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from lastgood.frozen import dataclass
from lastgood.planning.start_steps import StartFileStep
from lastgood.planning.steps import BringStep, FileStep, MoveStep, StateStep
from lastgood.sinks.changing import list_changes
from lastgood.steps.brought_state import BroughtState
from lastgood.steps.carrying import Carrying, Site
from lastgood.steps.moved_file import MovedFile
from lastgood.steps.renewed_state import RenewedState
from lastgood.steps.step import Step
from lastgood.steps.written_file import WrittenFile


@dataclass(frozen=True, slots=True)
class StepKind:
    """What a step is, and how it is carried out."""

    step: type[Step]
    carry: Callable[[Any, Site], Carrying]


def _carry_state_file(step: MoveStep, site: Site) -> MovedFile:
    """A batch that runs again makes its file of the state anew; that moves nothing on, and `undo` lets it be."""
    return MovedFile(site.storage, site.checkpoint / step.path, site.kept / step.path, step.size, comes_anew=True)


_OF_NO_SINK: Final = (
    StepKind(FileStep, WrittenFile.of_checkpoint),
    StepKind(MoveStep, _carry_state_file),
    StepKind(StateStep, RenewedState),
    StepKind(BringStep, BroughtState),
    StepKind(StartFileStep, WrittenFile.outside),
)


def list_step_kinds() -> Iterator[StepKind]:
    """Every kind of step that there is."""
    yield from _OF_NO_SINK
    yield from (StepKind(each.step, each.carry) for each in list_changes())


def parse_step(told: object) -> Step:
    """Read one of `steps` of a plan.

    Raises:
        ValueError: it is none, or it touches what no step may touch; the message is one line for a person.
    """
    kind = None
    if isinstance(told, dict):
        kind = told.get("kind")
    found = next((each.step for each in list_step_kinds() if each.step.kind == kind), None)
    if found is None:
        raise ValueError(f"the step {told!r:.200} is not understood")
    return found.from_json(told)


def open_carrying(step: Step, site: Site) -> Carrying:
    """A step, where it is carried out; nothing is looked at yet.

    Raises:
        KeyError: its kind is in no table.
    """
    carry = {each.step.kind: each.carry for each in list_step_kinds()}
    return carry[step.kind](step, site)
