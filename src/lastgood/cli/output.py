"""How answers reach a person or a program: text or JSON, colours only on a terminal."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lastgood.errors import LastgoodError
from lastgood.visible import format_json_line, make_visible, take_excerpt

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_F = TypeVar("_F", bound=Callable[..., Any])

format_option: Callable[[_F], _F] = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or JSON for programs.",
)


def choose_format(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The format asked for, by an option or its variable, also where the arguments could not be parsed as a whole."""
    ours = list(arguments)
    if "--" in ours:  # what follows belongs to the supervised command
        ours = ours[: ours.index("--")]
    given = [word.removeprefix("--format=") for word in ours if word.startswith("--format=")]
    given += [value for name, value in itertools.pairwise(ours) if name == "--format"]
    variables = ("_".join(("LASTGOOD", *ours[:words], "FORMAT")).upper() for words in (1, 2))
    given = given or [environment.get(variable, "") for variable in variables]
    return "json" if "json" in given else "text"


def make_console(*, stderr: bool = False) -> Console:
    """A console on standard output or error; plain text unless that is a terminal.

    What is printed on it is text: no markup or emoji is read out of a name, and control characters are shown.
    """
    from lastgood.cli.terminal import Terminal

    stream = sys.stderr if stderr else sys.stdout
    # Without a terminal there is no edge to wrap at: a table is as wide as what it holds.
    width = None if stream.isatty() else 1000
    return Terminal(stderr=stderr, highlight=False, soft_wrap=True, width=width, markup=False, emoji=False)


def make_styled(*parts: str | tuple[str, str], style: str = "") -> Text:
    """One line of parts, each a text or a text with its style; what others wrote in it is shown as text."""
    from rich.text import Text

    line = Text(style=style)
    for part in parts:
        if isinstance(part, str):
            text, own_style = (part, None)
        else:
            text, own_style = part
        line.append(make_visible(text), own_style)
    return line


def print_json(value: Any) -> None:
    """One JSON object on one line of standard output."""
    sys.stdout.write(format_json_line(value) + "\n")
    sys.stdout.flush()


def print_error(error: LastgoodError, output_format: str) -> None:
    """The one answer to a call that was refused or failed."""
    if output_format == "json":
        print_json({"error": error.to_json()})
        return
    out = make_console(stderr=True)
    out.print(make_styled(("error", "bold red"), f" [{error.condition}] ", error.sentence))
    print_facts(error, out)


def print_facts(error: LastgoodError, out: Console) -> None:
    """What is known of an error beyond its sentence, and what can be done about it."""
    for label, fact in error.facts().items():
        print_fact(out, f"  {label:<9} ", fact)
    others = take_excerpt(error.alternatives)
    for other in others.shown:
        out.print(make_styled((f"  {'or':<9} ", "dim"), str(other)))
        if other.command is not None:
            out.print(make_styled(f"  {'':<9} {other.command}", style="dim"))
    for line in others.more:
        out.print(make_styled(f"  {'':<9} {line}", style="dim"))


def print_fact(out: Console, label: str, fact: str) -> None:
    """A fact behind its label; of one with several lines each stands below the first."""
    first, *others = fact.splitlines() or [""]
    out.print(make_styled((label, "dim"), first))
    for other in others:
        out.print(make_styled(" " * len(label), other))


def print_nothing_changed() -> None:
    """How every reading verb ends, for people."""
    make_console().print("Nothing has been changed.")
