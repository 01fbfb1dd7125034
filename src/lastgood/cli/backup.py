"""`lastgood backup`."""

from __future__ import annotations

from typing import Any

import click

from lastgood.asked import make_typeable
from lastgood.cli.once import OnceGroup
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.times import format_clock
from lastgood.errors import format_command_line
from lastgood.visible import take_excerpt, take_first_lines

_BACKUPS_SHOWN = 200


class _Duration(click.ParamType[int]):
    """Milliseconds, from `12h` or `30d`."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from lastgood.settings.config import parse_duration

        try:
            return int(parse_duration(value) * 1000)
        except ValueError:
            self.fail(f"{value!r} is no duration such as 12h or 30d", param, ctx)


@click.group(cls=OnceGroup)
def backup() -> None:
    r"""Keep the logs of a query, and put a lost checkpoint back from them.

    A backup holds metadata, offsets, commits and sources, byte for byte; it does not hold state. The mirror, which
    `lastgood run` keeps by itself, holds the same, batch by batch, and no state either: a query that keeps state, and
    has lost it, does not come back from them.

    \b
    lastgood backup create orders
    lastgood backup list orders
    lastgood backup restore orders                 from the mirror, after the checkpoint was lost
    lastgood backup restore orders --from last
    """


@backup.command()
@click.argument("target")
@click.option("--retain", "retain_ms", type=_Duration(), help="Remove older backups, but those that are kept.")
@click.option("--ledger", metavar="URL", help="Fill this ledger: postgresql://…, sqlite:///FILE or a path.")
@format_option
def create(target: str, *, retain_ms: int | None, ledger: str | None, output_format: str) -> int:
    """Back up the logs of TARGET as they stand now, and fill the ledger if there is one.

    The query may go on running. Without --ledger it is that of lastgood.toml, else of LASTGOOD_LEDGER.

    Exit codes: 0; 20 nothing to back up; 41 it did not come back as written; 43-48 backed up, but the ledger refused;
    10-13 storage.
    """
    from lastgood.operations.backup import create as operation
    from lastgood.settings.target import resolve_target

    made, removed = operation(resolve_target(target), retain_ms=retain_ms, ledger=ledger)
    if output_format == "json":
        print_json({**made.to_json(), "removed": [each.id for each in removed]})
        return 0
    out = make_console()
    told = f": {made.files} files, {made.size:,} bytes, up to batch {made.last_planned}"
    out.print(make_styled("backed up ", (made.id, "bold"), told))
    for line in take_first_lines(f"removed {each.id}" for each in removed):
        out.print(line)
    out.print(f"Restore it with: {format_command_line('backup', 'restore', make_typeable(target), '--from', made.id)}")
    return 0


@backup.command("list")
@click.argument("target")
@format_option
def list_(target: str, *, output_format: str) -> int:
    """List the backups of TARGET, oldest first. Exit codes: 0; 10-13 storage."""
    from rich.table import Table

    from lastgood.operations.backup import find_backups
    from lastgood.settings.target import resolve_target

    found, unread = find_backups(resolve_target(target))
    if output_format == "json":
        told: dict[str, object] = {"backups": [each.to_json() for each in found]}
        if unread:
            told["unread"] = unread
        print_json(told)
        return 0
    out = make_console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("backup", "made at", "planned", "committed", "files", "bytes", ""):
        table.add_column(heading, justify="right" if heading not in ("backup", "made at", "") else "left")
    rows = take_excerpt(reversed(found), _BACKUPS_SHOWN)
    for each in reversed(rows.shown):
        table.add_row(
            each.id,
            format_clock(each.at_ms),
            str(each.last_planned),
            str(each.last_committed),
            str(each.files),
            f"{each.size:,}",
            "kept" if each.kept else "",
        )
    for line in rows.more:
        out.print(f"the oldest are not shown: {line}")
    out.print(table if found else "no backup")
    for line in take_first_lines(unread):
        out.print(make_styled(("damaged", "red"), f"  {line}: it does not say what it holds"))
    print_nothing_changed()
    return 0


@backup.command()
@click.argument("target")
@click.argument("backup_id")
@click.option("--off", is_flag=True, help="Take the mark away.")
@format_option
def keep(target: str, backup_id: str, *, off: bool, output_format: str) -> int:
    """Mark a backup of TARGET, so that `create --retain` never removes it.

    Exit codes: 0; 41 no such backup; 10-13 storage.
    """
    from lastgood.operations.backup import keep as operation
    from lastgood.settings.target import resolve_target

    marked = operation(resolve_target(target), backup_id, kept=not off)
    if output_format == "json":
        print_json(marked.to_json())
    else:
        make_console().print(f"{marked.id} is {'kept' if marked.kept else 'removed with age'}")
    return 0


@backup.command()
@click.argument("target")
@click.option(
    "--from", "source", default="mirror", show_default=True, metavar="mirror|ID|last", help="What to restore."
)
@click.option(
    "--unsigned-mirror", is_flag=True, help="Where there is a key: you trust the mirror, which carries no signature."
)
@format_option
def restore(target: str, *, source: str, unsigned_mirror: bool, output_format: str) -> int:
    """Put the lost checkpoint TARGET back, byte for byte.

    Only where offset log and commit log are gone; nothing that is there is overwritten. Until all of it is back no
    driver can start; if this is interrupted, the same command finishes it. What the query did after the last copy is
    not known to it: compare with the sink before you start it.

    Exit codes: 0; 1 restored, but a restart still misses something; 41 no such backup; 42 there still is a checkpoint;
    49 a repair is half done there; 80, 81 not signed by a key that is known here; 10-13 storage.
    """
    from lastgood.operations.backup import restore as operation
    from lastgood.settings.target import resolve_target

    restored = operation(resolve_target(target), source=source, unsigned_mirror=unsigned_mirror)
    if output_format == "json":
        print_json(restored.to_json())
    else:
        out = make_console()
        batches = f"batch {restored.last_planned} planned, batch {restored.last_committed} committed"
        out.print(f"restored {restored.files} files from {restored.source}: {batches}")
        for path in take_first_lines(restored.absent):
            out.print(make_styled(("missing", "red"), f"  {path}"))
        out.print(f"Look at it with: {format_command_line('inspect', restored.checkpoint)}")
    return 1 if restored.absent else 0
