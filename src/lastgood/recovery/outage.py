"""How long a query was down, and what the policy wants then: the same for `run` and `recover`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lastgood.checkpoint.layout import COMMITS
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.journal.room import list_recoveries, locate_recoveries
from lastgood.ladder.outage import Signs, format_duration, measure_outage
from lastgood.observe.positions import StartChoice
from lastgood.observe.progress import LogWatch
from lastgood.recovery.decision import Decision, Verdict
from lastgood.settings.policy import AT_SINK, STABLE_LAG, Policy
from lastgood.storage.reading import Location, Storage, open_storage


@dataclass(frozen=True, slots=True)
class Outage:
    """A query was down for longer than `decide_after_outage`."""

    seconds: float
    """Since its newest commit, or since the command was last seen running."""
    policy: Policy

    @property
    def because(self) -> str:
        """One line for a person."""
        bound = format_duration(self.policy.after_outage_seconds or 0)
        return f"the query was down for {format_duration(self.seconds)}, and after_outage is {bound}"

    @property
    def foreseen(self) -> str:
        """One line for a person who may not know whether the query is down."""
        if self.way is None:
            done = "they leave it to a person"
        else:
            done = f"they begin as outage_start says ({self.policy.outage_start})"
        bound = format_duration(self.policy.after_outage_seconds or 0)
        outage = f"no batch for {format_duration(self.seconds)}, and after_outage is {bound}"
        return f"{outage}: if recover or run find it down, {done}"

    @property
    def way(self) -> tuple[str, StartChoice] | None:
        """The goal of what is done, and from where; None: a person says it."""
        ways = {
            STABLE_LAG: ("reposition", StartChoice(stable_lag=self.policy.stable_lag)),
            AT_SINK: ("fresh", StartChoice(at_sink=True)),
        }
        return ways.get(self.policy.outage_start)


def find_outage(
    location: Location,
    policy: Policy,
    *,
    now_ms: int,
    running_ms: int | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Outage | None:
    """The outage that a query comes from; None if it was none that matters, or if nobody knows.

    Args:
        location: Its checkpoint.
        policy: From when on it matters.
        now_ms: The time, milliseconds since 1970.
        running_ms: When the command was last seen running; None: nobody has watched it.
        tell: Gets a line for a person.

    Raises:
        StorageError: the checkpoint cannot be read (subclasses).
    """
    if policy.after_outage_seconds is None:
        return None
    batch = LogWatch(location).look().committed
    if batch is None:  # a first start, or one after a loss, which is judged by what is left
        return None
    storage = open_storage(location)
    commit = storage.stat(location / f"{COMMITS}/{batch}")
    committed_ms = None if commit is None else commit.modified_ms
    if committed_ms is None:
        tell(f"nobody tells when batch {batch} was committed: after_outage is left out of account")
        return None
    signs = Signs(committed_ms=committed_ms, repaired_ms=_find_repaired_ms(storage, location), running_ms=running_ms)
    seconds = measure_outage(policy, signs, now_ms)
    if seconds is None:
        return None
    return Outage(seconds, policy)


def decide_after_outage(outage: Outage, decide: Callable[[str, StartChoice], Decision], go_on: str) -> Decision:
    """What the policy wants after an outage: done, or left to a person.

    Args:
        outage: How long it was, and what is wanted.
        decide: What a goal comes to, from a place on; carried out if that is allowed.
        go_on: The command by which a person starts the query as it stands.
    """
    if outage.way is None:
        return Decision(Verdict.PERSON, outage.because, next=go_on)
    try:
        decision = decide(*outage.way)
    except LastgoodError as error:
        if error.retry is Retry.LATER:
            return Decision(Verdict.LATER, error.sentence, error=error)
        decision = Decision(Verdict.PERSON, error.sentence, error=error)
    if decision.verdict is not Verdict.PERSON:
        return decision
    because = f"{outage.because}: {decision.because}"
    command = decision.next
    if not command and not decision.file:
        command = go_on
    return replace(decision, because=because, next=command)


def _find_repaired_ms(storage: Storage, location: Location) -> int | None:
    """When something was last noted down of the newest recovery: by the same clock as a commit."""
    newest = max(list_recoveries(storage, location), default=None)
    if newest is None:
        return None
    stages = storage.scan(locate_recoveries(location) / newest) or ()
    return max((each.modified_ms for each in stages if each.modified_ms is not None), default=None)
