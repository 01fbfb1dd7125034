"""`lastgood recover`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.asked import DEAD
from lastgood.cli.goals import add_goal_options
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_facts, print_json
from lastgood.cli.repair import carry_out, describe_taking_back, make_teller, print_guarantee, print_plan
from lastgood.cli.times import format_clock
from lastgood.visible import take_first_lines

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.errors import LastgoodError
    from lastgood.ladder.tally import FailedBatch
    from lastgood.recovery.decision import Decision
    from lastgood.recovery.plans import PlanOptions
    from lastgood.settings.config import Config
    from lastgood.settings.target import Target


@click.command(cls=OnceCommand)
@click.argument("target")
@add_goal_options
@click.option(
    "--policy",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Another configuration than lastgood.toml here: what may be accepted, and how the driver is known to be dead.",
)
@click.option("--observe", is_flag=True, help="Change nothing: print what would be done, and exit with 0.")
@click.option(
    "--driver-is-dead", is_flag=True, help="You have seen that the application has ended; a silent one may be alive."
)
@click.option(
    "--first-start",
    is_flag=True,
    help="The query has never run: do not warn where nobody can tell. No sink is overruled.",
)
@click.option(
    "--go-on",
    is_flag=True,
    help="You have looked: start again, however often the same batch has failed, and however long it was down.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to save a plan that a person has to decide on; by default in this user's state folder.",
)
@format_option
def recover(
    target: Target,
    *,
    wanted: PlanOptions,
    observe: bool,
    driver_is_dead: bool,
    first_start: bool,
    go_on: bool,
    output: Path | None,
    output_format: str,
) -> int:
    r"""Make a query ready to start, once: diagnose, plan, and carry out what the policy allows.

    Meant to stand before the application in whatever starts it. A plain restart needs nothing and is told at once. A
    repair that costs nothing, or what `accept` in lastgood.toml or --accept allow, is carried out, if the driver is
    known to be dead. Anything else waits for a person, with the plan saved. Where no batch was ever planned it is a
    first start, unless mirror or sink know better: a lost checkpoint is never taken for a new one. Where the same batch
    is still not committed at call after call, it is planned anew, and at last a person is called, as lastgood run does.

    \b
    lastgood recover s3a://lake/chk/orders --sink s3a://lake/orders && spark-submit orders.py
    lastgood recover orders --observe          # what would it do? changes nothing

    Exit codes: 0 start the application now; 3 a person is needed, the plan is saved; 75 try again later; 2 usage;
    10-14 storage; 59 changed by somebody else.
    """
    from lastgood.operations.recover import recover as operation

    progress = make_teller(make_console(stderr=output_format == "json"))
    decision = operation(
        target,
        wanted,
        observe=observe,
        driver_is_dead=driver_is_dead,
        save_to=output,
        tell=progress,
        first_start=first_start,
        go_on=go_on,
    )
    if output_format == "json":
        print_json(decision.to_json())
    else:
        _print(decision, target.config)
    return 0 if observe else decision.verdict.exit_code


_SENTENCES = {
    "start": "Start the application now",
    "person": "A person is needed",
    "later": "Try again later",
}


def _print(decision: Decision, config: Config) -> None:
    out = make_console()
    if decision.plan is not None and decision.plan.steps:
        print_plan(decision.plan, out)
    elif decision.plan is not None:
        print_guarantee(decision.plan, out)
    if decision.warning is not None:
        words = ", ".join(take_first_lines(decision.warning.evidence["name"]))
        out.print(make_styled(f"Warning: {decision.warning.effect}", style="bold yellow"))
        out.print(make_styled(f"         Name what can tell ({words}), or say --first-start.", style="yellow"))
    out.print(make_styled(f"{_SENTENCES[decision.verdict.value]}: {decision.because}."))
    if decision.error is not None:
        print_facts(decision.error, out)
    if decision.failed is not None:
        _print_failed(decision.failed, out)
    if decision.file is not None:
        out.print(f"The plan is saved: {decision.file}")
    if decision.next is not None:
        _print_next(decision.next, decision.error, out)
    elif decision.file is not None and decision.plan is not None:
        out.print(carry_out(decision.plan, decision.file, config))
    if decision.recovery is not None and decision.recovery.plan.steps:
        out.print(f"Every file that was touched is kept in {decision.recovery.backup}.")
        out.print(describe_taking_back(decision.recovery))
    else:
        out.print("Nothing has been changed.")


def _print_next(command: str, error: LastgoodError | None, out: Console) -> None:
    if error is not None and command == error.next:  # shown with its facts
        return
    look = "First see that the application has ended. " if DEAD in command.split() else ""
    out.print(f"{look}Allow it with: {command}")


def _print_failed(failed: FailedBatch, out: Console) -> None:
    if failed.batch is None:
        batch = "It"
    else:
        batch = f"Batch {failed.batch}"
    if failed.times == 1:
        times = "once"
    else:
        times = f"{failed.times} times in a row"
    if failed.since_ms is None:
        since = ""
    else:
        since = f" since {format_clock(failed.since_ms)}"
    out.print(f"{batch} has failed {times}{since}, without a new committed batch.")
