"""Commands that refuse an option which says one thing and was given twice: the last would count without a word."""

from __future__ import annotations

import click

_COMMAND = "lastgood.command"
_LAST_COUNTS = frozenset({"output_format"})
"""How an answer looks: whoever says it again wants it otherwise."""


class OnceCommand(click.Command):
    """A command of which each option is given once, but for those that are repeatable."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See `click.Command`.

        Raises:
            click.BadParameter: an option that is not repeatable was given more than once.
        """
        if ctx.resilient_parsing:  # a shell that completes words has no business with errors
            return super().parse_args(ctx, args)
        _, _, given = self.make_parser(ctx).parse_args(list(args))
        seen: set[str | None] = set()
        for each in given:
            is_single = isinstance(each, click.Option) and not (each.multiple or each.is_flag or each.count)
            if is_single and each.name not in _LAST_COUNTS and each.name in seen:
                more = ""
                if each.name == "kafka":
                    more = ": servers of one cluster stand in it with commas between them"
                raise click.BadParameter(f"it is given more than once, and says one thing{more}", ctx, each)
            seen.add(each.name)
        return super().parse_args(ctx, args)


class CommandTaking(OnceCommand):
    """Takes what follows `--` as the command of an application, whatever its own options look like."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See `click.Command`."""
        if "--" in args:
            cut = args.index("--")
            ctx.meta[_COMMAND] = tuple(args[cut + 1 :])
            args = args[:cut]
        return super().parse_args(ctx, args)


def take_command(ctx: click.Context) -> tuple[str, ...] | None:
    """The command that followed `--`; None if there was none."""
    return ctx.meta.get(_COMMAND)


class OnceGroup(click.Group):
    """A group of such commands."""

    command_class = OnceCommand
