"""`lastgood apply`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.evidence import tell_passwords
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, print_json
from lastgood.cli.repair import add_naming_options, describe_taking_back, make_teller, print_plan
from lastgood.visible import SHOWN_MAX, TEXT_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lastgood.planning.plan import Plan
    from lastgood.recovery.warrant import Outside


@click.command(cls=OnceCommand)
@click.argument("plan")
@click.option(
    "--driver-is-dead", is_flag=True, help="You have seen that the application has ended; a silent one may be alive."
)
@add_naming_options
@click.option("--kafka", metavar="SERVERS", help="bootstrap.servers of the source, in the same way.")
@click.option(
    "--kafka-config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="client.properties for Kafka, in the same way.",
)
@format_option
def apply(
    plan: str,
    *,
    driver_is_dead: bool,
    start_file: str | None,
    sinks: tuple[str, ...],
    txn_app_id: str | None,
    kafka: str | None,
    kafka_config: Path | None,
    output_format: str,
) -> int:
    r"""Carry out a saved PLAN: exactly that, or refuse where anything has moved since it was made.

    The checkpoint is sealed first: by Spark's own rules no driver can go on with it and none can start, until all steps
    are done and verified. Every file that is touched is kept as it was. If this is interrupted, whatever the reason,
    the checkpoint stays sealed; the same command finishes it, and `undo` takes it back.

    That the driver is dead is known from driver_check in lastgood.toml, or from you. It may be alive where the plan
    uses up the number of its batch in the one Delta table that the query writes.

    A PLAN that you give is trusted like a script. If it was not made on this machine, what it touches outside of its
    checkpoint, and lastgood.toml does not name, is shown, and you are asked; without a terminal --allow-sink and
    --allow-start-file say yes. A plan that a recovery keeps beside its checkpoint is carried out only there, and only
    on sinks and files that are named on this machine: who may write to the lake could have put it there.

    \b
    lastgood apply plan-20261121-160058-7f3a.json --driver-is-dead
    lastgood undo 20261121-160058-7f3a --driver-is-dead

    Exit codes: 0 done, also if it was done before; 2 usage; 23 a plan of another place; 50 no plan; 51 to be accepted
    first; 52 something has moved; 53 somebody else is at work; 54 the driver may be alive; 59 changed by somebody
    else; 80, 81 there is a key, and it was not signed by one; 10-14 storage.
    """
    from lastgood.observe.evidence import EvidenceOptions
    from lastgood.recovery.applying import apply_plan

    tell_passwords(sinks)
    progress = make_teller(make_console(stderr=output_format == "json"))
    done = apply_plan(
        plan,
        driver_is_dead=driver_is_dead,
        tell=progress,
        start_file=start_file,
        evidence=EvidenceOptions(sinks=sinks, kafka=kafka, kafka_config=kafka_config, txn_app_id=txn_app_id),
        confirm=_is_confirmed,
    )
    if output_format == "json":
        print_json(done.to_json())
        return 0
    out = make_console()
    if done.already:
        out.print("Already applied, and nothing has moved since.")
    elif not done.plan.steps:
        out.print("Nothing has to be changed: start the application.")
    else:
        out.print("Applied. Start the application.")
        out.print(f"Every file that was touched is kept in {done.backup}.")
        out.print(describe_taking_back(done))
    return 0


def _is_confirmed(plan: Plan, touched: Sequence[Outside]) -> bool:
    """Whether a person on a terminal allows what a plan touches; nobody is there to ask where there is none."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if len(touched) > SHOWN_MAX or any(len(each.what) > TEXT_MAX for each in touched):
        return False  # nobody allows what was not shown
    out = make_console(stderr=True)
    print_plan(plan, out)
    out.print("This plan was not made on this machine, and nobody has named here what it touches:")
    for each in touched:
        out.print(f"  {each.what}", markup=False)
    return click.confirm("Carry it out?", err=True)
