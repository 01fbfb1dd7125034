"""The timeline of a supervised command: what happened, and why, as it happens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import singledispatch

from rich.console import Console
from rich.status import Status
from rich.text import Text

from lastgood.cli.output import make_styled
from lastgood.supervise import events
from lastgood.visible import join_words, take_first_lines

Listener = Callable[[events.Event], None]


@contextlib.contextmanager
def open_timeline(
    console: Console, *, live: bool, also: Callable[[events.Event], list[Text]] = lambda _: []
) -> Iterator[Listener]:
    """A listener that prints events as lines; on a terminal, the last line shows what is going on now.

    Args:
        console: Where to.
        live: Whether that last line is wanted; it must not be where the command's own output is shown.
        also: Tells what events mean that are not the supervisor's own.
    """
    status = None
    if live and console.is_terminal:
        status = console.status("starting")

    def listen(event: events.Event) -> None:
        for line in _format_lines(event, _tell(event) or also(event)):
            console.print(line)
        now = _describe_now(event)
        if status is not None and now is not None:
            _show(status, now)

    try:
        yield listen
    finally:
        if status is not None:
            status.stop()


def _format_lines(event: events.Event, told: list[Text]) -> list[Text]:
    if not told:
        return []
    clock = datetime.fromtimestamp(event.at).astimezone().strftime("%H:%M:%S")
    first, *rest = told
    return [
        make_styled((clock, "dim"), "  ").append_text(first),
        *(make_styled(" " * 10).append_text(line) for line in rest),
    ]


def _show(status: Status, text: str) -> None:
    status.update(make_styled(text, style="dim"))
    status.start()


def _describe_now(event: events.Event) -> str | None:
    match event:
        case events.Started():
            return "running"
        case events.Committed():
            return f"running, batch {event.batch} committed"
        case events.Restarting():
            return f"restarting in {event.delay_seconds:g} s"
        case events.Repairing():
            return event.doing
        case events.Waiting():
            return f"waiting: {event.because}"
        case _:
            return None


def _format_more(told: str, style: str = "") -> Text:
    """A further line of what happened, below the first."""
    return make_styled(" " * 12, (told, style))


@singledispatch
def _tell(event: events.Event) -> list[Text]:
    del event
    return []


@_tell.register
def _(event: events.Started) -> list[Text]:
    if event.waited_seconds is not None:
        waited = f"at once, as process {event.pid}, which stood by for {event.waited_seconds:,.0f} s"
        return [make_styled(("started", "bold"), f"     {waited}")]
    if event.run > 1:
        return [make_styled(("started", "bold"), f"     again, as process {event.pid}")]
    using = ", ".join(filter(None, (event.python, event.java)))
    return [
        make_styled(("started", "bold"), f"     {join_words(event.command)}"),
        _format_more(f"process {event.pid}{', ' + using if using else ''}", "dim"),
        _format_more(f"its output: {event.log}", "dim"),
    ]


@_tell.register
def _(event: events.StandingBy) -> list[Text]:
    return [
        make_styled(("standby", "bold"), f"     process {event.pid} waits, warm after {event.seconds:.1f} s"),
        _format_more(f"it holds {event.memory_bytes / 1e6:,.0f} MB, {event.cores} cores of {event.master}", "dim"),
    ]


@_tell.register
def _(event: events.Recovered) -> list[Text]:
    how = "run again with its recorded ranges" if event.rerun else "a new plan"
    told = f"   batch {event.batch} committed ({how}), {event.seconds:.1f} s after the end"
    return [make_styled(("recovered", "bold green"), told)]


@_tell.register
def _(event: events.QueryRestarted) -> list[Text]:
    told = [make_styled(("restarted", "bold"), f"   {event.checkpoint}, in the driver that goes on")]
    if event.error:
        told.append(_format_more(f"it has failed: {event.error}"))
    return told


@_tell.register
def _(event: events.Ended) -> list[Text]:
    if event.exit_code == 0:
        return [make_styled(("ended", "bold green"), f"       exit code 0 after {event.seconds:.1f} s")]
    if event.signal:
        how = f"killed by {event.signal}"
    else:
        how = f"exit code {event.exit_code}"
    told = [make_styled(("ended", "bold red"), f"       {how} after {event.seconds:.1f} s")]
    told += [
        _format_more(f"{checkpoint}: {_describe_position(position)}", "dim")
        for checkpoint, position in event.positions.items()
    ]
    if event.error:
        told.append(_format_more(f"last error: {event.error}"))
    return told


def _describe_position(position: dict[str, int | None]) -> str:
    planned, committed = position["planned"], position["committed"]
    if planned is None:
        return "no batch planned yet"
    if committed is None:
        return f"batch {planned} planned, none committed"
    if planned > committed:
        return f"batch {committed} committed, batch {planned} planned and not committed"
    return f"batch {committed} committed, none in flight"


@_tell.register
def _(event: events.Restarting) -> list[Text]:
    if event.delay_seconds:
        when = f"in {event.delay_seconds:g} s"
    else:
        when = "at once"
    if not event.is_counted:
        said = "what was away may be back, so this is not counted"
        return [make_styled(("restarting", "bold yellow"), f"  {when}; {said}")]
    said = f"attempt {event.attempt} of {event.of} since the last progress"
    return [make_styled(("restarting", "bold yellow"), f"  {when}, {said}")]


@_tell.register
def _(event: events.Diagnosed) -> list[Text]:
    told = [make_styled(("diagnosed", "bold"), f"   {event.because} ", (f"{event.seconds:.2f} s", "dim"))]
    if event.guarantee is not None:
        told.append(_format_more(event.guarantee.replace("_", " ")))
    return told + [_format_more(f"rests on {ground}", "dim") for ground in event.rests_on]


@_tell.register
def _(event: events.Repaired) -> list[Text]:
    word = event.guarantee.replace("_", " ")
    colour = {"exactly once": "green", "at least once": "yellow"}.get(word, "red")
    return [
        make_styled(
            ("repaired", "bold yellow"),
            f"    {event.goal}: ",
            (word, colour),
            " ",
            (f"{event.seconds:.2f} s", "dim"),
        ),
        _format_more(event.because),
        *map(_format_more, take_first_lines(event.price)),
        _format_more(f"every file that was touched is kept in {event.backup}", "dim"),
        _format_more(f"take it back with: {event.undo}", "dim"),
    ]


@_tell.register
def _(event: events.Waiting) -> list[Text]:
    told = f"     {event.because}; looked at again in {event.delay_seconds:g} s"
    return [make_styled(("waiting", "bold yellow"), told)]


@_tell.register
def _(event: events.Stalled) -> list[Text]:
    return [make_styled(("stalled", "bold red"), f"     {event.because}; the command is ended")]


@_tell.register
def _(event: events.Called) -> list[Text]:
    told = [make_styled(("called", "bold red"), f"      {event.because}")]
    if event.file is not None:
        told.append(_format_more(f"the plan is saved: {event.file}"))
    return told


@_tell.register
def _(event: events.PromiseChecked) -> list[Text]:
    if event.state == "kept":
        return [make_styled(("promise", "bold green"), f"     batch {event.batch} did what was said")]
    said = "did something else than was said" if event.state == "broken" else "was not seen whole"
    colour = "bold red" if event.state == "broken" else "yellow"
    return [
        make_styled(("promise", colour), f"     batch {event.batch} {said}"),
        *map(_format_more, take_first_lines(event.because)),
    ]


@_tell.register
def _(event: events.GaveUp) -> list[Text]:
    return [make_styled(("gave up", "bold red"), f"     after {event.attempts} attempts without progress")]


@_tell.register
def _(event: events.Stopping) -> list[Text]:
    told = f"    {event.signal} passed on, killed after {event.grace_seconds:g} s (again: at once)"
    return [make_styled(("stopping", "bold"), told)]


@_tell.register
def _(event: events.Noticed) -> list[Text]:
    return [make_styled(("notice", "yellow"), f"      {event.sentence} ", (event.condition, "dim"))]
