"""`lastgood apply`."""

from __future__ import annotations

import click

from lastgood.cli.output import console, format_option, print_json
from lastgood.cli.repair import take_back, teller


@click.command()
@click.argument("plan")
@click.option(
    "--driver-is-dead", is_flag=True, help="You have seen that the application has ended; a silent one may be alive."
)
@click.option(
    "--start-file",
    metavar="FILE",
    help="The file of the application's configuration that may be written; for what another machine has begun.",
)
@format_option
def apply(plan: str, *, driver_is_dead: bool, start_file: str | None, output_format: str) -> int:
    r"""Carry out a saved PLAN: exactly that, or refuse where anything has moved since it was made.

    The checkpoint is sealed first: by Spark's own rules no driver can go on with it and none can start, until all steps
    are done and verified. Every file that is touched is kept as it was. If this is interrupted, whatever the reason,
    the checkpoint stays sealed; the same command finishes it, and `undo` takes it back.

    That the driver is dead is known from driver_check in lastgood.toml, or from you. It may be alive where the plan
    uses up the number of its batch in the one Delta table that the query writes.

    \b
    lastgood apply plan-20261121-160058-7f3a.json --driver-is-dead
    lastgood undo 20261121-160058-7f3a

    Exit codes: 0 done, also if it was done before; 2 usage; 50 no plan; 51 to be accepted first; 52 something has
    moved; 53 somebody else is at work; 54 the driver may be alive; 59 changed by somebody else; 10-14 storage.
    """
    from lastgood.operations.apply import apply_plan

    progress = teller(console(stderr=output_format == "json"))
    done = apply_plan(plan, driver_is_dead=driver_is_dead, tell=progress, start_file=start_file)
    if output_format == "json":
        print_json(done.to_json())
        return 0
    out = console()
    if done.already:
        out.print("Already applied, and nothing has moved since.")
    elif not done.plan.steps:
        out.print("Nothing has to be changed: start the application.")
    else:
        out.print("Applied. Start the application.")
        out.print(f"Every file that was touched is kept in {done.backup}.", markup=False)
        out.print(take_back(done), markup=False)
    return 0
