"""`lastgood backup`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lastgood.asked import make_typeable
from lastgood.cli.once import OnceGroup
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.cli.times import format_clock
from lastgood.errors import format_command_line
from lastgood.visible import take_excerpt, take_first_lines

if TYPE_CHECKING:
    from lastgood.mirror.backups import Backup
    from lastgood.mirror.state_copies import StateCopies

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

    A backup holds metadata, offsets, commits and sources, byte for byte, and the state if that is wanted (--state). The
    mirror, which `lastgood run` keeps by itself, holds the same logs, batch by batch, and no state: a query that keeps
    state comes back from it with the newest state that a backup has kept, and `lastgood rebuild` makes what is missing
    since then.

    \b
    lastgood backup create orders
    lastgood backup create orders --state          the files of the state as well, those that are new
    lastgood backup list orders
    lastgood backup restore orders                 from the mirror, after the checkpoint was lost
    lastgood backup restore orders --from last
    """


@backup.command()
@click.argument("target")
@click.option("--retain", "retain_ms", type=_Duration(), help="Remove older backups, but those that are kept.")
@click.option("--ledger", metavar="URL", help="Fill this ledger: postgresql://…, sqlite:///FILE or a path.")
@click.option(
    "--state", is_flag=True, help="Copy the state as well; what an older backup has copied is not copied again."
)
@format_option
def create(target: str, *, retain_ms: int | None, ledger: str | None, state: bool, output_format: str) -> int:
    """Back up the logs of TARGET as they stand now, and fill the ledger if there is one.

    The query may go on running. With --state the files from which the state after the newest committed batch is loaded
    are copied beside the checkpoint; how many bytes that are is said before. Without --ledger it is that of
    lastgood.toml, else of LASTGOOD_LEDGER.

    Exit codes: 0; 20 nothing to back up; 41 it did not come back as written; 43-48 backed up, but the ledger refused;
    87 the state cannot be copied; 10-13 storage.
    """
    from lastgood.operations.backup import create as operation
    from lastgood.settings.target import resolve_target

    out = make_console(stderr=True)

    def tell(chosen: StateCopies) -> None:
        if output_format != "json":
            out.print(_describe_state(chosen))

    made, removed = operation(resolve_target(target), retain_ms=retain_ms, ledger=ledger, state=state, tell=tell)
    if output_format == "json":
        print_json({**made.to_json(), "removed": [each.id for each in removed]})
        return 0
    out = make_console()
    told = f": {made.files} files, {made.size:,} bytes, up to batch {made.last_planned}"
    out.print(make_styled("backed up ", (made.id, "bold"), told))
    if made.state is not None:
        out.print(f"with the state after batch {made.state.batch}: {made.state.files} files, {made.state.size:,} bytes")
    elif state:
        out.print("the query keeps no state")
    for line in take_first_lines(f"removed {each.id}" for each in removed):
        out.print(line)
    out.print(f"Restore it with: {format_command_line('backup', 'restore', make_typeable(target), '--from', made.id)}")
    return 0


def _describe_state(chosen: StateCopies) -> str:
    whole, new = sum(file.size for file in chosen.files), chosen.to_copy
    told = f"the state after batch {chosen.batch}: {len(chosen.files)} files, {whole:,} bytes"
    return f"{told}; to be copied: {len(new)} files, {sum(file.size for file in new):,} bytes"


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
    for heading in ("backup", "made at", "planned", "committed", "files", "bytes", "state", ""):
        table.add_column(heading, justify="right" if heading not in ("backup", "made at", "") else "left")
    rows = take_excerpt(reversed(found), _BACKUPS_SHOWN)
    for each in reversed(rows.shown):
        state = "" if each.state is None else f"{each.state.size:,}"
        table.add_row(
            each.id,
            format_clock(each.at_ms),
            str(each.last_planned),
            str(each.last_committed),
            str(each.files),
            f"{each.size:,}",
            state,
            _describe_stay(each),
        )
    for line in rows.more:
        out.print(f"the oldest are not shown: {line}")
    out.print(table if found else "no backup")
    for line in take_first_lines(unread):
        out.print(make_styled(("damaged", "red"), f"  {line}: it does not say what it holds"))
    print_nothing_changed()
    return 0


def _describe_stay(backup: Backup) -> str:
    """Who removes it, where that is not age."""
    if backup.kept:
        return "kept"
    return "by run" if backup.by_run else ""


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
    not known to it: compare with the sink before you start it. The state comes back if a backup has kept it (--state);
    to the logs of the mirror, the newest that was kept since the last repair.

    Exit codes: 0; 1 restored, but a restart still misses something; 41 no such backup; 42 there still is a checkpoint;
    49 a repair is half done there; 80, 81 not signed by a key that is known here; 10-13 storage.
    """
    from lastgood.recovery.restoring import restore as operation
    from lastgood.settings.target import resolve_target

    restored = operation(resolve_target(target), source=source, unsigned_mirror=unsigned_mirror)
    if output_format == "json":
        print_json(restored.to_json())
    else:
        out = make_console()
        batches = f"batch {restored.last_planned} planned, batch {restored.last_committed} committed"
        out.print(f"restored {restored.files} files from {restored.source}: {batches}")
        if restored.state_batch is not None:
            out.print(f"and the state after batch {restored.state_batch}")
        for path in take_first_lines(restored.absent):
            out.print(make_styled(("missing", "red"), f"  {path}"))
        out.print(f"Look at it with: {format_command_line('inspect', restored.checkpoint)}")
    return 1 if restored.absent else 0
