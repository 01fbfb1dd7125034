"""`lastgood inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from lastgood.cli.batches import RIGHT, format_amount, format_cells, list_headings, print_summary, print_unknown
from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.progress import show_batches_read
from lastgood.cli.times import TIME, format_clock
from lastgood.errors import UsageError
from lastgood.visible import take_excerpt, take_first_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from lastgood.observe.evidence import EvidenceOptions
    from lastgood.observe.load_standing import LoadedFiles
    from lastgood.observe.open_query import OpenQuery
    from lastgood.observe.rows import BatchRow
    from lastgood.observe.shown import SinkComparison
    from lastgood.observe.state_sizes import StateSizes
    from lastgood.operations.inspect import FileNow, Inspection
    from lastgood.query.history import SourceRead
    from lastgood.settings.target import Target

    _Shown = TypeVar("_Shown", Inspection, LoadedFiles, StateSizes)

_STORES_SHOWN = 1_000
_CONFS_SHOWN = 200
_FILES_SHOWN = 1_000


@click.command(cls=OnceCommand)
@click.argument("target")
@click.option("--batch", type=click.IntRange(0), metavar="N", help="One batch in full: plan, commit, ranges, confs.")
@click.option("--state", is_flag=True, help="State: sizes, growth and skew, per operator and partition.")
@click.option("--offset", "place", metavar="TOPIC/PARTITION/OFFSET", help="Which batch read this offset of Kafka.")
@click.option("--file", "file_name", metavar="NAME", help="Which batch read the input file whose path ends like this.")
@click.option("--files", is_flag=True, help="Of a load: its files, and which of them are loaded.")
@click.option("--time", "time_ms", type=TIME, help="Which batch was running at this time.")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="How many batches to show.")
@click.option("--all", "show_all", is_flag=True, help="Show every known batch, from the mirror as well.")
@add_evidence_options
@format_option
def inspect(
    target: str,
    *,
    options: EvidenceOptions,
    batch: int | None,
    state: bool,
    place: str | None,
    file_name: str | None,
    files: bool,
    time_ms: int | None,
    limit: int,
    show_all: bool,
    output_format: str,
) -> int:
    r"""Show what a query has planned and committed, newest batch first.

    TARGET is a checkpoint location or a pipeline's name. Batches that Spark has purged come from the mirror. With
    --sink, each batch is held against what readers see: the version that holds it, and where the two differ; batches
    that only the sink knows are shown too. With --kafka, one batch is held against what Kafka still has of it.

    \b
    lastgood inspect s3a://lake/chk/orders
    lastgood inspect orders --batch 42
    lastgood inspect orders --sink s3a://lake/orders       which version of the table holds each batch
    lastgood inspect orders --offset clicks/3/1200345      which batch read it
    lastgood inspect orders --state
    lastgood inspect /lake/orders.lastgood/loads/in-402e77c0 --files

    Exit codes: 0; 20 no checkpoint; 21 no such batch; 40 no batch holds it; 10-13 storage.
    """
    from lastgood.operations import inspect as operation
    from lastgood.settings.target import resolve_target

    asked = {"--batch": batch, "--state": state or None, "--offset": place, "--file": file_name, "--time": time_ms}
    asked["--files"] = files or None
    questions = [name for name, value in asked.items() if value is not None]
    if len(questions) > 1:
        raise UsageError("one question at a time", found=" and ".join(questions), expected="one of them")
    query = resolve_target(target)
    if state:
        from lastgood.observe.state_sizes import inspect_state

        _show(inspect_state(query), _print_state, output_format)
        return 0
    if files:
        from lastgood.observe.load_standing import inspect_load_files

        _show(inspect_load_files(query), _print_files, output_format)
        return 0
    if not questions and show_all:
        from lastgood.cli.listing import show_listing

        show_listing(query, options, output_format)
        return 0
    if not questions:
        _show(operation.inspect_batches(query, limit=limit, options=options), _print_batches, output_format)
        return 0
    _show_batch(_find(query, options, batch, place, file_name, time_ms), options, file_name, output_format)
    return 0


def _show_batch(
    located: tuple[BatchRow, OpenQuery, str | None],
    options: EvidenceOptions,
    file_name: str | None,
    output_format: str,
) -> None:
    """One batch in full, and where that was asked for, what its file is now."""
    from lastgood.observe.batch_json import encode_batch, encode_head
    from lastgood.observe.shown import SinkComparison
    from lastgood.operations import inspect as operation

    row, found, how = located
    found = operation.add_surroundings(found, options)
    if file_name is None or how is None:
        now = None
    else:
        now = operation.find_file_now(found, how)
    if output_format == "json":
        facts = encode_batch(row, found)
        head = encode_head(found, SinkComparison(found, found.seen.sinks))
        if file_name is None:
            file = {}
        else:
            file = {"file": None if now is None else now.to_json()}
        print_json({**head, "found": how, "batch": facts, **file})
    else:
        # Of a load several batches may read a file; found is the one that reads its first record.
        lies = "is"
        if file_name is not None and any(read.positions for read in row.reads):
            lies = "begins"
        _print_batch(row, found, None if how is None else f"{how} {lies}", make_console())
        if now is not None:
            make_console().print(_describe_file(now))
        print_nothing_changed()


def _describe_file(now: FileNow) -> str:
    """What became of the file, and what Spark does with it."""
    from lastgood.sources.files.facts import FileState, Then

    facts = now.facts
    if facts.state is FileState.UNKNOWN:
        return f"the file now: not known: {facts.because}"
    if facts.state is not FileState.CHANGED or facts.modified_ms is None:
        return f"the file now: {'as it was read' if facts.state is FileState.PRESENT else 'gone'}"
    fates = {
        Then.IGNORED: "no batch reads it now: the source's log holds its name (lastgood explain SOURCE_FILE_IGNORED)",
        Then.TOO_OLD: "no batch reads it again: it is older than the newest file by more than maxFileAge",
        Then.READ_AGAIN: "its name is forgotten: the next batch reads it once more, as a whole",
    }
    if now.then is not None:
        fate = f": {fates[now.then]}"
    else:
        fate = ""
    return f"the file now: written again at {format_clock(facts.modified_ms)}{fate}"


def _show(found: _Shown, show: Callable[[_Shown, Console], None], output_format: str) -> None:
    if output_format == "json":
        print_json(found.to_json())
        return
    show(found, make_console())
    print_nothing_changed()


def _find(
    target: Target,
    options: EvidenceOptions,
    batch: int | None,
    place: str | None,
    file_name: str | None,
    time_ms: int | None,
) -> tuple[BatchRow, OpenQuery, str | None]:
    from lastgood.observe.find import find_file, find_offset, find_time
    from lastgood.operations import inspect as operation

    if place is not None:
        with show_batches_read() as progress:
            row, query = find_offset(target, *operation.parse_place(place), options=options, progress=progress)
        return row, query, place
    if file_name is not None:
        with show_batches_read() as progress:
            row, path, query = find_file(target, file_name, options=options, progress=progress)
        return row, query, path
    if time_ms is not None:
        row, query = find_time(target, time_ms, options=options)
        return row, query, format_clock(time_ms)
    row, query = operation.inspect_batch(target, batch or 0, options=options)
    return row, query, None


def _print_batches(inspection: Inspection, out: Console) -> None:
    from rich.table import Table

    query = inspection.query
    print_summary(query, out)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in list_headings(inspection.comparison):
        table.add_column(heading, justify="right" if heading in RIGHT else "left")
    for row in inspection.rows:
        shown, style = format_cells(row, inspection.comparison)
        table.add_row(*shown, style=style)
    out.print(table)
    print_unknown(inspection.comparison, out)
    if inspection.known > len(inspection.rows):
        older = inspection.known - len(inspection.rows)
        out.print(make_styled(f"{older} older batches: --all, or --limit N", style="dim"))


def _print_batch(row: BatchRow, query: OpenQuery, how: str | None, out: Console) -> None:

    from lastgood.observe.batch_json import encode_batch
    from lastgood.observe.shown import SinkComparison

    if how is not None:
        out.print(make_styled(f"{how} in ", (f"batch {row.batch}", "bold")))
    facts = encode_batch(row, query)
    out.print(make_styled((f"batch {row.batch}", "bold"), f" of {query.location}"))
    out.print(
        f"  planned    {format_clock(row.time_ms) if row.time_ms else 'not known'}{' (from the mirror)' * row.mirrored}"
    )
    out.print(f"  committed  {'yes' if row.committed else 'no'}")
    for line in _describe_in_sinks(row, SinkComparison(query, query.seen.sinks)):
        out.print(f"  sink       {line}")
    if row.watermark_ms:
        out.print(f"  watermark  {format_clock(row.watermark_ms)}")
    reads = take_excerpt(row.reads)
    for read in reads.shown:
        out.print(f"  source {read.source_id}   {read.kind}, {format_amount(read)}")
        for line in take_first_lines(_describe_ranges(read)):
            out.print(f"             {line}")
    for line in (*reads.more, *take_first_lines(row.notes)):
        out.print(f"  note       {line}")
    for line in take_first_lines((f"{name} = {value}" for name, value in facts["conf"].items()), _CONFS_SHOWN):
        out.print(make_styled(f"  {line}", style="dim"))
    for line in _describe_again(facts):
        out.print(line)


def _describe_again(facts: dict[str, Any]) -> Iterator[str]:
    """How to process a batch again, and what of it can no longer be."""
    yield from take_first_lines(_list_gone(facts))
    if facts["again"]:
        yield "To process it again:"
    yield from take_first_lines(f"  {line}" for line in facts["again"])


def _list_gone(facts: dict[str, Any]) -> Iterator[str]:
    """What of a batch can no longer be processed."""
    for topic, parts in (facts["expired"] or {}).items():
        for partition, spans in parts.items():
            for start, end in spans:
                yield f"  gone       {topic}/{partition}  Kafka no longer has offsets {start:,} to {end - 1:,}"
    for place in _describe_left_out(facts):
        yield f"  left out   {place}  nobody wrote down which offsets it read"


def _describe_left_out(facts: dict[str, Any]) -> Iterator[str]:
    """Partitions of which no command can read what the batch read."""
    for source in facts["sources"]:
        for topic, parts in source.get("unresolved", {}).items():
            for partition, (first, last) in parts.items():
                is_from_earliest = first == "earliest" and isinstance(last, int)  # Spark looks that up
                if not is_from_earliest:
                    yield f"{topic}/{partition}"


def _describe_in_sinks(row: BatchRow, comparison: SinkComparison) -> Iterator[str]:
    """What each sink shows of a batch, in a line."""
    from lastgood.query.sinks import Shown

    for sink, held in zip(comparison.sinks, comparison.of(row), strict=True):
        batch = held.shown
        written = ", ".join(str(each) for each in batch.versions if each != batch.version)
        words = {
            Shown.LIVE: "holds it" if batch.version is None else f"holds it since version {batch.version}",
            Shown.TAKEN_BACK: f"held it in version {written}, and it was taken back",
            Shown.ABSENT: "does not hold it",
            Shown.UNKNOWN: f"not known whether it holds it: {sink.because}",
        }[batch.shown]
        if batch.row_count is None:
            rows = ""
        else:
            rows = f", {batch.row_count:,} rows"
        if written and batch.shown is Shown.LIVE:
            before = f"; held it in version {written} before"
        else:
            before = ""
        if held.anew is None:
            anew = ""
        else:
            anew = f"; {held.difference}: {held.anew}"
        yield f"{batch.sink}  {words}{rows}{before}{anew}"


def _format_offset(offset: int) -> str:
    from lastgood.checkpoint.source_offsets import name_offset

    if offset >= 0:
        return f"{offset:,}"
    return str(name_offset(offset))


def _describe_ranges(read: SourceRead) -> Iterator[str]:
    for topic, partitions in (read.ranges or {}).items():
        for partition, spans in partitions.items():
            for start, end in spans:
                yield f"{topic}/{partition}  offsets {start:,} to {end - 1:,}"
    yield from _describe_unresolved(read)
    for topic, back in read.went_back.items():
        for partition, (start, end) in back.items():
            yield f"{topic}/{partition}  went back from {start:,} to {end:,}"
    for words, ends in (("start not written down, read up to", read.added), ("gone, was read up to", read.gone)):
        for topic, each in ends.items():
            for partition, end in each.items():
                yield f"{topic}/{partition}  {words} {_format_offset(end)}"


def _describe_unresolved(read: SourceRead) -> Iterator[str]:
    for topic, partitions in read.unresolved.items():
        for partition, (start, end) in partitions.items():
            words = "up to" if end >= 0 else "on; its end was set to"
            yield f"{topic}/{partition}  from {_format_offset(start)} {words} {_format_offset(end)}"


def _list_skews(sizes: StateSizes) -> Iterator[str]:
    for operator, skew in sizes.skews.items():
        if skew is not None:
            yield f"operator {operator}: largest partition {skew:.1f} x the mean"


def _print_state(sizes: StateSizes, out: Console) -> None:
    from rich.filesize import decimal
    from rich.table import Table

    print_summary(sizes.query, out)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("operator", "partition", "store", "format", "versions", "files", "size", "newest change"):
        table.add_column(heading, justify="left" if heading in ("operator", "store", "format") else "right")
    part = take_excerpt(sizes.stores, _STORES_SHOWN)
    for store in part.shown:
        if store.versions is None:
            versions = "-"
        else:
            versions = f"{store.versions[0]}-{store.versions[1]}"
        if store.newest_change is None:
            newest_change = "-"
        else:
            newest_change = decimal(store.newest_change)
        table.add_row(
            f"{store.operator} {store.operator_name or ''}",
            str(store.partition),
            store.store,
            store.format or "-",
            versions,
            str(store.files),
            decimal(store.size),
            newest_change,
        )
    out.print(table)
    for line in (*part.more, *take_first_lines(_list_skews(sizes))):
        out.print(line)
    if sizes.stores:
        total = sum(store.size for store in sizes.stores)
        out.print(f"{decimal(total)} of state in all")
        out.print(_describe_loadable(sizes))
    else:
        out.print("no state")


def _print_files(found: LoadedFiles, out: Console) -> None:
    from rich.filesize import decimal
    from rich.table import Table

    print_summary(found.query, out)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("file", "state", "came", "read", "size", "last changed"):
        table.add_column(heading, justify="right" if heading in ("read", "size") else "left", overflow="fold")
    part = take_excerpt(found.files, _FILES_SHOWN)
    for each in part.shown:
        changed = "-"
        if each.modified_ms is not None:
            changed = format_clock(each.modified_ms)
        came = each.arrival.value.replace("_", " ")
        table.add_row(make_styled(each.location), each.state, came, decimal(each.done), decimal(each.size), changed)
    out.print(table)
    for line in part.more:
        out.print(line)
    loaded = sum(each.state == "loaded" for each in found.files)
    out.print(make_styled(f"{loaded:,} of {len(found.files):,} files are loaded into {found.table}"))


def _describe_loadable(sizes: StateSizes) -> str:
    from lastgood.checkpoint.logs import name_batches

    if not sizes.loadable:
        return "cannot be loaded as of any batch"
    return f"can be loaded as of {' and '.join(map(name_batches, sizes.loadable))}"
