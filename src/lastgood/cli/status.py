"""`lastgood status`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.load_progress import format_amount
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.times import DURATION, format_clock, format_span
from lastgood.visible import shorten, take_excerpt, take_first_lines

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.journal.holding import CheckpointHolder
    from lastgood.observe.evidence import EvidenceOptions
    from lastgood.observe.load_standing import LoadStanding
    from lastgood.observe.query_status import Status
    from lastgood.query.agreement import SinkStanding
    from lastgood.query.kafka import Exposure

_COLOURS = {
    "healthy": "green",
    "in_flight": "cyan",
    "empty": "dim",
    "unreadable": "red",
    "damaged": "bold red",
    "sealed": "bold red",
    "doubtful": "yellow",
    "losing": "bold red",
}
_STALE_MS = 60_000
_PROBLEM_MAX = 500
_CHECKPOINTS_SHOWN = 1_000
"""Of a folder, the worst first: a row each, and two more lines for one with a problem."""
_TOLD_BELOW = "ORPHAN_BATCH "
"""The warning that the line `in flight` tells."""


@click.command(cls=OnceCommand)
@click.argument("target")
@click.option("--query", metavar="NAME", help="TARGET is a session-wide checkpoint root; look at the query NAME in it.")
@click.option(
    "--max-downtime",
    type=DURATION,
    metavar="DURATION",
    help="How long a query may be down without losing anything, such as 3d: a warning where Kafka keeps less. By"
    " default max_downtime of its pipeline.",
)
@add_evidence_options
@format_option
def status(
    target: str, *, query: str | None, max_downtime: int | None, options: EvidenceOptions, output_format: str
) -> int:
    r"""Show where a query stands, on one screen; of a folder, every checkpoint below it, worst first.

    It reads only, and needs no configuration. Whatever `diagnose` calls an error is a problem here, too. With --kafka
    it says whether unread records are being deleted, how far the query is behind, and how long Kafka keeps what is
    unread; with --sink, whether readers see what is committed. A broker or sink that does not answer within 10 s is
    "unknown". Of a folder, the sinks say whose batches they hold; a folder with _spark_metadata cannot, and is left
    out.

    \b
    lastgood status s3a://lake/chk/orders
    lastgood status s3a://lake/chk/orders --kafka broker:9092 --sink s3a://lake/orders
    lastgood status s3a://lake/chk                  every checkpoint below
    lastgood status s3a://lake/chk --query orders   spark.sql.streaming.checkpointLocation, by query name

    Exit codes: 0; 1 where diagnose finds an error, or a checkpoint of many cannot be read; 20 no checkpoint; 10-13
    storage.
    """
    from lastgood.diagnosis.grade import Grade
    from lastgood.observe.below import Reach, is_root
    from lastgood.operations.status import list_statuses_below
    from lastgood.operations.status import status as one
    from lastgood.settings.target import resolve_target

    resolved = resolve_target(target)
    if query is None and is_root(resolved):
        with make_console(stderr=True).status("looking for checkpoints") as shown:
            reach = Reach()
            found = list_statuses_below(
                resolved,
                options=options,
                max_downtime_ms=max_downtime,
                progress=lambda count: shown.update(f"{count} checkpoints read"),
                reach=reach,
            )
        if output_format == "json":
            print_json({"root": target, "checkpoints": [each.to_json() for each in found], "looked": reach.to_json()})
        else:
            out = make_console()
            _print_table(target, found, out)
            out.print(make_styled(str(reach), style="dim" if reach.is_whole else "yellow"))
            print_nothing_changed()
        if any(each.grade >= Grade.UNREADABLE for each in found):
            return 1
        return 0
    single = one(resolved, query=query, options=options, max_downtime_ms=max_downtime)
    if output_format == "json":
        print_json(single.to_json())
    else:
        _print_one(single, make_console())
        print_nothing_changed()
    return 1 if single.grade >= Grade.UNREADABLE else 0


def _print_one(found: Status, out: Console) -> None:
    facts = found.to_json()
    out.print(make_styled((str(found.location), "bold"), f"  query {facts['query_id'] or 'unknown'}"))
    word = facts["grade"].replace("_", " ")
    out.print(make_styled("  ", (word, _COLOURS[facts["grade"]])))
    for problem in take_first_lines(found.problems):
        out.print(make_styled("  ", ("problem", "red"), f"      {problem}"))
    for warning in take_first_lines(warning for warning in found.warnings if not warning.startswith(_TOLD_BELOW)):
        out.print(make_styled("  ", ("warning", "yellow"), f"      {warning}"))
    out.print(f"  last good    {_format_batch(found.last_good)}")
    when = f", {_format_ago(found.time_ms)} ago, at {format_clock(found.time_ms)}" if found.time_ms else ""
    out.print(f"  planned      {_format_batch(facts['last_planned'])}{when}")
    out.print(f"  committed    {_format_batch(facts['last_committed'])}")
    if facts["stateful"]:
        newest = facts["last_loadable_state"]
        told = "cannot be loaded" if newest is None else f"can be loaded as of batch {newest}"
        out.print(f"  state        {told}")
    if found.orphan is not None:
        what = "running now, or a restart runs it again as planned"
        if facts["restart"] != "reruns":
            what = "planned, not committed, and a restart does not finish it"
        out.print(f"  in flight    batch {found.orphan}: {what}")
    for line in take_first_lines(_list_sources(found)):
        out.print(f"  {line}")
    unknown = (("not known", line) for line in take_first_lines(facts["unknowns"]))
    for label, line in (
        *_describe_load(found.load),
        *_describe_held(found.held),
        *_describe_left(found),
        *_describe_around(found),
        *unknown,
        *_describe_incident(found),
        *_describe_failed(found),
        *_describe_outage(found),
    ):
        out.print(f"  {label:<12} {line}")
    out.print(f"  next         {found.next}")
    if found.undo is not None:
        out.print(f"  or           {found.undo}")


def _list_sources(found: Status) -> Iterator[str]:
    """What the next batch would read on from."""
    for source, topics in found.next_offsets().items():
        partitions = sum(len(each) for each in topics.values())
        yield f"source {source}     Kafka, {', '.join(take_first_lines(topics))}: {partitions:,} partitions"


def _format_load(load: LoadStanding) -> str:
    """How far a load has come, on one line."""
    files = "1 file" if load.files == 1 else f"{load.files:,} files"
    chunks = "1 chunk" if load.chunks == 1 else f"{load.chunks:,} chunks"
    part = 100 if load.is_whole else min(99, 100 * load.done // max(1, load.size))
    uncounted = f", of {load.uncounted:,} of them not counted yet" if load.uncounted else ""
    read = f"{format_amount(load.done, load.unit)} of {format_amount(load.size, load.unit)} of {files}"
    if load.unit != "bytes":
        read = f"{load.done:,} of {load.size:,} {load.unit} of a table"
    return f"{part} %: {read}, {load.rows:,} records in {chunks}{uncounted}, into {load.table}"


def _describe_load(load: LoadStanding | None) -> Iterator[tuple[str, str]]:
    """How far a load has come, and how long it still takes, as label and line."""
    if load is None:
        return
    yield "load", _format_load(load)
    if load.per_second is not None and load.seconds_left is not None:
        rate = format_amount(load.per_second, load.unit)
        yield "pace", f"{rate}/s in the newest chunks, {format_span(load.seconds_left)} left"


def _describe_held(held: CheckpointHolder | None) -> Iterator[tuple[str, str]]:
    """Who works on it, as label and line."""
    if held is None:
        return
    what = "a repair or a load" if held.work is None else str(held.work)
    seen = "" if held.seen_ms is None else f", last sign of life {format_clock(held.seen_ms)}"
    yield "held by", f"{what}, process {held.pid} on {held.host}, since {format_clock(held.since_ms)}{seen}"


def _describe_left(found: Status) -> Iterator[tuple[str, str]]:
    """That a recovery has left the checkpoint behind, as label and line."""
    left = found.to_json()["left_behind"]
    if left is not None:
        told = f"by recovery {left['recovery']}, at {format_clock(left['at_ms'])}: {left['start_file']['location']}"
        yield "left behind", f"{told} says where the next start begins"
        yield "", f"take it back with: {left['undo']}"


def _describe_around(found: Status) -> Iterator[tuple[str, str]]:
    """What sinks and Kafka told, as label and line."""
    from lastgood.diagnosis.findings import Severity

    if found.exposure is not None:
        facts = found.exposure.facts
        if facts.asked_at_ms < found.exposure.at_ms - _STALE_MS:
            yield "kafka", f"{facts.bootstrap}, as it was at {format_clock(facts.asked_at_ms)}"
        yield "data loss", _describe_loss(found.exposure)
        yield from _describe_prospect(found.exposure)
    elif found.next_offsets():
        yield "data loss", "not asked: --kafka SERVERS tells whether what is unread is still there, and for how long"
    blamed = {finding.subject for finding in found.findings if finding.severity is Severity.ERROR}
    for sink in found.sinks:
        is_blamed = sink.evidence.location in blamed
        if is_blamed:
            sentence = f"{sink.agreement.value}, see the problem above"
        else:
            sentence = sink.sentence
        yield "sink", f"{sink.evidence.kind} {sink.evidence.location}: {sentence}"
        for note in take_first_lines(sink.evidence.notes):
            yield "", note


def _describe_incident(found: Status) -> Iterator[tuple[str, str]]:
    """When the last incident was, why, what was done, and whether that kept its promise."""
    from lastgood.journal.incident import describe_way_back

    told = found.to_json()["last_incident"]
    if told is None:
        return
    if told["error"] is not None:
        yield "incident", f"the last one cannot be told: {told['error']['sentence']} ({told['error']['subject']})"
        return
    if told["cause"] is None:
        why = ""
    else:
        why = f": {told['cause']}"
    yield "incident", f"{_format_ago(told['failed_at_ms'])} ago, at {format_clock(told['failed_at_ms'])}{why}"
    did = {"restart": "started again", "repair": "repaired", "wait": "waiting", "stop": "left to a person"}
    if told["did"]:
        parts = [did[told["did"]]]
    else:
        parts = []
    if told["back_after_seconds"] is not None:
        parts.append(f"back after {format_span(told['back_after_seconds'])} with batch {told['first_batch']}")
    elif told["outcome"] == "open":
        parts.append("whether a batch followed was not looked at")
    if told["parts"]:
        parts.append(describe_way_back(told["way"], told["parts"]))
    parts += [] if told["promise"] is None else [f"promise {told['promise']}"]
    parts += [] if told["signature"] in (None, "signed") else ["not signed by a key of this machine"]
    yield "", f"{'; '.join(parts)}: {told['next']}"


def _describe_failed(found: Status) -> Iterator[tuple[str, str]]:
    """What `recover` has seen fail again and again."""
    failed = found.failed
    if failed is not None:
        if failed.batch is None:
            batch = "the application"
        else:
            batch = f"batch {failed.batch}"
        if failed.since_ms is None:
            since = ""
        else:
            since = f", since {format_clock(failed.since_ms)}"
        if failed.times == 1:
            times = "once"
        else:
            times = f"{failed.times} times in a row"
        yield "failed", f"{batch}, {times}{since}, as recover and run have counted"


def _describe_outage(found: Status) -> Iterator[tuple[str, str]]:
    if found.outage is not None:
        yield "outage", found.outage


def _describe_loss(exposure: Exposure) -> str:
    from lastgood.query.kafka import Losing
    from lastgood.sources.kafka.ranges import count_offsets

    gone = count_offsets(exposure.lost)
    match exposure.losing:
        case Losing.NO:
            return "none: Kafka still has all that is unread"
        case Losing.UNKNOWN:
            return f"unknown, because {'; '.join(take_first_lines(exposure.doubts))}"
        case Losing.MAYBE:
            return "perhaps: see the problem above"
    if not gone:
        return "yes: see the problems above"
    if exposure.lost_after_ms:
        since = f", deleted since {format_clock(exposure.lost_after_ms)} at the earliest"
    else:
        since = ""
    return f"yes: {gone:,} unread offsets are gone{since}"


def _describe_prospect(exposure: Exposure) -> Iterator[tuple[str, str]]:
    from lastgood.sources.kafka.ranges import count_offsets
    from lastgood.sources.kafka.retention import HeadroomKind

    if exposure.facts.unknown is not None:
        return
    if not exposure.unknown:
        more = count_offsets(exposure.added)
        if more:
            added = f"; {more:,} in partitions that it has not read yet"
        else:
            added = ""
        yield "lag", f"{count_offsets(exposure.unread):,} unread offsets that Kafka still has{added}"
    least, at = exposure.headroom, exposure.headroom_at
    if least is None or at is None:
        return
    where = f"{at[0]}/{at[1]}"
    sooner = "; sooner by retention.bytes" if least.limited_by_size else ""
    left = format_span((least.ms or 0) / 1000)
    words = {
        HeadroomKind.LIMITED: f"{left} until Kafka deletes what is unread, {where} first",
        HeadroomKind.UNKNOWN: f"unknown, because {least.because} ({where})",
        HeadroomKind.NOTHING_UNREAD: "no limit: nothing is unread",
        HeadroomKind.UNLIMITED: f"no limit by age: {least.because} ({where})",
    }
    yield "headroom", words[least.kind] + sooner


def _number(batch: int | None) -> str:
    if batch is None:
        return "-"
    return str(batch)


def _make_cells(status: Status, prefix: str, *, has_kafka: bool, has_sinks: bool) -> list[Any]:
    facts = status.to_json()
    grade = make_styled((facts["grade"].replace("_", " "), _COLOURS[facts["grade"]]))
    path = str(status.location).removeprefix(prefix)
    since = f"{_format_ago(status.time_ms)} ago" if status.time_ms else "-"
    cells = [grade, path, _number(status.last_good), _number(facts["last_planned"]), since]
    if has_kafka:
        cells += _format_kafka_cells(status.exposure)
    if has_sinks:
        cells.append(_format_sink_cells(status))
    return cells


def _list_columns(*, has_kafka: bool, has_sinks: bool) -> list[str]:
    columns = ["grade", "checkpoint", "last good", "planned", "last plan"]
    if has_kafka:
        columns += ["data loss", "lag", "headroom"]
    if has_sinks:
        columns.append("sink")
    return columns


def _print_table(root: str, found: list[Status], out: Console) -> None:
    from rich.table import Table

    from lastgood.diagnosis.grade import Grade
    from lastgood.storage.reading import parse_location

    if not found:
        out.print(f"no checkpoint below {root}")
        return
    has_kafka, has_sinks = any(each.exposure for each in found), bool(found[0].options.sinks)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in _list_columns(has_kafka=has_kafka, has_sinks=has_sinks):
        table.add_column(heading, justify="right" if heading in ("last good", "planned", "lag") else "left")
    prefix = f"{parse_location(root)}/"
    rows = take_excerpt(found, _CHECKPOINTS_SHOWN)
    for each in rows.shown:
        table.add_row(*_make_cells(each, prefix, has_kafka=has_kafka, has_sinks=has_sinks))
    out.print(table)
    for line in rows.more:
        out.print(line)
    for each in rows.shown:
        told = each.warnings if each.grade is Grade.DOUBTFUL else each.problems
        if told:
            name = str(each.location).removeprefix(prefix)
            out.print(make_styled((name, "red"), f": {shorten(told[0], _PROBLEM_MAX)}"))
            out.print(f"  next         {each.next}")
        if each.undo is not None:
            out.print(f"  or           {each.undo}")
    for why in take_first_lines(dict.fromkeys(_list_unknowns(found))):
        out.print(f"unknown, because {why}")
    counts: dict[str, int] = {}
    for each in found:
        name = each.grade.name.lower().replace("_", " ")
        counts[name] = counts.get(name, 0) + 1
    noun = "checkpoint" if len(found) == 1 else "checkpoints"
    out.print(f"{len(found)} {noun}: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def _format_kafka_cells(exposure: Exposure | None) -> tuple[str, str, str]:
    from lastgood.sources.kafka.ranges import count_offsets

    if exposure is None:
        return "-", "-", "-"
    least = exposure.headroom
    if exposure.lost:
        loss = f"{count_offsets(exposure.lost):,} offsets"
    else:
        loss = exposure.losing.value
    if exposure.unknown:
        lag = "?"
    else:
        lag = f"{count_offsets(exposure.unread):,}"
    if least is None or least.ms is None:
        return loss, lag, "?" if least is None else least.kind.value.replace("_", " ")
    return loss, lag, format_span(least.ms / 1000)


def _format_sink_cells(found: Status) -> str:
    return "; ".join(map(_format_sink_cell, found.sinks)) or "-"


def _format_sink_cell(sink: SinkStanding) -> str:
    shown = sink.evidence.last_batch
    return f"{sink.agreement.value}{'' if shown is None else f' at {shown}'}"


def _list_unknowns(found: list[Status]) -> Iterator[str]:
    for each in found:
        yield from each.exposure.unknown.values() if each.exposure else ()
        yield from (
            f"{sink.evidence.location}: {sink.evidence.because}" for sink in each.sinks if not sink.evidence.known
        )


def _format_batch(batch_id: int | None) -> str:
    if batch_id is None:
        return "none"
    return f"batch {batch_id}"


def _format_ago(time_ms: int) -> str:
    return format_span(max(0, time.time() - time_ms / 1000))
