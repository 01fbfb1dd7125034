"""`lastgood completion`: the script that makes a shell complete verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lastgood.cli.once import OnceCommand


@click.command(cls=OnceCommand)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    r"""Print the completion script for SHELL.

    \b
    bash   eval "$(lastgood completion bash)"     in ~/.bashrc
    zsh    eval "$(lastgood completion zsh)"      in ~/.zshrc
    fish   lastgood completion fish | source      in config.fish
    """
    found = get_completion_class(shell)
    if found is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(found(ctx.find_root().command, {}, "lastgood", "_LASTGOOD_COMPLETE").source())
