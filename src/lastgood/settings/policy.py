"""When a command that failed is started again: pure, no clock."""

from __future__ import annotations

from lastgood.frozen import dataclass
from lastgood.sources.kafka.start_files import StartFile

ACCEPTABLE = ("duplicates", "loss")
STABLE_LAG, AT_SINK, PERSON = "stable_lag", "at_sink", "person"
OUTAGE_STARTS = (STABLE_LAG, AT_SINK, PERSON)
RECOMPUTE, START = "recompute", "start"
CODE_CHANGES = (RECOMPUTE, PERSON, START)
REBUILD = "rebuild"
STATE_LOSSES = (PERSON, REBUILD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the supervisor may do by itself."""

    max_attempts: int = 5
    """Restarts in a row that commit no new batch; where a service was away, they are not counted."""
    same_batch: int = 3
    """Failures in a row at the same batch after which a plain restart is no longer all that is tried."""
    restart_within_seconds: float = 600.0
    """How long after the first failure without progress the same holds, however few they are."""
    stable_lag: int = 3
    """CURRENT - N: the batch to start after where nothing better is left, and no sink can tell."""
    after_outage_seconds: float | None = None
    """How long after its newest commit a query may be started as it stands; None: however long."""
    outage_start: str = PERSON
    """Of `OUTAGE_STARTS`: where it starts after a longer time, or that a person says it."""
    on_code_change: str = PERSON
    """Of `CODE_CHANGES`: what is done about code that does not go with the checkpoint; `start`: nobody looks."""
    on_state_loss: str = PERSON
    """Of `STATE_LOSSES`: what is done where the state cannot be loaded, and nothing else is exact."""
    max_replay: int | None = None
    """With `recompute` and `rebuild`: how many offsets and files may be read again at most; None: however many."""
    stall_after_seconds: float | None = None
    """How long a running command may commit nothing while there is something to do; None: for ever."""
    backoff_seconds: float = 1.0
    """Pause before the second restart without progress; it doubles from there. The first has none."""
    backoff_max_seconds: float = 60.0
    grace_seconds: float = 30.0
    """How long the command may take to end after it was told to."""
    accept: tuple[str, ...] = ()
    """Of `ACCEPTABLE`: what a repair may cost without a person being asked."""
    via: StartFile | None = None
    """The file of the application's configuration that says where it begins once its checkpoint is left behind; None:
    the checkpoint says it."""
    takes_any_number: bool = False
    """With `via`: whether no sink goes by the numbers of batches, also of those that nobody can ask."""
    show_data: bool = False
    """Whether the line that is kept of a failure may hold rows of the data."""


@dataclass(frozen=True, slots=True)
class Count:
    """What has been tried since the last new committed batch."""

    attempts: int = 0
    """Restarts that count."""
    restarts: int = 0
    """All of them."""


@dataclass(frozen=True, slots=True)
class StartAgain:
    """Start again."""

    count: Count
    """With this one."""
    delay_seconds: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Leave it to a person."""

    attempts: int


def decide_after_failure(policy: Policy, count: Count, *, passes_by_itself: bool = False) -> StartAgain | GiveUp:
    """Decide what follows a failure.

    Args:
        policy: What is allowed.
        count: What has been tried so far without a new committed batch.
        passes_by_itself: Whether what failed is not the command's own fault; such a restart is not counted.
    """
    if count.attempts >= policy.max_attempts and not passes_by_itself:
        return GiveUp(count.attempts)
    new = Count(count.attempts + (not passes_by_itself), count.restarts + 1)
    return StartAgain(new, compute_backoff(policy, count.restarts))


def compute_backoff(policy: Policy, tried: int) -> float:
    """Seconds to wait before the next try, after so many; the first comes at once."""
    if tried == 0:
        return 0.0
    return min(policy.backoff_seconds * 2.0 ** min(tried - 1, 60), policy.backoff_max_seconds)
