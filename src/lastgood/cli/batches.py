"""Batches as lines of a table, which `lastgood inspect` prints of a few of them and of all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastgood.cli.output import make_styled
from lastgood.cli.times import format_clock
from lastgood.visible import shorten, take_excerpt, take_first_lines

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.observe.open_query import OpenQuery
    from lastgood.observe.rows import BatchRow
    from lastgood.observe.shown import ShownBatch, SinkComparison
    from lastgood.query.history import SourceRead

_CELL_MAX = 300
RIGHT = ("batch", "read")
"""Headings of the columns that hold numbers."""


def list_headings(comparison: SinkComparison) -> tuple[str, ...]:
    """What stands above `format_cells`."""
    names = [sink.location.rstrip("/").rpartition("/")[2] for sink in comparison.sinks]
    if len(names) == 1:
        names = ["sink"]
    elif len(set(names)) < len(names):
        names = [f"sink {number}" for number in range(1, len(names) + 1)]
    return ("batch", "planned at", "committed", *names, "watermark", "read", "")


def format_cells(row: BatchRow, comparison: SinkComparison) -> tuple[tuple[str, ...], str | None]:
    """One batch as the cells below `list_headings`, and their style."""
    held = comparison.of(row)
    told = [each.difference for each in held if each.difference is not None]
    differences = list(dict.fromkeys(told))
    notes = [*differences, *row.notes]
    if row.mirrored:
        notes.append("from the mirror")
    style = None
    if differences:
        style = "red"
    elif row.planned and not row.committed:
        style = "yellow"
    texts = (
        str(row.batch),
        _format_clock(row.time_ms),
        "yes" if row.committed else "no",
        *(_format_shown(each.shown) for each in held),
        _format_clock(row.watermark_ms),
        shorten(take_excerpt(map(format_amount, row.reads)).in_a_line or "-", _CELL_MAX),
        shorten("; ".join(take_first_lines(notes)), _CELL_MAX),
    )
    return texts, style


def _format_clock(time_ms: int | None) -> str:
    if not time_ms:
        return "-"
    return format_clock(time_ms)


def _format_shown(batch: ShownBatch) -> str:
    from lastgood.query.sinks import Shown
    from lastgood.sinks.kinds import find_traits

    if batch.shown is not Shown.LIVE:
        return {Shown.TAKEN_BACK: "taken back", Shown.ABSENT: "no", Shown.UNKNOWN: "?"}[batch.shown]
    if batch.version is None:
        return "yes"
    return f"{find_traits(batch.kind).version_sign}{batch.version}"


def print_unknown(comparison: SinkComparison, out: Console) -> None:
    """Why a sink shows nothing, if one does."""
    for sink in comparison.sinks:
        if sink.last_batch is None:
            state = "no batch of this query" if sink.known else "not known"
            out.print(f"sink {sink.location}: {state}: {sink.because}")


def format_amount(read: SourceRead) -> str:
    """How much a batch read of a source."""
    count = read.count
    if count is None:
        return "not known" if read.open_spans else _format_positions(read)
    if count == 1:
        unit = {"offsets": "offset", "log entries": "log entry", "bytes": "byte"}[read.unit]
    else:
        unit = read.unit
    return f"{count:,} {unit}"


def _format_positions(read: SourceRead) -> str:
    """Of a batch of a load that reads several files from which to which; of any other source its name."""
    if read.positions is None:
        return read.kind
    start, end = read.positions
    return f"files {start.file} to {end.file}"


def _name_newest(batch_id: int | None) -> str:
    return "no batch" if batch_id is None else str(batch_id)


def print_summary(query: OpenQuery, out: Console) -> None:
    """Where the query stands, in two lines, and what is wrong with its files."""
    checkpoint = query.checkpoint
    planned, committed = checkpoint.last_planned, checkpoint.last_committed
    out.print(make_styled((str(query.location), "bold"), f"  query {query.query_id or 'unknown'}"))
    kind = "stateful" if checkpoint.is_stateful else "stateless"
    if checkpoint.spark_versions:
        versions = f", written by Spark {checkpoint.spark_versions}"
    else:
        versions = ""
    mode = checkpoint.mode.value.replace("_", " ")
    out.print(f"{kind}, {mode}{versions}; planned {_name_newest(planned)}, committed {_name_newest(committed)}")
    damaged = [f"{path}: {damage}" for path, damage in checkpoint.damage.items()]
    for line in take_first_lines(damaged):
        out.print(make_styled(("damaged", "red"), f"  {line}"))
    for line in take_first_lines(checkpoint.absent):
        out.print(make_styled(("missing", "red"), f"  {line}"))
    out.print()
