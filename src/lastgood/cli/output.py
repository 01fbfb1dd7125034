"""How answers reach a person or a program: text or JSON, colours only on a terminal."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from lastgood.errors import LastgoodError

if TYPE_CHECKING:
    from rich.console import Console

_F = TypeVar("_F", bound=Callable[..., Any])

format_option: Callable[[_F], _F] = click.option(
    "--format",
    "output_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Text for people, or JSON for programs.",
)


def chosen_format(arguments: Sequence[str], environment: Mapping[str, str]) -> str:
    """The format asked for, by an option or its variable, also where the arguments could not be parsed as a whole."""
    ours = list(arguments)
    if "--" in ours:  # what follows belongs to the supervised command
        ours = ours[: ours.index("--")]
    given = [word.removeprefix("--format=") for word in ours if word.startswith("--format=")]
    given += [value for name, value in itertools.pairwise(ours) if name == "--format"]
    variables = ("_".join(("LASTGOOD", *ours[:words], "FORMAT")).upper() for words in (1, 2))
    given = given or [environment.get(variable, "") for variable in variables]
    return "json" if "json" in given else "text"


def console(*, stderr: bool = False) -> Console:
    """A console on standard output or error; plain text unless that is a terminal."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    # Without a terminal there is no edge to wrap at: a table is as wide as what it holds.
    return Console(stderr=stderr, highlight=False, soft_wrap=True, width=None if stream.isatty() else 1000)


def print_json(value: Any) -> None:
    """One JSON object on one line of standard output."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_error(error: LastgoodError, output_format: str) -> None:
    """The one answer to a call that was refused or failed."""
    if output_format == "json":
        print_json({"error": error.to_json()})
        return
    from rich.text import Text

    out = console(stderr=True)
    out.print(Text.assemble(("error", "bold red"), f" [{error.condition}] ", error.sentence))
    for label, fact in error.facts().items():
        out.print(Text.assemble((f"  {label:<9} ", "dim"), fact))


def nothing_changed() -> None:
    """How every reading verb ends, for people."""
    console().print("Nothing has been changed.")
