"""How plans, and what became of them, are shown to people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lastgood.errors import command_line

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.operations.apply import Recovery
    from lastgood.recovery.plan import Plan
    from lastgood.recovery.proof import Proof
    from lastgood.recovery.steps import Step

_COLOURS = {"exactly_once": "bold green", "at_least_once": "bold yellow", "lossy": "bold red"}
_THEN = {
    "starts": "Spark begins at batch {batch}",
    "resumes": "Spark goes on with batch {batch}",
    "reruns": "Spark runs batch {batch} again",
}


def print_plan(plan: Plan, out: Console) -> None:
    """All of a plan that a person decides by."""
    from rich.text import Text

    word = plan.guarantee.value
    out.print(Text.assemble(("Plan      ", "dim"), (plan.recovery, "bold"), f"  {plan.goal} {plan.checkpoint}"))
    out.print(Text.assemble(("Guarantee ", "dim"), (word.replace("_", " "), _COLOURS[word])))
    for ground in plan.rests_on:
        out.print(Text(f"          rests on {ground}", style="dim"))
    for source in plan.sources:
        for line in source.lines:
            out.print(Text(f"          {line}"))
    for waiver in plan.needs:
        out.print(Text.assemble(("Needs     ", "dim"), (f"--accept {waiver.value}", "bold yellow")))
    _print_steps(plan.steps, out)
    then = _THEN.get(plan.promise.outcome, plan.promise.outcome).format(batch=plan.promise.batch)
    out.print(Text.assemble(("Then      ", "dim"), then, (f"  ({plan.promise.because})", "dim")))
    if plan.proof is not None:
        _print_proof(plan.proof, out)
    for other in plan.alternatives:
        cost = "cannot be done" if other.guarantee is None else other.guarantee.value.replace("_", " ")
        out.print(Text.assemble(("Or        ", "dim"), f"{other.goal}: {cost}, {other.because}"))
        if other.command is not None:
            out.print(Text(f"          {other.command}", style="dim"))


def _print_steps(steps: Sequence[Step], out: Console) -> None:
    from rich.text import Text

    if not steps:
        out.print(Text.assemble(("Steps     ", "dim"), "none: a plain restart"))
    for number, step in enumerate(steps, 1):
        out.print(Text.assemble((f"Step {number:<4} ", "dim"), step.do))
        effect = step.to_json().get("effect")
        if effect:
            out.print(Text(f"          {effect}", style="yellow"))


def _print_proof(proof: Proof, out: Console) -> None:
    from rich.text import Text

    out.print(Text.assemble(("Proof     ", "dim"), (proof.line, "green" if proof.is_proven else "bold yellow")))
    for each in proof.leaves_open:
        out.print(Text(f"          not proven: {each}", style="dim"))


def carry_out(plan: Plan, file: object) -> str:
    """How a saved plan is carried out: what to see first, and what to type."""
    from lastgood.operations.driver_death import word_needed

    words = word_needed(plan.checkpoint, plan)
    return f"{_first(words)}Carry it out with: {command_line('apply', file, *words)}"


def take_back(done: Recovery) -> str:
    """How a recovery is taken back: what to see first, and what to type."""
    return f"{_first(done.undo_words)}Take it back with: {done.undo_command}"


def _first(words: Sequence[str]) -> str:
    """What has to be done first, since a person vouches for it by these words."""
    return "First see that the application has ended. " if words else ""


def teller(out: Console) -> Callable[[str], None]:
    """Prints each turn of a repair as it happens."""
    from rich.text import Text

    return lambda line: out.print(Text(f"  {line}", style="dim"))
