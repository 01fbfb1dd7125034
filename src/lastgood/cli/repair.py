"""How plans, and what became of them, are shown to people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lastgood.cli.output import make_styled
from lastgood.errors import UsageError, format_command_line
from lastgood.visible import WHOLE, take_excerpt, take_first_lines

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.planning.plan import Plan
    from lastgood.planning.proof import Proof
    from lastgood.recovery.applying import Recovery
    from lastgood.settings.config import Config
    from lastgood.settings.target import Target
    from lastgood.steps.step import Step

_COLOURS = {"exactly_once": "bold green", "at_least_once": "bold yellow", "lossy": "bold red"}
_STEPS_SHOWN = 200
_LIKE_EACH_OTHER_MAX = 3
_THEN = {
    "starts": "Spark begins at batch {batch}",
    "resumes": "Spark goes on with batch {batch}",
    "reruns": "Spark runs batch {batch} again",
}


_F = TypeVar("_F", bound=Callable[..., Any])

_NAMING = (
    click.option(
        "--start-file",
        "--allow-start-file",
        "start_file",
        metavar="FILE",
        help="The file of the application's configuration that may be written; for a plan that was not made here.",
    ),
    click.option(
        "--sink",
        "--allow-sink",
        "sinks",
        multiple=True,
        metavar="LOCATION",
        help="A sink that may be changed, as lastgood.toml would name it; for a plan that was not made here."
        " Repeatable.",
    ),
    click.option(
        "--txn-app-id",
        metavar="ID",
        help="What the application's function gives as txnAppId, in the same way.",
    ),
)


def add_naming_options(command: _F) -> _F:
    """Add what names on this machine what a plan of elsewhere may touch: `start_file`, `sinks`, `txn_app_id`."""
    for option in reversed(_NAMING):
        command = option(command)
    return command


def print_guarantee(plan: Plan, out: Console) -> None:
    """The guarantee of a plan, and all that it rests on."""
    word = plan.guarantee.value
    out.print(make_styled(("Guarantee ", "dim"), (word.replace("_", " "), _COLOURS[word])))
    for line in take_first_lines(f"rests on {ground}" for ground in plan.rests_on):
        out.print(make_styled(f"          {line}", style="dim"))


def print_plan(plan: Plan, out: Console) -> None:
    """All of a plan that a person decides by."""
    out.print(make_styled(("Plan      ", "dim"), (plan.recovery, "bold"), f"  {plan.goal} {plan.checkpoint}"))
    print_guarantee(plan, out)
    for line in take_first_lines(line for source in plan.sources for line in source.lines):
        out.print(make_styled(f"          {line}"))
    for waiver in plan.needs:
        out.print(make_styled(("Needs     ", "dim"), (f"--accept {waiver.value}", "bold yellow")))
    _print_steps(plan.steps, out)
    then = _THEN.get(plan.promise.outcome, plan.promise.outcome).format(batch=plan.promise.batch)
    out.print(make_styled(("Then      ", "dim"), then, (f"  ({plan.promise.because})", "dim")))
    if plan.proof is not None:
        _print_proof(plan.proof, out)
    others = take_excerpt(plan.alternatives)
    for other in others.shown:
        out.print(make_styled(("Or        ", "dim"), str(other)))
        if other.command is not None:
            out.print(make_styled(f"          {other.command}", style="dim"))
    for line in others.more:
        out.print(make_styled(f"          {line}", style="dim"))


def _print_steps(steps: Sequence[Step], out: Console) -> None:
    if not steps:
        out.print(make_styled(("Steps     ", "dim"), "none: a plain restart"))
    groups = take_excerpt((list(each) for _, each in groupby(enumerate(steps, 1), _find_group)), _STEPS_SHOWN)
    for group in groups.shown:
        shown = _LIKE_EACH_OTHER_MAX
        # A line for a rest of one would be as long as the step itself.
        if len(group) == shown + 1:
            shown += 1
        for number, step in group[:shown]:
            _print_step(number, step, out)
        left = group[shown:]
        if left:
            told = f"Step {left[0][0]} to {left[-1][0]}  the same of {len(left):,} more files: {WHOLE}"
            out.print(make_styled((told, "dim")))
    for line in groups.more:
        out.print(make_styled(f"          {line}", style="yellow"))


def _find_group(numbered: tuple[int, Step]) -> tuple[str, str]:
    """Steps of a kind that do the same for the same reason, one file each, are told together."""
    _, step = numbered
    return step.kind, step.why


def _print_step(number: int, step: Step, out: Console) -> None:
    out.print(make_styled((f"Step {number:<4} ", "dim"), step.do))
    if step.effect:
        out.print(make_styled(f"          {step.effect}", style="yellow"))


def _print_proof(proof: Proof, out: Console) -> None:
    out.print(make_styled(("Proof     ", "dim"), (proof.line, "green" if proof.is_proven else "bold yellow")))
    for line in take_first_lines(f"not proven: {each}" for each in proof.leaves_open):
        out.print(make_styled(f"          {line}", style="dim"))


def save_plan(plan: Plan, target: Target, output: Path | None) -> Path:
    """Save a plan, and remember that it was made here; gives its file.

    Args:
        plan: What was planned.
        target: Of which query.
        output: Where it was said to be saved; None: here, under its own name.

    Raises:
        UsageError: it cannot be saved there.
    """
    from lastgood.recovery.whereabouts import note_made
    from lastgood.storage.rights import open_privately

    file = output or Path(f"plan-{plan.recovery}.json")
    try:
        with open(file, "wb", opener=open_privately) as stream:
            stream.write(plan.to_bytes(target.keys()))
    except OSError as error:
        raise UsageError("the plan cannot be saved", subject=f"-o {file}", found=error.strerror) from error
    note_made(plan)
    return file


def carry_out(plan: Plan, file: object, config: Config) -> str:
    """How a saved plan is carried out: what to see first, and what to type."""
    from lastgood.recovery.driver_death import list_words_needed

    words = list_words_needed(plan.checkpoint, config, plan)
    return f"{_describe_first(words)}Carry it out with: {format_command_line('apply', file, *words)}"


def describe_taking_back(done: Recovery) -> str:
    """How a recovery is taken back: what to see first, and what to type."""
    return f"{_describe_first(done.undo_words)}Take it back with: {done.undo_command}"


def _describe_first(words: Sequence[str]) -> str:
    """What has to be done first, since a person vouches for it by these words."""
    return "First see that the application has ended. " if words else ""


def make_teller(out: Console) -> Callable[[str], None]:
    """Prints each turn of a repair as it happens."""
    return lambda line: out.print(make_styled(f"  {line}", style="dim"))
