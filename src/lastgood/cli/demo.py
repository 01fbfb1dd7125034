"""`lastgood demo`."""

from __future__ import annotations

import random
import signal
import threading
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from lastgood.cli.output import console, format_option, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.operations.demo import Demo
    from lastgood.supervise.events import Event


@click.command()
@click.option("--flights", type=click.IntRange(1_000, 336_776), default=100_000, show_default=True, help="How many.")
@click.option("--rate", type=click.IntRange(1), default=2_000, show_default=True, help="Flights produced a second.")
@click.option("--kills", type=click.IntRange(0, 20), default=3, show_default=True, help="How often the driver dies.")
@click.option("--seed", type=int, help="Repeat the random instants of an earlier demo.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Work there, and leave it all there.")
@click.option("--keep", is_flag=True, help="Leave broker and application running until Ctrl-C, to look at them.")
@format_option
def demo(
    *,
    flights: int,
    rate: int,
    kills: int,
    seed: int | None,
    folder: Path | None,
    keep: bool,
    output_format: str,
) -> int:
    r"""Show the main job on real input, and count every record at the end.

    A real Kafka broker on this machine, the flights that left New York in 2013 as events, a PySpark application that
    appends them to a Delta table. The driver is killed with SIGKILL in the middle of a batch, again and again;
    lastgood brings it back. Then every flight of the topic is looked up in the table.

    \b
    lastgood demo                     three kills, 100,000 flights
    lastgood demo --keep              and have a look at topic, checkpoint and table
    lastgood demo --flights 336776    all flights

    Needs the extra 'demo' and Java 17; the JVM parts (36 MB) are downloaded once.

    Exit codes: 0 nothing lost and nothing doubled; 1 something was; 79 it did not get that far.
    """
    from lastgood.operations.demo import Script
    from lastgood.operations.demo import demo as operation

    seed = random.SystemRandom().randrange(2**32) if seed is None else seed
    script = Script(flights=flights, rate=rate, kills=kills, seed=seed)
    if output_format == "json":
        shown = operation(
            script, tell=lambda event: print_json(event.to_json()), folder=folder, keep=_wait if keep else None
        )
        print_json(shown.to_json())
        return 0 if shown.is_exact else 1
    from lastgood.cli.timeline import timeline

    out = console()
    out.print(f"[dim]seed {seed}[/]")
    with timeline(out, live=True, also=_tell) as listen:
        shown = operation(script, tell=listen, folder=folder, keep=(lambda it: _look(it, out)) if keep else None)
    if not keep:
        _print_result(shown, out)
    return 0 if shown.is_exact else 1


def _tell(event: Event) -> list[str]:
    """What only the demo does, for the timeline."""
    from lastgood.operations.demo import Killed, Step

    match event:
        case Step():
            return [f"[cyan]demo[/]        {event.sentence}"]
        case Killed():
            return [
                f"[bold red]kill -9[/]     number {event.number}: driver {event.pid}, while it runs batch {event.batch}"
            ]
        case _:
            return []


def _look(shown: Demo, out: Console) -> None:
    _print_result(shown, out)
    out.print("\nStill running, until Ctrl-C:")
    for label, what in {
        "broker": shown.bootstrap,
        "topic": "flights",
        "checkpoint": shown.folder / "checkpoint",
        "table": shown.folder / "table",
    }.items():
        out.print(f"  {label:<11} {what}", markup=False)
    _wait(shown)


def _wait(_shown: Demo) -> None:
    """Until Ctrl-C or SIGTERM."""
    asked = threading.Event()

    def stop(_signum: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not asked.wait(1):
            pass
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _print_result(shown: Demo, out: Console) -> None:
    from rich.table import Table

    out.print()
    table = Table(title="kill -9 of the driver in the middle of a batch", title_justify="left", title_style="bold")
    for heading in ("broken at", "in batch", "detected", "restarted", "first new batch", "offsets re-read"):
        table.add_column(heading, justify="right")
    for failure in shown.failures:
        table.add_row(
            datetime.fromtimestamp(failure.at).astimezone().strftime("%H:%M:%S"),
            str(failure.batch),
            f"+{failure.detected_seconds:.2f} s",
            f"+{failure.restarted_seconds:.2f} s",
            f"+{failure.first_batch_seconds:.1f} s",
            f"{failure.reread_offsets:,}",
        )
    out.print(table)
    audit = shown.audit
    colour = "bold green" if shown.is_exact else "bold red"
    out.print(
        f"\n[{colour}]lost {audit.lost.total:,}, duplicated {audit.duplicated.total:,}[/] of {shown.flights:,} flights"
        f" [dim]({audit.source_records:,} records in the topic, {audit.sink_rows:,} rows in the table;"
        f" compared by flight id; all of it took {shown.seconds:.0f} s)[/]"
    )
