"""`lastgood explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from lastgood.diagnosis.catalogue import Topic

_COLOURS = {"error": "bold red", "warning": "yellow", "info": "cyan"}
_RETRY = {
    "never": "never: time will not mend it",
    "later": "later: the same command may work in a while",
    "after_change": "after a change: once what the error names under next is done",
}
_WIDTH = 100


def _complete_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    del context, parameter
    from lastgood.diagnosis.catalogue import list_names

    wanted = incomplete.upper().replace("-", "_")
    return [CompletionItem(name) for name in list_names() if name.startswith(wanted)]


@click.command(cls=OnceCommand)
@click.argument("condition", required=False, shell_complete=_complete_names)
@format_option
def explain(condition: str | None, *, output_format: str) -> int:
    r"""Tell the story behind CONDITION, the name of a finding or an error; without it, list all of them by theme.

    How it comes about, what Spark makes of it, and what to do.

    \b
    lastgood explain ORPHAN_BATCH
    lastgood explain checkpoint_missing --format json
    lastgood explain

    Exit codes: 0; 2 there is no such condition.
    """
    from lastgood.operations.explain import explain as operation
    from lastgood.operations.explain import list_conditions_by_theme

    if condition is not None:
        topic = operation(condition)
        if output_format == "json":
            print_json(topic.to_json())
        else:
            _print_topic(topic, make_console())
        return 0
    themes = list_conditions_by_theme()
    if output_format == "json":
        print_json({"conditions": [topic.to_json() for found in themes.values() for topic in found]})
    else:
        _print_list(themes, make_console())
    return 0


def _print_topic(topic: Topic, out: Console) -> None:
    import textwrap

    if topic.severity is None:
        severity = ""
    else:
        severity = topic.severity.name.lower()
    out.print(make_styled((topic.name, "bold"), "  ", (severity or "error", _COLOURS[severity or "error"])))
    out.print(make_styled(f"{topic.title[:1].upper()}{topic.title[1:]}."))
    for paragraph in topic.story.split("\n\n") if topic.story else ():
        out.print()
        for line in textwrap.wrap(" ".join(paragraph.split()), _WIDTH, break_on_hyphens=False):
            out.print(line)
    if topic.exit_code is not None and topic.retry is not None:
        out.print()
        out.print(make_styled(("As an error  ", "dim"), f"exit code {topic.exit_code}"))
        out.print(make_styled(("Try again    ", "dim"), _RETRY[topic.retry.value]))


def _print_list(themes: dict[str, tuple[Topic, ...]], out: Console) -> None:
    width = max(len(topic.name) for found in themes.values() for topic in found)
    for theme, found in themes.items():
        out.print(make_styled(theme, style="bold"))
        for topic in found:
            out.print(make_styled(f"  {topic.name:<{width}}  ", (topic.title, "dim")))
        out.print()
    out.print("Tell the story of one with: lastgood explain CONDITION")
