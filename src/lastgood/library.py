"""The verbs as functions, for programs: the same parts and the same answers as on the command line.

Import them from `lastgood` itself:

    import lastgood

    report = lastgood.diagnose("s3a://lake/chk/orders", kafka="broker:9092", sink="s3a://lake/orders")
    plan = lastgood.plan("s3a://lake/chk/orders", goal=lastgood.Reposition(stable_lag=3), accept=["duplicates"])
    recovery = lastgood.apply(plan, driver_is_dead=True)
    lastgood.undo(recovery.id)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import ClassVar, TypeAlias, TypedDict, Unpack

from lastgood.diagnosis.engine import Report
from lastgood.errors import LastgoodError, UsageError
from lastgood.frozen import dataclass
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.observation import DiagnoseOptions
from lastgood.observe.positions import StartChoice
from lastgood.observe.rereading import WindowChoice
from lastgood.operations import diagnose as _diagnose
from lastgood.operations import rebuild as _rebuild
from lastgood.operations import recover as _recover
from lastgood.planning.goals.values import FreshGoal, RecomputeGoal, ReplanGoal, RepositionGoal, ResumeGoal
from lastgood.planning.pinned_confs import make_conf
from lastgood.planning.plan import Plan
from lastgood.planning.price import Waiver
from lastgood.recovery import applying as _apply
from lastgood.recovery import plans as _plan
from lastgood.recovery.applying import Recovery
from lastgood.recovery.decision import Decision
from lastgood.settings.config import Config
from lastgood.settings.target import resolve_target
from lastgood.sinks.evidence import COMPLETE, UPDATE

__all__ = [
    "Decision",
    "Evidence",
    "Fresh",
    "LastgoodError",
    "Plan",
    "Recompute",
    "Recovery",
    "Replan",
    "Report",
    "Reposition",
    "Resume",
    "apply",
    "diagnose",
    "plan",
    "rebuild",
    "recover",
    "undo",
]

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Resume:
    """Run again from the last good batch, in the cheapest way that is exact."""

    name: ClassVar[str] = ResumeGoal.name


@dataclass(frozen=True, slots=True)
class Replan:
    """Drop the plan that is not committed, so that today's limits apply."""

    name: ClassVar[str] = ReplanGoal.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reposition(StartChoice):
    """Start again from chosen offsets, in place; one of its fields says from where."""

    name: ClassVar[str] = RepositionGoal.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fresh(StartChoice):
    """Seed a new checkpoint; one of its fields says from where, else as the mirror has it."""

    name: ClassVar[str] = FreshGoal.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """Make the state anew from the sources, in place: open windows are counted again, written ones stay."""

    name: ClassVar[str] = RecomputeGoal.name

    appends_windows: bool = False
    """You say that it is one windowed aggregation with a watermark, in output mode append, where nothing tells."""
    output_mode: str | None = None
    """`complete` or `update`: you say that it is one aggregation which writes so, where nothing tells."""
    window_ms: int | None = None
    """You say that no window is longer, so that older events need not be read again; None: all are."""
    max_clock_skew_ms: int | None = None
    """With `window_ms`, where no ledger tells: you say that no event is this much later than Kafka has its record."""
    event_time: str | None = None
    """With `window_ms`, where no ledger tells: the time of an event, as SQL over a record of Kafka; all are read once,
    by a Spark job."""
    max_replay: int | None = None
    """More offsets and files than these are not read again: the plan is refused; None: however many."""
    shuffle_partitions: int | None = None
    """Over so many partitions the state is spread from then on, whatever the application sets; None: as before."""
    state_store: str | None = None
    """`rocksdb` or `hdfs`: by which it is kept from then on, whatever the application sets; None: as before."""
    changelog: bool | None = None
    """Whether RocksDB is to write changelogs: no log pins that, and the plan says how the application is started."""
    conf: Mapping[str, str] = field(default_factory=dict)
    """Other confs of Spark that the log pins, and that may change with the state."""


class Evidence(TypedDict, total=False):
    """Where else to look than into the checkpoint; the same for all verbs."""

    sink: str | Iterable[str]
    """Where the query writes; one or several."""
    kafka: str | None
    """`bootstrap.servers` of the source, or a file of facts."""
    kafka_config: str | Path | None
    """A `client.properties`, as Kafka's own tools take it."""
    topics: Iterable[str]
    """Topics beside those that the logs name."""
    subscribe_pattern: str | None
    """As Spark's option `subscribePattern`."""
    txn_app_id: str | None
    """What the application's function gives as `txnAppId`; None: the query id."""
    source_replays: bool
    """Whether sources that cannot be asked (Kinesis, Event Hubs, one of your own) serve their ranges again."""


Goal: TypeAlias = Resume | Replan | Reposition | Fresh | Recompute
"""Each goal of `planning/goals/kinds.py` by a class of its own, so that a type checker knows its options."""


def diagnose(
    target: str,
    *,
    log: str | None = None,
    show_data: bool = False,
    spark: str | None = None,
    fail_on_data_loss: bool | None = None,
    config: Path | None = None,
    **evidence: Unpack[Evidence],
) -> Report:
    """Every finding, worst first, and what Spark would do on restart; nothing is changed.

    Args:
        target: Location, name in `lastgood.toml`, or a bundle.
        log: A file with a driver's log, a traceback or an agent's records.
        show_data: Whether what is quoted of it may hold rows of the data.
        spark: The version to predict for; None: the newest that can read the logs.
        fail_on_data_loss: As the query's Kafka source has it; None: as the log tells, else true.
        config: Another configuration than `lastgood.toml` here.
        **evidence: Where else to look than into the checkpoint; see `Evidence`.

    Raises:
        LastgoodError: there is no checkpoint, an option is not understood, the storage does not answer (subclasses).
    """
    options = DiagnoseOptions(_make_evidence_options(evidence), spark, fail_on_data_loss, log, show_data=show_data)
    return _diagnose.diagnose(_diagnose.resolve_subject(target, Config(config)), options)


def plan(
    target: str,
    *,
    goal: Goal | None = None,
    accept: Iterable[str] = (),
    spark: str | None = None,
    fail_on_data_loss: bool = True,
    prove: bool = False,
    config: Path | None = None,
    **evidence: Unpack[Evidence],
) -> Plan:
    """How a query is to run again, and what that costs; nothing is changed.

    Args:
        target: Location, or name in `lastgood.toml`.
        goal: What is wanted; None: `Resume()`.
        accept: Of `duplicates` and `loss`: what it may cost.
        spark: The version that will start; None: the newest that can read the logs.
        fail_on_data_loss: As the query's Kafka source has it.
        prove: Whether real Spark is to show on a copy of the logs what it does then.
        config: Another configuration than `lastgood.toml` here.
        **evidence: Where else to look than into the checkpoint; see `Evidence`.

    Raises:
        RepairRefusedError: it cannot be done in a way of which anything can be promised; it says why.
        LastgoodError: as `diagnose`.
    """
    waivers = tuple(map(Waiver, accept))
    wanted = _plan.PlanOptions(
        *_choose_goal(goal),
        _make_evidence_options(evidence),
        waivers,
        spark,
        fail_on_data_loss,
        prove,
        windows=_make_window_choice(goal),
        conf=_make_conf(goal),
    )
    return _plan.make_plan(resolve_target(target, Config(config)), wanted)


def rebuild(
    target: str,
    command: Sequence[str] | Callable[[], object] = (),
    *,
    accept: Iterable[str] = (),
    spark: str | None = None,
    fail_on_data_loss: bool = True,
    max_replay: int | None = None,
    new_code: bool = False,
    config: Path | None = None,
    tell: Tell = lambda _: None,
    **evidence: Unpack[Evidence],
) -> Plan:
    """Make state that cannot be loaded anew, by the query's own batches and without its sink; plan how it is brought.

    Args:
        target: Location, or name in `lastgood.toml`.
        command: That starts the application; empty: that of its pipeline in `lastgood.toml`. Or a function that starts
            the query in this process, as `lastgood.spark.rebuild` takes it.
        accept: Of `duplicates` and `loss`: what the plan may cost.
        spark: The version that will start; None: the newest that can read the logs.
        fail_on_data_loss: As the query's Kafka source has it.
        max_replay: How many offsets and files may be read again; None: as the policy of its pipeline says.
        new_code: The code was changed, and keeps other state: it makes that of all batches since the beginning.
        config: Another configuration than `lastgood.toml` here.
        tell: Is told, in a few words, what takes time.
        **evidence: Where else to look than into the checkpoint; see `Evidence`.

    Raises:
        RepairRefusedError: the state can be loaded, or cannot be made anew in a way of which anything can be promised.
        RebuildFailedError, RebuildDivergedError: a batch did not run again, or came to something else.
        LastgoodError: as `diagnose`.
    """
    wanted = _plan.PlanOptions(
        evidence=_make_evidence_options(evidence),
        accept=tuple(map(Waiver, accept)),
        spark=spark,
        fail_on_data_loss=fail_on_data_loss,
    )
    found = resolve_target(target, Config(config))
    return _rebuild.rebuild(found, command, wanted, max_replay=max_replay, new_code=new_code, tell=tell)


def apply(
    plan: Plan | str,
    *,
    driver_is_dead: bool = False,
    tell: Tell = lambda _: None,
    config: Path | None = None,
    start_file: str | None = None,
    **evidence: Unpack[Evidence],
) -> Recovery:
    """Carry out a plan, or a saved one: exactly that, or an error and nothing is changed.

    Args:
        plan: From `plan`, or its file.
        driver_is_dead: Whether you have seen that the application has ended; else `driver_check` has to tell.
        tell: Gets a line for a person at each turn.
        config: Another configuration than `lastgood.toml` here.
        start_file: The file of the application's configuration that what a recovery keeps beside its checkpoint may
            write; None: as `lastgood.toml` tells.
        **evidence: The sinks of such a plan, and where Kafka is, in the same way; a plan of your own tells it.

    Raises:
        WaiverNeededError, PlanStaleError, DriverNotProvenDeadError, LeaseHeldError, …: see `docs/reference/plan.md`.
    """
    return _apply.apply_plan(
        plan,
        driver_is_dead=driver_is_dead,
        tell=tell,
        config=Config(config),
        start_file=start_file,
        evidence=_make_evidence_options(evidence),
    )


def undo(
    recovery: str,
    *,
    checkpoint: str | None = None,
    driver_is_dead: bool = False,
    tell: Tell = lambda _: None,
    config: Path | None = None,
    start_file: str | None = None,
    **evidence: Unpack[Evidence],
) -> Recovery:
    """Put every byte back as it was before a recovery, while nothing has moved since.

    Args:
        recovery: Its id, or `last` for that of `checkpoint`.
        checkpoint: Location, or name in `lastgood.toml`; None: this machine remembers.
        driver_is_dead: As `apply`.
        tell: As `apply`.
        config: As `apply`.
        start_file: As `apply`, to be put back.
        **evidence: As `apply`: the sinks that may be put back.

    Raises:
        UndoRefusedError: the query has gone on since.
        LastgoodError: as `apply`.
    """
    settings = Config(config)
    return _apply.undo(
        recovery,
        target=None if checkpoint is None else resolve_target(checkpoint, settings),
        driver_is_dead=driver_is_dead,
        tell=tell,
        config=settings,
        start_file=start_file,
        evidence=_make_evidence_options(evidence),
    )


def recover(
    target: str,
    *,
    goal: Goal | None = None,
    accept: Iterable[str] = (),
    spark: str | None = None,
    fail_on_data_loss: bool = True,
    observe: bool = False,
    driver_is_dead: bool = False,
    first_start: bool = False,
    go_on: bool = False,
    tell: Tell = lambda _: None,
    config: Path | None = None,
    **evidence: Unpack[Evidence],
) -> Decision:
    """Once, before a start: diagnose, plan, and carry out what the policy allows.

    Args:
        target: Location, or name in `lastgood.toml`.
        goal: What is wanted; None: `Resume()`.
        accept: Of `duplicates` and `loss`: what it may cost beside what the policy accepts.
        spark: As `plan`.
        fail_on_data_loss: As `plan`.
        observe: Change nothing; say what would be done.
        driver_is_dead: As `apply`.
        first_start: The query has never run: leave `Decision.warning` out where nobody can tell.
        go_on: A person has looked: however often the same batch has failed before, it is started again.
        tell: As `apply`.
        config: As `apply`.
        **evidence: As `plan`.

    Raises:
        LastgoodError: as `diagnose`; what a person can mend, or may be otherwise in a while, is a `Decision`.
    """
    wanted = _plan.PlanOptions(
        *_choose_goal(goal),
        _make_evidence_options(evidence),
        tuple(map(Waiver, accept)),
        spark,
        fail_on_data_loss,
        windows=_make_window_choice(goal),
        conf=_make_conf(goal),
    )
    return _recover.recover(
        resolve_target(target, Config(config)),
        wanted,
        observe=observe,
        driver_is_dead=driver_is_dead,
        tell=tell,
        first_start=first_start,
        go_on=go_on,
    )


def _choose_goal(goal: Goal | None) -> tuple[str, StartChoice]:
    wanted = goal or Resume()
    if isinstance(wanted, StartChoice):
        return wanted.name, wanted
    return wanted.name, StartChoice()


def _make_window_choice(goal: Goal | None) -> WindowChoice:
    if isinstance(goal, Recompute):
        if goal.output_mode not in (None, COMPLETE, UPDATE):
            raise UsageError(
                "no such output mode",
                subject="output_mode",
                found=repr(goal.output_mode),
                expected=f"{COMPLETE} or {UPDATE}; for append appends_windows",
            )
        return WindowChoice(
            goal.appends_windows,
            goal.window_ms,
            goal.max_clock_skew_ms,
            goal.max_replay,
            goal.output_mode,
            goal.event_time,
        )
    return WindowChoice()


def _make_conf(goal: Goal | None) -> Mapping[str, str]:
    if not isinstance(goal, Recompute):
        return {}
    return make_conf(goal.shuffle_partitions, goal.state_store, changelog=goal.changelog, others=goal.conf.items())


def _make_evidence_options(evidence: Evidence) -> EvidenceOptions:
    unknown = evidence.keys() - Evidence.__annotations__.keys()
    if unknown:  # a sink that is left out by a wrong name would change every guarantee without a word
        raise TypeError(f"unexpected keyword argument '{min(unknown)}'")
    sink, properties = evidence.get("sink", ()), evidence.get("kafka_config")
    sinks = (sink,) if isinstance(sink, str) else tuple(sink)
    kafka_config = None
    if properties is not None:
        kafka_config = Path(properties)
    return EvidenceOptions(
        sinks=sinks,
        kafka=evidence.get("kafka"),
        topics=tuple(evidence.get("topics", ())),
        subscribe_pattern=evidence.get("subscribe_pattern"),
        kafka_config=kafka_config,
        txn_app_id=evidence.get("txn_app_id"),
        source_replays=evidence.get("source_replays", False),
    )
