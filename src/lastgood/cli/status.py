"""`lastgood status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from lastgood.cli.output import console, format_option, nothing_changed, print_json
from lastgood.cli.times import clock

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.operations.status import Status

_COLOURS = {"healthy": "green", "in_flight": "cyan", "empty": "dim", "unreadable": "red", "damaged": "bold red"}


@click.command()
@click.argument("target")
@click.option("--query", metavar="NAME", help="TARGET is a session-wide checkpoint root; look at the query NAME in it.")
@format_option
def status(target: str, *, query: str | None, output_format: str) -> int:
    r"""Show where a query stands, on one screen; of a folder, every checkpoint below it, worst first.

    It reads only, asks neither Spark nor a broker, and needs no configuration.

    \b
    lastgood status s3a://lake/chk/orders
    lastgood status s3a://lake/chk                  every checkpoint below
    lastgood status s3a://lake/chk --query orders   spark.sql.streaming.checkpointLocation, by query name

    Exit codes: 0; 1 something that a restart reads is missing or damaged; 20 no checkpoint; 10-13 storage.
    """
    from lastgood.operations.status import Grade, is_root, status_below
    from lastgood.operations.status import status as one

    if query is None and is_root(target):
        with console(stderr=True).status("looking for checkpoints") as shown:
            found = status_below(target, progress=lambda count: shown.update(f"{count} checkpoints read"))
        if output_format == "json":
            print_json({"root": target, "checkpoints": [each.to_json() for each in found]})
        else:
            _print_table(target, found, console())
            nothing_changed()
        return 1 if any(each.grade >= Grade.UNREADABLE for each in found) else 0
    single = one(target, query=query)
    if output_format == "json":
        print_json(single.to_json())
    else:
        _print_one(single, console())
        nothing_changed()
    return 1 if single.grade >= Grade.UNREADABLE else 0


def _print_one(found: Status, out: Console) -> None:
    from rich.markup import escape

    facts = found.to_json()
    out.print(f"[bold]{escape(str(found.location))}[/]  query {facts['query_id'] or 'unknown'}")
    word = facts["grade"].replace("_", " ")
    out.print(f"  [{_COLOURS[facts['grade']]}]{word}[/]")
    for problem in found.problems:
        out.print(f"  [red]problem[/]      {escape(problem)}")
    good = "none yet" if found.last_good is None else str(found.last_good)
    out.print(f"  last good    batch {good}")
    when = f", {_ago(found.time_ms)} ago, at {clock(found.time_ms)}" if found.time_ms else ""
    out.print(f"  planned      batch {facts['last_planned']}{when}")
    out.print(f"  committed    batch {facts['last_committed']}")
    if facts["stateful"]:
        out.print(f"  state        can be loaded as of batch {facts['last_loadable_state']}")
    if found.checkpoint is not None and found.checkpoint.orphan is not None:
        out.print(f"  in flight    batch {found.checkpoint.orphan}: running now, or a restart runs it again as planned")
    for source, topics in found.next_offsets().items():
        partitions = sum(len(each) for each in topics.values())
        out.print(f"  source {source}     Kafka, {', '.join(topics)}: {partitions} partitions", markup=False)
    out.print(f"  next         lastgood inspect {found.location}", markup=False)


def _print_table(root: str, found: list[Status], out: Console) -> None:
    from rich.markup import escape
    from rich.table import Table

    from lastgood.storage import parse_location

    if not found:
        out.print(f"no checkpoint below {root}", markup=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("grade", "checkpoint", "last good", "planned", "last plan"):
        table.add_column(heading, justify="right" if heading in ("last good", "planned") else "left")
    prefix = f"{parse_location(root)}/"
    for each in found:
        facts = each.to_json()
        table.add_row(
            f"[{_COLOURS[facts['grade']]}]{facts['grade'].replace('_', ' ')}[/]",
            escape(str(each.location).removeprefix(prefix)),
            "-" if each.last_good is None else str(each.last_good),
            "-" if facts["last_planned"] is None else str(facts["last_planned"]),
            f"{_ago(each.time_ms)} ago" if each.time_ms else escape(each.problems[0] if each.problems else "-"),
        )
    out.print(table)
    counts: dict[str, int] = {}
    for each in found:
        name = each.grade.name.lower().replace("_", " ")
        counts[name] = counts.get(name, 0) + 1
    out.print(f"{len(found)} checkpoints: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def _ago(time_ms: int) -> str:
    seconds = max(0, time.time() - time_ms / 1000)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"
