"""`lastgood plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.asked import make_typeable
from lastgood.cli.goals import add_goal_options
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, print_json, print_nothing_changed
from lastgood.cli.progress import show_stages
from lastgood.cli.repair import carry_out, print_plan, save_plan
from lastgood.errors import format_command_line

if TYPE_CHECKING:
    from lastgood.planning.plan import Plan
    from lastgood.recovery.plans import PlanOptions
    from lastgood.settings.target import Target

_UNPROVEN = 3


@click.command(cls=OnceCommand)
@click.argument("target")
@add_goal_options
@click.option("--prove", is_flag=True, help="Let real Spark show, on a copy of the logs, what it will do.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to save the plan; by default plan-RECOVERY.json here.",
)
@format_option
def plan(
    target: Target,
    *,
    wanted: PlanOptions,
    prove: bool,
    output: Path | None,
    output_format: str,
) -> int:
    r"""Plan how a query is to run again, say what it costs, and save the plan; nothing is changed.

    \b
    resume      the cheapest exact way to run again from the last good batch
    replan      drop the plan that is not committed, so that today's limits apply
    reposition  start again from chosen offsets, in place: query id and batch numbers go on
    fresh       the checkpoint is lost or to be left behind: seed a new one
    recompute   the state is lost, damaged, or of other code: count open windows again from the source, in place

    Where fresh starts, in the order in which it can be trusted:

    \b
    (nothing)         as the mirror has it: every file comes back
    --at-sink         the newest batch that the sinks show, if mirror or ledger know where it ended
    --offset-columns  the rows of the Delta table tell it themselves: exact if every offset stands in it once; where
                      one is missing, all from there on is read again
    --at-last-commit  what was written to Kafka since the table was last written to: some rows come twice
    --earliest        all that Kafka still has: many rows come twice, and what has expired is lost
    or the offsets that --stable-lag, --batch, --at, --at-time choose

    --via app-config writes these offsets into --start-file, from where the application has to take its startingOffsets,
    and empties the checkpoint: batches count from 0 again, which only sinks take that do not go by their numbers, such
    as Delta's own. Without it the application needs no change.

    recompute is for one windowed aggregation with a watermark in output mode append, of Kafka or files: the watermark
    tells which windows are written, and these stay. One batch reads again all that the query has read. What tells the
    output mode is the sink; where none does, --appends-windows says it. The application may be changed on the way, but
    for the length of its windows and how they slide. With --window, which says how long these are, only what can still
    count is read again: a ledger tells after which batch that begins, else --max-clock-skew says how well the times of
    the topic fit those of the events. In output mode complete any one aggregation can be made anew, and its result is
    written whole once more; in update what the state holds is sent again. --output-mode says it where no sink does.

    Since the state is made anew, it may be kept otherwise from then on: with --shuffle-partitions, --state-store and
    --conf the log pins another value, by which Spark goes whatever the application sets. --conf takes
    spark.sql.streaming.stateStore.compression.codec and spark.sql.streaming.aggregation.stateFormatVersion. Whether
    RocksDB writes changelogs no log pins: --changelog makes the plan say how the application is to be started.

    The price is given in offsets per source and partition: read again, lost, written twice. What is not exactly once
    has to be accepted, but for what is Spark's own restart. With --sink and --kafka more is exact, since more is known.

    \b
    lastgood plan s3a://lake/chk/orders --sink s3a://lake/orders --kafka broker:9092
    lastgood plan orders --goal replan
    lastgood plan orders --goal reposition --stable-lag 3 --accept duplicates -o back3.json
    lastgood plan orders --goal fresh --sink s3a://lake/orders --offset-columns topic,partition,offset
    lastgood plan orders --goal fresh --sink s3a://lake/orders --via app-config --start-file orders.json
    lastgood plan orders --goal recompute --sink s3a://lake/orders --kafka broker:9092 --window 10m
    lastgood plan orders --goal recompute --shuffle-partitions 64 --state-store rocksdb
    lastgood plan orders --kafka broker:9092 --prove
    lastgood apply back3.json --driver-is-dead

    --prove carries the plan out on a copy of the logs in a temporary folder, and starts the installed Spark on it, with
    the query's Kafka topics, folder of files or Delta table and a sink that looks at no row. If Spark would begin
    another batch than the plan says, or elsewhere, the plan is not saved.

    Exit codes: 0 also if something has still to be accepted; 2 usage; 3 saved, but --prove could not prove it, and why;
    5, 6, 7 what --prove needs is not installed; 20 no checkpoint; 21 no such batch; 39 Spark does something else;
    57 refused, and why; 64 no Kafka source; 80, 81 there is a key, and an earlier recovery was not signed by one;
    90 the Spark job of --event-time failed; 10-13 storage; 130 Ctrl-C.
    """
    from lastgood.recovery.plans import make_plan

    wanted = replace(wanted, prove=prove)
    with show_stages() as tell:
        made = make_plan(target, wanted, tell=tell)
    file = save_plan(made, target, output)
    if output_format == "json":
        print_json({**made.to_json(), "file": str(file)})
        return _choose_exit_code(made)
    out = make_console()
    print_plan(made, out)
    options = [*(["--prove"] if prove else []), "-o", file]
    next_command = carry_out(made, file, target.config)
    if made.needs:
        again = format_command_line(
            "plan", make_typeable(target.typed), *wanted.words(), "--accept", made.price, *options
        )
        next_command = f"Accept what it costs with: {again}"
    out.print(f"Saved {file}. {next_command}")
    print_nothing_changed()
    return _choose_exit_code(made)


def _choose_exit_code(made: Plan) -> int:
    """A plan that was to be proven, and could not be, is for a person."""
    if made.proof is None or made.proof.is_proven:
        return 0
    return _UNPROVEN
