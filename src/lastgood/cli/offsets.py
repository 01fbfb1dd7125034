"""`lastgood offsets`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.times import TIME, format_clock
from lastgood.visible import TEXT_MAX, make_visible, take_excerpt, take_first_lines

if TYPE_CHECKING:
    from lastgood.observe.evidence import EvidenceOptions
    from lastgood.observe.offsets import OffsetsAfterBatch


@click.command(cls=OnceCommand)
@click.argument("target")
@click.option("--batch", type=click.IntRange(0), metavar="N", help="After batch N.")
@click.option("--time", "time_ms", type=TIME, help="After the newest batch planned at or before this time.")
@click.option(
    "--stable-lag", type=click.IntRange(0), metavar="N", help="After batch CURRENT-N; CURRENT is the newest plan."
)
@click.option("--source", metavar="ID", help="Of a query with several Kafka sources: which one.")
@click.option("--bare", is_flag=True, help="Print nothing but the JSON for startingOffsets.")
@click.option(
    "--ledger", metavar="URL", help="Knows what checkpoint and mirror do not: postgresql://…, sqlite:///FILE or a path."
)
@add_evidence_options
@format_option
def offsets(
    target: str,
    *,
    options: EvidenceOptions,
    batch: int | None,
    time_ms: int | None,
    stable_lag: int | None,
    source: str | None,
    bare: bool,
    ledger: str | None,
    output_format: str,
) -> int:
    r"""Show where a query stood after a batch, as Spark's option startingOffsets takes it.

    Every partition is named, since Spark refuses a JSON that leaves one out. Without an option: after the newest
    committed batch. Batches that Spark has purged come from the mirror, and those that it has not from the ledger:
    --ledger, else that of lastgood.toml or LASTGOOD_LEDGER. With --kafka, partitions that are newer than the batch are
    named too, and what Kafka no longer has; with --sink, what a start from here would write again.

    \b
    lastgood offsets s3a://lake/chk/orders --stable-lag 3
    lastgood offsets orders --time 2026-11-21T03:12
    --conf spark.orders.startingOffsets="$(lastgood offsets orders --bare)"

    A start from chosen offsets with a new checkpoint writes again, or leaves out, what lies between them and what
    the sink holds: these offsets are a position, not yet a recovery.

    Exit codes: 0; 2 several sources; 20 no checkpoint; 21 no such batch; 43-48 the ledger that was named;
    64 no Kafka source; 10-13 storage.
    """
    import json

    from lastgood.observe.offsets import find_offsets_after
    from lastgood.settings.target import resolve_target

    standing = find_offsets_after(
        resolve_target(target), batch=batch, time_ms=time_ms, stable_lag=stable_lag, options=options, ledger=ledger
    )
    sources = list(standing.sources) if source is None else [source]
    shown = {each: standing.starting_offsets(each) for each in sources}
    if bare:
        click.echo(json.dumps(standing.starting_offsets(source)))
        for warning in take_first_lines(_list_warnings(standing)):
            click.echo(make_visible(warning), err=True)
    elif output_format == "json":
        print_json(standing.to_json())
    else:
        out = make_console()
        state = "committed" if standing.is_committed else "planned, not committed"
        if standing.time_ms:
            when = f", planned at {format_clock(standing.time_ms)}"
        else:
            when = ""
        told = f" ({state}{when}); CURRENT is {standing.current}"
        out.print(make_styled("after ", (f"batch {standing.batch}", "bold"), told))
        part = take_excerpt(shown.items())
        for source_id, offsets_json in part.shown:
            out.print(f"source {source_id}  startingOffsets:")
            text = json.dumps(offsets_json)
            # Half a JSON is none, and would be pasted.
            out.print(text if len(text) <= TEXT_MAX else f"{len(text):,} characters: --bare prints them")
        for line in (*part.more, *take_first_lines(_list_warnings(standing))):
            out.print(line)
        print_nothing_changed()
    return 0


def _list_warnings(standing: OffsetsAfterBatch) -> Iterator[str]:
    """What these offsets do not tell, and what a start from them would meet."""
    for topic, names in standing.unresolved.items():
        for partition, name in names.items():
            yield f"{topic}/{partition}: the plan holds the {name} offset; how far the batch had read it does not tell"
    for topic, ends in standing.went_back.items():
        for partition, end in ends.items():
            if end < 0:
                low = "its beginning"
            else:
                low = f"{end:,}"
            yield (
                f"{topic}/{partition}: the query went back to {low} since, to read from there again: a start at these"
                " offsets leaves out what it has not read; `plan --goal reposition` starts at the lower one"
            )
    yield from _describe_met(standing)


def _describe_met(standing: OffsetsAfterBatch) -> Iterator[str]:
    """What a start from these offsets would meet."""
    for topic, parts in standing.expired.items():
        for partition, spans in parts.items():
            for start, end in spans:
                yield f"{topic}/{partition}: offsets {start:,} to {end - 1:,} are gone, Kafka begins at {end:,}"
    facts = standing.query.seen.kafka
    if facts is not None and facts.unknown is not None:
        yield f"what Kafka still has is unknown, because {facts.unknown}"
    for sink in standing.query.seen.sinks:
        last = sink.last_batch
        if not sink.known:
            yield f"{sink.location}: what it shows is unknown, because {sink.because}"
        elif last is not None and last > standing.batch:
            yield f"{sink.location} shows batch {last}: what came after batch {standing.batch} would be written again"
        elif last is not None and last < standing.batch:
            yield f"{sink.location} shows batch {last}: what came after it, up to batch {standing.batch}, is left out"
