"""What was said to the verb that runs, so that the command which it prints says it again."""

from __future__ import annotations

import click
from click.core import ParameterSource


def list_options_said(*but: str) -> tuple[str, ...]:
    """Every option that was given, by the command line or by its variable, as words of a command line without secrets.

    Args:
        but: Names of options that are left out, such as `--data`.
    """
    from lastgood.redaction import hide_login, redact

    context = click.get_current_context()
    words: list[str] = []
    for option in context.command.params:
        if not isinstance(option, click.Option) or option.name is None:
            continue
        name, value = max(option.opts, key=len), context.params.get(option.name)
        is_said = context.get_parameter_source(option.name) not in (ParameterSource.DEFAULT, None)
        if not is_said or name in but or name == "--format":
            continue
        if option.is_flag:
            if value:
                words += [name]
            continue
        if option.multiple:
            values = value or ()
        else:
            values = (value,)
        for each in values:
            words += [name, redact(hide_login(str(each)))]
    return tuple(words)


def list_names_typed() -> tuple[str, ...]:
    """The names of the options that stand on the command line; what a variable says may be meant for another call."""
    context = click.get_current_context()
    names = []
    for option in context.command.params:
        if not isinstance(option, click.Option) or option.name is None:
            continue
        source = context.get_parameter_source(option.name)
        if source is ParameterSource.COMMANDLINE:
            names.append(max(option.opts, key=len))
    return tuple(names)
