"""How far a verb has come that reads a long log; told on a terminal only."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lastgood.cli.output import make_console, make_styled

if TYPE_CHECKING:
    from lastgood.observe.walk import Progress


@contextlib.contextmanager
def show_batches_read() -> Iterator[Progress | None]:
    """Gives what to tell of the batches that have been read; None where nobody looks."""
    out = make_console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    with out.status("looking") as shown:
        yield lambda done, total: shown.update(make_styled(f"{done:,} of {total:,} batches read"))


@contextlib.contextmanager
def show_stages() -> Iterator[Callable[[str], None]]:
    """Gives what to tell of what takes time; it is shown on a terminal only."""
    out = make_console(stderr=True)
    if not out.is_terminal:
        yield lambda _: None
        return
    with out.status("looking") as shown:
        yield lambda doing: shown.update(make_styled(doing))
