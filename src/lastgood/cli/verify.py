"""`lastgood verify`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lastgood.asked import make_typeable
from lastgood.cli.batches import print_summary
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.progress import show_batches_read, show_stages
from lastgood.cli.said import list_names_typed, list_options_said
from lastgood.errors import UsageError, format_command_line
from lastgood.visible import take_excerpt, take_first_lines

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.audit.logs import LogAudit
    from lastgood.query.history import Seam
    from lastgood.spark.audit import Audit, Difference, PartitionDifference

_RANGES_SHOWN = 10
_SAMPLES_SHOWN = 3
_UNREAD_SHOWN = 10
_PLACEHOLDERS = {"--kafka": "SERVERS", "--sink": "TABLE"}


@click.command(cls=OnceCommand)
@click.argument("target")
@click.option("--data", is_flag=True, help="Compare every record of the source with the rows of the sink, by Spark.")
@click.option("--kafka", metavar="SERVERS", help="bootstrap.servers of the source.")
@click.option(
    "--kafka-config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="client.properties for it, as Kafka's own tools take it: SASL, TLS.",
)
@click.option("--sink", metavar="TABLE", help="delta:LOCATION, file:LOCATION (Parquet), table:NAME, or a LOCATION.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="NAME[=SQL]",
    help="Column of the sink that tells rows apart, and SQL over the Kafka record that it was made from; without SQL"
    " that field of the record's JSON value. Repeatable. Default: the columns topic, partition, offset.",
)
@click.option(
    "--compare", multiple=True, metavar="NAME[=SQL]", help="Column whose values are compared too. Repeatable."
)
@click.option(
    "--where", metavar="SQL", help="Which Kafka records the query keeps; others are not expected in the sink."
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    help="How the query reads. Default: aborted records are found out and reported apart.",
)
@click.option(
    "--topic-is-the-same",
    is_flag=True,
    help="You know that no topic of the query was deleted and created again: settles what clocks leave open.",
)
@click.option("--spark-submit", metavar="COMMAND", help="Such as 'spark-submit --master yarn'. Default: pyspark, here.")
@click.option("--packages", metavar="COORDINATES", help="For spark-submit: libraries of Kafka and of the table.")
@click.option("--jars", metavar="FILES", help="For spark-submit.")
@format_option
def verify(
    target: str,
    *,
    data: bool,
    kafka: str | None,
    kafka_config: Path | None,
    sink: str | None,
    keys: tuple[str, ...],
    compare: tuple[str, ...],
    where: str | None,
    isolation_level: str | None,
    topic_is_the_same: bool,
    spark_submit: str | None,
    packages: str | None,
    jars: str | None,
    output_format: str,
) -> int:
    r"""Check that every offset is in exactly one committed batch; with --data, count records in source and sink.

    TARGET is a checkpoint location or a pipeline's name, which brings its broker and sink from lastgood.toml. From the
    logs alone it tells what was planned, not what was read. --data compares, by a Spark job, what the newest committed
    batch had read, as far as Kafka still has it, with the table.

    \b
    lastgood verify s3a://lake/chk/orders
    lastgood verify orders --data --key id
    lastgood verify s3a://lake/chk/orders --data --kafka broker:9092 --sink delta:s3a://lake/orders --key id
    lastgood verify chk --data --kafka localhost:9092 --sink delta:/lake/orders \
        --key "id=cast(key as string)" --compare amount

    Without --data each source is compared whose offsets have an order; the others are named, and not known, and so is
    a committed batch whose plan cannot be read, and what was read by an entry of a file source's log that is lost.

    Exit codes: 0 contiguous, or nothing lost, duplicated, changed or unknown; 1 something is; 20 no checkpoint; 38 no
    committed batch; 60-65 Kafka or the sink does not serve what is to be compared; 66 the Spark job failed; 130 Ctrl-C,
    which ends the job.
    """
    if not data:
        of_data = set(list_names_typed()) - {"--format"}
        if of_data:
            raise UsageError(
                f"{min(of_data)} goes with --data",
                next=format_command_line("verify", make_typeable(target), "--data", *list_options_said()),
            )
        return _verify_logs(target, output_format)
    from lastgood.audit.spark_job import SparkSubmit
    from lastgood.operations.verify import verify_data
    from lastgood.settings.target import resolve_target

    known = resolve_target(target)
    if known.kafka:
        kafka = kafka or known.kafka.bootstrap
        kafka_config = kafka_config or known.kafka.config
    sink = sink or known.sink
    if kafka is None or sink is None:
        missing = [name for name, value in (("--kafka", kafka), ("--sink", sink)) if value is None]
        lacking = [word for name in missing for word in (name, _PLACEHOLDERS[name])]
        lacking += [] if keys else ["--key", "COLUMN"]
        raise UsageError(
            f"verify --data needs {' and '.join(missing)}",
            expected="source and sink to compare",
            next=format_command_line("verify", make_typeable(target), "--data", *list_options_said("--data"), *lacking),
        )
    spark = SparkSubmit(tuple(shlex.split(spark_submit or "")), packages, jars)
    with show_stages() as tell:
        audit = verify_data(
            known,
            kafka=kafka,
            kafka_config=kafka_config,
            sink=sink,
            keys=keys,
            compare=compare,
            where=where,
            isolation_level=isolation_level,
            topic_is_the_same=topic_is_the_same,
            spark=spark,
            progress=tell,
        )
    if output_format == "json":
        print_json(audit.to_json())
    else:
        print_audit(audit, make_console())
    return 0 if audit.is_exact else 1


def _verify_logs(target: str, output_format: str) -> int:
    from lastgood.audit.logs import verify_logs
    from lastgood.settings.target import resolve_target

    with show_batches_read() as progress:
        audit = verify_logs(resolve_target(target), progress=progress)
    if output_format == "json":
        print_json(audit.to_json())
        return 0 if audit.is_contiguous is True else 1
    out = make_console()
    print_summary(audit.query, out)
    span = f", {audit.first} to {audit.last}" if audit.batches else ""
    out.print(f"{audit.batches:,} committed batches compared{span}")
    if audit.compared:
        named = take_excerpt(f"source {source_id} ({name})" for source_id, name in audit.compared.items()).in_a_line
        out.print(f"of {named}")
    if len(audit.queries) > 1:
        out.print(f"across {len(audit.queries)} query ids: {take_excerpt(audit.queries).in_a_line}")
    _print_seams(audit.seams, out)
    if audit.is_contiguous:
        told = ": every offset between the first and the last is in exactly one committed batch"
        out.print(make_styled(("contiguous", "green"), told))
    for line in take_first_lines(map(_describe_refill, audit.refills)):
        out.print(line)
    _print_unread(audit.unread, out)
    _print_input_files(audit, out)
    if not audit.batches and not audit.unread:
        out.print(make_styled(("not known", "yellow"), ": no batch is committed, so there is nothing to compare"))
    untold = take_excerpt(audit.not_compared)
    for each in untold.shown:
        who = f"source {each.source_id} ({each.name})"
        told = f": {who}: nobody but it can tell whether batch {each.batch_id} goes on there"
        out.print(make_styled(("not known", "yellow"), told))
    for line in untold.more:
        out.print(make_styled(("not known", "yellow"), f": {line}"))
    out.print(f"As planned, not as read: {_explain_reading(audit)} compares the records themselves.")
    print_nothing_changed()
    return 0 if audit.is_contiguous is True else 1


def _explain_reading(audit: LogAudit) -> str:
    """What compares what was read."""
    from lastgood.sources.kinds import LOAD_SOURCE

    is_load = LOAD_SOURCE.title in audit.compared.values()
    if is_load:
        return "the command with which it was loaded, if one was, with --verify added,"
    return "--data"


def _describe_refill(batch_id: int) -> str:
    return f"batch {batch_id} has filled an emptied state with what batches before it had read, and is not counted"


def _print_seams(found: Sequence[Seam], out: Console) -> None:
    words = {
        "GAP": "offsets that no batch read",
        "OVERLAP": "offsets planned twice",
        "UNKNOWN": "batches missing before",
        "UNRESOLVED": "not known, since it begins or ends at earliest or latest",
    }
    seams = take_excerpt(found)
    for seam in seams.shown:
        out.print(make_styled((words[seam.condition], "red"), f"  batch {seam.batch_id}{_describe_seam_place(seam)}"))
    for line in seams.more:
        out.print(make_styled((line, "red")))


def _print_input_files(audit: LogAudit, out: Console) -> None:
    twice = take_excerpt(audit.files_twice)
    for each in twice.shown:
        first, second = each.entries
        where = f"entries {first} and {second}" if first != second else f"entry {first}"
        told = f"  {each.path}: {where} of sources/{each.source_id}"
        out.print(make_styled(("a file read twice", "red"), told))
    for line in twice.more:
        out.print(make_styled((line, "red")))
    gaps = take_excerpt(audit.not_listed)
    for gap in gaps.shown:
        first, end = gap.entries
        named = f"entries {first} to {end - 1}" if end - first > 1 else f"entry {first}"
        told = f": {named} of sources/{gap.source_id} missing or damaged: nobody can tell which files were read by that"
        out.print(make_styled(("not known", "yellow"), told))
    for line in gaps.more:
        out.print(make_styled(("not known", "yellow"), f": {line}"))


def _print_unread(batches: Iterable[int], out: Console) -> None:
    unread = take_excerpt(batches, _UNREAD_SHOWN)
    for batch in unread.shown:
        out.print(make_styled(("not known", "yellow"), f": batch {batch} is committed, and its plan cannot be read"))
    if unread.left:
        out.print(f"and {unread.left:,} more such batches")


def _describe_seam_place(seam: Seam) -> str:
    """What follows the number of a batch."""
    if seam.topic is not None:
        if seam.offsets is None:
            offsets = ""
        else:
            offsets = f" [{seam.offsets[0]:,}, {seam.offsets[1]:,})"
        return f" {seam.topic}/{seam.partition}{offsets}"
    if seam.positions is not None:
        return f" source {seam.source_id}: from {seam.positions[0]} back to {seam.positions[1]}"
    return ""


def print_audit(audit: Audit, out: Console) -> None:
    """The result as a person reads it."""
    from rich.table import Table

    for label, fact in _list_facts(audit).items():
        out.print(make_styled((f"{label:<11} ", "dim"), fact))
    out.print()
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("")
    table.add_column("total", justify="right")
    table.add_column("partition")
    table.add_column("offsets", overflow="fold")
    for kind, difference in audit.differences():
        style = "bold red" if difference.total else "green"
        part = take_excerpt(difference.partitions)
        places = [(f"{each.topic}-{each.partition}", _format_offsets(each)) for each in part.shown] or [("", "")]
        places += [("", line) for line in part.more]
        for number, (partition, offsets) in enumerate(places):
            first = (
                (make_styled((kind, style)), make_styled((f"{difference.total:,}", style))) if number == 0 else ("", "")
            )
            table.add_row(*first, partition, offsets)
        if difference.samples:
            table.add_row("", "", "such as", _format_samples(difference))
    out.print(table)
    out.print()
    for remark in take_first_lines(_list_remarks(audit)):
        out.print(make_styled(remark))
    out.print("Nothing has been changed.")


def _list_facts(audit: Audit) -> dict[str, str]:
    partitions = {(each.topic, each.partition) for each in audit.ranges}
    topics = take_excerpt(sorted({topic for topic, _ in partitions})).in_a_line
    if audit.sink_version is not None:
        version = f" at version {audit.sink_version}"
    else:
        version = ""
    return {
        "checkpoint": f"{audit.checkpoint}, committed up to batch {audit.last_committed}",
        "source": f"{topics} ({_count(len(partitions), 'partition')}): {_count(audit.source_offsets, 'offset')},"
        f" {_count(audit.source_records, 'record')}",
        "sink": f"{audit.sink}{version}: {_count(audit.sink_rows, 'row')}",
        "compared by": ", ".join(audit.keys),
    }


def _format_offsets(difference: PartitionDifference) -> str:
    shown = [_format_range(begin, end) for begin, end in difference.ranges[:_RANGES_SHOWN]]
    left_out = len(difference.ranges) - len(shown) + difference.ranges_left_out
    told = ", ".join(shown)
    if left_out:
        told += f" and {left_out:,} more ranges"
    return told


def _format_range(begin: int, end: int) -> str:
    if end - begin == 1:
        return f"{begin}"
    return f"{begin}-{end - 1}"


def _format_samples(difference: Difference) -> str:
    return "; ".join(_format_key(sample["key"]) for sample in difference.samples[:_SAMPLES_SHOWN])


def _format_key(key: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in key.items())


def _list_remarks(audit: Audit) -> Iterator[str]:
    """What has to be known to read the numbers right."""
    for each in audit.ranges:
        if each.expired:
            yield (
                f"Not compared: {each.topic}-{each.partition}, offsets {each.start}-{each.begin - 1},"
                " which Kafka no longer has."
            )
    if audit.aborted_records:
        yield (
            f"{_count(audit.aborted_records, 'record')} of aborted transactions are neither lost nor duplicated;"
            f" the sink holds {_count(audit.aborted_rows, 'row')} of them."
        )
    if audit.rows_not_verifiable:
        yield (
            f"{_count(audit.rows_not_verifiable, 'row')} cannot be verified:"
            " their records may be among those that Kafka has deleted or compacted away."
        )
    if audit.rows_before:
        yield f"{_count(audit.rows_before, 'row')} not compared: their offsets are before the compared ones."
    if audit.rows_after:
        yield f"{_count(audit.rows_after, 'row')} not compared: their offsets are after the newest committed batch."


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
