"""`lastgood undo`."""

from __future__ import annotations

import click

from lastgood.cli.evidence import tell_passwords
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, print_json
from lastgood.cli.repair import add_naming_options, make_teller


@click.command(cls=OnceCommand)
@click.argument("recovery")
@click.option("--checkpoint", metavar="TARGET", help="Where the recovery was; needed on another machine, and for last.")
@click.option("--driver-is-dead", is_flag=True, help="You have seen that the application has ended.")
@add_naming_options
@format_option
def undo(
    recovery: str,
    *,
    checkpoint: str | None,
    driver_is_dead: bool,
    start_file: str | None,
    sinks: tuple[str, ...],
    txn_app_id: str | None,
    output_format: str,
) -> int:
    r"""Put every byte of a checkpoint back as it was before a RECOVERY, while nothing has moved since.

    RECOVERY is its id, or `last` for the one that is open or else the newest. A recovery that was interrupted is taken
    back from where it stands. One that another machine has carried out changes only those sinks and files that are
    named on this one.

    \b
    lastgood undo 20261121-160058-7f3a --driver-is-dead
    lastgood undo last --checkpoint s3a://lake/chk/orders --driver-is-dead

    Exit codes: 0 done, also if it was done before; 2 usage; 23 a plan of another place; 53 somebody else is at work;
    54 the driver may be alive; 55 the query has gone on since; 56 no such recovery; 59 changed by somebody else; 80,
    81 there is a key, and it was not signed by one; 10-14 storage.
    """
    from lastgood.observe.evidence import EvidenceOptions
    from lastgood.recovery.applying import undo as operation
    from lastgood.settings.target import resolve_target

    tell_passwords(sinks)
    progress = make_teller(make_console(stderr=output_format == "json"))
    done = operation(
        recovery,
        target=None if checkpoint is None else resolve_target(checkpoint),
        driver_is_dead=driver_is_dead,
        tell=progress,
        start_file=start_file,
        evidence=EvidenceOptions(sinks=sinks, txn_app_id=txn_app_id),
    )
    if output_format == "json":
        print_json(done.to_json())
        return 0
    out = make_console()
    out.print("Already taken back." if done.already else "Taken back: every byte is as it was.")
    return 0
