"""`lastgood diagnose`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.times import DURATION
from lastgood.visible import shorten, take_excerpt, take_first_lines

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.diagnosis.engine import Report
    from lastgood.diagnosis.findings import Finding
    from lastgood.observe.evidence import EvidenceOptions

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_EVIDENCE_MAX = 2_000
"""Characters of one fact of a finding."""
_OUTCOMES = {
    "starts": "begins at batch {batch}",
    "resumes": "goes on with batch {batch}",
    "reruns": "runs batch {batch} again",
    "fails": "fails",
    "fails_after_sink": "sends batch {batch} through the sink again, and fails",
}


@click.command(cls=OnceCommand)
@click.argument("target")
@add_evidence_options
@click.option(
    "--spark", metavar="VERSION", help="Predict for this Spark; by default the newest that can read the logs."
)
@click.option(
    "--fail-on-data-loss",
    type=click.BOOL,
    metavar="BOOLEAN",
    help="The option of the query's Kafka source, which Spark does not write down; true if --log does not tell.",
)
@click.option(
    "--log",
    metavar="FILE|-",
    help="The driver's log, a traceback, or an agent's records: why the query died, and where it writes.",
)
@click.option(
    "--show-data",
    is_flag=True,
    help="Leave rows of the data in what is quoted of --log; else they are cut. A bundle never holds them.",
)
@click.option(
    "--max-downtime",
    type=DURATION,
    metavar="DURATION",
    help="How long the query may be down without losing anything, such as 3d: a warning where Kafka keeps less. By"
    " default max_downtime of its pipeline.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="BUNDLE",
    help="Write all that the diagnosis rests on into one file: no data, no secrets. `diagnose BUNDLE` works elsewhere.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["info", "warning", "error", "never"]),
    default="error",
    show_default=True,
    help="Exit with 1 for findings from this severity on.",
)
@format_option
def diagnose(
    target: str,
    *,
    options: EvidenceOptions,
    spark: str | None,
    fail_on_data_loss: bool | None,
    log: str | None,
    show_data: bool,
    max_downtime: int | None,
    save: Path | None,
    fail_on: str,
    output_format: str,
) -> int:
    r"""Say what is the matter with a query: every finding, worst first, and what Spark would do on restart.

    It reads only, starts no JVM, and needs no configuration. What the checkpoint cannot tell, --kafka and --sink can:
    whether the records of the next batch still exist, and what readers see.

    \b
    lastgood diagnose s3a://lake/chk/orders
    lastgood diagnose s3a://lake/chk/orders --kafka broker:9092 --sink s3a://lake/orders
    lastgood diagnose s3a://lake/chk/orders --log driver.log --save orders.bundle
    lastgood diagnose orders.bundle --spark 4.0 --format json
    lastgood explain ORPHAN_BATCH

    Exit codes: 0; 1 findings at or above --fail-on; 2 usage; 20 no checkpoint; 10-13 storage.
    """
    from lastgood.diagnosis.findings import Severity
    from lastgood.observe.observation import DiagnoseOptions
    from lastgood.operations.diagnose import diagnose_and_save, resolve_subject
    from lastgood.settings.config import Config

    done = diagnose_and_save(
        resolve_subject(target, Config()),
        DiagnoseOptions(options, spark, fail_on_data_loss, log, max_downtime, save, show_data),
    )
    report = done.report
    if output_format == "json":
        print_json(report.to_json() | ({"bundle": done.saved.to_json()} if done.saved else {}))
    else:
        _print(report, make_console(), asked=spark is not None)
        if done.saved:
            make_console().print(f"Saved {done.saved.path}: {done.saved.parts} parts, {done.saved.size} bytes.")
        print_nothing_changed()
    is_failed = fail_on != "never" and report.worst is not None and report.worst >= Severity[fail_on.upper()]
    return 1 if is_failed else 0


def _print(report: Report, out: Console, *, asked: bool) -> None:
    position = report.position
    good = "no batch" if position.last_good is None else f"batch {position.last_good}"
    out.print(make_styled(("Last good ", "dim"), (good, "bold")))
    for reason in take_first_lines(report.position.reasons):
        out.print(make_styled(f"          {reason}", style="dim"))
    _print_restart(report, out, asked)
    out.print()
    if not report.findings:
        out.print("No findings.")
    found = take_excerpt(report.findings)
    for finding in found.shown:
        _print_finding(finding, out)
    for line in found.more:
        out.print(line)


def _print_restart(report: Report, out: Console, asked: bool) -> None:
    restart = report.restart
    what = _OUTCOMES[restart.outcome.value].format(batch=restart.batch)
    style = "bold red" if restart.stop else "green"
    out.print(
        make_styled((f"Spark {_describe_versions(report, asked)} ", "dim"), (what, style), f"  ({restart.because})")
    )
    if restart.error:
        out.print(make_styled(("          error      ", "dim"), restart.error))
        out.print(make_styled(("          sink       ", "dim"), f"called: {restart.sink_called.value}"))
    if restart.next_error:
        out.print(make_styled(("          then fails ", "dim"), restart.next_error))
    if restart.leaves_orphan:
        out.print(make_styled(("          leaves     ", "dim"), f"batch {restart.batch} planned and not committed"))
    for other in report.others:
        other_what = _OUTCOMES[other.outcome.value].format(batch=other.batch)
        out.print(make_styled((f"Spark {other.spark} ", "dim"), other_what, (f"  {other.error or ''}", "dim")))
    for unknown in take_first_lines(restart.unknowns):
        out.print(make_styled(("          not known  ", "dim"), unknown))


def _describe_versions(report: Report, asked: bool) -> str:
    """Those that do this: all, where nobody asked for one and none does anything else."""
    from lastgood.query.prediction.spark_version import SPARK_VERSIONS

    restart = report.restart
    if asked or report.others or restart.error:
        return str(restart.spark)
    return f"{SPARK_VERSIONS[0]} to {SPARK_VERSIONS[-1]}"


def _print_finding(finding: Finding, out: Console) -> None:
    severity = finding.severity.name.lower()
    title = make_styled(
        (f"{severity:<8}", _COLOURS[severity]), (finding.condition.name, "bold"), f"  {finding.subject}"
    )
    out.print(title)
    out.print(
        make_styled(f"        {finding.condition.title[:1].upper()}{finding.condition.title[1:]}. {finding.effect}")
    )
    facts = take_excerpt(finding.evidence.items())
    for name, value in facts.shown:
        out.print(make_styled((f"        {name}  ", "dim"), shorten(_format_value(value), _EVIDENCE_MAX)))
    for line in facts.more:
        out.print(make_styled((f"        {line}", "dim")))
    if finding.next:
        out.print(make_styled(("        next  ", "dim"), finding.next))
    out.print()


def _format_value(value: object) -> str:
    if value is None or value == "":
        return "-"
    return ", ".join(take_first_lines(map(str, value))) if isinstance(value, list) else str(value)
