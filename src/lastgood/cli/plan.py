"""`lastgood plan`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.evidence import evidence_options
from lastgood.cli.output import console, format_option, nothing_changed, print_json
from lastgood.cli.repair import print_plan
from lastgood.cli.times import TIME
from lastgood.errors import UsageError, command_line

if TYPE_CHECKING:
    from lastgood.operations.surroundings import EvidenceOptions
    from lastgood.recovery.price import Waiver

_WAIVERS = ("duplicates", "loss")


class Waivers(click.ParamType["tuple[Waiver, ...]"]):
    """`duplicates`, `loss`, or both with a comma."""

    name = "WHAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Waiver, ...]:
        """See `click.ParamType`."""
        from lastgood.recovery.price import Waiver

        if isinstance(value, tuple):
            return value  # the default
        words = [word.strip() for word in str(value).split(",") if word.strip()]
        if any(word not in _WAIVERS for word in words):
            self.fail(f"{value!r} is none of duplicates, loss, duplicates,loss", param, ctx)
        return tuple(Waiver(word) for word in dict.fromkeys(words))


@click.command()
@click.argument("target")
@click.option(
    "--goal",
    type=click.Choice(["resume", "replan", "reposition", "fresh"]),
    default="resume",
    show_default=True,
    help="What is wanted.",
)
@click.option("--stable-lag", type=click.IntRange(0), metavar="N", help="Start after batch CURRENT-N.")
@click.option("--batch", type=click.IntRange(0), metavar="N", help="Start after batch N.")
@click.option("--at", metavar="FILE|JSON", help="Start from these startingOffsets.")
@click.option("--at-time", "at_time_ms", type=TIME, help="Start from the first records written then or later.")
@click.option("--earliest", is_flag=True, help="Start from the earliest, whatever that is when Spark starts.")
@click.option("--latest", is_flag=True, help="Leave out all that is unread.")
@click.option("--only", multiple=True, metavar="TOPIC/PARTITION", help="Move this partition only. Repeatable.")
@click.option("--source", metavar="ID", help="Of a query with several Kafka sources: which one.")
@evidence_options
@click.option("--accept", type=Waivers(), default=(), metavar="WHAT", help="duplicates, loss, or duplicates,loss.")
@click.option("--spark", metavar="VERSION", help="The Spark that will start; by default the newest that can.")
@click.option(
    "--fail-on-data-loss", type=click.BOOL, default=True, metavar="BOOLEAN", help="As the query's Kafka source has it."
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to save the plan; by default plan-RECOVERY.json here.",
)
@format_option
def plan(
    target: str,
    *,
    goal: str,
    stable_lag: int | None,
    batch: int | None,
    at: str | None,
    at_time_ms: int | None,
    earliest: bool,
    latest: bool,
    only: tuple[str, ...],
    source: str | None,
    options: EvidenceOptions,
    accept: tuple[Waiver, ...],
    spark: str | None,
    fail_on_data_loss: bool,
    output: Path | None,
    output_format: str,
) -> int:
    r"""Plan how a query is to run again, say what it costs, and save the plan; nothing is changed.

    \b
    resume      the cheapest exact way to run again from the last good batch
    replan      drop the plan that is not committed, so that today's limits apply
    reposition  start again from chosen offsets, in place: query id and batch numbers go on
    fresh       the checkpoint is lost or to be left behind: seed a new one, from the mirror or from chosen offsets

    The price is given in offsets per source and partition: read again, lost, written twice. What is not exactly once
    has to be accepted, but for what is Spark's own restart. With --sink and --kafka more is exact, since more is known.

    \b
    lastgood plan s3a://lake/chk/orders --sink s3a://lake/orders --kafka broker:9092
    lastgood plan orders --goal replan
    lastgood plan orders --goal reposition --stable-lag 3 --accept duplicates -o back3.json
    lastgood apply back3.json --driver-is-dead

    Exit codes: 0 also if something has still to be accepted; 2 usage; 20 no checkpoint; 21 no such batch; 57 refused,
    and why; 64 no Kafka source; 10-13 storage.
    """
    from lastgood.operations.plan import PlanOptions, make_plan
    from lastgood.operations.positions import Where

    where = Where(stable_lag, batch, at, at_time_ms, earliest, latest, only, source)
    made = make_plan(target, PlanOptions(goal, where, options, accept, spark, fail_on_data_loss))
    file = output or Path(f"plan-{made.recovery}.json")
    try:
        file.write_bytes(made.to_bytes())
    except OSError as error:
        raise UsageError("the plan cannot be saved", subject=f"-o {file}", found=error.strerror) from error
    if output_format == "json":
        print_json({**made.to_json(), "file": str(file)})
        return 0
    out = console()
    print_plan(made, out)
    out.print(f"Saved {file}. Carry it out with: {command_line('apply', file)}", markup=False)
    nothing_changed()
    return 0
