"""`lastgood load`."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.load_progress import LoadTellers, show_load_bar
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.errors import UsageError
from lastgood.settings.config import parse_size
from lastgood.visible import take_first_lines

if TYPE_CHECKING:
    from lastgood.observe.load_options import LoadOptions
    from lastgood.operations.load import Loaded
    from lastgood.operations.verify import LoadCompared


class _Size(click.ParamType[int]):
    """A number of bytes, such as `128MB`."""

    name = "size"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_size(value)
        except ValueError:
            self.fail(f"{str(value)!r} is no size; expected a number of bytes, such as 128MB", param, ctx)


@click.command(cls=OnceCommand)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--to", required=True, metavar="TABLE", help="delta:LOCATION, or file:LOCATION (Parquet).")
@click.option(
    "--as",
    "form",
    type=click.Choice(["csv", "jsonl", "text", "parquet", "delta", "jdbc"]),
    help="By default as the names end, or what lies there.",
)
@click.option("--schema", metavar="DDL", help="The columns, as Spark takes them: 'id BIGINT, at TIMESTAMP'.")
@click.option("--infer-schema", is_flag=True, help="Spark finds the types out, for which it reads everything once.")
@click.option(
    "--option",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An option of Spark's reader: header=true. Repeatable.",
)
@click.option(
    "--mode",
    type=click.Choice(["permissive", "dropmalformed", "failfast"]),
    default="permissive",
    help="What becomes of a record that is not what the schema says: its columns are null, it is left out, it ends the"
    " load.",
)
@click.option(
    "--quarantine",
    metavar="TABLE",
    help="delta:LOCATION: a record that is not what the schema says goes there, as it lies in the file, and not into"
    " the table.",
)
@click.option(
    "--chunk-size",
    type=_Size(),
    metavar="SIZE",
    help="What one batch reads, and at most is read twice after a failure. By default by the size of the files and the"
    " cores of this machine.",
)
@click.option(
    "--order-by",
    metavar="COLUMN",
    help="Read a table, and not files: by ranges of a column whose values only grow. No row may be without one.",
)
@click.option(
    "--starting-version",
    type=click.IntRange(min=0),
    metavar="VERSION",
    help="Read a Delta table, and not files: what its versions added, from this one on.",
)
@click.option(
    "--chunk-rows",
    type=click.IntRange(min=1),
    metavar="NUMBER",
    help="Of a table, about how many rows one batch reads; rows of one value are never parted. By default a million.",
)
@click.option(
    "--jar",
    "jars",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False),
    help="The JDBC driver of a database. Repeatable.",
)
@click.option("--checkpoint", metavar="LOCATION", help="By default TABLE.lastgood/loads/NAME.")
@click.option(
    "--ledger",
    metavar="URL",
    help="Gets the offsets of the chunks, from time to time and at the end: postgresql://…, sqlite:///FILE or a path."
    " By default that of LASTGOOD_LEDGER, if any.",
)
@click.option("--follow-growth", is_flag=True, help="Read on what was added to the last file since.")
@click.option(
    "--reprocess",
    "reprocessed",
    multiple=True,
    metavar="FILE",
    help="Of a folder, a file that was written again since it was read: load it as it is now; the rows of what it was"
    " stay. Repeatable.",
)
@click.option(
    "--evolve",
    is_flag=True,
    help="Take columns that came since, behind the others; rows loaded before have null there.",
)
@click.option(
    "--verify",
    "verifies",
    is_flag=True,
    help="Load nothing: compare the rows that the load has written with what its files say.",
)
@click.option(
    "--undo",
    "undoes",
    is_flag=True,
    help="Take the whole load out of the table again; nothing is deleted. The files may be others since.",
)
@format_option
def load(
    *,
    files: tuple[str, ...],
    to: str,
    form: str | None,
    schema: str | None,
    infer_schema: bool,
    pairs: tuple[str, ...],
    mode: str,
    quarantine: str | None,
    chunk_size: int | None,
    order_by: str | None,
    starting_version: int | None,
    chunk_rows: int | None,
    jars: tuple[str, ...],
    checkpoint: str | None,
    ledger: str | None,
    follow_growth: bool,
    reprocessed: tuple[str, ...],
    evolve: bool,
    verifies: bool,
    undoes: bool,
    output_format: str,
) -> int:
    r"""Load files into a table, chunk by chunk: whatever ends it, the same command goes on where it ended.

    A load is a streaming query of Spark over ranges of the files, on a checkpoint of its own: a chunk and how far the
    load has come are committed together, so that each record is in the table once. The rows are those that Spark's own
    reader makes of the whole files, which are read in the order in which they are named, from any storage; the table
    lies on a disk of this machine, or on S3. Of one folder, named instead, its files are read by their names; the same
    command loads those that came since.

    CSV, JSON lines and text are in UTF-8, CSV also in ISO-8859-1, US-ASCII or UTF-16 (--option encoding=UTF-16), each
    record a line. With --option multiLine=true records of CSV may have line ends within quotes, if these are regular:
    each value is quoted from its begin to its end, or has no quote. Of Parquet a chunk has whole row groups. A file
    that gzip or bzip2 has packed (.gz, .bz2) is unpacked once, to its end, before the first chunk: then all cores read
    it, from any point on.

    The same command again does nothing once everything is loaded. It refuses, and says what was found, where a file is
    not what it was when the load began, or where schema, options or files are others; a file of a folder that was
    written again is loaded once more with --reprocess, and a schema that has got columns behind those that it had is
    taken with --evolve. `lastgood status` and `lastgood inspect` tell of its checkpoint as of every other.

    With --quarantine records that are not what the schema says go into a Delta table of their own, with the number of
    their chunk: each record is in one of the two tables, once.

    With --verify the same command loads nothing: Spark compares the rows that the load has written with what its files
    say, by their number and a sum of hashes over all values, and where these differ row by row. With --undo it takes
    the whole load back: its rows go out of the table, and the same command loads them anew. Killed, it goes on when it
    is typed again; until then nothing is loaded there.

    With --order-by a table is read instead of files: a Delta table, a folder of Parquet, or by JDBC a table of a
    database, of which the driver of PostgreSQL comes by itself and that of others with --jar. A chunk has the rows of a
    range of values, which stands in its plan; the same command loads the rows that came behind it. They go into a Delta
    table, which knows which batches it has. Rows that came, changed or went below what was read are not followed: where
    there are more or fewer of them the load ends with an error, and --verify names them. The password of a database
    stands in LASTGOOD_JDBC_PASSWORD. With --starting-version what the versions of a Delta table added is read, from
    that one on.

    Spark runs in this Python, on all cores of this machine, and has to be 4.2 or 4.3. On a terminal a bar shows bytes,
    rate and time left; with --format json each chunk is a line of JSON on standard error, and the end is one on
    standard output.

    \b
    lastgood load orders.csv --to delta:/lake/orders --schema 'id BIGINT, at TIMESTAMP' --option header=true
    lastgood load /lake/raw --starting-version 12 --to delta:/lake/orders
    lastgood load s3a://in/orders.csv --to delta:s3a://lake/orders --infer-schema --option header=true
    lastgood load jdbc:postgresql://db/shop --option dbtable=orders --order-by id --to delta:/lake/orders
    lastgood load s3a://in/1.jsonl s3a://in/2.jsonl --to file:/lake/events --schema 'id BIGINT' --mode failfast

    Exit codes: 0 loaded, or already loaded, or exact; 1 --verify has found rows lost or too many; 2 usage: a file, an
    option, a schema; 73 the same load goes on in another process; 91 another load has begun on that checkpoint; 92 a
    file or the table is not what it was; 93 Spark ended with an error, what was loaded stays; 94 --verify cannot
    compare, and why; 95 --undo cannot take it back, and why; 96 the table is that of another query; 97 it was
    interrupted, as by a service that did not answer: later; 5 to 8 a part is missing; 10-13, 15, 16 and 35 storage;
    43-48 loaded, but the ledger refused; 130 Ctrl-C: what was loaded stays.
    """
    from lastgood.load.specification import ParseMode
    from lastgood.observe.load_options import LoadOptions
    from lastgood.operations.load import load as operation
    from lastgood.operations.verify import verify_load

    options = LoadOptions(
        form=form,
        schema=schema,
        infers=infer_schema,
        options=_read_pairs(pairs),
        mode=ParseMode(mode),
        chunk=chunk_size,
        checkpoint=checkpoint,
        ledger=ledger,
        follows_growth=follow_growth,
        reprocessed=reprocessed,
        evolves=evolve,
        quarantine=quarantine,
        order_by=order_by,
        starting_version=starting_version,
        chunk_rows=chunk_rows,
        jars=jars,
    )
    if verifies and undoes:
        raise UsageError("two options contradict each other", found="--verify and --undo", expected="one")
    if undoes:
        return _undo(files, to, options, output_format)
    if verifies:
        with _show_progress(output_format) as (_, say):
            compared = verify_load(files, to, options, say=say)
        if output_format == "json":
            print_json(compared.to_json())
        else:
            _print_compared(compared)
        return 0 if compared.is_exact else 1
    try:
        with _show_progress(output_format) as (tell, say):
            loaded = operation(files, to, options, tell=tell, say=say)
    except KeyboardInterrupt:
        make_console(stderr=True).print("Stopped. What was loaded stays; the same command goes on from there.")
        raise
    if output_format == "json":
        print_json(loaded.to_json())
    else:
        _print(loaded, _explain_corrupt(options))
    return 0


def _undo(files: tuple[str, ...], to: str, options: LoadOptions, output_format: str) -> int:
    from lastgood.operations.load import undo_load

    with _show_progress(output_format) as (_, say):
        undone = undo_load(files, to, options, say=say)
    if output_format == "json":
        print_json(undone.to_json())
        return 0
    out = make_console()
    if undone.version is not None:
        told = f"by version {undone.version}, and stay in its history until VACUUM deletes them"
        out.print(make_styled(f"The rows of the load are out of {undone.table}, {told}."))
    elif undone.rows_kept is not None:
        out.print(make_styled(f"The folder {undone.table} with the rows of the load lies in {undone.rows_kept} now."))
    else:
        out.print(make_styled(f"The load had no rows in {undone.table}."))
    out.print(make_styled(f"Its checkpoint lies in {undone.kept}. The same command without --undo loads anew."))
    return 0


def _read_pairs(pairs: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise UsageError(
                "an option is not understood", found=pair, expected="KEY=VALUE", next="--option header=true"
            )
        if name in found:
            raise UsageError("an option is given twice", found=name, expected="once")
        found[name] = value
    return found


@contextlib.contextmanager
def _show_progress(output_format: str) -> Iterator[LoadTellers]:
    """Gives what to tell of chunks, and of what else takes time: JSON lines, a bar on a terminal, or nothing."""
    if output_format != "json":
        with show_load_bar() as tellers:
            yield tellers
        return
    yield (
        lambda progress: _print_line({"progress": progress.to_json()}),
        lambda doing: _print_line({"doing": doing}),
    )


def _print_line(told: dict[str, Any]) -> None:
    click.echo(json.dumps(told), err=True)


def _print_compared(compared: LoadCompared) -> None:
    out = make_console()
    at = "" if compared.version is None else f", version {compared.version}"
    out.print(
        f"{compared.records:,} rows of {_name_inputs(compared.files)}, {compared.rows:,} in {compared.table}{at}."
    )
    if compared.is_exact:
        out.print(make_styled(("exact", "green"), ": each row is there once, with the values that the files say"))
    for name, count, samples in (
        ("lost", compared.lost, compared.lost_samples),
        ("too many", compared.surplus, compared.surplus_samples),
    ):
        if count:
            out.print(make_styled((name, "red"), f": {count:,} rows, such as"))
            for each in samples:
                out.print(make_styled(f"  {each}"))
    print_nothing_changed()


def _name_inputs(files: tuple[str, ...]) -> str:
    return files[0] if len(files) == 1 else f"{len(files)} files"


def _explain_corrupt(options: LoadOptions) -> str:
    """What has become of records that are not what the schema says."""
    from lastgood.load.specification import ParseMode

    if options.quarantine is not None:
        return f"they are in {options.quarantine}"
    return "left out" if options.mode is ParseMode.DROPMALFORMED else "null where they are not"


def _print(loaded: Loaded, corrupt: str) -> None:
    from rich.filesize import decimal

    out = make_console()
    files = _name_inputs(loaded.files)
    if not loaded.is_new:
        out.print(make_styled(f"Already loaded: {files}, {loaded.rows:,} rows in {loaded.table}. Nothing was written."))
        return
    read, resumed = "", ""
    if loaded.bytes is not None:
        read = f" of {decimal(loaded.bytes)}"
    if loaded.resumed_at is not None:
        resumed = f", from byte {loaded.resumed_at:,} on"
    if loaded.resumed_at is not None and loaded.bytes is None:
        resumed = f", behind {loaded.resumed_at:,} that were loaded before"
    out.print(
        make_styled(
            f"Loaded {files} into {loaded.table}: {loaded.rows:,} rows{read}, in {loaded.chunks}"
            f" chunk{'s' if loaded.chunks > 1 else ''}{resumed}, in {loaded.seconds:g} s."
        )
    )
    for line in take_first_lines(loaded.late):
        out.print(make_styled(f"Came late, when files of later names had been read: {line}"))
    if loaded.corrupt:
        out.print(make_styled(f"{loaded.corrupt:,} records are not what the schema says: {corrupt}."))
