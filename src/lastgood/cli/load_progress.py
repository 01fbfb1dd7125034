"""How far a load has come, while it goes on: a bar on a terminal, a line in a notebook."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from lastgood.cli.output import make_console
from lastgood.cli.times import format_span
from lastgood.visible import make_visible

if TYPE_CHECKING:
    from lastgood.supervise.load_driver import LoadProgress

_RATE_SECONDS = 3600.0
"""Of so long the rate is shown: of chunks, each of which may take minutes."""
_FRACTION_BELOW = 10
"""A rate below it is told by its first two digits."""
LoadTellers: TypeAlias = "tuple[Callable[[LoadProgress], None], Callable[[str], None]]"
"""What is told of each chunk, and of what else takes time."""


@contextlib.contextmanager
def show_load() -> Iterator[LoadTellers]:
    """Gives what to tell; it is shown where a person looks: in a notebook, or on a terminal."""
    display = _find_display()
    with show_load_bar() if display is None else _show_in_notebook(display) as tellers:
        yield tellers


@contextlib.contextmanager
def show_load_bar() -> Iterator[LoadTellers]:
    """Gives what to tell; a bar on a terminal shows it, else nothing does."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    out = make_console(stderr=True)
    if not out.is_terminal:
        yield lambda _: None, lambda _: None
        return
    of_rows = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    of_bytes = (*of_rows[:2], DownloadColumn(), TransferSpeedColumn(), of_rows[3])
    shown = Progress(
        *of_bytes,
        console=out,
        transient=True,
        speed_estimate_period=_RATE_SECONDS,
        redirect_stdout=False,  # what the program of a session prints goes where it has sent it
        redirect_stderr=False,
    )
    with shown:
        task = shown.add_task("looking", total=None)

        def tell(progress: LoadProgress) -> None:
            said = f"chunk {progress.chunks + 1}, {progress.rows:,} rows"
            if progress.unit != "bytes":
                shown.columns = of_rows
            if not progress.chunks:  # what was loaded before counts for no rate
                shown.reset(task, completed=progress.done, total=progress.size)
            shown.update(task, description=said, completed=progress.done, total=progress.size)

        yield tell, lambda doing: shown.update(task, description=doing)


@contextlib.contextmanager
def _show_in_notebook(display: Callable[..., Any]) -> Iterator[LoadTellers]:
    """One line below the cell, which is written again and again."""
    line = _NotebookLine(display)
    line.write("looking")
    yield line.tell, line.write
    if not line.is_told:
        line.write("already loaded")


class _NotebookLine:
    """Below the cell in which it was made. A front end that does not take it ends no load."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self.is_told = False
        self._display = display
        self._handle: Any = None

    def tell(self, progress: LoadProgress) -> None:
        self.is_told = True
        self.write(describe_load(progress))

    def write(self, line: str) -> None:
        shown = {"text/plain": make_visible(line)}
        with contextlib.suppress(Exception):
            if self._handle is None:
                self._handle = self._display(shown, raw=True, display_id=True)
            else:
                self._handle.update(shown, raw=True)


def _find_display() -> Callable[..., Any] | None:
    """What shows something below the cell of a notebook that runs now; None: this is none."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display

    found: Callable[..., Any] = display
    return found


def describe_load(progress: LoadProgress) -> str:
    """Where it stands, on one line."""
    part = min(100, 100 * progress.done // max(1, progress.size))
    done, size = (format_amount(each, progress.unit) for each in (progress.done, progress.size))
    rate = f", {format_amount(progress.per_second, progress.unit)}/s" if progress.per_second else ""
    left = f", {format_span(progress.seconds_left)} left" if progress.seconds_left is not None else ""
    return f"{part} %: {done} of {size}, {progress.rows:,} rows in {progress.chunks:,} chunks{rate}{left}"


def format_amount(amount: float, unit: str) -> str:
    """So much of a load: bytes in a unit that fits, else the number with what it counts."""
    from rich.filesize import decimal

    if unit == "bytes":
        return decimal(int(amount))
    form = ".2g" if isinstance(amount, float) and amount < _FRACTION_BELOW else ",.0f"
    return f"{amount:{form}} {unit}"
