"""`lastgood offsets`."""

from __future__ import annotations

import click

from lastgood.cli.output import console, format_option, nothing_changed, print_json
from lastgood.cli.times import TIME, clock


@click.command()
@click.argument("target")
@click.option("--batch", type=click.IntRange(0), metavar="N", help="After batch N.")
@click.option("--time", "time_ms", type=TIME, help="After the newest batch planned at or before this time.")
@click.option(
    "--stable-lag", type=click.IntRange(0), metavar="N", help="After batch CURRENT-N; CURRENT is the newest plan."
)
@click.option("--source", metavar="ID", help="Of a query with several Kafka sources: which one.")
@click.option("--bare", is_flag=True, help="Print nothing but the JSON for startingOffsets.")
@format_option
def offsets(
    target: str,
    *,
    batch: int | None,
    time_ms: int | None,
    stable_lag: int | None,
    source: str | None,
    bare: bool,
    output_format: str,
) -> int:
    r"""Show where a query stood after a batch, as Spark's option startingOffsets takes it.

    Every partition is named, since Spark refuses a JSON that leaves one out. Without an option: after the newest
    committed batch. Batches that Spark has purged come from the mirror.

    \b
    lastgood offsets s3a://lake/chk/orders --stable-lag 3
    lastgood offsets orders --time 2026-11-21T03:12
    --conf spark.orders.startingOffsets="$(lastgood offsets orders --bare)"

    A start from chosen offsets with a new checkpoint writes again, or leaves out, what lies between them and what
    the sink holds: these offsets are a position, not yet a recovery.

    Exit codes: 0; 2 several sources; 20 no checkpoint; 21 no such batch; 64 no Kafka source; 10-13 storage.
    """
    import json

    from lastgood.operations.offsets import offsets_after

    standing = offsets_after(target, batch=batch, time_ms=time_ms, stable_lag=stable_lag)
    shown = {each: standing.starting_offsets(each) for each in ([source] if source is not None else standing.sources)}
    if bare:
        click.echo(json.dumps(standing.starting_offsets(source)))
    elif output_format == "json":
        print_json(standing.to_json())
    else:
        out = console()
        state = "committed" if standing.is_committed else "planned, not committed"
        when = f", planned at {clock(standing.time_ms)}" if standing.time_ms else ""
        out.print(f"after [bold]batch {standing.batch}[/] ({state}{when}); CURRENT is {standing.current}")
        for source_id, offsets_json in shown.items():
            out.print(f"source {source_id}  startingOffsets:", markup=False)
            out.print(json.dumps(offsets_json), markup=False)
        nothing_changed()
    return 0
