"""The command line: finds a verb, and turns every error into one clear answer and an exit code."""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from lastgood import __version__
from lastgood.cli.output import chosen_format, print_error
from lastgood.errors import LastgoodError, NoSpaceError, UsageError

VERBS = {
    "demo": "The main job, end to end, on an embedded Kafka and a Delta table.",
    "run": "Supervise a command: start it, watch it, start it again.",
    "recover": "Once, before the application starts: diagnose, plan, do what the policy allows.",
    "status": "Where a query stands on one screen; a folder of checkpoints, graded.",
    "diagnose": "Every finding, worst first, and what Spark would do on restart.",
    "explain": "The story behind a finding or an error; without a name, all of them.",
    "inspect": "Every batch; one in full; its state; which batch holds an offset, a file, a time.",
    "offsets": "Where a query stood after a batch, as startingOffsets for Spark.",
    "plan": "How a query is to run again, and what that costs; saved, nothing changed.",
    "apply": "Carry out a saved plan: exactly that, or refuse.",
    "undo": "The bytes as they were before a recovery, while nothing has moved since.",
    "report": "An incident as Markdown: what happened, what was done, what it cost, how to take it back.",
    "backup": "Back up the logs of a query, list backups, restore a lost checkpoint.",
    "verify": "Every offset in exactly one committed batch; --data: count source against sink.",
    "completion": "Print the completion script for a shell.",
}
"""Verb → what it does in one line; `lastgood.cli.VERB` holds its function of the same name."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Verbs(click.Group):
    """Imports a verb only when it is called: `lastgood --help` must not wait for what it does not need."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in VERBS:
            return None
        command: click.Command = getattr(importlib.import_module(f"lastgood.cli.{cmd_name}"), cmd_name)
        _complete(command, f"LASTGOOD_{cmd_name}")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _complete(command: click.Command, prefix: str) -> None:
    """Let every option come from a variable that is named after it, and its help say so; let examples stay as lines."""
    if command.help is not None:
        command.help = command.help.replace(r"\b", "\b")
    for option in command.params:
        if isinstance(option, click.Option) and option.envvar is None:
            name = max(option.opts, key=len).lstrip("-")
            option.envvar = f"{prefix}_{name}".replace("-", "_").upper()
            option.show_envvar = True
    if isinstance(command, click.Group):
        for name, verb in command.commands.items():
            _complete(verb, f"{prefix}_{name}")


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Every verb has --help, --format text|json, and reads its options from LASTGOOD_VERB_OPTION as well; there"
    " an option that can be repeated takes words, separated by blanks.",
)
@click.version_option(__version__, message="lastgood %(version)s")
def lastgood() -> None:
    """Bring a Spark Structured Streaming query back from its last good batch."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # half a character in a name is shown, not an error
    code = 0
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has left: nobody to tell
        _say_no_more()
        code = 128 + signal.SIGPIPE
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _say_no_more()
        told = NoSpaceError(
            "the output cannot be written",
            subject="standard output",
            found=error.strerror,
            effect="what the command was to do may be done",
        )
        print_error(told, "text")
        code = code or told.exit_code
    sys.exit(code)


def _say_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: list[str]) -> int:
    try:
        result: Any = lastgood.main(arguments, prog_name="lastgood", standalone_mode=False)
    except LastgoodError as error:
        print_error(error, chosen_format(arguments, os.environ))
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        print_error(_as_usage(error), chosen_format(arguments, os.environ))
        return 2
    except (click.Abort, KeyboardInterrupt):
        return 128 + signal.SIGINT
    return result if isinstance(result, int) else 0


def _as_usage(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    sentence = error.format_message().rstrip(".")
    return UsageError(
        sentence[:1].lower() + sentence[1:], next=f"{context.command_path} --help" if context else "lastgood --help"
    )
