"""`lastgood rebuild`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.goals import Waivers
from lastgood.cli.once import CommandTaking, take_command
from lastgood.cli.output import format_option, make_console, print_json, print_nothing_changed
from lastgood.cli.progress import show_stages
from lastgood.cli.repair import carry_out, print_plan, save_plan

if TYPE_CHECKING:
    from lastgood.observe.evidence import EvidenceOptions
    from lastgood.planning.price import Waiver


@click.command(cls=CommandTaking, options_metavar="[OPTIONS]")
@click.argument("target", metavar="TARGET [-- COMMAND...]")
@add_evidence_options
@click.option("--spark", metavar="VERSION", help="The Spark that will start; by default the newest that can.")
@click.option(
    "--fail-on-data-loss",
    type=click.BOOL,
    default=True,
    metavar="BOOLEAN",
    help="As the query's Kafka source has it.",
)
@click.option(
    "--accept",
    type=Waivers(),
    multiple=True,
    metavar="WHAT",
    help="duplicates, loss, or duplicates,loss, where the plan costs that. Repeatable.",
)
@click.option(
    "--new-code",
    is_flag=True,
    help="The code was changed and keeps other state: all batches since the beginning run again with it.",
)
@click.option(
    "--max-replay",
    type=click.IntRange(0),
    metavar="N",
    help="How many offsets and files may be read again at most; by default as the policy of TARGET says.",
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The lastgood.toml that knows TARGET; by default the one here.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to save the plan; by default plan-RECOVERY.json here.",
)
@format_option
@click.pass_context
def rebuild(
    ctx: click.Context,
    *,
    target: str,
    options: EvidenceOptions,
    spark: str | None,
    fail_on_data_loss: bool,
    accept: tuple[tuple[Waiver, ...], ...],
    new_code: bool,
    max_replay: int | None,
    policy: Path | None,
    output: Path | None,
    output_format: str,
) -> int:
    r"""Make state that cannot be loaded anew, by the batches that have made it; and plan how it is brought.

    A file of the state is gone or damaged, and Spark cannot go on. The batches since the newest version of the state
    that can be loaded run again, one after another, as they were planned: the same ranges, the same watermark, the same
    time. COMMAND is the application as it is always started; nothing in it is changed. Its query runs on a checkpoint
    beside its own, CHECKPOINT.lastgood/rebuilt, and without its sink: nothing is written to any table. Other queries of
    the application are not started. What the application does before it starts its query, it does.

    Each batch has to come to the watermark to which it had come when it ran first; else it ends, and says so. The
    sources have to have what these batches read, which is asked before. What cannot be seen is said in the plan: that
    the application is the one that ran them, and makes the same of the same rows. Where dropDuplicatesWithinWatermark
    is in it, that is not surely so, and the plan is lossy.

    Where no state can be loaded and plans of the first batches are gone, what these have read is read at once, in one
    batch, from the beginning, or from where Kafka still has records. Where something came too late the first time, or
    an operator goes by which rows came in one batch, that is not what it was, and the plan is lossy.

    With --new-code COMMAND is the application after a change that keeps other state, and does not go with what is
    there. The batches since the beginning run again, and the watermark has to be delayed as before. What was sent
    stays, and what is sent from then on comes from the new code. Where one of the two sends earlier than the other,
    rows are lost or come twice, so that such a plan is lossy. For windows `lastgood plan --goal recompute` is exact.

    The plan that is saved brings the state that was made, and repairs whatever else is to be repaired. Until it is
    applied nothing of the query has changed.

    \b
    lastgood rebuild /data/chk/orders --sink delta:/data/orders --kafka broker:9092 -- python orders.py
    lastgood rebuild orders                    COMMAND, sink and Kafka from [pipeline.orders] of lastgood.toml
    lastgood apply plan-20261127-101500-1a2b.json --driver-is-dead

    Exit codes: 0 saved; 2 usage; 20 no checkpoint; 51 the plan would cost what is not accepted, and nothing was run; 57
    refused, and why; 72 COMMAND cannot be started; 73 another lastgood holds the checkpoint; 85 the application did not
    run a batch; 86 a batch came to something else; 10-13 storage; 130 Ctrl-C, and what was made is removed.
    """
    from lastgood.operations.rebuild import rebuild as operation
    from lastgood.recovery.plans import PlanOptions
    from lastgood.settings.config import Config
    from lastgood.settings.target import resolve_target

    found = resolve_target(target, Config(policy))
    waivers = tuple(dict.fromkeys(waiver for each in accept for waiver in each))
    wanted = PlanOptions(evidence=options, accept=waivers, spark=spark, fail_on_data_loss=fail_on_data_loss)
    with show_stages() as tell:
        made = operation(found, take_command(ctx) or (), wanted, max_replay=max_replay, new_code=new_code, tell=tell)
    file = save_plan(made, found, output)
    if output_format == "json":
        print_json({**made.to_json(), "file": str(file)})
        return 0
    out = make_console()
    print_plan(made, out)
    out.print(f"Saved {file}. {carry_out(made, file, found.config)}")
    print_nothing_changed()
    return 0
