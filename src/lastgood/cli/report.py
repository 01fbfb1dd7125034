"""`lastgood report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.evidence import add_evidence_options
from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, print_json, print_nothing_changed
from lastgood.errors import UsageError
from lastgood.visible import format_json_line

if TYPE_CHECKING:
    from lastgood.observe.evidence import EvidenceOptions


@click.command(cls=OnceCommand)
@click.argument("recovery")
@click.option("--checkpoint", metavar="TARGET", help="Where it was; needed on another machine, and for last.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it there instead of to standard output.",
)
@add_evidence_options
@format_option
def report(
    recovery: str, *, checkpoint: str | None, output: Path | None, options: EvidenceOptions, output_format: str
) -> int:
    r"""Tell an incident, as Markdown: what happened, why, what was done, what it cost, and how to take it back.

    RECOVERY is the id of an incident or of a recovery, or `last`; a recovery that was made by hand has its page too. It
    reads only. Whether the first new batch kept the promise is looked up now, if nobody has yet: --sink names where
    else to look than the plan did.

    \b
    lastgood report 20261121-160058-7f3a
    lastgood report last --checkpoint s3a://lake/chk/orders -o incident.md

    Exit codes: 0; 1 the promise was broken; 2 usage; 37 the incident's file is damaged; 56 no such incident; 10-13
    storage.
    """
    from lastgood.incident.report_page import format_page
    from lastgood.operations.report import report as operation
    from lastgood.settings.target import resolve_target

    target = None
    if checkpoint is not None:
        target = resolve_target(checkpoint)
    found = operation(recovery, target=target, options=options)
    if output is not None:
        _save(format_json_line(found.to_json()) if output_format == "json" else format_page(found), output)
    elif output_format == "text":
        click.echo(format_page(found), nl=False)
    if output_format == "json":
        print_json(found.to_json())
    elif output is not None:
        make_console().print(f"The report is saved: {output}")
        print_nothing_changed()
    return 1 if found.incident.promise_state == "broken" else 0


def _save(text: str, file: Path) -> None:
    from lastgood.storage.rights import open_privately

    try:
        with open(file, "w", encoding="utf-8", errors="backslashreplace", opener=open_privately) as stream:
            stream.write(text if text.endswith("\n") else f"{text}\n")
    except OSError as error:
        raise UsageError("the report cannot be saved", subject=str(file), found=error.strerror) from error
