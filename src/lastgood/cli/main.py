"""The command line: finds a verb, and turns every error into one clear answer and an exit code."""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from lastgood import __version__
from lastgood.cli.interrupts import INTERRUPTED, stop_at_once_on_interrupt
from lastgood.cli.streams import READER_LEFT, guard_streams

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
    "rebuild": "Make state that cannot be loaded anew, by the query's own batches, without its sink.",
    "apply": "Carry out a saved plan: exactly that, or refuse.",
    "undo": "The bytes as they were before a recovery, while nothing has moved since.",
    "report": "An incident as Markdown: what happened, what was done, what it cost, how to take it back.",
    "backup": "Back up the logs of a query, list backups, restore a lost checkpoint.",
    "key": "Keys that sign what lastgood writes beside a checkpoint: create, rotate, list, remove, sign.",
    "load": "Files into a table, chunk by chunk: the same command again goes on where it ended.",
    "verify": "Every offset in exactly one committed batch; --data: count source against sink.",
    "completion": "Print the completion script for a shell.",
}
"""Verb → what it does in one line; `lastgood.cli.VERB` holds its function of the same name."""


_READING = frozenset({"status", "diagnose", "inspect", "offsets", "explain", "report", "completion"})
"""Verbs that stop where nobody reads their answer; any other one goes on to its end."""
_READING_LOGS = frozenset({"verify", "inspect", "diagnose", "status"})
"""Verbs that read a long mirror, answer, and end."""
_GARBAGE_LOOKED_FOR_AFTER = 50_000
"""New values; Python looks much sooner, and a long mirror has hundreds of thousands, of which none is garbage."""
DEBUG = "--debug"
"""Stands before the verb, and has tracebacks shown."""
_DEBUG = "LASTGOOD_DEBUG"
"""Stands for it as well."""


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
        if not gc.isenabled():  # as `start` began: a program that calls us has its own garbage, which is not to stay
            gc.freeze()
            if cmd_name in _READING_LOGS:
                gc.set_threshold(_GARBAGE_LOOKED_FOR_AFTER)
            gc.enable()
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
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    help="Before the verb: show the traceback of an error, without secrets. [env var: LASTGOOD_DEBUG]",
)
@click.version_option(__version__, message="lastgood %(version)s")
def lastgood() -> None:
    """Bring a Spark Structured Streaming query back from its last good batch."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    _leave_this_folder()
    if sys.stdout is not sys.__stdout__:  # a program that calls us and takes what is printed
        sys.exit(_run(words))
    output, errors = guard_streams()
    _, said = _part_words(words)
    output.stops = not said or said[0].startswith("-") or said[0] in _READING
    code = 0
    try:
        code = _run(words)
        # An answer that is not read to its end is none, but what was done is done.
        stop_at_once_on_interrupt(INTERRUPTED if output.stops else code)
        _flush()
    except SystemExit as stopped:
        if output.trouble is None:
            raise
        if stopped.code is None:
            code = READER_LEFT
        else:
            code = int(stopped.code)
    finally:
        output.finish()
        errors.finish()
    if output.trouble is not None:
        from lastgood.cli.failing import tell_trouble

        code = tell_trouble(output.trouble, code, is_stopped=output.stops)
    errors.finish()
    sys.exit(code)


def _part_words(words: list[str]) -> tuple[list[str], list[str]]:
    """What stands before the verb and lets it run, and the rest."""
    before = list(itertools.takewhile(lambda word: word == DEBUG, words))
    return before, words[len(before) :]


def _leave_this_folder() -> None:
    """Find no program, ours or the application's, in whatever folder we are called in."""
    places = os.environ.get("PATH", "").split(os.pathsep)
    if not all(map(os.path.isabs, places)):
        os.environ["PATH"] = os.pathsep.join(filter(os.path.isabs, places))


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _run(words: list[str]) -> int:
    before, arguments = _part_words(words)
    try:
        _redact(os.environ)
        result: Any = lastgood.main(words, prog_name="lastgood", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a traceback tells a person nothing
        from lastgood.cli.failing import answer

        verb = next(filter(VERBS.__contains__, arguments[:1]), "lastgood")
        return answer(error, verb, arguments, is_debugging=bool(before or os.environ.get(_DEBUG)))
    return result if isinstance(result, int) else 0


def _redact(environment: Mapping[str, str]) -> None:
    """Count as secret what the environment names beside what always is one."""
    asked = {name: environment.get(f"LASTGOOD_REDACT_{name.upper()}") for name in ("regex", "string_regex")}
    if not any(asked.values()):
        return
    from lastgood.errors import UsageError
    from lastgood.redaction import add_redaction

    for name, regex in asked.items():
        try:
            add_redaction(**{name: regex or None})
        except (re.error, ValueError) as error:
            expected = "a regular expression of Python that does not match everything"
            variable = f"LASTGOOD_REDACT_{name.upper()}"
            raise UsageError(f"{variable} cannot be understood", found=str(error), expected=expected) from error
