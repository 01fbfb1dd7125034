"""`lastgood key`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lastgood.cli.once import OnceGroup
from lastgood.cli.output import format_option, make_console, make_styled, print_json, print_nothing_changed
from lastgood.errors import UsageError, format_command_line

if TYPE_CHECKING:
    from lastgood.journal.to_sign import ToSign
    from lastgood.operations.key import KeyList

_FILE = click.Path(path_type=Path, dir_okay=False)
_STANDINGS = {
    "signed": "signed",
    "unsigned": "not signed",
    "other_key": "signed by a key that is not known here",
    "other_place": "signed for another place",
    "wrong": "changed since it was signed, or signed for another recovery or stage",
}


@click.group(cls=OnceGroup)
def key() -> None:
    r"""Keys with which lastgood signs what it writes beside a checkpoint.

    Where a key is configured, each plan, stage of a recovery, incident and backup carries a keyed checksum, and nothing
    else is carried out, finished, taken back or restored. Whoever may only write to the lake cannot sign. A key comes
    from LASTGOOD_KEY_FILE, else LASTGOOD_KEY, else key_file of [trust] in lastgood.toml, else this user's configuration
    folder; never from the lake. Without one everything is as it was.

    \b
    lastgood key create
    lastgood key list
    lastgood key sign orders                       what was written before there was a key, once you have looked
    lastgood key rotate
    lastgood key remove 5f0c1a2b
    """


@key.command()
@click.argument("file", required=False, type=_FILE)
@format_option
def create(file: Path | None, *, output_format: str) -> int:
    """Make a key in FILE, which only you can read; without FILE where lastgood looks by itself.

    Exit codes: 0; 2 there is a file already; 10, 11 it cannot be written.
    """
    from lastgood.operations.key import create as operation
    from lastgood.settings.keys import locate_default_file

    made = operation(file)
    if output_format == "json":
        print_json(made.to_json())
        return 0
    out = make_console()
    out.print(f"Key {made.ids[0]} is made, in {made.origin}: mode 0600. Keep a copy, and not in the lake.")
    if file is not None and file != locate_default_file():
        out.print(f"Let lastgood use it: LASTGOOD_KEY_FILE={file.absolute()}, or in lastgood.toml:")
        out.print("  [trust]")
        out.print(f'  key_file = "{file.absolute()}"')
    out.print(
        "Every machine that runs lastgood on the same checkpoints needs the same file, and not by way of the lake."
    )
    out.print(f"Kubernetes: kubectl create secret generic lastgood-key --from-file=key={made.origin}")
    out.print("            and LASTGOOD_KEY in the pod by secretKeyRef: name lastgood-key, key key.")
    out.print(
        f"What earlier recoveries and backups wrote is not signed: {format_command_line('key', 'sign', 'TARGET')}"
    )
    return 0


@key.command()
@click.argument("file", required=False, type=_FILE)
@format_option
def rotate(file: Path | None, *, output_format: str) -> int:
    """Put a new key first in FILE: it signs from now on, and the old ones go on to verify.

    Copy the file to every machine before anything is signed there; then sign anew what the old key has signed, and
    remove it.

    Exit codes: 0; 2 the keys stand in no file; 82-84 no such file, or not a safe one; 10, 11 it cannot be written.
    """
    from lastgood.operations.key import rotate as operation

    found = operation(file)
    if output_format == "json":
        print_json(found.to_json())
        return 0
    _print(found)
    out = make_console()
    out.print("Copy the file to every machine. Then, for each query:")
    out.print(f"  {format_command_line('key', 'sign', 'TARGET')}")
    for old in found.ids[1:]:
        out.print(f"and, once nothing is signed by it alone: {format_command_line('key', 'remove', old)}")
    return 0


@key.command("list")
@format_option
def list_(*, output_format: str) -> int:
    """List the keys that count here, by their ids, never their secrets.

    Exit codes: 0 also if there is none; 2 lastgood.toml; 82-84 no such file, or not a safe one.
    """
    from lastgood.operations.key import list_keys

    found = list_keys()
    if output_format == "json":
        print_json(found.to_json())
        return 0
    _print(found)
    print_nothing_changed()
    return 0


@key.command()
@click.argument("key_id", metavar="ID")
@click.argument("file", required=False, type=_FILE)
@format_option
def remove(key_id: str, file: Path | None, *, output_format: str) -> int:
    """Take key ID out of FILE: what only it has signed is not accepted here any more.

    Exit codes: 0; 2 it is the only one; 82-84 no such key or file, or not a safe one; 10, 11 it cannot be written.
    """
    from lastgood.operations.key import remove as operation

    found = operation(key_id, file)
    if output_format == "json":
        print_json(found.to_json())
        return 0
    _print(found)
    return 0


@key.command()
@click.argument("target")
@click.option("--yes", is_flag=True, help="You have looked: sign without asking.")
@format_option
def sign(target: str, *, yes: bool, output_format: str) -> int:
    """Sign what lies beside TARGET and is not signed by the first key, once you have looked at it.

    For what was written before there was a key, and after a rotation. Look with `lastgood report` and at the files
    first: whoever may write to the lake may have written any of it.

    No repair goes on meanwhile, and none may be going on.

    Exit codes: 0 all is signed; 1 something cannot be signed, or was not; 2 usage; 53 a repair is going on; 82-84 no
    key; 10-15 storage.
    """
    from lastgood.journal.to_sign import count_by_purpose
    from lastgood.operations.key import list_to_sign
    from lastgood.operations.key import sign as operation
    from lastgood.settings.target import resolve_target

    found = list_to_sign(resolve_target(target))
    if output_format == "json":
        if found.wanted and not yes:
            print_json(found.to_json(signed=False))
            return 1
        if found.wanted:
            after = operation(found)
        else:
            after = found
        print_json({**found.to_json(signed=True), "left": [str(each.file) for each in (*after.wanted, *after.damaged)]})
        if after.wanted or after.damaged:
            return 1
        return 0
    out = make_console()
    _print_files(found)
    if found.wanted and not yes and not _is_confirmed(found, count_by_purpose(found.wanted)):
        print_nothing_changed()
        return 1
    if found.wanted:
        after = operation(found, tell=lambda line: out.print(make_styled(line)))
    else:
        after = found
    if not after.wanted and not after.damaged:
        out.print(f"All of it is signed by key {found.key}.")
    if after.wanted or after.damaged:
        return 1
    return 0


def _print(found: KeyList) -> None:
    out = make_console()
    if not found.ids:
        out.print("There is no key: nothing is signed, and nothing has to be.")
        out.print(f"Make one with: {format_command_line('key', 'create')}")
        return
    out.print(f"from {found.origin}")
    for number, each in enumerate(found.ids):
        out.print(f"  {each}  {'signs' if number == 0 else 'verifies'}")


def _print_files(found: ToSign) -> None:
    out = make_console()
    for each in found.wanted:
        if each.by is None or each.standing.value == "unsigned":
            by = ""
        else:
            by = f" ({each.by})"
        out.print(make_styled(f"  {each.label}: {_STANDINGS[each.standing.value]}{by}: {each.file}"))
    for each in found.damaged:
        out.print(make_styled(f"  {each.label}: cannot be signed, {each.damage}: {each.file}", style="red"))


def _is_confirmed(found: ToSign, what: str) -> bool:
    try:
        return click.confirm(f"Sign {what} at {found.checkpoint} with key {found.key}? Have you looked at them?")
    except click.Abort as error:
        raise UsageError(
            "nobody is there to be asked", subject="--yes", expected="a terminal, or --yes once you have looked"
        ) from error
