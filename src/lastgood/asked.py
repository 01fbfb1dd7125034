"""Commands of lastgood that lastgood prints: about the same query, and with all that was said to the verb that prints.

What was said beside the target is evidence: a command without it would look at less, and promise something else. So no
command about a query is put together elsewhere. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from lastgood.errors import format_command_line
from lastgood.frozen import dataclass

LOOKING = frozenset(("status", "diagnose", "inspect", "offsets", "plan", "rebuild", "recover", "report"))
"""Verbs that take all options of the evidence."""
PREDICTING = frozenset(("diagnose", "plan", "rebuild", "recover"))
"""Verbs that are told which Spark will start, and how its Kafka source is set."""
PAYING = frozenset(("plan", "rebuild", "recover"))
"""Verbs that are told what it may cost."""
FORESEEING = frozenset(("status", "diagnose"))
"""Verbs that are told how long the query may be down."""
ALLOWED = frozenset(("rebuild", "recover"))
"""Verbs that take another configuration than `lastgood.toml` here."""
BY_ID = frozenset(("report", "undo"))
"""Verbs of a recovery or an incident; the query is their `--checkpoint`."""
COMPARED = frozenset(("--kafka", "--kafka-config", "--sink", "--topic-is-the-same"))
"""What `verify --data` takes of the evidence."""
NAMED = {
    "apply": frozenset(("--kafka", "--kafka-config", "--sink", "--txn-app-id")),
    "undo": frozenset(("--sink", "--txn-app-id")),
}
"""What `apply` and `undo` take of it: what nobody has named on this machine, no plan of another one may touch."""

DEAD = "--driver-is-dead"
"""What a person says who has seen it; a command that is printed with it says to look first."""

VIA_APPLICATION = frozenset(("--via", "--start-file", "--start-form", "--start-key", "--takes-any-number"))
"""How `--goal fresh` is told to let the application's own configuration say where it starts."""

SUPERVISED = frozenset(("--sink", "--kafka", "--source-replays"))
"""What `run -- COMMAND` takes of the evidence."""


@dataclass(frozen=True, slots=True)
class Asked:
    """About which query a verb was asked, and with what."""

    target: str = ""
    """As a person types it: a location, or a name in the `lastgood.toml` here."""
    evidence: tuple[str, ...] = ()
    """Where else it looked than into the checkpoint, as words of a command line; without passwords."""
    start: tuple[str, ...] = ()
    """What is known of the Spark that will start, in the same way."""
    accepted: tuple[str, ...] = ()
    """What it may cost: `duplicates`, `loss`."""
    wanted: tuple[str, ...] = ()
    """The goal and where to start, as words of a command line; empty: to run again."""
    policy: str | None = None
    """Another configuration than `lastgood.toml` here."""
    downtime: tuple[str, ...] = ()
    """How long the query may be down, as words of a command line; empty: nobody said, or its configuration does."""

    def about(self, location: str) -> Asked:
        """The same; about this location where no target is known."""
        if self.target:
            return self
        return replace(self, target=location)

    def command(self, verb: str, *options: object) -> str:
        """A command about this query that can be pasted into a shell.

        Args:
            verb: May be two words.
            options: Words behind the target; for a verb of a recovery first its id.

        Example:
            >>> Asked("chk", ("--sink", "/lake/my orders")).command("plan", "--goal", "replan")
            "lastgood plan chk --goal replan --sink '/lake/my orders'"
            >>> Asked("chk").command("undo", "20261121-160058-7f3a")
            'lastgood undo 20261121-160058-7f3a --checkpoint chk'
        """
        target = make_typeable(self.target)
        query: tuple[object, ...] = (target, *options)
        if verb in BY_ID:
            query = (*options, "--checkpoint", target)
        said = _leave_out_said_anew(split_options(self._said(verb, options)), options)
        return format_command_line(*verb.split(), *query, *said)

    def make_undo_command(self, recovery: str, start_file: str | None, *options: object) -> str:
        """The command that takes a recovery back.

        Args:
            recovery: Its id.
            start_file: The file outside of the checkpoint that it wrote, which nobody may touch who does not name it.
            options: Further words.

        Example:
            >>> Asked("chk").make_undo_command("20261121-160058-7f3a", "app/start.json")
            'lastgood undo 20261121-160058-7f3a --start-file app/start.json --checkpoint chk'
        """
        named = () if start_file is None else ("--start-file", start_file)
        return self.command("undo", recovery, *named, *options)

    def make_apply_command(self, plan: object, *options: object) -> str:
        """The command that finishes a recovery that was begun.

        Args:
            plan: The file that is kept with it.
            options: Further words.

        Example:
            >>> told = ("--sink", "t", "--topic", "a")
            >>> Asked("chk", told).make_apply_command("chk.lastgood/recoveries/7f3a/plan.json")
            'lastgood apply chk.lastgood/recoveries/7f3a/plan.json --sink t'
        """
        return format_command_line("apply", plan, *options, *self._said("apply", options))

    def make_run_command(self, checkpoint: str) -> str:
        """The command that starts the application of this query, and keeps others away from its checkpoint.

        Args:
            checkpoint: Its location; said where the query has no name in the `lastgood.toml` here.

        Example:
            >>> Asked(evidence=("--sink", "t", "--topic", "a")).make_run_command("chk")
            'lastgood run --checkpoint chk --sink t -- COMMAND'
            >>> Asked("orders.clicks").make_run_command("chk")
            'lastgood run orders'
        """
        if self.target:
            return format_command_line("run", self.target.partition(".")[0])
        options = split_options(self.evidence)
        has_one_sink = sum(name == "--sink" for name, *_ in options) == 1  # `run` takes one
        words: list[object] = []
        for option in options:
            if option[0] == "--sink" and not has_one_sink:
                continue
            if option[0] in SUPERVISED:
                words += option
        return format_command_line("run", "--checkpoint", checkpoint, *words, "--", "COMMAND")

    def make_rebuild_command(self, *options: object) -> str:
        """The command that makes the state of this query anew by its own batches.

        Args:
            options: Further words.

        Example:
            >>> Asked("/lake/chk", ("--sink", "t")).make_rebuild_command()
            'lastgood rebuild /lake/chk --sink t -- COMMAND'
            >>> Asked("orders").make_rebuild_command()
            'lastgood rebuild orders'
        """
        command = self.command("rebuild", *options)
        return f"{command} -- COMMAND" if "/" in self.target else command

    def make_plan_command(self, *options: object) -> str:
        """The command that plans the same, with more said."""
        return self.command("plan", *self.wanted, *options)

    def make_checkpoint_command(self) -> str:
        """The command that plans a start at the same place by a new checkpoint, not by the application's configuration.

        Example:
            >>> fresh = ("--goal", "fresh", "--via", "app-config", "--start-file", "f", "--stable-lag", "3")
            >>> Asked("chk", wanted=fresh).make_checkpoint_command()
            'lastgood plan chk --goal fresh --stable-lag 3'
        """
        kept: list[str] = []
        for option in split_options(self.wanted):
            if option[0] not in VIA_APPLICATION:
                kept += option
        return self.command("plan", *(kept or ("--goal", "fresh")))

    def _said(self, verb: str, options: tuple[object, ...]) -> Iterator[str]:
        if verb in PREDICTING:
            yield from self.start
        if verb in LOOKING:
            yield from self.evidence
        if verb in FORESEEING:
            yield from self.downtime
        if verb in NAMED:
            yield from self._evidence_of(NAMED[verb] - {*options} | {"--sink"})
        if verb == "verify" and "--data" in options:
            yield from self._evidence_of(COMPARED)
        if verb in PAYING and self.accepted and "--accept" not in options:
            yield from ("--accept", ",".join(self.accepted))
        if verb in ALLOWED and self.policy is not None:
            yield from ("--policy", self.policy)

    def _evidence_of(self, names: frozenset[str]) -> Iterator[str]:
        for option in split_options(self.evidence):
            if option[0] in names:
                yield from option


_REPEATABLE = frozenset({"--sink", "--topic"})


def _leave_out_said_anew(said: Iterable[tuple[str, ...]], options: tuple[object, ...]) -> Iterator[str]:
    """What was said, but for options that say one thing and are said anew."""
    for option in said:
        if option[0] in _REPEATABLE or option[0] not in options:
            yield from option


def make_typeable(place: str) -> str:
    """A location as it can stand in a command line: a relative one is taken for no option, and for no secret.

    Example:
        >>> make_typeable("-old/chk"), make_typeable("token=5/chk"), make_typeable("/lake/token=5")
        ('./-old/chk', './token=5/chk', '/lake/token=5')
    """
    first = place.partition("/")[0]
    if place.startswith("-") or ("=" in first and ":" not in first):
        return f"./{place}"
    return place


def split_options(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Words of a command line, by option: each with its value, or alone.

    Example:
        >>> split_options(["--sink", "a", "--source-replays", "--topic", "b"])
        [('--sink', 'a'), ('--source-replays',), ('--topic', 'b')]
    """
    found: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--") or not found:
            found.append((word,))
        else:
            found[-1] = (*found[-1], word)
    return found


_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}


def format_downtime(max_downtime_ms: int | None) -> tuple[str, ...]:
    """How long a query may be down, as words of a command line; none if nobody said.

    Example:
        >>> format_downtime(259_200_000)
        ('--max-downtime', '3d')
    """
    if max_downtime_ms is None:
        return ()
    whole = {unit: size for unit, size in _UNITS_MS.items() if max_downtime_ms % size == 0}
    unit = next(iter(whole))
    return "--max-downtime", f"{max_downtime_ms // whole[unit]}{unit}"
