"""`apply` and `undo`: exactly that plan, or refusal; and the bytes as they were."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from lastgood.asked import DEAD, Asked
from lastgood.delta_log.actions import TableCommit
from lastgood.delta_log.table import TableLog, read_table_log
from lastgood.errors import LastgoodError, Retry, StorageError, UsageError
from lastgood.frozen import dataclass
from lastgood.journal.holding import HoldReason, locate_lock_file
from lastgood.journal.lease import Holder, Lease, take_lease
from lastgood.journal.room import (
    LAST,
    RecoveryOpenError,
    RecoveryStage,
    RecoveryUnknownError,
    Room,
    find_recovery,
    require_no_open,
)
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import OpenQuery, read_clock_ms
from lastgood.observe.surroundings import TIMEOUT_SECONDS
from lastgood.observe.survey import (
    ask_planned_sinks,
    describe_sinks,
    find_left_out,
    make_promise,
    survey,
    take_sinks_back,
)
from lastgood.planning.goals.kinds import is_begun_anew
from lastgood.planning.plan import Plan, PlannedSink
from lastgood.planning.steps import sum_sink_edits
from lastgood.recovery.driver_death import (
    DriverNotProvenDeadError,
    explain_driver_shut_out,
    list_words_needed,
    prove_driver_dead,
)
from lastgood.recovery.engine import Done, Engine, PlanStaleError, Surveyor, require_answers
from lastgood.recovery.hold import hold_checkpoint
from lastgood.recovery.sweeping import sweep_drafts
from lastgood.recovery.topic_notes import note_topics
from lastgood.recovery.warrant import (
    Named,
    Outside,
    PlanNotAllowedError,
    Warrant,
    find_place_of_plan,
    list_outside,
    require_sole_writer,
    warrant_by_hand,
    warrant_out_of_lake,
)
from lastgood.recovery.whereabouts import note_begun, recall_whereabouts
from lastgood.settings.config import Config
from lastgood.settings.keys import Keys
from lastgood.settings.target import Target
from lastgood.steps.shown import show_after
from lastgood.storage.parallel import Deadline
from lastgood.storage.reading import Location, open_storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX
from lastgood.storage.writing import (
    WritableStorage,
    estimate_late_write_seconds,
    open_writable,
    require_exclusive_create,
)
from lastgood.values import JsonValue, make_form

Tell = Callable[[str], None]
Confirm = Callable[[Plan, Sequence[Outside]], bool]
"""Whether a person allows what a plan touches outside of its checkpoint, having seen both."""
_NOTHING_NAMED = EvidenceOptions()


class WaiverNeededError(LastgoodError):
    """A plan costs what nobody has accepted."""

    condition = "WAIVER_NEEDED"
    exit_code = 51
    retry = Retry.AFTER_CHANGE


@dataclass(frozen=True, slots=True)
class Owner:
    """The supervisor of an application: it holds the checkpoints already, and knows what it has started itself."""

    proof: str | None = None
    """Why no driver of it is alive; one line for a person; None if it does not know."""
    driver_check: tuple[str, ...] = ()
    """A command whose exit code 0 means that the driver is dead; empty if there is none."""
    start_file: str | None = None
    """The file by which the application is told where to begin; None if its policy names none."""


@dataclass(frozen=True, slots=True)
class Recovery(JsonValue):
    """A plan that was carried out, or taken back."""

    json = make_form("*plan state=_state backup=_backup driver=proof undo=_undo")
    """The plan, and what became of it."""

    plan: Plan
    backup: str
    """Where every touched file is kept as it was; empty for a plain restart."""
    undone: bool = False
    already: bool = False
    """It was done before, and nothing has moved since."""
    proof: str | None = None
    """Why no driver was alive; None for a plain restart."""
    undo_words: tuple[str, ...] = ()
    """What a person has to say to take it back."""

    @property
    def id(self) -> str:
        """By which it can be taken back."""
        return self.plan.recovery

    @property
    def undo_command(self) -> str:
        """What takes it back."""
        return Asked(self.plan.checkpoint).command("undo", self.plan.recovery, *self.undo_words)

    @property
    def _state(self) -> str:
        state = "undone" if self.undone else "applied"
        if not self.already:
            return state
        return f"already {state}"

    @property
    def _backup(self) -> str | None:
        return self.backup or None

    @property
    def _undo(self) -> str | None:
        if self.plan.steps and not self.undone:
            return self.undo_command
        return None


def apply_plan(  # noqa: PLR0913 - all but the first by name
    planned: str | Plan,
    *,
    target: Target | None = None,
    driver_is_dead: bool = False,
    tell: Tell = lambda _: None,
    config: Config | None = None,
    owner: Owner | None = None,
    start_file: str | None = None,
    evidence: EvidenceOptions = _NOTHING_NAMED,
    confirm: Confirm | None = None,
) -> Recovery:
    """Carry out a saved plan, from where it stands.

    Args:
        planned: What `make_plan` gave; or the file that `plan` wrote, or the copy that a recovery keeps, by its path or
            location.
        target: Of which query, as the caller knows it; None: the plan tells.
        driver_is_dead: Whether a person says so.
        tell: Gets a line for a person at each turn.
        config: What was set on this machine, as this command has read it, where no target is told that brings it; None:
            `lastgood.toml` here.
        owner: Who calls, if it is the supervisor of the application itself.
        start_file: The file outside of the checkpoint that the plan may write. What a recovery keeps lies in the lake,
            and says that as little as any other command; a plan of one's own does.
        evidence: In the same way, its sinks and where Kafka is; beside what the configuration says.
        confirm: Is asked whether a plan from a file may touch what nobody has named here; None: such a plan is trusted
            like a script.

    Raises:
        PlanInvalidError: it is no plan, or was changed (subclasses: or it is not of the place where it lies).
        SignatureMissingError, SignatureWrongError: a key is configured, and the file, or what a recovery has noted
            down, was not signed by one that is known here.
        PlanNotAllowedError: `confirm` does not allow it.
        StartFileNotNamedError: what a recovery keeps would write a file that neither this nor the configuration names.
        SinkNotNamedError: so for a sink.
        FileNotNamedError: another machine has begun it, by a file of its own.
        WaiverNeededError: it costs what nobody has accepted.
        PlanStaleError: the world has moved since it was made; nothing has been changed.
        DriverNotProvenDeadError: nobody knows whether the driver is dead.
        LeaseHeldError, CheckpointHeldError: somebody else is at work.
        RecoveryOpenError: another repair was begun here, and neither finished nor taken back.
        StorageError: the storage does not answer, or cannot keep others out (subclasses).
    """
    if target is None:
        config = config or Config()
        keys = Keys(config)
    else:
        config, keys = target.config, target.keys
    named = _make_named(evidence, start_file, owner, config)
    place = None
    if not isinstance(planned, Plan):
        place = find_place_of_plan(planned)
    if place is None:
        warrant = warrant_by_hand(planned, keys())
    else:
        warrant = warrant_out_of_lake(*place, named, keys())
    plan = warrant.plan
    if plan.needs:
        raise WaiverNeededError(
            "the plan costs what nobody has accepted",
            subject=plan.recovery if isinstance(planned, Plan) else planned,
            found=f"it is {plan.guarantee.value}",
            expected=f"--accept {plan.price}",
            effect="nothing has been changed",
            next=plan.make_plan_command(paying=True),
        )
    if place is None and confirm is not None:
        touched = list_outside(warrant, named)
        words = (
            *_list_said(start_file, driver_is_dead=driver_is_dead),
            *(word for each in touched for word in each.words),
        )
        allowing = Asked(evidence=evidence.words()).make_apply_command(planned, *words)
        _require_allowed(str(planned), plan, touched, confirm, allowing)
    location = parse_location(plan.checkpoint)
    query = Target(plan.checkpoint, config=config, keys=keys)
    found = _survey_again(warrant, query)
    require_sole_writer(warrant, found.seen.sinks)
    if not plan.steps:
        _require_same(plan, found)
        _note_topics(plan, tell)
        return Recovery(plan, backup="")
    with _Work(warrant, query, location, driver_is_dead, tell, owner).begun(found) as (engine, proof):
        done = engine.apply(proof)
    if not done.already:
        _note_topics(plan, tell)
    return replace(_make_recovery(done, location, config), proof=proof)


def undo(  # noqa: PLR0913 - all but the first by name
    recovery: str,
    *,
    target: Target | None = None,
    driver_is_dead: bool = False,
    tell: Tell = lambda _: None,
    config: Config | None = None,
    owner: Owner | None = None,
    start_file: str | None = None,
    evidence: EvidenceOptions = _NOTHING_NAMED,
) -> Recovery:
    """Put every byte back as it was before a recovery, while nothing has moved since.

    Args:
        recovery: Its id, or `last`.
        target: Of which query; None: this machine remembers where the recovery was.
        driver_is_dead: Whether a person says so.
        tell: Gets a line for a person at each turn.
        config: As for `apply_plan`, where no target is told that brings it.
        owner: Who calls, if it is the supervisor of the application itself.
        start_file: The file outside of the checkpoint that may be put back; as for `apply_plan`.
        evidence: The sinks that may be put back; as for `apply_plan`.

    Raises:
        RecoveryUnknownError: there is no such recovery.
        PlanInvalidError, StartFileNotNamedError, SinkNotNamedError: as `apply_plan`.
        SignatureMissingError, SignatureWrongError: as `apply_plan`.
        UndoRefusedError: the query has gone on since; nothing has been changed.
        DriverNotProvenDeadError, LeaseHeldError, CheckpointHeldError, StorageError: as `apply_plan`.
    """
    if target is None:
        location = _find_where(recovery, evidence, _list_said(start_file, driver_is_dead=driver_is_dead))
        target = Target(str(location), config=config or Config())
    else:
        location = target.location
    found = find_recovery(open_writable(location), location, recovery)
    named = _make_named(evidence, start_file, owner, target.config)
    warrant = warrant_out_of_lake(location, found, named, target.keys(), is_taken_back=True)
    query = Target(warrant.plan.checkpoint, config=target.config, keys=target.keys)
    with _Work(warrant, query, location, driver_is_dead, tell, owner).begun() as (engine, proof):
        done = engine.undo(proof)
    if not done.already:
        _note_topics(warrant.plan, tell, undone=True)
    return _make_recovery(done, location, target.config, undone=True)


@dataclass(frozen=True, slots=True)
class _Work:
    """What two callers have in common: one plan, its place, and how to go about it."""

    warrant: Warrant
    target: Target
    """By its location alone: a plan says itself what else it is about."""
    location: Location
    driver_is_dead: bool
    tell: Tell
    owner: Owner | None

    @property
    def plan(self) -> Plan:
        """What is done."""
        return self.warrant.plan

    @contextlib.contextmanager
    def begun(self, found: OpenQuery | None = None) -> Iterator[tuple[Engine, str]]:
        """The engine and the proof of death, as long as nobody else may touch the checkpoint."""
        storage = open_writable(self.location)
        room = Room(self.location, self.plan.recovery, storage, self.target.keys())
        work = self.location.sibling(WORK_SUFFIX)
        with contextlib.ExitStack() as held:
            if self.owner is None:
                work_of_ours = HoldReason.UNDO if found is None else HoldReason.APPLY
                held.enter_context(hold_checkpoint(str(self.location), locate_lock_file(self.location), work_of_ours))
            require_exclusive_create(storage, work)
            lease = held.enter_context(_take_lease(storage, work, self.plan.recovery, self.tell))
            asked = Asked(evidence=self.warrant.evidence.words())
            require_no_open(storage, self.location, asked, self.target.config, but=self.plan.recovery)
            is_forth = found is not None
            proof = self._proof(room, is_forth=is_forth)
            if found is not None and room.stage() in (None, RecoveryStage.BEGUN):
                _require_same(self.plan, found, room)
            note_begun(self.warrant.kept, self.warrant.evidence.words(), is_own=self.warrant.is_own)
            surveyor = Surveyor(sinks=self._sinks, promise=lambda shown: make_promise(self._survey(), shown))
            engine = Engine(
                room,
                self.plan,
                lease,
                surveyor,
                self.tell,
                read_clock_ms,
                settle=self._settle,
                config=self.target.config,
            )
            engine.require_means()
            try:
                yield engine, proof
            except (KeyboardInterrupt, StorageError):
                self._tell_what_is_left(storage, asked)
                raise
            sweep_drafts(storage, self.location, now_ms=read_clock_ms())

    def _tell_what_is_left(self, storage: WritableStorage, asked: Asked) -> None:
        """Of a repair that was broken off, by a person or a full disk: how it is ended, if it was begun."""
        try:
            require_no_open(storage, self.location, asked, self.target.config)
        except RecoveryOpenError as left:
            self.tell(f"broken off: recovery {self.plan.recovery} is half done, and the checkpoint may be sealed")
            self.tell(f"go on with: {left.next}")
            for other in left.alternatives:
                self.tell(f"{other.because} with: {other.command}")
        except LastgoodError as error:
            self.tell(f"broken off, and what is left of it cannot be told: {error}")

    def _survey(self) -> OpenQuery:
        return _survey_again(self.warrant, self.target)

    def _settle(self) -> None:
        seconds = estimate_late_write_seconds(self.location)
        if seconds:
            self.tell(f"waiting {seconds:g} s: a driver that was writing may still put its file over the seal")
            time.sleep(seconds)
        self._require_still_dead()

    def _require_still_dead(self) -> None:
        """Ask `driver_check` again under the seal: a driver may have been started before it stood, and none can now."""
        check = self._driver_check()
        if not check or self.driver_is_dead or self._shut_out() is not None:
            return
        try:
            prove_driver_dead(str(self.location), told=False, check=check)
        except DriverNotProvenDeadError as error:
            raise PlanStaleError(
                "a driver was started before the checkpoint was sealed",
                subject=error.subject,
                found=error.found,
                expected=error.expected,
                effect="nothing has been changed; if the driver planned a batch meanwhile, it has ended",
                next="end what starts the application, or try again once it has ended",
            ) from error

    def _driver_check(self) -> Sequence[str]:
        """The command of the pipeline that has this checkpoint; none if nobody knows it."""
        return find_driver_check(self.owner, self.location, self.target.config)

    def _known(self) -> str | None:
        return None if self.owner is None else self.owner.proof

    def _sinks(self) -> Sequence[PlannedSink]:
        _require_rows(self.plan)
        warrant = self.warrant
        return ask_planned_sinks(self.target, evidence=warrant.evidence)

    def _shut_out(self) -> str | None:
        """Why it does not matter whether a driver is alive: by the plan, if anybody here answers for what it says."""
        if not self.warrant.is_own:
            return None
        return explain_driver_shut_out(self.plan)

    def _proof(self, room: Room, *, is_forth: bool) -> str:
        """Why no driver is alive, here and now.

        What a recovery has noted down of that lies in the lake; and so do its stages, and the seal. It counts only if
        somebody with the key has signed it, and where nothing can be asked now.
        """
        stage = room.stage()
        if stage is RecoveryStage.TAKEN_BACK or (is_forth and stage is RecoveryStage.CLOSED):
            return "nothing is left to do"
        check = self._driver_check()
        # Once all was applied the seal may be gone, and another driver run than the one of which that was proven.
        is_sealed = is_forth or stage is not RecoveryStage.APPLIED
        if is_sealed and not check:
            known = room.signed_proof()
        else:
            known = None
        if known is None and is_forth:
            known = self._shut_out()
        if known is not None:
            return known
        return prove_driver_dead(str(self.location), told=self.driver_is_dead, check=check, known=self._known())


def find_driver_check(owner: Owner | None, location: Location, config: Config) -> Sequence[str]:
    """The command that tells whether the driver is dead; empty if nobody knows one.

    Args:
        owner: Who calls, if it is the supervisor.
        location: The checkpoint.
        config: Of this command.
    """
    if owner is not None:
        return owner.driver_check
    pipeline = config.pipeline_of(str(location))
    return () if pipeline is None else pipeline.driver_check


def _make_named(evidence: EvidenceOptions, start_file: str | None, owner: Owner | None, config: Config) -> Named:
    return Named(evidence, (start_file, None if owner is None else owner.start_file), config)


def _list_said(start_file: str | None, *, driver_is_dead: bool) -> tuple[str, ...]:
    """What a person has said of a plan, beside the evidence."""
    dead = (DEAD,) if driver_is_dead else ()
    if start_file is None:
        return dead
    return (*dead, "--start-file", start_file)


def _require_allowed(file: str, plan: Plan, touched: Sequence[Outside], confirm: Confirm, allowing: str) -> None:
    """See that somebody allows what a plan touches that was not made here.

    Args:
        file: Of the plan.
        plan: What it says.
        touched: What nobody has named here.
        confirm: Whom to ask.
        allowing: The command that was typed, with what allows it.

    Raises:
        PlanNotAllowedError: nobody does.
    """
    if not touched or confirm(plan, touched):
        return
    raise PlanNotAllowedError(
        "the plan was not made on this machine, and touches what nobody has named here",
        subject=file,
        found="; ".join(each.what for each in touched),
        expected="a yes on a terminal, or its place in lastgood.toml, or an option",
        effect="nothing has been changed",
        next=allowing,
    )


def _take_lease(storage: WritableStorage, work: Location, recovery: str, tell: Tell) -> Lease:
    return take_lease(
        storage,
        work,
        recovery,
        holder=Holder.make_own(),
        clock=time.monotonic,
        wait=time.sleep,
        now_ms=read_clock_ms,
        tell=tell,
    )


def _require_same(plan: Plan, found: OpenQuery, room: Room | None = None) -> None:
    """See that Spark would still do what was promised: Kafka may have moved since."""
    require_answers(plan.sinks, describe_sinks(found))
    is_begun = room is not None and room.stage() is RecoveryStage.BEGUN
    then = show_after(found.storage, found.location, plan.steps, plan.seal if is_begun else ())
    after = take_sinks_back(found, sum_sink_edits(plan.steps))
    promise = make_promise(after, then)
    if not promise.agrees(plan.promise) or describe_sinks(found) != plan.sinks:
        raise PlanStaleError(
            "the plan does not fit any more: Spark would do something else, or a sink has moved",
            subject=plan.checkpoint,
            found=f"{promise.outcome}, batch {promise.batch}: {promise.because}",
            expected=f"{plan.promise.outcome}, batch {plan.promise.batch}",
            effect="nothing has been changed",
            next=plan.make_plan_command(),
        )
    starts_at = plan.options.get("starts_at")
    told = None
    if starts_at is not None:
        told = {t: {int(p): at for p, at in each.items()} for t, each in starts_at.items()}
    _require_nothing_more_left_out(plan, find_left_out(after, then, promise, told))


def _require_nothing_more_left_out(plan: Plan, missing: tuple[str, ...] | None) -> None:
    """See that Kafka still has what it had when the plan was made, where Spark would not say that it has not.

    Args:
        plan: What was reckoned with.
        missing: What Spark would leave out now; None if Kafka does not tell.

    Raises:
        PlanStaleError: there is more, or nobody can tell any more.
    """
    reckoned = plan.options.get("left_out", [])
    more = None
    if missing is not None:
        more = [line for line in missing if line not in (reckoned or ())]
    if reckoned is None or more == []:
        return
    raise PlanStaleError(
        "records have expired since the plan was made, and with failOnDataLoss=false Spark would not tell",
        subject=plan.checkpoint,
        found=", ".join(more) if more else "no answer of Kafka",
        expected=", ".join(reckoned) or "all that the first batch is to read",
        effect="nothing has been changed",
        next=plan.make_plan_command(),
    )


def _require_rows(plan: Plan) -> None:
    """See that no rows came since the plan was made to a table by whose rows it goes.

    Raises:
        PlanStaleError: there are new ones, or nobody can tell.
    """
    tables: Mapping[str, int] = plan.options.get("tables", {})
    for text, version in tables.items():
        table = parse_location(text)
        deadline = Deadline.after(TIMEOUT_SECONDS)
        log = read_table_log(open_storage(table), table, deadline=deadline, since=version + 1)
        newer: list[TableCommit] = []
        is_known, found = False, "a log that cannot be read"
        if isinstance(log, TableLog):
            newer = [each for each in log.commits if each.version > version]
            is_known = log.unjudged is None and len(newer) == log.newest_version - version
            found = log.unjudged or f"version {log.newest_version}"
        if not is_known or any(each.changes_data for each in newer):
            raise PlanStaleError(
                "rows came to a table since the plan was made, and the plan goes by its rows",
                subject=text,
                found=found,
                expected=f"version {version}, or newer ones without new rows",
                effect="nothing has been changed",
                next=plan.make_plan_command(),
            )


def _survey_again(warrant: Warrant, target: Target) -> OpenQuery:
    plan = warrant.plan
    return survey(
        target,
        evidence=warrant.evidence,
        spark=plan.promise.spark,
        fail_on_data_loss=bool(plan.options.get("fail_on_data_loss", True)),
        with_mirror=False,
        may_be_missing=is_begun_anew(plan.goal),
    )


def _make_recovery(done: Done, location: Location, config: Config, *, undone: bool = False) -> Recovery:
    folder = Room(location, done.plan.recovery, open_writable(location)).before
    words = list_words_needed(str(location), config)
    return Recovery(done.plan, str(folder), undone=undone, already=done.already, undo_words=words)


def _note_topics(plan: Plan, tell: Tell, *, undone: bool = False) -> None:
    try:
        note_topics(plan, undone=undone)
    except LastgoodError as error:
        tell(f"of which topics the offsets are is not noted down: {error.sentence}")


def _find_where(recovery: str, evidence: EvidenceOptions, said: Sequence[str]) -> Location:
    """Where a recovery works, as this machine remembers it."""
    if recovery == LAST:
        raise UsageError("the last recovery of which checkpoint?", expected="--checkpoint LOCATION")
    location = recall_whereabouts(recovery)
    if location is None:
        raise RecoveryUnknownError(
            f"this machine does not remember a recovery {recovery}",
            expected="--checkpoint LOCATION",
            next=Asked("LOCATION", evidence.words()).command("undo", recovery, *said),
        )
    return location
