"""The timeline of a supervised command: what happened, and why, as it happens."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import singledispatch

from rich.console import Console
from rich.markup import escape
from rich.status import Status

from lastgood.supervise import events

Listener = Callable[[events.Event], None]


@contextlib.contextmanager
def timeline(
    console: Console, *, live: bool, also: Callable[[events.Event], list[str]] = lambda _: []
) -> Iterator[Listener]:
    """A listener that prints events as lines; on a terminal, the last line shows what is going on now.

    Args:
        console: Where to.
        live: Whether that last line is wanted; it must not be where the command's own output is shown.
        also: Tells what events mean that are not the supervisor's own.
    """
    status = console.status("starting") if live and console.is_terminal else None

    def listen(event: events.Event) -> None:
        for line in _lines(event, _tell(event) or also(event)):
            console.print(line)
        now = _now(event)
        if status is not None and now is not None:
            _show(status, now)

    try:
        yield listen
    finally:
        if status is not None:
            status.stop()


def _lines(event: events.Event, told: list[str]) -> list[str]:
    if not told:
        return []
    clock = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
    first, *rest = told
    return [f"[dim]{clock}[/]  {first}", *(f"          {line}" for line in rest)]


def _show(status: Status, text: str) -> None:
    status.update(f"[dim]{escape(text)}[/]")
    status.start()


def _now(event: events.Event) -> str | None:
    match event:
        case events.Started():
            return "running"
        case events.Committed():
            return f"running, batch {event.batch} committed"
        case events.Restarting():
            return f"restarting in {event.delay_seconds:g} s"
        case events.Waiting():
            return f"waiting: {event.because}"
        case _:
            return None


@singledispatch
def _tell(event: events.Event) -> list[str]:
    del event
    return []


@_tell.register
def _(event: events.Started) -> list[str]:
    if event.run > 1:
        return [f"[bold]started[/]     again, as process {event.pid}"]
    using = ", ".join(filter(None, (event.python, event.java)))
    return [
        f"[bold]started[/]     {escape(shlex.join(event.command))}",
        f"            [dim]process {event.pid}{', ' + using if using else ''}[/]",
        f"            [dim]its output: {escape(event.log)}[/]",
    ]


@_tell.register
def _(event: events.Recovered) -> list[str]:
    how = "run again with its recorded ranges" if event.rerun else "a new plan"
    return [f"[bold green]recovered[/]   batch {event.batch} committed ({how}), {event.seconds:.1f} s after the end"]


@_tell.register
def _(event: events.Ended) -> list[str]:
    if event.exit_code == 0:
        return [f"[bold green]ended[/]       exit code 0 after {event.seconds:.1f} s"]
    how = f"killed by {event.signal}" if event.signal else f"exit code {event.exit_code}"
    told = [f"[bold red]ended[/]       {how} after {event.seconds:.1f} s"]
    told += [
        f"            [dim]{escape(checkpoint)}: {_position(position)}[/]"
        for checkpoint, position in event.positions.items()
    ]
    if event.error:
        told.append(f"            last error: {escape(event.error)}")
    return told


def _position(position: dict[str, int | None]) -> str:
    planned, committed = position["planned"], position["committed"]
    if planned is None:
        return "no batch planned yet"
    if committed is None:
        return f"batch {planned} planned, none committed"
    if planned > committed:
        return f"batch {committed} committed, batch {planned} planned and not committed"
    return f"batch {committed} committed, none in flight"


@_tell.register
def _(event: events.Restarting) -> list[str]:
    when = f"in {event.delay_seconds:g} s" if event.delay_seconds else "at once"
    if not event.is_counted:
        return [f"[bold yellow]restarting[/]  {when}; what was away may be back, so this is not counted"]
    return [f"[bold yellow]restarting[/]  {when}, attempt {event.attempt} of {event.of} since the last progress"]


@_tell.register
def _(event: events.Diagnosed) -> list[str]:
    return [f"[bold]diagnosed[/]   {escape(event.because)} [dim]{event.seconds:.2f} s[/]"]


@_tell.register
def _(event: events.Repaired) -> list[str]:
    word = event.guarantee.replace("_", " ")
    colour = {"exactly once": "green", "at least once": "yellow"}.get(word, "red")
    return [
        f"[bold yellow]repaired[/]    {event.goal}: [{colour}]{word}[/] [dim]{event.seconds:.2f} s[/]",
        f"            {escape(event.because)}",
        *(f"            {escape(line)}" for line in event.price),
        f"            [dim]every file that was touched is kept in {escape(event.backup)}[/]",
        f"            [dim]take it back with: {escape(event.undo)}[/]",
    ]


@_tell.register
def _(event: events.Waiting) -> list[str]:
    return [f"[bold yellow]waiting[/]     {escape(event.because)}; looked at again in {event.delay_seconds:g} s"]


@_tell.register
def _(event: events.Stalled) -> list[str]:
    return [f"[bold red]stalled[/]     {escape(event.because)}; the command is ended"]


@_tell.register
def _(event: events.Called) -> list[str]:
    told = [f"[bold red]called[/]      {escape(event.because)}"]
    if event.file is not None:
        told.append(f"            the plan is saved: {escape(event.file)}")
    return told


@_tell.register
def _(event: events.Promised) -> list[str]:
    if event.state == "kept":
        return [f"[bold green]promise[/]     batch {event.batch} did what was said"]
    said = "did something else than was said" if event.state == "broken" else "was not seen whole"
    colour = "bold red" if event.state == "broken" else "yellow"
    return [
        f"[{colour}]promise[/]     batch {event.batch} {said}",
        *(f"            {escape(each)}" for each in event.because),
    ]


@_tell.register
def _(event: events.GaveUp) -> list[str]:
    return [f"[bold red]gave up[/]     after {event.attempts} attempts without progress"]


@_tell.register
def _(event: events.Stopping) -> list[str]:
    return [f"[bold]stopping[/]    {event.signal} passed on, killed after {event.grace_seconds:g} s (again: at once)"]


@_tell.register
def _(event: events.Noticed) -> list[str]:
    return [f"[yellow]notice[/]      {escape(event.sentence)} [dim]{event.condition}[/]"]
