"""`lastgood demo`."""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Literal

import click

from lastgood.cli.once import OnceCommand
from lastgood.cli.output import format_option, make_console, make_styled, print_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from lastgood.demo import Demo, Scene
    from lastgood.supervise.events import Event

_COLOURS = {"exactly once": "green", "at least once": "yellow", "lossy": "red"}
_WIDTH_MAX = 110
_HEADINGS: dict[str, Literal["left", "right"]] = {
    "": "left",
    "partition": "left",
    "offsets": "left",
    "said beforehand": "right",
    "counted": "right",
}
_STRANGE = ("changed", "unknown")


@click.command(cls=OnceCommand)
@click.option("--scenes", default="a,b,c,d,e,f", show_default=True, metavar="LETTERS", help="Which are played.")
@click.option("--flights", type=click.IntRange(1_000, 336_776), default=100_000, show_default=True, help="How many.")
@click.option("--rate", type=click.IntRange(1), default=2_000, show_default=True, help="Flights a second, in scene a.")
@click.option("--kills", type=click.IntRange(1, 20), default=1, show_default=True, help="Of the driver, in scene a.")
@click.option("--seed", type=int, help="Repeat the random instants of an earlier demo.")
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), help="Work there, and leave it all there.")
@click.option("--events", is_flag=True, help="Show everything that happens, as `lastgood run` does.")
@click.option("--keep", is_flag=True, help="Leave broker and application running until Ctrl-C, to look at them.")
@format_option
def demo(
    *,
    scenes: str,
    flights: int,
    rate: int,
    kills: int,
    seed: int | None,
    folder: Path | None,
    events: bool,
    keep: bool,
    output_format: str,
) -> int:
    r"""Break the main job on real input in five ways, and count every record at the end.

    A real Kafka broker on this machine, the flights that left New York in 2013 as events, a PySpark application that
    appends them to a Delta table and knows nothing of lastgood.

    \b
    a  the driver is killed (kill -9) in the middle of a batch
    b  an orphan that is too large to ever finish; a limit that is set then does not help
    c  the checkpoint is deleted: back from its mirror; then without one, from the table's own columns
    d  the classic recipe: back to the offsets of CURRENT-3, at its price
    e  an outage longer than the retention: what is lost is told before it is accepted

    What a scene loses or doubles is said beforehand. In the end every flight is looked up in the table.

    \b
    lastgood demo                            all of it, 100,000 flights, in less than five minutes
    lastgood demo --scenes a --kills 3       the driver alone, three times
    lastgood demo --keep                     and have a look at topic, checkpoint and table

    Needs the extra 'demo' and Java 17. The first time, JVM parts (36 MB) are downloaded and Spark's classes archived,
    so that it starts faster (200 MB, in the user's cache): that takes two minutes more.

    Exit codes: 0 lost and doubled is exactly what was said; 1 anything else is; 79 it did not get that far.
    """
    from lastgood.demo import Script, parse_scenes
    from lastgood.demo import demo as operation

    if seed is None:
        seed = random.SystemRandom().randrange(2**32)
    script = Script(flights=flights, rate=rate, kills=kills, seed=seed, scenes=parse_scenes(scenes))
    if output_format == "json":
        shown = operation(
            script, tell=lambda event: print_json(event.to_json()), folder=folder, keep=_wait if keep else None
        )
        print_json(shown.to_json())
        return 0 if shown.is_as_said else 1
    out = make_console()
    out.print(make_styled(f"seed {seed}", style="dim"))
    with _open_screen(out, is_whole=events) as listen:
        shown = operation(script, tell=listen, folder=folder, keep=(lambda it: _look(it, out)) if keep else None)
    if not keep:
        _print_result(shown, out)
    return 0 if shown.is_as_said else 1


@contextlib.contextmanager
def _open_screen(out: Console, *, is_whole: bool) -> Iterator[Callable[[Event], None]]:
    """Shows each scene once it is over; on a terminal, the last line tells what is going on."""
    from lastgood.cli.timeline import open_timeline
    from lastgood.demo import Scene

    if is_whole:
        with open_timeline(out, live=True, also=_tell) as tell:

            def listen_to_all(event: Event) -> None:
                tell(event)
                if isinstance(event, Scene):
                    _print_scene(event, out)

            yield listen_to_all
        return
    status = None
    if out.is_terminal:
        status = out.status("starting")
    doing = ""

    def listen(event: Event) -> None:
        nonlocal doing
        if isinstance(event, Scene):
            _print_scene(event, out)
        doing, now = _describe_now(event, doing)
        if status is not None and now is not None:
            status.update(make_styled(now[: out.width - 4], style="dim"))
            status.start()

    try:
        yield listen
    finally:
        if status is not None:
            status.stop()


def _tell(event: Event) -> list[Text]:
    """What only the demo does, for the timeline."""
    from lastgood.demo import Killed, SceneStep

    match event:
        case SceneStep():
            return [make_styled(("demo", "cyan"), f"        {event.sentence}")]
        case Killed():
            if event.batch is None:
                where = "between two batches"
            else:
                where = f"while it runs batch {event.batch}"
            return [make_styled(("kill -9", "bold red"), f"     driver {event.pid}, {where}")]
        case _:
            return []


def _describe_now(event: Event, doing: str) -> tuple[str, str | None]:
    """What the demo is about, and what the last line says of it."""
    from lastgood.demo import Killed, SceneStep
    from lastgood.supervise import events

    match event:
        case SceneStep():
            return event.sentence, event.sentence
        case Killed():
            news = f"driver {event.pid} is killed"
        case events.Started():
            news = "the application starts"
        case events.Committed():
            news = f"batch {event.batch} is committed"
        case events.Ended() if event.failure is not None:
            news = event.error or "the application has ended"
        case events.Repaired():
            news = f"repaired: {event.goal}"
        case _:
            return doing, None
    return doing, f"{doing} · {news}" if doing else news


def _print_scene(scene: Scene, out: Console) -> None:
    """What was broken, what lastgood did about it, and what that costs."""
    from rich.panel import Panel
    from rich.table import Table

    seconds, colour = scene.seconds, _COLOURS.get(scene.guarantee, "red")
    lines = {
        "broken": make_styled(scene.broke),
        "lastgood": make_styled(scene.did),
        "guarantee": make_styled(scene.guarantee, style=colour),
        "seconds": make_styled(
            f"detected {seconds.detected:.1f} · restarted {seconds.restarted:.1f} · first new batch ",
            (f"{seconds.first_batch:.1f}", "bold"),
            " ",
            (seconds.since, "dim"),
        ),
        "records": make_styled(
            f"read again {scene.reread:,} · lost {scene.lost_count:,} · doubled {scene.doubled_count:,}"
        ),
        **{" " * number: make_styled(line) for number, line in enumerate(scene.beside, start=1)},
    }
    if not out.is_terminal:
        out.print()
        out.print(f"{scene.letter}  {scene.title}")
        for label, line in lines.items():
            out.print(make_styled(f"   {label:<9}  ").append_text(line))
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for label, line in lines.items():
        grid.add_row(label, line)
    title = make_styled((scene.letter, "bold"), "  ", (scene.title, "bold"))
    width = min(_WIDTH_MAX, out.width)
    out.print(Panel(grid, title=title, title_align="left", border_style=colour, width=width), soft_wrap=False)


def _look(shown: Demo, out: Console) -> None:
    _print_result(shown, out)
    out.print()
    out.print("Still running, until Ctrl-C:")
    for label, what in {
        "broker": shown.bootstrap,
        "topic": "flights",
        "checkpoint": shown.folder / "checkpoint",
        "table": shown.folder / "table",
    }.items():
        out.print(f"  {label:<11} {what}")
    _wait(shown)


def _wait(_shown: Demo) -> None:
    """Until Ctrl-C or SIGTERM."""
    asked = threading.Event()

    def stop(_signum: int, _frame: FrameType | None) -> None:
        asked.set()

    before = {signum: signal.signal(signum, stop) for signum in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not asked.wait(1):
            pass
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def _print_result(shown: Demo, out: Console) -> None:
    """What was said and what was counted, for each range; then in one line."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    tally = shown.tally
    out.print()
    compared = list(tally.compare())
    if compared:
        table = Table(box=SIMPLE_HEAD if out.is_terminal else None, pad_edge=False)
        for heading, justify in _HEADINGS.items():
            table.add_column(heading, justify=justify)
        for each in compared:
            where = f"flights/{each.partition}", f"[{each.start:,}, {each.end:,})"
            colour = "green" if each.said == each.counted else "bold red"
            counted = make_styled(f"{each.counted:,}", style=colour)
            table.add_row(each.kind, where[0], where[1], f"{each.said:,}", counted)
        out.print(table)
        out.print()
    audit = tally.audit
    if shown.is_as_said:
        colour, as_said = ("bold green", "as said")
    else:
        colour, as_said = ("bold red", "which is not what was said")
    strange = "".join(
        f", {what} {each.total:,}" for what, each in audit.differences() if what in _STRANGE and each.total
    )
    told = f"lost {audit.lost.total:,}, duplicated {audit.duplicated.total:,}{strange} of {tally.sent:,} flights"
    how = f"{audit.source_records:,} records, {audit.sink_rows:,} rows in the table, compared by flight id"
    took = f"all of it took {shown.seconds:.0f} s"
    out.print(make_styled((f"{told}, {as_said}", colour), " ", (f"({how}; {took})", "dim")), soft_wrap=False)
