"""The one clear answer to a call that was refused or has failed, and its exit code.

Imported when that has happened: a call that succeeds needs nothing of it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import click

from lastgood.cli.interrupts import INTERRUPTED, is_interrupted
from lastgood.cli.output import choose_format, print_error
from lastgood.cli.streams import LEFT
from lastgood.errors import LastgoodError, NoSpaceError, StorageError, UsageError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def answer(error: Exception, verb: str, arguments: Sequence[str], *, is_debugging: bool) -> int:
    """Say what has ended a call; gives its exit code.

    Args:
        error: What it was.
        verb: The verb that was called.
        arguments: What was typed, beginning with the verb.
        is_debugging: Whether the traceback is shown as well.
    """
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
        return 2
    if isinstance(error, click.ClickException):
        told: LastgoodError = _make_usage_error(error)
    elif is_interrupted() and not isinstance(error, LastgoodError):
        return INTERRUPTED
    else:
        told = _tell(error, verb, is_debugging=is_debugging)
    print_error(told, choose_format(arguments, os.environ))
    return INTERRUPTED if is_interrupted() else told.exit_code


def tell_trouble(trouble: OSError, code: int, *, is_stopped: bool) -> int:
    """Say that an answer was not written, but where its reader has left; gives the exit code."""
    if trouble.errno in LEFT:
        return code
    kind = NoSpaceError if trouble.errno in _FULL else StorageError
    told = kind(
        "the output cannot be written",
        subject="standard output",
        found=trouble.strerror,
        effect="nothing was changed" if is_stopped else f"the command went on to its end, with exit code {code}",
    )
    print_error(told, "text")
    return told.exit_code if is_stopped else code


def _tell(error: Exception, verb: str, *, is_debugging: bool) -> LastgoodError:
    """An error of ours as it is; of any other one, where to report it: a traceback tells a person nothing."""
    if isinstance(error, LastgoodError) and not is_debugging:
        return error
    from lastgood.cli.bug import make_bug_error, show_traceback

    if is_debugging:
        show_traceback(error)
    if isinstance(error, LastgoodError):
        return error
    return make_bug_error(error, verb)


def _make_usage_error(error: click.ClickException) -> UsageError:
    context = error.ctx if isinstance(error, click.UsageError) else None
    sentence = error.format_message().rstrip(".")
    return UsageError(
        sentence[:1].lower() + sentence[1:], next=f"{context.command_path} --help" if context else "lastgood --help"
    )
